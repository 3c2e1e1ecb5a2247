"""Flags for the retention of the history of deleted nodes."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.cli.entry import main
from haulout.cli.run import cluster_mode
from haulout.history.retention import RetentionSettings
from haulout.kube.transports.config import Connection
from haulout.kube.transports.credentials import ANONYMOUS


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the options with which the operator was started."""
    calls: list[Any] = []
    monkeypatch.setattr(cluster_mode, "run_operator_process", lambda options, **_: calls.append(options))
    return calls


def run(*args: str) -> int | str | None:
    with pytest.raises(SystemExit) as exited:
        main(["run", *args])
    return exited.value.code


@pytest.mark.parametrize(
    ("args", "settings"),
    [
        ([], RetentionSettings()),
        (
            ["--history-retention", "1w2d", "--history-deleted-nodes=5"],
            RetentionSettings(keep_for=timedelta(days=9), most=5),
        ),
        (["--history-retention=0"], RetentionSettings(keep_for=timedelta())),
    ],
)
def test_flags_reach_the_operator_settings(args: list[str], settings: RetentionSettings, started: list[Any]) -> None:
    assert run(*args) == 0
    connection = Connection(server="https://there", context="c", source="", user="", credentials=ANONYMOUS)
    assert started[0].settings(connection).retention == settings


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--history-retention", "90"], "expected a duration such as 90m"),
        (["--history-retention", "-1h"], "expected 0 to 3650d"),
        (["--history-retention", "9000d"], "expected 0 to 3650d"),
        (["--history-deleted-nodes", "-1"], "-1 is not in the range"),
        (["--sandbox", "--history-retention", "1d"], "--history-retention: not with --sandbox"),
        (["--mode", "management", "--history-retention", "1d"], "--history-retention: not with --mode management"),
    ],
)
def test_invalid_values_are_refused(
    args: list[str], problem: str, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*args) == 2
    assert problem in " ".join(capsys.readouterr().err.split())
    assert started == []
