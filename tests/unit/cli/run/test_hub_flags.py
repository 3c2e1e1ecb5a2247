"""The hub's two command lines: `haulout run --mode management`, and that of the controller it replaces."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from haulout.cli import main
from haulout.cli.run import management_mode
from haulout.controllers.clusterapi.settings import ClusterApiSettings, OldApprovals
from haulout.httpserver.listener import ListenAddress


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the arguments with which the hub was started."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(
        management_mode, "run_hub_process", lambda options, **arguments: calls.append({"wishes": options, **arguments})
    )
    return calls


def call(*args: str) -> int | str | None:
    with pytest.raises(SystemExit) as exited:
        main(list(args))
    return exited.value.code


def remc(*args: str) -> int | str | None:
    return call("runtime-extension-maintenance-controller", *args)


def test_flags_of_the_published_chart_start_the_hub(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONTEXT", "mgmt")
    assert remc("--enable-metal3-maintenance", "--zap-devel=false", "--zap-time-encoding=iso8601") == 0
    (arguments,) = started
    assert arguments["wishes"].hub == ClusterApiSettings(metal3=True)
    assert (arguments["wishes"].health_port, arguments["wishes"].metrics, arguments["wishes"].elects) == (
        8081,
        ListenAddress(8080),
        True,
    )
    assert (arguments["context"], arguments["kubeconfig"], arguments["as_json"], arguments["level"]) == (
        "mgmt",
        None,
        True,
        logging.INFO,
    )


def test_hub_flags_of_haulout_are_accepted(started: list[dict[str, Any]]) -> None:
    own_flags = ("-approval-timeout=4h", "-unreachable-after", "1h30m", "-old-approvals=honour", "-leader-elect=false")
    assert remc(*own_flags, "-namespace=ops", "-kubecontext=x", "-kubeconfig=f") == 0
    (arguments,) = started
    assert arguments["wishes"].hub == ClusterApiSettings(
        approval_timeout=timedelta(hours=4),
        unreachable_after=timedelta(minutes=90),
        old_approvals=OldApprovals.HONOUR,
    )
    assert (arguments["wishes"].namespace, arguments["wishes"].elects) == ("ops", False)
    assert (arguments["context"], arguments["kubeconfig"]) == ("x", "f")


def test_cluster_budget_flag_can_be_repeated(started: list[dict[str, Any]]) -> None:
    assert remc("-cluster-budget=2", "--cluster-budget", "env=prod:1") == 0
    assert started[0]["wishes"].hub.cluster_budget == ("2", "env=prod:1")


def test_both_commands_validate_cluster_budgets_with_the_same_parser(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(text: str) -> None:
        raise ValueError(f"refused {text}")

    monkeypatch.setattr("haulout.controllers.clusterapi.cluster_budget.parse_limit", refuse)
    assert remc("-cluster-budget=2") == 2
    assert "-cluster-budget: refused 2" in capsys.readouterr().err
    assert call("run", "--mode", "management", "--cluster-budget", "2") == 2
    assert "refused 2" in capsys.readouterr().err
    assert started == []


def test_memory_limit_flag_is_parsed(started: list[dict[str, Any]]) -> None:
    assert remc("-memory-limit=1Gi") == 0
    assert call("run", "--mode", "management", "--memory-limit", "512Mi") == 0
    assert call("run", "--mode", "management") == 0
    assert [it["wishes"].hub.memory_limit for it in started] == [1 << 30, 512 << 20, None]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["-x"], "flag provided but not defined: -x"),
        (["-cluster-budget=none"], "-cluster-budget: expected a number of clusters such as 2, or env=prod:1"),
        (["-memory-limit=lots"], "-memory-limit: expected at least 64Mi, such as 400Mi, or 0, found 'lots'"),
        (["-memory-limit=1Mi"], "-memory-limit: expected at least 64Mi"),
        (["-approval-timeout=4"], "-approval-timeout: expected a duration such as 4h, or 0"),
        (["-approval-timeout=-4h"], "is negative; 0 means no limit"),
        (["-old-approvals=yes"], "-old-approvals: expected wait, clear, honour, found 'yes'"),
        (["-metrics-addr=8080"], "-metrics-addr: "),
    ],
)
def test_invalid_values_are_refused(
    started: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], args: list[str], problem: str
) -> None:
    assert remc(*args) == 2
    assert problem in capsys.readouterr().err
    assert started == []


def test_help_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert remc("--help") == 0
    help_text = capsys.readouterr().out
    for name in ("kubecontext", "enable-metal3-maintenance", "old-approvals", "zap-time-encoding"):
        assert f"-{name}" in help_text


def test_management_mode_starts_the_hub(started: list[dict[str, Any]]) -> None:
    flags = ("--approval-timeout", "4h", "--old-approvals", "clear", "--metrics-port", "9090", "-n", "ops")
    assert call("run", "--mode", "management", *flags, "--cluster-name", "mgmt", "--no-leader-election") == 0
    (arguments,) = started
    options = arguments["wishes"]
    assert options.hub == ClusterApiSettings(approval_timeout=timedelta(hours=4), old_approvals=OldApprovals.CLEAR)
    assert (options.metrics, options.namespace, options.cluster, options.elects) == (
        ListenAddress(9090),
        "ops",
        "mgmt",
        False,
    )


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--approval-timeout=4h"], "--approval-timeout: only with --mode management"),
        (["--sandbox", "--no-leader-election"], "--no-leader-election: only with --mode management"),
        (["--mode", "management", "--sandbox"], "--sandbox: not with --mode management"),
        (["--mode", "management", "--config", "f"], "--config: not with --mode management"),
        (["--mode", "management", "--approval-timeout", "soon"], "expected a duration such as 4h, or 0"),
        (["--mode", "management", "--memory-limit", "-1"], "expected at least 64Mi, such as 400Mi, or 0, found '-1'"),
    ],
)
def test_conflicting_flags_are_refused(
    started: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], args: list[str], problem: str
) -> None:
    assert call("run", *args) == 2
    assert problem in capsys.readouterr().err
    assert started == []
