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

from mutation import reach
from mutation.changes import Mutant, mutants_of
from mutation.reach import Reach
from mutation.trial import Copy, Result, Trial

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "haulout"
FOLDERS = ("budget", "drain", "machines", "maintenance", "notices", "profiles")
_WANTED_PERCENT = 85

Drawn = tuple[str, Mutant]


def main(args: Sequence[str] | None = None) -> int:
    """Do it; return 1 if a folder falls short."""
    wanted = _arguments(args)
    folders = wanted.folders.split(",")
    with tempfile.TemporaryDirectory(prefix="haulout-mutants-") as temporary:
        reached = _reach(Path(wanted.reach or temporary), folders, anew=not wanted.reach, workers=wanted.workers)
        trials: list[Trial] = []
        for folder in folders:
            sample = _sample(folder, wanted.per_folder, wanted.seed)
            trials += _tried(sample, reached, Path(temporary), wanted.workers)
    _print(folders, trials)
    return int(any(_percent(_of(folder, trials)) < _WANTED_PERCENT for folder in folders))


def _arguments(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__)
    parser.add_argument("--folders", default=",".join(FOLDERS), help="folders of src/haulout, with commas between")
    parser.add_argument("--per-folder", type=int, default=60, help="how many mutants of each")
    parser.add_argument("--seed", default="1", help="another seed draws another sample")
    parser.add_argument("--workers", type=int, default=2, help="how many mutants are tried at once")
    parser.add_argument("--reach", help="a folder with what tests reach, from an earlier run; made if it is empty")
    return parser.parse_args(args)


def _reach(folder: Path, folders: Iterable[str], *, anew: bool, workers: int) -> Reach:
    """Run the tests once, to see which lines each of them runs."""
    if anew or not any(folder.glob("*.json")):
        print("running the tests once, to see what each of them reaches", flush=True)  # noqa: T201 - a command
        folder.mkdir(parents=True, exist_ok=True)
        tests = [f"tests/unit/{it}" for it in folders] + ["tests/behaviour"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "mutation.reach", "--reach-into", str(folder)]
        subprocess.run([*command, "-n", str(workers), *tests], cwd=REPOSITORY, check=True)
    return reach.read(folder, package=PACKAGE)


def _sample(folder: str, number: int, seed: str) -> list[Drawn]:
    files = sorted((PACKAGE / folder).rglob("*.py"))
    found = [(str(it.relative_to(PACKAGE)), mutant) for it in files for mutant in mutants_of(it.read_text())]
    return Random(f"{folder} {seed}").sample(found, min(number, len(found)))


def _tried(sample: Sequence[Drawn], reached: Reach, temporary: Path, workers: int) -> list[Trial]:
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory(dir=temporary) as folder, ThreadPoolExecutor(workers) as pool:
        for number in range(workers):
            copies.put(Copy(REPOSITORY, Path(folder) / str(number)))

        def tried(drawn: Drawn) -> Trial:
            module, mutant = drawn
            tests = reached.of(module, mutant.line)
            copy = copies.get()
            try:
                found = copy.tried(module, mutant, tests, sum(reached.seconds[it] for it in tests))
            finally:
                copies.put(copy)
            _say(found)
            return found

        return list(pool.map(tried, sample))


def _say(trial: Trial) -> None:
    change = f"{_short(trial.mutant.before)}  ->  {_short(trial.mutant.after)}"
    print(f"{trial.result:12} {trial.module}:{trial.mutant.line}  {change}  {trial.detail[:100]}", flush=True)  # noqa: T201


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else f"{line[:69]}…"


def _of(folder: str, trials: Iterable[Trial]) -> list[Trial]:
    return [it for it in trials if it.module.startswith(f"{folder}/")]


def _percent(trials: Sequence[Trial]) -> float:
    counted = [it for it in trials if it.result is not Result.BROKEN]
    return 100 * sum(it.is_killed for it in counted) / max(len(counted), 1)


def _print(folders: Iterable[str], trials: Sequence[Trial]) -> None:
    print("\n| folder | mutants | killed | survived | not reached | |\n| --- | --- | --- | --- | --- | --- |")  # noqa: T201
    for folder in folders:
        mine = _of(folder, trials)
        counts = Counter(it.result for it in mine)
        killed = counts[Result.KILLED] + counts[Result.TIMED_OUT]
        row = (len(mine), killed, counts[Result.SURVIVED], counts[Result.NOT_REACHED], f"{_percent(mine):.0f} %")
        print(f"| {folder} | {' | '.join(map(str, row))} |")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
