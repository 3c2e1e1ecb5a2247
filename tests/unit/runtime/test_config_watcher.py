"""The watcher of a configuration file."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.differences import differences
from haulout.controllers.profiles.config.loader import Loaded
from haulout.core.clock import Clock
from haulout.errors import ConfigErrors
from haulout.runtime.config_watcher import ConfigChange, ConfigWatcher
from support.builders.profile_plugins import REGISTRIES

GOOD = "intervals: {requeue: 30s}\n"
OTHER = """
intervals: {requeue: 1m}
instances: {trigger: [{name: mark, type: alterLabel, config: {key: a}}]}
profiles: [{name: p, operational: {enter: mark}}]
"""
BROKEN = "intervals: {requeue: soon}\n"


class RecordedCallbacks(list[str]):
    """Records the callbacks of the watcher."""

    def change(self, change: ConfigChange[Loaded]) -> None:
        """Note a change."""
        self.append(f"changed: {', '.join(change.differences)}")

    def problem(self, problem: ConfigErrors) -> None:
        """Note a problem."""
        self.append(f"problem: {problem.errors[0].problem}")

    def restored(self) -> None:
        """Record that the problem is resolved."""
        self.append("restored")


@asynccontextmanager
async def following(watched: ConfigWatcher[Loaded]) -> AsyncIterator[RecordedCallbacks]:
    callbacks = RecordedCallbacks()
    task = asyncio.ensure_future(  # noqa: TID251 - ended below, whatever happens
        watched.watch(on_change=callbacks.change, on_problem=callbacks.problem, on_restored=callbacks.restored)
    )
    try:
        yield callbacks
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "maintenance.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def watched(file: Path, clock: Clock) -> ConfigWatcher[Loaded]:
    return ConfigWatcher(file, load=lambda data: loader.load(data, REGISTRIES, {}), clock=clock, compare=differences)


def replace(file: Path, text: str) -> None:
    """Replace a file atomically, like an editor or a ConfigMap volume."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def overwrite(file: Path, text: str, at: int) -> None:
    """Overwrite the file in place."""
    file.write_text(text)
    os.utime(file, ns=(at, at))


def remove(file: Path) -> None:
    file.unlink()


async def seconds(clock: Clock, count: float) -> None:
    await clock.sleep(timedelta(seconds=count))


async def test_edit_takes_effect_within_a_second(watched: ConfigWatcher[Loaded], file: Path, clock: Clock) -> None:
    watched.start()
    async with following(watched) as callbacks:
        replace(file, OTHER)
        await seconds(clock, 1.1)
    assert callbacks == ["changed: requeue is 1m0s instead of 30s, trigger mark is new, profile p is new"]
    assert watched.loaded is not None
    assert list(watched.loaded.configuration.profiles) == ["default", "p"]


async def test_switched_configmap_symlink_is_detected(tmp_path: Path, clock: Clock) -> None:
    for name, text in (("first", GOOD), ("second", OTHER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "maintenance.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("first")
    file = tmp_path / "maintenance.yaml"
    file.symlink_to(Path("..data") / "maintenance.yaml")
    watched = ConfigWatcher(file, load=lambda data: loader.load(data, REGISTRIES, {}), clock=clock, compare=differences)
    watched.start()
    async with following(watched) as callbacks:
        (tmp_path / "..new").symlink_to("second")
        (tmp_path / "..new").replace(tmp_path / "..data")
        await seconds(clock, 1.1)
    assert len(callbacks) == 1


async def test_invalid_edit_keeps_the_last_valid_configuration(
    watched: ConfigWatcher[Loaded], file: Path, clock: Clock
) -> None:
    good = watched.start()
    async with following(watched) as callbacks:
        replace(file, BROKEN)
        await seconds(clock, 30)
        assert watched.loaded is good
        assert watched.problem is not None
        replace(file, OTHER)
        await seconds(clock, 1.1)
    assert [each.partition(":")[0] for each in callbacks] == ["problem", "restored", "changed"]
    assert watched.problem is None


async def test_restored_file_causes_no_change(watched: ConfigWatcher[Loaded], file: Path, clock: Clock) -> None:
    watched.start()
    async with following(watched) as callbacks:
        remove(file)
        await seconds(clock, 1.1)
        replace(file, GOOD)
        await seconds(clock, 1.1)
    assert callbacks == ["problem: cannot read the file: no such file or directory", "restored"]


async def test_file_that_is_being_written_is_not_loaded_until_it_is_stable(
    watched: ConfigWatcher[Loaded], file: Path, clock: Clock
) -> None:
    watched.start()
    async with following(watched) as callbacks:
        for at, length in enumerate(range(10, len(OTHER), 20)):
            overwrite(file, OTHER[:length], at)
            await seconds(clock, 1)
        overwrite(file, OTHER, 1_000)
        assert callbacks == []
        await seconds(clock, 2.1)
    assert len(callbacks) == 1


async def test_touched_file_causes_no_change(watched: ConfigWatcher[Loaded], file: Path, clock: Clock) -> None:
    watched.start()
    async with following(watched) as callbacks:
        os.utime(file, ns=(5, 5))
        await seconds(clock, 5)
        replace(file, f"# a comment\n{GOOD}")
        await seconds(clock, 5)
    assert callbacks == []


async def test_start_without_a_valid_file_is_an_error_and_a_later_valid_file_is_loaded(
    watched: ConfigWatcher[Loaded], file: Path, clock: Clock
) -> None:
    replace(file, BROKEN)
    with pytest.raises(ConfigErrors):
        watched.start()
    async with following(watched) as callbacks:
        replace(file, GOOD)
        await seconds(clock, 1.1)
    assert callbacks == ["restored", "changed: "]
