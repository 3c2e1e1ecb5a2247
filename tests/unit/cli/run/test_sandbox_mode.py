"""What `haulout run --sandbox` says of the sandbox that is installed, and where none is."""

from datetime import timedelta
from importlib import metadata

import pytest

import haulout_sandbox
from haulout import __version__
from haulout.app.sandbox import interface
from haulout.cli.entry import main
from haulout.cli.run import sandbox_mode
from haulout_sandbox import entry


def test_the_sandbox_that_is_installed_is_what_the_product_expects() -> None:
    """The type checker compares the two; at run time the entry point leads there."""
    expected: interface.Sandbox = entry
    assert interface.find_sandbox() is expected
    assert haulout_sandbox.__version__ == __version__


@pytest.mark.parametrize("option", [[], ["--nodes", "3"], ["--speed", "60"]])
def test_without_a_sandbox_one_line_says_what_to_install(
    option: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interface, "entry_points", lambda **_: metadata.EntryPoints())
    with pytest.raises(SystemExit, match="2"):
        main(["run", "--sandbox", *option])
    assert capsys.readouterr().err.splitlines() == [
        "haulout: --sandbox needs the package haulout-sandbox; install it: pip install 'haulout[sandbox]'"
    ]


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (timedelta(), "+00:00:00"),
        (timedelta(minutes=5, microseconds=2000), "+00:05:00"),
        (timedelta(hours=101), "+101:00:00"),
    ],
)
def test_what_happens_is_told_with_its_time(capsys: pytest.CaptureFixture[str], at: timedelta, shown: str) -> None:
    sandbox_mode.print_event(at, "a\x1b[31m reboots")
    assert capsys.readouterr().out == f"{shown}  a\\x1b[31m reboots\n"
