"""`python -m mutation`: draws a sample of mutants, runs their tests, and prints the survivors and a table."""

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

from mutation import equivalents, line_coverage
from mutation.line_coverage import LineCoverage
from mutation.mutants import Mutant, mutants_of
from mutation.trial import SourceCopy, Trial, TrialResult

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "haulout"
_CONTROLLERS = ("machines", "nodemaintenance", "notices", "profiles")
FOLDERS = ("budget", "drain", *(f"controllers/{name}" for name in _CONTROLLERS))
_WANTED_PERCENT = 85

SelectedMutant = tuple[str, Mutant]


def main(args: Sequence[str] | None = None) -> int:
    """Run the mutation tests; return 1 if a folder is below its target, or an equivalent mutant is not in the code."""
    options = _arguments(args)
    folders = options.folders.split(",")
    known_equivalents = equivalents.read()
    stale = equivalents.stale_entries(known_equivalents, {module: _names(module) for module in known_equivalents})
    for trial in stale:
        print(f"not in the code any more: {trial}")  # noqa: T201 - a command
    with tempfile.TemporaryDirectory(prefix="haulout-mutants-") as temporary:
        reached = _measure_coverage(
            Path(options.reach or temporary), folders, measure_again=not options.reach, workers=options.workers
        )
        trials: list[Trial] = []
        for folder in folders:
            selected = _select_mutants(folder, options)
            equivalent = [
                (module, trial) for module, trial in selected if trial.name in known_equivalents.get(module, {})
            ]
            trials += [
                Trial(module, trial, TrialResult.EQUIVALENT, known_equivalents[module][trial.name])
                for module, trial in equivalent
            ]
            trials += _run_trials(
                [trial for trial in selected if trial not in equivalent], reached, Path(temporary), options
            )
    _print_table(folders, trials)
    if options.survivors:
        options.survivors.write_text(
            "".join(f"{_key(trial.module, trial.mutant)}\n" for trial in trials if trial.is_alive)
        )
    return int(bool(stale) or any(_percent(_trials_of(folder, trials)) < _WANTED_PERCENT for folder in folders))


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


def _measure_coverage(folder: Path, folders: Sequence[str], *, measure_again: bool, workers: int) -> LineCoverage:
    """Run the tests once, to see which lines each of them runs."""
    if measure_again or not any(folder.glob("*.json")):
        print("running the tests once, to see what each of them reaches", flush=True)  # noqa: T201 - a command
        folder.mkdir(parents=True, exist_ok=True)
        tests = [f"tests/unit/{folder}" for folder in folders] + ["tests/behaviour"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "mutation.line_coverage", "--reach-into", str(folder)]
        subprocess.run([*command, "-n", str(workers), *tests], cwd=REPOSITORY, check=True)
    return line_coverage.read(folder, package=PACKAGE, folders=folders)


def _names(module: str) -> set[str]:
    file = PACKAGE / module
    return {mutant.name for mutant in mutants_of(file.read_text())} if file.exists() else set()


def _select_mutants(folder: str, options: argparse.Namespace) -> list[SelectedMutant]:
    """Return a sample of a folder, or those of its mutants that survived before."""
    if options.again is None:
        return _sample(folder, options.per_folder, options.seed)
    survivors = set(options.again.read_text().splitlines())
    return [selected for selected in _sample(folder, None, options.seed) if _key(*selected) in survivors]


def _sample(folder: str, number: int | None, seed: str) -> list[SelectedMutant]:
    """Draw mutants of a folder: each by its own lot, so that an edit of the code changes little of the sample."""
    files = sorted((PACKAGE / folder).rglob("*.py"))
    found = [(str(file.relative_to(PACKAGE)), mutant) for file in files for mutant in mutants_of(file.read_text())]
    return sorted(found, key=lambda file: Random(f"{seed} {_key(*file)}").random())[:number]


def _key(module: str, mutant: Mutant) -> str:
    return f"{module} {mutant.name}"


def _run_trials(
    sample: Sequence[SelectedMutant], reached: LineCoverage, temporary: Path, options: argparse.Namespace
) -> list[Trial]:
    copies: queue.SimpleQueue[SourceCopy] = queue.SimpleQueue()
    first = dict.fromkeys(filter(None, options.first.split(",")), 0.0)
    with tempfile.TemporaryDirectory(dir=temporary) as folder, ThreadPoolExecutor(options.workers) as pool:
        for number in range(options.workers):
            copies.put(SourceCopy(REPOSITORY, Path(folder) / str(number)))

        def run_trial(selected: SelectedMutant) -> Trial:
            module, mutant = selected
            tests = {test: reached.seconds[test] for test in reached.tests_of(module, mutant.line)}
            copy = copies.get()
            try:
                found = copy.run(module, mutant, first | tests, max_seconds=options.seconds)
            finally:
                copies.put(copy)
            _print_trial(found)
            return found

        return list(pool.map(run_trial, sample))


def _print_trial(trial: Trial) -> None:
    location = f"{trial.module}:{trial.mutant.line}"
    print(f"{trial.result:12} {location}  {_shorten(trial.mutant.name)}  {trial.detail[:100]}", flush=True)  # noqa: T201


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 110 else f"{line[:109]}…"


def _trials_of(folder: str, trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.module.startswith(f"{folder}/")]


def _percent(trials: Sequence[Trial]) -> float:
    scored = [trial for trial in trials if trial.result not in (TrialResult.BROKEN, TrialResult.EQUIVALENT)]
    return 100 * sum(trial.is_killed for trial in scored) / max(len(scored), 1)


def _print_table(folders: Iterable[str], trials: Sequence[Trial]) -> None:
    for trial in trials:
        if trial.is_alive or trial.result is TrialResult.EQUIVALENT:
            print(f"{trial.result}: {_key(trial.module, trial.mutant)}\n    {trial.detail}")  # noqa: T201
    print("\n| Folder | Mutants | Killed | Survived | Not reached | Equivalent | Score |")  # noqa: T201
    print("| --- | --- | --- | --- | --- | --- | --- |")  # noqa: T201
    for folder in folders:
        folder_trials = _trials_of(folder, trials)
        counts = Counter(trial.result for trial in folder_trials)
        killed = counts[TrialResult.KILLED] + counts[TrialResult.TIMED_OUT]
        others = (counts[trial] for trial in (TrialResult.SURVIVED, TrialResult.NOT_REACHED, TrialResult.EQUIVALENT))
        row = (len(folder_trials), killed, *others, f"{_percent(folder_trials):.0f} %")
        print(f"| {folder} | {' | '.join(map(str, row))} |")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
