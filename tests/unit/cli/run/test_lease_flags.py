"""Lease durations on the command line, for the operator and for the hub."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.cli import main
from haulout.cli.run import cluster_mode, management_mode
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout.kube.transports.config import Connection
from haulout.kube.transports.credentials import ANONYMOUS

FLAGS = ("--lease-duration=15s", "--renew-deadline", "10s", "--retry-period", "2s")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the options with which an operator or a hub was started."""
    calls: list[Any] = []
    monkeypatch.setattr(cluster_mode, "run_operator_process", lambda options, **_: calls.append(options))
    monkeypatch.setattr(management_mode, "run_hub_process", lambda options, **_: calls.append(options))
    return calls


def run(*args: str) -> int | str | None:
    with pytest.raises(SystemExit) as exited:
        main(["run", *args])
    return exited.value.code


@pytest.mark.parametrize("mode", ["cluster", "management"])
def test_lease_flags_reach_the_operator_and_the_hub(mode: str, started: list[Any]) -> None:
    assert run("--mode", mode, *FLAGS) == 0
    fifteen, ten, two = (timedelta(seconds=it) for it in (15, 10, 2))
    connection = Connection(server="https://there", context="c", source="", user="", credentials=ANONYMOUS)
    settings = started[0].settings(connection) if mode == "cluster" else started[0].replica_settings(connection)
    assert settings.leases == LeaderElectionConfig(lease_duration=fifteen, renew_deadline=ten, retry_period=two)


@pytest.mark.parametrize("mode", ["cluster", "management"])
def test_lease_flags_have_defaults(mode: str, started: list[Any]) -> None:
    assert run("--mode", mode) == 0
    assert started[0].leases == LeaderElectionConfig()


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--lease-duration", "soon"], "expected a duration such as 8s or 1500ms: time: invalid duration"),
        (["--lease-duration", "5s"], "the lease duration must be greater than the renew deadline, got 5s and 6s"),
        (["--lease-duration", "6s"], "the lease duration must be greater than the renew deadline, got 6s and 6s"),
        (["--lease-duration", "8500ms"], "the lease duration must be whole seconds, as in the Lease, got 8.5s"),
        (["--retry-period", "0"], "the retry period must be greater than 0, got 0s"),
        (["--retry-period", "5s"], "must be greater than 1.2 times the retry period, got 6s and 5s"),
        (["--sandbox", "--retry-period", "1s"], "--retry-period: not with --sandbox"),
        (
            ["--mode", "management", "--no-leader-election", "--lease-duration", "9s"],
            "--lease-duration: not with --no-leader-election",
        ),
    ],
)
def test_invalid_lease_durations_are_refused(
    args: list[str], problem: str, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*args) == 2
    assert problem in " ".join(capsys.readouterr().err.split())
    assert started == []
