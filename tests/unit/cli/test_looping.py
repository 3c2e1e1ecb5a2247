"""What an event loop reports: a connection that was closed already is no error, everything else is."""

import asyncio
import logging
from typing import Any

import pytest

from haulout.cli.looping import report

CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is closed"
OF_A_CONNECTION = "Fatal error on SSL protocol"

pytestmark = pytest.mark.every_loop


def reported(caplog: pytest.LogCaptureFixture, **context: Any) -> list[int]:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report)
    with caplog.at_level(logging.DEBUG):
        loop.call_exception_handler(context)
    return [it.levelno for it in caplog.records if it.name in ("asyncio", "haulout.cli.looping")]


async def test_data_on_a_closed_connection_is_one_line_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    assert reported(caplog, message=OF_A_CONNECTION, exception=RuntimeError(CLOSED)) == [logging.DEBUG]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (OF_A_CONNECTION, RuntimeError("cannot switch state from SHUTDOWN to WRAPPED")),
        (OF_A_CONNECTION, KeyError(CLOSED)),
        ("Exception in callback f()", RuntimeError(CLOSED)),
        ("Task exception was never retrieved", ValueError("a defect")),
    ],
)
async def test_everything_else_stays_an_error(caplog: pytest.LogCaptureFixture, message: str, error: Exception) -> None:
    assert reported(caplog, message=message, exception=error) == [logging.ERROR]
