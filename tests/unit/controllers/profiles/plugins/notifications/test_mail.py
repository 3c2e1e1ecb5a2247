"""Content of notification mails."""

import email
from datetime import timedelta
from email.message import Message as EmailMessage
from email.policy import default
from email.utils import getaddresses
from typing import Any

import pytest

from haulout.controllers.profiles.plugins.notifications.mail import Mail
from haulout.errors import UndeliverableMessage
from haulout_sandbox.event_loops.virtual_time import EPOCH
from support.fakes.external_client import FakeExternalClient, a_message

PLAIN: dict[str, Any] = {
    "address": "smtp.test:587",
    "from_": "F@a",
    "to": ("x@b", "y@b"),
    "subject": "S",
    "message": "{{ .Node.Name }} is in {{ .State }}",
}


async def sent(node: str = "n1", **changes: Any) -> bytes:
    external = FakeExternalClient()
    await Mail(**(PLAIN | changes)).send(a_message(node), external)
    return external.mails[0].content


async def read(**changes: Any) -> EmailMessage:
    return email.message_from_bytes(await sent(**changes), policy=default)


async def test_original_headers_come_first() -> None:
    """I12: other headers follow."""
    mail = await sent()
    assert mail.startswith(b"From: F@a\r\nTo: x@b,y@b\r\nSubject: S\r\nDate: Mon, 05 Jan 2026 09:00:00 +0000\r\n")
    assert mail.endswith(b"\r\n\r\nn1 is in in-maintenance")


async def test_mail_is_marked_as_auto_generated() -> None:
    assert (await read())["Auto-Submitted"] == "auto-generated"


async def test_message_id_is_stable_for_a_message_and_unique() -> None:
    first, again, other = await read(), await read(), await read(node="n2")
    assert first["Message-ID"] == again["Message-ID"] != other["Message-ID"]
    assert first["Message-ID"].endswith("@a>")
    external = FakeExternalClient()
    await Mail(**PLAIN).send(a_message(now=EPOCH + timedelta(hours=1)), external)
    assert first["Message-ID"].encode() not in external.mails[0].content


async def test_non_ascii_mail_is_encoded() -> None:
    mail = await read(subject="Wartung für Köln", message="Grüße\n.\nan {{ .Node.Name }}   \n" + "ü" * 2000)
    assert mail["Subject"] == "Wartung für Köln"
    body = mail.get_payload(decode=True)
    assert isinstance(body, bytes)
    assert body.decode().splitlines() == ["Grüße", ".", "an n1   ", "ü" * 2000]
    assert all(len(line) < 998 for line in (await sent(message="ü" * 2000)).splitlines())


async def test_line_may_be_long() -> None:
    mail = await read(message="x" * 3000)
    assert mail.get_payload(decode=True) == b"x" * 3000


async def test_line_break_in_the_subject_adds_no_header() -> None:
    mail = await read(subject="S\r\nBcc: z@b\n")
    assert (mail["Subject"], mail["Bcc"]) == ("S Bcc: z@b", None)


async def test_address_may_contain_a_display_name() -> None:
    external = FakeExternalClient()
    await Mail(**(PLAIN | {"from_": "Müller <F@a>", "to": ("Team <x@b>",)})).send(a_message(), external)
    (envelope,) = external.mails
    assert (envelope.sender, envelope.recipients) == ("F@a", ("x@b",))
    mail = email.message_from_bytes(envelope.content, policy=default)
    assert (mail["From"], mail["To"]) == ("Müller <F@a>", "Team <x@b>")


async def test_many_recipients_are_folded_into_lines() -> None:
    everybody = tuple(f"person-{number}@example.com" for number in range(200))
    mail = await sent(to=everybody)
    assert all(len(line) < 998 for line in mail.splitlines())
    assert len(getaddresses([str((await read(to=everybody))["To"])])) == 200


async def test_login_is_used_only_with_auth() -> None:
    external = FakeExternalClient()
    await Mail(**PLAIN, user="u", password="p").send(a_message(), external)
    await Mail(**PLAIN, user="u", password="p", auth=True).send(a_message(), external)
    open_one, locked = external.mails
    assert open_one.login is None
    assert locked.login
    assert locked.login.password == "p"
    assert "'p'" not in repr(locked)


@pytest.mark.parametrize("wrong", [{"from_": " "}, {"to": ("x@b", "x@b\r\nBcc: z@b")}])
async def test_invalid_address_is_undeliverable(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        UndeliverableMessage, match=r"(from|to): found .*, expected an address such as team@example.com"
    ):
        await sent(**wrong)


async def test_template_that_cannot_be_rendered_is_undeliverable() -> None:
    with pytest.raises(UndeliverableMessage, match="the template message cannot be rendered"):
        await sent(message="{{ .Nope }}")


def test_invalid_options_are_reported_at_load() -> None:
    wrong = Mail(**(PLAIN | {"address": "smtp.test", "to": ("", "x@b\r\nz@b"), "message": "{{ .Node"}))
    assert [key for key, _ in wrong.warnings()] == ["address", "to", "to"]
    assert [key for key, _ in wrong.template_problems()] == ["message"]
    right = Mail(**PLAIN)
    assert [*right.problems(), *right.warnings(), *right.template_problems()] == []


def test_repr_hides_the_password() -> None:
    assert "hunter2" not in repr(Mail(**PLAIN, password="hunter2"))
