"""What an event loop reports: a TLS connection that was given up after a stall is no error, everything else is."""

import asyncio
import gc
import logging
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haulout.cli.asyncio_runner import handle_loop_exception, run
from support.servers.certificates import Authority

CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is closed"
OF_A_CONNECTION = "Fatal error on SSL protocol"
DROPPED = "Future exception was never retrieved"
HERE = "127.0.0.1"

pytestmark = pytest.mark.every_loop

Answer = Callable[[socket.socket, bytes], object]


@pytest.fixture(scope="module")
def server_tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder: Path = tmp_path_factory.mktemp("tls")
    return Authority().issue(HERE).server_context(folder)


def reported_levels(caplog: pytest.LogCaptureFixture, **context: Any) -> list[int]:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(handle_loop_exception)
    with caplog.at_level(logging.DEBUG):
        loop.call_exception_handler(context)
    return levels(caplog)


def levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [it.levelno for it in caplog.records if it.name in ("asyncio", "haulout.cli.asyncio_runner")]


def complete(server_tls: ssl.SSLContext) -> Answer:
    """Return an answer that completes the handshake, as far as the client is concerned."""

    def answer(connection: socket.socket, hello: bytes) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        protocol = server_tls.wrap_bio(incoming, outgoing, server_side=True)
        incoming.write(hello)
        with pytest.raises(ssl.SSLWantReadError):
            protocol.do_handshake()
        connection.sendall(outgoing.read())

    return answer


def hang_up(connection: socket.socket, hello: bytes) -> None:
    """Close the connection, as a server or a proxy that ends."""
    del hello
    connection.shutdown(socket.SHUT_RDWR)


def refuse(connection: socket.socket, hello: bytes) -> None:
    """Send the TLS alert `handshake_failure`."""
    del hello
    connection.sendall(bytes((21, 3, 3, 0, 2, 2, 40)))


def answer_without_tls(connection: socket.socket, hello: bytes) -> None:
    """Answer without TLS."""
    del hello
    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


async def fail_connect_after_stall(answer: Answer | None) -> None:
    """Stall after the first message of a TLS handshake until the answer is there and the connect timeout is overdue.

    Without an answer, the peer has reset the connection before the first message.
    """
    loop = asyncio.get_running_loop()
    client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_tls.check_hostname, client_tls.verify_mode = False, ssl.CERT_NONE
    with socket.create_server((HERE, 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        connection, _ = listener.accept()
        client.setblocking(False)
        if answer is None:
            reset(connection)

        def stall() -> None:
            if answer is not None:
                answer(connection, connection.recv(65536))
            loop.call_later(0.001, connecting.cancel)
            threading.Event().wait(0.01)

        connecting = loop.create_task(
            loop.create_connection(asyncio.Protocol, sock=client, ssl=client_tls, server_hostname=HERE)
        )
        # In the order of the loop: the task begins to connect, the handshake begins, the process stalls.
        loop.call_soon(loop.call_soon, stall)
        with connection:
            await asyncio.wait([connecting])
            assert connecting.cancelled()


def test_reset_by_peer_does_not_close_another_socket() -> None:
    """On uvloop, which closed the descriptor of a socket twice. By the second time it belonged to another socket."""
    pytest.importorskip("uvloop")

    async def connect() -> None:
        with socket.create_server((HERE, 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            connection, _ = listener.accept()
        reset(connection)
        client.setblocking(False)
        number, tls = client.fileno(), ssl.create_default_context()
        with pytest.raises(ConnectionResetError):
            await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, sock=client, ssl=tls, server_hostname=HERE
            )
        del client
        others = [socket.socket() for _ in range(3)]
        gc.collect()
        assert number in {it.fileno() for it in others}
        for it in others:
            os.fstat(it.fileno())
            it.close()

    run(connect())


def is_uvloop() -> bool:
    return not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")  # of asyncio, when the server hangs up
@pytest.mark.filterwarnings("ignore:.*_SelectorTransport:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("server_answer", ["complete", hang_up, refuse, answer_without_tls, None])
async def test_connect_timeout_after_stall_is_logged_without_traceback(
    server_answer: Answer | str | None, server_tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    """On real sockets. Uvloop reports each of these as an error with a traceback, asyncio none."""
    asyncio.get_running_loop().set_exception_handler(handle_loop_exception)
    with caplog.at_level(logging.DEBUG, logger="haulout.cli.asyncio_runner"):
        await fail_connect_after_stall(complete(server_tls) if isinstance(server_answer, str) else server_answer)
        gc.collect()  # the future that carries the error
    assert levels(caplog) == ([logging.DEBUG] if is_uvloop() else [])
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("message", [OF_A_CONNECTION, "Error occurred during shutdown"])
async def test_write_to_closed_tls_connection_is_logged_at_debug(
    caplog: pytest.LogCaptureFixture, message: str
) -> None:
    error = RuntimeError(CLOSED)
    assert reported_levels(caplog, message=message, exception=error, transport=None, protocol=None) == [logging.DEBUG]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("message", "error", "more"),
    [
        (OF_A_CONNECTION, RuntimeError("cannot switch state from SHUTDOWN to WRAPPED"), {"transport": None}),
        (OF_A_CONNECTION, KeyError(CLOSED), {"transport": None}),
        ("Exception in callback f()", RuntimeError(CLOSED), {}),
        ("Task exception was never retrieved", ValueError("a defect"), {}),
        (DROPPED, ValueError("a defect"), {}),
    ],
)
async def test_other_loop_exceptions_are_logged_as_errors(
    caplog: pytest.LogCaptureFixture, message: str, error: Exception, more: dict[str, Any]
) -> None:
    assert reported_levels(caplog, message=message, exception=error, **more) == [logging.ERROR]


async def test_unretrieved_error_outside_a_handshake_is_logged_as_error(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConnectionResetError) as caught:
        raise ConnectionResetError("of something else")
    assert reported_levels(caplog, message=DROPPED, exception=caught.value) == [logging.ERROR]
