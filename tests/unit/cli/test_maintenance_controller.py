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
def test_flags_are_read_as_go_reads_them(args: list[str], addr: str, devel: bool) -> None:  # noqa: FBT001 - a case
    assert parse(args, FLAGS) == {"addr": addr, "devel": devel}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["-nothing"], "flag provided but not defined: -nothing"),
        (["-addr"], "flag needs an argument: -addr"),
        (["-devel=maybe"], "-devel: expected true or false, found 'maybe'"),
    ],
)
def test_flags_that_make_no_sense_are_refused(args: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse(args, FLAGS)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return with what the operator was started."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(
        cluster_mode, "run_operator_process", lambda wishes, **how: calls.append({"wishes": wishes, **how})
    )
    return calls


def call(*args: str) -> int | str | None:
    with pytest.raises(SystemExit) as exited:
        main(["maintenance-controller", *args])
    return exited.value.code


def test_the_flags_of_the_published_chart_start_the_operator(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONTEXT", "prod")
    assert call("--enable-leader-election", "--metrics-addr=:8080", "-health-addr", ":9081", "--zap-devel=false") == 0
    (how,) = started
    assert how["wishes"].health_port == 9081
    assert (how["wishes"].metrics, how["wishes"].metrics_linger) == (ListenAddress(8080), timedelta(seconds=65))
    assert (how["context"], how["kubeconfig"], how["as_json"]) == ("prod", None, True)
    assert (how["config"], how["level"]) == (Path("config/maintenance.yaml"), logging.INFO)


def test_what_is_typed_wins(started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONTEXT", "prod")
    where = ("-metrics-addr=127.0.0.1:80", "-metrics-timeout=1m")
    assert call("-kubecontext=test", "-zap-log-level=3", "-zap-encoder", "console", "-config", "a.yaml", *where) == 0
    (how,) = started
    assert (how["wishes"].metrics, how["wishes"].metrics_linger) == (
        ListenAddress(80, "127.0.0.1"),
        timedelta(minutes=1),
    )
    assert (how["context"], how["as_json"], how["config"]) == ("test", False, Path("a.yaml"))
    assert how["level"] == logging.DEBUG


def test_nodes_on_esx_hosts_are_seen_to_by_the_usual_file(started: list[dict[str, Any]]) -> None:
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
def test_what_cannot_be_done_is_refused(started: list[dict[str, Any]], args: list[str]) -> None:
    assert call(*args) == 2
    assert started == []


def test_nodes_of_kubernikus_are_seen_to_by_the_file_that_is_there(started: list[dict[str, Any]]) -> None:
    assert call() == 0
    assert call("-enable-kubernikus-maintenance") == 0
    assert [how["component_files"] for how in started] == [{}, {"kubernikus": Path("config/kubernikus.yaml")}]


def test_without_a_configuration_it_does_not_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call() == 2
    assert capsys.readouterr().err == (
        "haulout: config/maintenance.yaml: expected a file that can be read: no such file or directory\n"
    )


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--help") == 0
    shown = capsys.readouterr().out
    for name in ("metrics-addr", "enable-leader-election", "kubecontext", "zap-time-encoding"):
        assert f"-{name}" in shown
