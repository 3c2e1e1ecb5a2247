"""`haulout maintenance-controller` takes what a Deployment of the SAP maintenance-controller passes."""

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from haulout.cli import main
from haulout.cli.run import cluster_mode
from haulout.compat.goflags import GoFlag, parse
from haulout.errors import UsageError
from haulout.httpserver.listener import ListenAddress

FLAGS = {"addr": GoFlag(":80", ""), "devel": GoFlag(default=True, help="")}


@pytest.mark.parametrize(
    ("args", "addr", "devel"),
    [
        ([], ":80", True),
        (["-addr=:1"], ":1", True),
        (["--addr", ":1", "--devel=false"], ":1", False),
        (["-devel", "-addr", "-x"], "-x", True),
        (["-devel=0", "rest", "-addr=:1"], ":80", False),
        (["--", "-addr=:1"], ":80", True),
        (["-addr="], "", True),
    ],
)
def test_flags_are_parsed_like_go_flags(args: list[str], addr: str, devel: bool) -> None:  # noqa: FBT001 - a case
    assert parse(args, FLAGS) == {"addr": addr, "devel": devel}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["-nothing"], "flag provided but not defined: -nothing"),
        (["-addr"], "flag needs an argument: -addr"),
        (["-devel=maybe"], "-devel: expected true or false, found 'maybe'"),
    ],
)
def test_invalid_flags_are_refused(args: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse(args, FLAGS)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the arguments with which the operator was started."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(
        cluster_mode,
        "run_operator_process",
        lambda options, **arguments: calls.append({"wishes": options, **arguments}),
    )
    return calls


def call(*args: str) -> int | str | None:
    with pytest.raises(SystemExit) as exited:
        main(["maintenance-controller", *args])
    return exited.value.code


def test_flags_of_the_published_chart_start_the_operator(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONTEXT", "prod")
    assert call("--enable-leader-election", "--metrics-addr=:8080", "-health-addr", ":9081", "--zap-devel=false") == 0
    (arguments,) = started
    assert arguments["wishes"].health_port == 9081
    assert (arguments["wishes"].metrics, arguments["wishes"].metrics_linger) == (
        ListenAddress(8080),
        timedelta(seconds=65),
    )
    assert (arguments["context"], arguments["kubeconfig"], arguments["as_json"]) == ("prod", None, True)
    assert (arguments["config"], arguments["level"]) == (Path("config/maintenance.yaml"), logging.INFO)


def test_flags_override_the_environment(started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONTEXT", "prod")
    metrics_flags = ("-metrics-addr=127.0.0.1:80", "-metrics-timeout=1m")
    assert (
        call("-kubecontext=test", "-zap-log-level=3", "-zap-encoder", "console", "-config", "a.yaml", *metrics_flags)
        == 0
    )
    (arguments,) = started
    assert (arguments["wishes"].metrics, arguments["wishes"].metrics_linger) == (
        ListenAddress(80, "127.0.0.1"),
        timedelta(minutes=1),
    )
    assert (arguments["context"], arguments["as_json"], arguments["config"]) == ("test", False, Path("a.yaml"))
    assert arguments["level"] == logging.DEBUG


def test_esx_flag_uses_the_default_configuration_file(started: list[dict[str, Any]]) -> None:
    assert call() == call("-enable-esx-maintenance=false") == call("--enable-esx-maintenance") == 0
    assert [it["component_files"] for it in started] == [{}, {}, {"esx": Path("config/esx.yaml")}]


@pytest.mark.parametrize(
    "args",
    [
        ["-x"],
        ["-health-addr=8x"],
        ["-metrics-addr=8080"],
        ["-metrics-timeout=65"],
        ["-zap-encoder=xml"],
        ["-zap-log-level=-1"],
    ],
)
def test_invalid_flags_do_not_start_the_operator(started: list[dict[str, Any]], args: list[str]) -> None:
    assert call(*args) == 2
    assert started == []


def test_kubernikus_flag_uses_the_default_configuration_file(started: list[dict[str, Any]]) -> None:
    assert call() == 0
    assert call("-enable-kubernikus-maintenance") == 0
    assert [arguments["component_files"] for arguments in started] == [
        {},
        {"kubernikus": Path("config/kubernikus.yaml")},
    ]


def test_missing_configuration_file_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call() == 2
    assert capsys.readouterr().err == (
        "haulout: config/maintenance.yaml: cannot read the file: no such file or directory\n"
    )


def test_help_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--help") == 0
    help_text = capsys.readouterr().out
    for name in ("metrics-addr", "enable-leader-election", "kubecontext", "zap-time-encoding"):
        assert f"-{name}" in help_text
