"""A pytest plugin that records which tests run which lines of the product, and how long each test takes.

    pytest -p mutation.line_coverage --reach-into FOLDER …

Tests of controllers run their work in tasks of the event loop, so a tracer cannot determine the test from the call
stack. The plugin tells the tracer which test runs.
"""

import json
import os
import warnings
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest


class CoveragePlugin:
    """Notes down what each test reaches; each worker of xdist writes a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._coverage = coverage.Coverage(
            data_file=str(folder / f"{self._worker}.coverage"), source=["haulout"], config_file=False
        )
        self._seconds: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        """Begin before the product is imported."""
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Name the test that runs."""
        self._coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long it took."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        """Write it down."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # modules that were imported before: what they then run is noted
            self._coverage.stop()
            self._coverage.save()
        (self._folder / f"{self._worker}.json").write_text(json.dumps(self._seconds))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--reach-into", help="the folder for what tests reach")


def pytest_configure(config: pytest.Config) -> None:
    """Start recording, if it is requested."""
    folder = config.getoption("--reach-into")
    if folder and (os.environ.get("PYTEST_XDIST_WORKER") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(CoveragePlugin(Path(folder)))


@dataclass(frozen=True, slots=True)
class LineCoverage:
    """Which tests run which line, the quickest first."""

    tests: Mapping[str, Mapping[int, tuple[str, ...]]]  # by module, such as `budget/budget_check.py`, and line
    seconds: Mapping[str, float]

    def tests_of(self, module: str, line: int) -> tuple[str, ...]:
        """Return the tests that run a line: first those in the file that is named after the module."""
        own_file = f"/test_{Path(module).name}::"
        return tuple(sorted(self.tests.get(module, {}).get(line, ()), key=lambda test: own_file not in test))


def read(folder: Path, *, package: Path, folders: Iterable[str]) -> LineCoverage:
    """Return what all workers wrote down about modules in these folders of the package."""
    wanted = [package / name_ for name_ in folders]
    seconds: dict[str, float] = {}
    for file in folder.glob("*.json"):
        for test, took in json.loads(file.read_text()).items():
            seconds[test] = max(took, seconds.get(test, 0.0))
    found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in folder.glob("*.coverage"):
        data = coverage.CoverageData(str(file))
        data.read()
        for measured in data.measured_files():
            if not any(Path(measured).is_relative_to(name_) for name_ in wanted):
                continue
            name = str(Path(measured).relative_to(package))
            for line, contexts in data.contexts_by_lineno(measured).items():
                found[name][line] |= {name_ for name_ in contexts if name_ in seconds}
    return LineCoverage(
        {
            name: {line: tuple(sorted(tests, key=lambda name_: seconds[name_])) for line, tests in lines.items()}
            for name, lines in found.items()
        },
        seconds,
    )
