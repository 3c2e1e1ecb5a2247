"""Settings in `esx.yaml`, as in the SAP maintenance-controller: E02, and invalid files."""

import asyncio
import logging
import re
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.controllers.esx.settings import EsxSettings
from haulout.controllers.esx.settings_file import EsxFile, read
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core.clock import Clock
from haulout.errors import ConfigError, ConfigErrors

FILE = """\
intervals:
  check:
    period: 1m
    jitter: 0.1
  podDeletion:
    period: 20s
    timeout: 5m
  podEviction:
    period: 20s
    timeout: 6m
  vmShutdown:
    period: 15s
    timeout: 3m
alarms:
- Host memory usage
- Host CPU usage
vCenters:
  templateUrl: https://vcenter-$AZ.example.com
  credentials:
    a:
      username: maintenance
      password: ${PASSWORD_A}
    b:
      username: ${USER_B:operator}
"""
ENVIRON = {"PASSWORD_A": "one, two"}


def problems(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigErrors) as refused:
        read(text, file="config/esx.yaml", environ=ENVIRON if environ is None else environ)
    return [str(it) for it in refused.value.errors]


def test_e02_alarms_and_vcenter_access_are_read() -> None:
    settings = read(FILE, file="config/esx.yaml", environ=ENVIRON).configuration
    assert settings.alarms == {"Host memory usage", "Host CPU usage"}
    a, b = (settings.vcenters.access(zone) for zone in "ab")
    assert (a.url, b.url) == ("https://vcenter-a.example.com/sdk", "https://vcenter-b.example.com/sdk")
    assert (a.credentials.username, a.credentials.password) == ("maintenance", "one, two")
    assert (b.credentials.username, b.credentials.password, b.insecure) == ("operator", "", False)
    with pytest.raises(ConfigError, match=r"vCenters.credentials.c: expected a username for zone c"):
        settings.vcenters.access("c")


def test_intervals_and_timeouts_are_read() -> None:
    settings = read(FILE, file="config/esx.yaml", environ=ENVIRON).configuration
    assert (settings.interval, settings.jitter) == (timedelta(minutes=1), 0.1)
    assert (settings.shutdown_poll_interval, settings.shutdown_timeout) == (timedelta(seconds=15), timedelta(minutes=3))
    assert (settings.eviction_timeout, settings.deletion_timeout) == (None, None)


@pytest.mark.parametrize(
    ("deletion", "deletes_for"),
    [("  podDeletion:\n    period: 20s\n    timeout: 5m\n", timedelta(minutes=5)), ("", timedelta(minutes=10))],
)
def test_force_sets_eviction_and_deletion_timeouts(deletion: str, deletes_for: timedelta) -> None:
    text = FILE.replace("  podDeletion:\n    period: 20s\n    timeout: 5m\n", deletion)
    settings = read(
        text.replace("    timeout: 6m", "    timeout: 360\n    force: yes"), file="f", environ=ENVIRON
    ).configuration
    assert (settings.eviction_timeout, settings.deletion_timeout) == (timedelta(minutes=6), deletes_for)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("jitter: 0.1", "jitter: 0.0001", "config/esx.yaml:4: intervals.check.jitter: expected a number from 0.001"),
        ("period: 1m", "period: soon", "config/esx.yaml:3: intervals.check.period: expected a duration such as 90s"),
        ("period: 1m", "period: -1m", "config/esx.yaml:3: intervals.check.period: expected a duration above zero"),
        ("period: 15s", "period: 0s", "config/esx.yaml:12: intervals.vmShutdown.period: expected a duration"),
        ("timeout: 6m", "timeout:", "config/esx.yaml:10: intervals.podEviction.timeout: expected a duration"),
        ("https://vcenter-$AZ", "vcenter-$AZ", "config/esx.yaml:18: vCenters.templateUrl: expected an address such as"),
        ("https://", "https://me:hush@", "config/esx.yaml:18: vCenters.templateUrl: expected an address such as"),
        ("    a:", "    eu-a:", "config/esx.yaml:21: vCenters.credentials.eu-a: expected the last letter of a zone"),
        ("username: maintenance", "name: x", "config/esx.yaml:21: vCenters.credentials.a.username: expected a text"),
        ("vCenters:", "vcenters:", "config/esx.yaml:1: vCenters.templateUrl: expected a text, found nothing"),
        ("${PASSWORD_A}", "${NOBODY}", "config/esx.yaml:22: vCenters.credentials.a.password: expected a value for NOB"),
        ("alarms:", "  alarms: {", "config/esx.yaml:15: expected YAML"),
    ],
)
def test_invalid_esx_settings_are_reported_with_line_and_key(old: str, new: str, problem: str) -> None:
    found = problems(FILE.replace(old, new, 1))
    assert any(it.startswith(problem) for it in found), found
    assert not any("hush" in it or "one, two" in it for it in found)


def test_unknown_keys_are_ignored() -> None:
    known, more = (read(text, file="f", environ=ENVIRON) for text in (FILE, f"{FILE}more: yes\n"))
    assert more.configuration == known.configuration
    assert [str(warning) for warning in more.warnings] == ["f:25: more: there is no such key, so it is ignored"]


def test_repr_of_esx_settings_contains_no_password() -> None:
    settings = read(FILE, file="config/esx.yaml", environ=ENVIRON).configuration
    assert "one, two" not in repr((settings, settings.vcenters.access("a")))


def test_missing_esx_file_is_rejected_at_the_start(clock: Clock, tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors, match=r"esx.yaml: cannot read the file: no such file"):
        EsxFile(tmp_path / "esx.yaml", environ=ENVIRON, clock=clock)


async def test_invalid_edit_keeps_the_last_valid_settings_and_is_logged_once(
    clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "esx.yaml"
    path.write_text(FILE)
    file, used = EsxFile(path, environ=ENVIRON, clock=clock), list[EsxSettings]()
    good = file.settings
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(file.watch(used.append))
        path.write_text(FILE.replace("jitter: 0.1", "jitter: much"))
        await clock.sleep(timedelta(seconds=10))
        assert file.settings == good
        assert "jitter: expected a number" in str(file.problem)
        assert [it.levelname for it in caplog.records] == ["ERROR", "ERROR"]
        path.unlink()
        await clock.sleep(timedelta(seconds=10))
        assert file.settings == good
        assert "no such file" in str(file.problem)
        assert len(caplog.records) == 4
        path.write_text(FILE.replace("1m", "2m", 1))
        await clock.sleep(timedelta(seconds=10))
        assert file.settings.interval == timedelta(minutes=2)
        assert file.problem is None
        path.write_text(FILE)
        await clock.sleep(timedelta(seconds=10))
        assert file.settings == good
        watching.cancel()
    assert [it.interval for it in used] == [timedelta(minutes=2), good.interval]


def test_edit_while_another_replica_led_is_in_force_at_once(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "esx.yaml"
    path.write_text(FILE)
    file = EsxFile(path, environ=ENVIRON, clock=clock)
    path.write_text(FILE.replace("1m", "2m", 1))
    file.refresh()
    assert file.settings.interval == timedelta(minutes=2)


def test_documented_esx_files_are_valid() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "esx.md").read_text()
    profiles, file = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    passwords = {"VCENTER_PASSWORD_A": "a", "VCENTER_PASSWORD_B": "b"}
    assert set(read(file, file="esx.yaml", environ=passwords).configuration.vcenters.credentials) == {"a", "b"}
    loaded = loader.load(profiles.encode(), registries(), {})
    assert "esx" in loaded.configuration.profiles
    assert loaded.warnings == ()
