"""Runs the command line in this process, as a user without kubeconfig and outside of a pod."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from haulout.cli import main


class CommandResult(NamedTuple):
    """The exit code and the output of a command line."""

    code: int | str | None
    out: str
    err: str


RunCommand = Callable[..., CommandResult]


def command_runner(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Return a way to run a command line."""

    def run(*args: str) -> CommandResult:
        with pytest.raises(SystemExit) as exited:
            main(args)
        captured = capsys.readouterr()
        return CommandResult(exited.value.code, captured.out, captured.err)

    return run
