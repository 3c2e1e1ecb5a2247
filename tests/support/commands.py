"""Running the command line in this process, as a user who has no kubeconfig and is in no pod."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from haulout.cli import main


class Outcome(NamedTuple):
    """What a command line came to."""

    code: int | str | None
    out: str
    err: str


Haulout = Callable[..., Outcome]


def runner(capsys: pytest.CaptureFixture[str]) -> Haulout:
    """Return a way to run a command line."""

    def run(*args: str) -> Outcome:
        with pytest.raises(SystemExit) as exited:
            main(args)
        said = capsys.readouterr()
        return Outcome(exited.value.code, said.out, said.err)

    return run
