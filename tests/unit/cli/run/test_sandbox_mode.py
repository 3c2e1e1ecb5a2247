"""`haulout run --sandbox` with and without the sandbox package."""

from datetime import timedelta
from importlib import metadata

import pytest

import haulout_sandbox
from haulout import __version__
from haulout.app.sandbox import interface
from haulout.cli.entry import main
from haulout.cli.run import sandbox_mode
from haulout_sandbox import entry


def test_installed_sandbox_implements_the_interface() -> None:
    """The type checker compares the two; at run time the entry point leads there."""
    expected: interface.Sandbox = entry
    assert interface.find_sandbox() is expected
    assert haulout_sandbox.__version__ == __version__


@pytest.mark.parametrize("option", [[], ["--nodes", "3"], ["--speed", "60"]])
def test_missing_sandbox_package_is_reported_with_the_install_command(
    option: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interface, "entry_points", lambda **_: metadata.EntryPoints())
    with pytest.raises(SystemExit, match="2"):
        main(["run", "--sandbox", *option])
    assert capsys.readouterr().err.splitlines() == [
        "haulout: --sandbox needs the package haulout-sandbox; install it: pip install 'haulout[sandbox]'"
    ]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (timedelta(), "+00:00:00"),
        (timedelta(minutes=5, microseconds=2000), "+00:05:00"),
        (timedelta(hours=101), "+101:00:00"),
    ],
)
def test_sandbox_events_are_printed_with_their_time(
    capsys: pytest.CaptureFixture[str], at: timedelta, expected: str
) -> None:
    sandbox_mode.print_event(at, "a\x1b[31m reboots")
    assert capsys.readouterr().out == f"{expected}  a\\x1b[31m reboots\n"
