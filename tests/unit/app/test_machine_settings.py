"""Settings of Machine replacement from environment variables."""

from datetime import UTC, datetime, timedelta

import pytest

from haulout.api.maintenancenotice import MaintenanceKind
from haulout.app.machines import read_settings
from haulout.cli import main
from haulout.controllers.machines.desired_maintenance import NoticeFilter
from haulout.controllers.machines.settings import MachineSettings
from haulout.core.windows import Open, state_at
from haulout.errors import ConfigErrors

NIGHTS = "{weekdays: [mon, tue], start: '22:00', end: '04:00', acrossMidnight: true, timezone: Europe/Berlin}"


def wrong(**variables: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        read_settings({f"HAULOUT_MACHINES_{name}": value for name, value in variables.items()})
    return [str(it) for it in caught.value.errors]


def test_machine_settings_default_to_the_machine_maintenance_operator() -> None:
    assert read_settings({"PATH": "/bin", "HAULOUT_AWS": "true"}) == (MachineSettings(), NoticeFilter())
    assert read_settings({"HAULOUT_MACHINES_LEAD": "", "HAULOUT_MACHINES_KINDS": " "}) == (
        MachineSettings(),
        NoticeFilter(),
    )


def test_each_machine_variable_is_read() -> None:
    settings, policy = read_settings(
        {
            "HAULOUT_MACHINES_LEAD": "48h",
            "HAULOUT_MACHINES_WINDOW": NIGHTS,
            "HAULOUT_MACHINES_SURGE": "True",
            "HAULOUT_MACHINES_KINDS": "Stop, Reboot",
        }
    )
    assert (settings.policy.lead, settings.policy.surge) == (timedelta(days=2), True)
    assert policy == NoticeFilter(kinds=frozenset({MaintenanceKind.STOP, MaintenanceKind.REBOOT}))
    windows = settings.policy.windows
    assert windows is not None
    monday = datetime(2026, 11, 16, tzinfo=UTC)
    assert isinstance(state_at(windows, monday + timedelta(hours=21, minutes=1)), Open)
    assert not isinstance(state_at(windows, monday + timedelta(hours=20)), Open)


def test_kinds_none_disables_replacement_for_notices() -> None:
    assert read_settings({"HAULOUT_MACHINES_KINDS": "none"})[1] == NoticeFilter(kinds=frozenset())


def test_all_invalid_machine_settings_are_reported_with_the_expected_value() -> None:
    found = wrong(LEAD="2", SURGE="yes", KINDS="Stop,Dance", WINDOW="{start: '9:00'}", WINDOWS="x")
    assert any(it.startswith("environment: HAULOUT_MACHINES_LEAD: ") and "90s" in it for it in found)
    assert "environment: HAULOUT_MACHINES_SURGE: expected true or false, found 'yes'" in found
    assert any("HAULOUT_MACHINES_KINDS: expected kinds of notices (Reboot, Stop," in it for it in found)
    assert any(it.startswith("HAULOUT_MACHINES_WINDOW:1: weekdays: ") for it in found)
    assert any("HAULOUT_MACHINES_WINDOWS: there is no such setting; did you mean" in it for it in found)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        pytest.param(NIGHTS.replace("timezone", "timzone"), "timzone", id="an unknown key"),
        pytest.param("{calendars: [a.ics]}", "use blackouts", id="a calendar"),
        pytest.param("[", "HAULOUT_MACHINES_WINDOW:", id="no YAML"),
        pytest.param("-5h", "HAULOUT_MACHINES_WINDOW", id="something else"),
    ],
)
def test_unsupported_machine_window_is_rejected(window: str, message: str) -> None:
    assert message in " ".join(wrong(WINDOW=window))


def test_negative_machine_lead_is_rejected() -> None:
    assert "expected a duration that is not negative, found '-1h'" in wrong(LEAD="-1h")[0]


def test_invalid_machine_settings_end_haulout_run_with_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HAULOUT_MACHINES_SURGE", "perhaps")
    with pytest.raises(SystemExit) as exited:
        main(["run"])
    assert exited.value.code == 2
    assert "HAULOUT_MACHINES_SURGE: expected true or false, found 'perhaps'" in capsys.readouterr().err
