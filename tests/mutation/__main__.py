"""`python -m mutation`: draws a sample of mutants, runs their tests, and prints what survived and a table."""

import argparse
import queue
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from mutation import equivalents, reach
from mutation.changes import Mutant, mutants_of
from mutation.reach import Reach
from mutation.trial import Copy, Result, Trial

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "haulout"
FOLDERS = ("budget", "drain", "machines", "maintenance", "notices", "profiles")
_WANTED_PERCENT = 85

Drawn = tuple[str, Mutant]


def main(args: Sequence[str] | None = None) -> int:
    """Do it; return 1 if a folder falls short, or a mutant that is named as equivalent is no longer in the code."""
    wanted = _arguments(args)
    folders = wanted.folders.split(",")
    equal = equivalents.read()
    stale = equivalents.stale(equal, {module: _names(module) for module in equal})
    for it in stale:
        print(f"not in the code any more: {it}")  # noqa: T201 - a command
    with tempfile.TemporaryDirectory(prefix="haulout-mutants-") as temporary:
        reached = _reach(Path(wanted.reach or temporary), folders, anew=not wanted.reach, workers=wanted.workers)
        trials: list[Trial] = []
        for folder in folders:
            drawn = _drawn(folder, wanted)
            alike = [(module, it) for module, it in drawn if it.name in equal.get(module, {})]
            trials += [Trial(module, it, Result.EQUIVALENT, equal[module][it.name]) for module, it in alike]
            trials += _tried([it for it in drawn if it not in alike], reached, Path(temporary), wanted)
    _print(folders, trials)
    if wanted.survivors:
        wanted.survivors.write_text("".join(f"{_key(it.module, it.mutant)}\n" for it in trials if it.is_alive))
    return int(bool(stale) or any(_percent(_of(folder, trials)) < _WANTED_PERCENT for folder in folders))


def _arguments(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__)
    parser.add_argument("--folders", default=",".join(FOLDERS), help="folders of src/haulout, with commas between")
    parser.add_argument("--per-folder", type=int, default=60, help="how many mutants of each")
    parser.add_argument("--seed", default="1", help="another seed draws another sample")
    parser.add_argument("--workers", type=int, default=2, help="how many mutants are tried at once")
    parser.add_argument("--seconds", type=float, default=30, help="how long the tests of a mutant may take without it")
    parser.add_argument("--reach", help="a folder with what tests reach, from an earlier run; made if it is empty")
    parser.add_argument("--survivors", type=Path, help="a file to write the names of survivors to, for --again")
    parser.add_argument("--again", type=Path, help="a file with names of survivors: try these, and no sample")
    parser.add_argument("--first", default="", help="with --again: tests that --reach does not know, commas between")
    return parser.parse_args(args)


def _reach(folder: Path, folders: Sequence[str], *, anew: bool, workers: int) -> Reach:
    """Run the tests once, to see which lines each of them runs."""
    if anew or not any(folder.glob("*.json")):
        print("running the tests once, to see what each of them reaches", flush=True)  # noqa: T201 - a command
        folder.mkdir(parents=True, exist_ok=True)
        tests = [f"tests/unit/{it}" for it in folders] + ["tests/behaviour"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "mutation.reach", "--reach-into", str(folder)]
        subprocess.run([*command, "-n", str(workers), *tests], cwd=REPOSITORY, check=True)
    return reach.read(folder, package=PACKAGE, folders=folders)


def _names(module: str) -> set[str]:
    file = PACKAGE / module
    return {it.name for it in mutants_of(file.read_text())} if file.exists() else set()


def _drawn(folder: str, wanted: argparse.Namespace) -> list[Drawn]:
    """Return a sample of a folder, or those of its mutants that survived before."""
    if wanted.again is None:
        return _sample(folder, wanted.per_folder, wanted.seed)
    survivors = set(wanted.again.read_text().splitlines())
    return [it for it in _sample(folder, None, wanted.seed) if _key(*it) in survivors]


def _sample(folder: str, number: int | None, seed: str) -> list[Drawn]:
    """Draw mutants of a folder: each by its own lot, so that an edit of the code changes little of the sample."""
    files = sorted((PACKAGE / folder).rglob("*.py"))
    found = [(str(it.relative_to(PACKAGE)), mutant) for it in files for mutant in mutants_of(it.read_text())]
    return sorted(found, key=lambda it: Random(f"{seed} {_key(*it)}").random())[:number]


def _key(module: str, mutant: Mutant) -> str:
    return f"{module} {mutant.name}"


def _tried(sample: Sequence[Drawn], reached: Reach, temporary: Path, wanted: argparse.Namespace) -> list[Trial]:
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    first = dict.fromkeys(filter(None, wanted.first.split(",")), 0.0)
    with tempfile.TemporaryDirectory(dir=temporary) as folder, ThreadPoolExecutor(wanted.workers) as pool:
        for number in range(wanted.workers):
            copies.put(Copy(REPOSITORY, Path(folder) / str(number)))

        def tried(drawn: Drawn) -> Trial:
            module, mutant = drawn
            tests = {it: reached.seconds[it] for it in reached.of(module, mutant.line)}
            copy = copies.get()
            try:
                found = copy.tried(module, mutant, first | tests, most=wanted.seconds)
            finally:
                copies.put(copy)
            _say(found)
            return found

        return list(pool.map(tried, sample))


def _say(trial: Trial) -> None:
    place = f"{trial.module}:{trial.mutant.line}"
    print(f"{trial.result:12} {place}  {_short(trial.mutant.name)}  {trial.detail[:100]}", flush=True)  # noqa: T201


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 110 else f"{line[:109]}…"


def _of(folder: str, trials: Iterable[Trial]) -> list[Trial]:
    return [it for it in trials if it.module.startswith(f"{folder}/")]


def _percent(trials: Sequence[Trial]) -> float:
    counted = [it for it in trials if it.result not in (Result.BROKEN, Result.EQUIVALENT)]
    return 100 * sum(it.is_killed for it in counted) / max(len(counted), 1)


def _print(folders: Iterable[str], trials: Sequence[Trial]) -> None:
    for it in trials:
        if it.is_alive or it.result is Result.EQUIVALENT:
            print(f"{it.result}: {_key(it.module, it.mutant)}\n    {it.detail}")  # noqa: T201
    print("\n| Folder | Mutants | Killed | Survived | Not reached | Equivalent | Score |")  # noqa: T201
    print("| --- | --- | --- | --- | --- | --- | --- |")  # noqa: T201
    for folder in folders:
        mine = _of(folder, trials)
        counts = Counter(it.result for it in mine)
        killed = counts[Result.KILLED] + counts[Result.TIMED_OUT]
        others = (counts[it] for it in (Result.SURVIVED, Result.NOT_REACHED, Result.EQUIVALENT))
        row = (len(mine), killed, *others, f"{_percent(mine):.0f} %")
        print(f"| {folder} | {' | '.join(map(str, row))} |")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
