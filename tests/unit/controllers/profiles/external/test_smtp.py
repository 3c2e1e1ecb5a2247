"""Delivery of mail to working and faulty SMTP servers."""

import asyncio
import hmac
import ssl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.controllers.profiles.external import smtp
from haulout.controllers.profiles.external.network_client import NetworkClient
from haulout.controllers.profiles.external.smtp import Credentials, Envelope, split_server
from haulout.controllers.profiles.plugins.notifications.mail import Mail
from haulout.errors import ExternalError
from support.fakes.external_client import a_message
from support.servers.certificates import Authority
from support.servers.smtp import ReceivedMail, SmtpServer, serve_connections

pytestmark = pytest.mark.real_time

SECRET = "correct-horse"
LOGIN = Credentials(user="us", password=SECRET, identity="them")
MESSAGE = Envelope(server="", sender="us@a", recipients=("x@b", "y@b"), content=b"Subject: S\r\n\r\nHello")
SOON = timedelta(seconds=5)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def server_tls(authority: Authority, tmp_path: Path) -> ssl.SSLContext:
    return authority.issue("127.0.0.1").server_context(tmp_path)


@pytest.fixture
def tls(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem.decode())


async def deliver(server: SmtpServer, tls: ssl.SSLContext, envelope: Envelope = MESSAGE) -> list[ReceivedMail]:
    async with server.serving() as address:
        await smtp.deliver(replace(envelope, server=address), tls=tls, timeout=SOON)
    return server.received


async def refusal(server: SmtpServer, tls: ssl.SSLContext, envelope: Envelope = MESSAGE) -> str:
    with pytest.raises(ExternalError) as caught:
        await deliver(server, tls, envelope)
    assert SECRET not in repr(caught.value)
    assert server.received == []
    return str(caught.value)


async def test_mail_is_delivered_over_smtp() -> None:
    """I12."""
    server, external = SmtpServer(), NetworkClient(environ={})
    async with server.serving() as address:
        mail = Mail(
            address=address, from_="F@a", to=("x@b", "y@b"), subject="S", message="{{ .Node.Name }}: {{ .State }}"
        )
        await mail.send(a_message(), external)
    (taken,) = server.received
    assert (taken.sender, taken.recipients) == ("<F@a>", ["<x@b>", "<y@b>"])
    assert taken.content.startswith(b"From: F@a\r\nTo: x@b,y@b\r\nSubject: S\r\n")
    assert taken.content.endswith(b"\r\n\r\nn1: in-maintenance\r\n")
    assert server.commands[-1] == "QUIT"


async def test_line_endings_and_leading_dots_are_escaped(tls: ssl.SSLContext) -> None:
    (taken,) = await deliver(SmtpServer(), tls, replace(MESSAGE, content=b"A: b\n\n.\n..two\r\nend\n"))
    assert taken.content == b"A: b\r\n\r\n..\r\n...two\r\nend\r\n"


async def test_starttls_is_used_when_offered(tls: ssl.SSLContext, server_tls: ssl.SSLContext) -> None:
    (taken,) = await deliver(SmtpServer(tls=server_tls), tls)
    assert taken.over_tls


async def test_login_is_sent_after_starttls(tls: ssl.SSLContext, server_tls: ssl.SSLContext) -> None:
    server = SmtpServer(tls=server_tls, offers_auth=True)
    (taken,) = await deliver(server, tls, replace(MESSAGE, login=LOGIN))
    assert (taken.over_tls, taken.login) == (True, f"them\0us\0{SECRET}")
    assert server.commands.index("STARTTLS") < [command[:4] for command in server.commands].index("AUTH")


async def test_login_without_tls_is_allowed_only_to_localhost(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SmtpServer(offers_auth=True)
    (taken,) = await deliver(server, tls, replace(MESSAGE, login=LOGIN))
    assert not taken.over_tls
    monkeypatch.setattr(smtp, "_LOCAL_HOSTS", set())
    message = await refusal(SmtpServer(offers_auth=True), tls, replace(MESSAGE, login=LOGIN))
    assert message.endswith("does not offer TLS, without which no password is sent")


@pytest.mark.parametrize(
    ("logins", "expected_login"),
    [
        ("CRAM-MD5 LOGIN PLAIN", f"\0us\0{SECRET}"),
        ("CRAM-MD5 LOGIN", f"LOGIN {SECRET}"),
        ("XOAUTH2 CRAM-MD5", f"CRAM-MD5 us {hmac.digest(SECRET.encode(), b'challenge', 'md5').hex()}"),
    ],
)
async def test_login_uses_the_first_offered_mechanism(tls: ssl.SSLContext, logins: str, expected_login: str) -> None:
    server = SmtpServer(offers_auth=True, auth_mechanisms=logins)
    (taken,) = await deliver(server, tls, replace(MESSAGE, login=replace(LOGIN, identity="")))
    assert taken.login == expected_login


async def test_refused_login_is_tried_once(tls: ssl.SSLContext) -> None:
    server = SmtpServer(offers_auth=True, auth_mechanisms="PLAIN LOGIN CRAM-MD5", replies={"AUTH": b"535 wrong\r\n"})
    assert "refused user us" in await refusal(server, tls, replace(MESSAGE, login=LOGIN))
    assert len([command for command in server.commands if command.startswith("AUTH")]) == 1


async def test_unsupported_and_broken_auth_mechanisms_are_reported(tls: ssl.SSLContext) -> None:
    envelope = replace(MESSAGE, login=replace(LOGIN, identity=""))
    message = await refusal(SmtpServer(offers_auth=True, auth_mechanisms="XOAUTH2 NTLM"), tls, envelope)
    assert message.endswith("supports none of PLAIN, LOGIN and CRAM-MD5, only: 'xoauth2, ntlm'")
    server = SmtpServer(offers_auth=True, auth_mechanisms="CRAM-MD5", replies={"AUTH": b"334 not-base64!\r\n"})
    assert "Invalid CRAM-MD5 challenge" in await refusal(server, tls, envelope)


async def test_server_without_auth_is_reported(tls: ssl.SSLContext) -> None:
    assert "remove auth" in await refusal(SmtpServer(), tls, replace(MESSAGE, login=LOGIN))


async def test_refused_login_does_not_reveal_the_password(tls: ssl.SSLContext) -> None:
    server = SmtpServer(offers_auth=True, replies={"AUTH": f"535 {SECRET} is wrong\r\n".encode()})
    message = await refusal(server, tls, replace(MESSAGE, login=LOGIN))
    assert message.endswith("refused user us: '535 (hidden) is wrong'")


async def test_refused_recipient_refuses_the_message(tls: ssl.SSLContext) -> None:
    message = await refusal(SmtpServer(replies={"RCPT": b"550-no such\r\n550 user\r\n"}), tls)
    assert message.endswith("refused recipient x@b: '550 no such user'")


async def test_refused_message_is_an_error(tls: ssl.SSLContext) -> None:
    message = await refusal(SmtpServer(replies={"letter": b"452 disk full\r\n"}), tls)
    assert message.endswith("refused the message: '452 disk full'")


async def test_reply_to_quit_is_ignored(tls: ssl.SSLContext) -> None:
    for goodbye in (b"", b"500 what?\r\n", b"garbage\r\n"):
        assert len(await deliver(SmtpServer(replies={"QUIT": goodbye}), tls)) == 1


async def test_server_without_ehlo_is_greeted_with_helo(tls: ssl.SSLContext) -> None:
    server = SmtpServer(replies={"EHLO": b"502 what?\r\n"})
    assert len(await deliver(server, tls)) == 1
    assert server.commands[:2] == ["EHLO localhost", "HELO localhost"]


async def test_untrusted_certificate_is_refused(server_tls: ssl.SSLContext) -> None:
    message = await refusal(SmtpServer(tls=server_tls), ssl.create_default_context())
    assert "its certificate is not trusted" in message


async def test_plaintext_injected_before_tls_is_discarded(tls: ssl.SSLContext, server_tls: ssl.SSLContext) -> None:
    server = SmtpServer(tls=server_tls, replies={"STARTTLS": b"220 go ahead\r\n250-evil\r\n250 AUTH PLAIN\r\n"})
    message = await refusal(server, tls, replace(MESSAGE, login=LOGIN))
    assert message.endswith("does not support authentication; remove auth")


@pytest.mark.parametrize(
    ("greeting", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak SMTP: it answered 'HTTP/1.1 400 Bad Request'"),
        (b"\x00\xff\x16\x03\n", "does not speak SMTP: it answered ''"),
        (b"220-more\r\n" * 10_000, "does not speak SMTP: its reply is too long"),
        (b"220 " + b"x" * 100_000, "does not speak SMTP: its reply is too long"),
        (b"554 go away\r\n", "refused the connection: '554 go away'"),
    ],
)
async def test_invalid_response_is_reported_in_a_sentence(tls: ssl.SSLContext, greeting: bytes, problem: str) -> None:
    assert (await refusal(SmtpServer(replies={"greeting": greeting}), tls)).endswith(problem)


async def test_closed_connection_is_reported(tls: ssl.SSLContext) -> None:
    async with serve_connections(lambda _, writer: writer.close()) as address:
        with pytest.raises(ExternalError, match="closed the connection"):
            await smtp.deliver(replace(MESSAGE, server=address), tls=tls, timeout=SOON)


async def test_silent_server_times_out(tls: ssl.SSLContext) -> None:
    async with serve_connections(lambda reader, _: reader.read()) as address:
        with pytest.raises(ExternalError, match=r"no answer within 0\.05 s"):
            await smtp.deliver(replace(MESSAGE, server=address), tls=tls, timeout=timedelta(seconds=0.05))


async def test_refused_connection_is_reported(tls: ssl.SSLContext) -> None:
    async with serve_connections(lambda *_: None) as address:
        pass
    with pytest.raises(ExternalError, match="connection refused"):
        await smtp.deliver(replace(MESSAGE, server=address), tls=tls, timeout=SOON)


async def test_cancelled_delivery_ends_at_once(tls: ssl.SSLContext) -> None:
    connected = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()

    async with serve_connections(silent) as address, asyncio.TaskGroup() as tasks:
        delivery = tasks.create_task(smtp.deliver(replace(MESSAGE, server=address), tls=tls, timeout=SOON))
        await connected.wait()
        delivery.cancel()
    assert delivery.cancelled()


async def test_address_with_a_line_break_cannot_inject_commands(tls: ssl.SSLContext) -> None:
    server = SmtpServer()
    message = await refusal(server, tls, replace(MESSAGE, recipients=("x@b>\r\nRCPT TO:<z@b",)))
    assert "it contains a line break" in message
    assert not any("z@b" in command for command in server.commands)


async def test_non_ascii_address_requires_smtputf8(tls: ssl.SSLContext) -> None:
    envelope = replace(MESSAGE, recipients=("jürgen@b",))
    assert "non-ASCII characters" in await refusal(SmtpServer(), tls, envelope)
    server = SmtpServer(replies={"EHLO": b"250-x\r\n250 SMTPUTF8\r\n"})
    assert len(await deliver(server, tls, envelope)) == 1
    assert "MAIL FROM:<us@a> SMTPUTF8" in server.commands


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:25", ("a", 25)),
        ("[::1]:587", ("::1", 587)),
        (" a.example:465\n", ("a.example", 465)),
        ("a", None),
        (":25", None),
        ("a:smtp", None),
        ("a:0", None),
        ("a:65536", None),
        ("[::1:25", None),
    ],
)
def test_split_server_parses_host_and_port(text: str, found: tuple[str, int] | None) -> None:
    assert split_server(text) == found


async def test_implicit_tls_port_starts_with_tls(
    tls: ssl.SSLContext, server_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = SmtpServer()
    async with serve_connections(server.serve, tls=server_tls) as address:
        monkeypatch.setattr(smtp, "_IMPLICIT_TLS_PORT", int(address.rpartition(":")[2]))
        await smtp.deliver(replace(MESSAGE, server=address), tls=tls, timeout=SOON)
    assert len(server.received) == 1
