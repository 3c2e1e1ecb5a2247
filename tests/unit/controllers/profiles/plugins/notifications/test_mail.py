"""Mails as they are written."""

import email
from datetime import timedelta
from email.message import Message as Letter
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


async def read(**changes: Any) -> Letter:
    return email.message_from_bytes(await sent(**changes), policy=default)


async def test_the_headers_of_old_come_first_as_they_were() -> None:
    """I12: what is beyond them follows."""
    letter = await sent()
    assert letter.startswith(b"From: F@a\r\nTo: x@b,y@b\r\nSubject: S\r\nDate: Mon, 05 Jan 2026 09:00:00 +0000\r\n")
    assert letter.endswith(b"\r\n\r\nn1 is in in-maintenance")


async def test_nobody_answers_a_machine() -> None:
    assert (await read())["Auto-Submitted"] == "auto-generated"


async def test_a_letter_that_is_sent_again_has_the_same_id_and_no_other_has() -> None:
    first, again, other = await read(), await read(), await read(node="n2")
    assert first["Message-ID"] == again["Message-ID"] != other["Message-ID"]
    assert first["Message-ID"].endswith("@a>")
    external = FakeExternalClient()
    await Mail(**PLAIN).send(a_message(now=EPOCH + timedelta(hours=1)), external)
    assert first["Message-ID"].encode() not in external.mails[0].content


async def test_letters_beyond_ascii_arrive() -> None:
    letter = await read(subject="Wartung für Köln", message="Grüße\n.\nan {{ .Node.Name }}   \n" + "ü" * 2000)
    assert letter["Subject"] == "Wartung für Köln"
    body = letter.get_payload(decode=True)
    assert isinstance(body, bytes)
    assert body.decode().splitlines() == ["Grüße", ".", "an n1   ", "ü" * 2000]
    assert all(len(line) < 998 for line in (await sent(message="ü" * 2000)).splitlines())


async def test_a_line_may_be_long() -> None:
    letter = await read(message="x" * 3000)
    assert letter.get_payload(decode=True) == b"x" * 3000


async def test_a_subject_never_becomes_another_header() -> None:
    letter = await read(subject="S\r\nBcc: z@b\n")
    assert (letter["Subject"], letter["Bcc"]) == ("S Bcc: z@b", None)


async def test_names_may_stand_before_addresses() -> None:
    external = FakeExternalClient()
    await Mail(**(PLAIN | {"from_": "Müller <F@a>", "to": ("Team <x@b>",)})).send(a_message(), external)
    (envelope,) = external.mails
    assert (envelope.sender, envelope.recipients) == ("F@a", ("x@b",))
    letter = email.message_from_bytes(envelope.content, policy=default)
    assert (letter["From"], letter["To"]) == ("Müller <F@a>", "Team <x@b>")


async def test_many_recipients_fit_into_lines() -> None:
    everybody = tuple(f"person-{number}@example.com" for number in range(200))
    letter = await sent(to=everybody)
    assert all(len(line) < 998 for line in letter.splitlines())
    assert len(getaddresses([str((await read(to=everybody))["To"])])) == 200


async def test_it_logs_in_only_if_told() -> None:
    external = FakeExternalClient()
    await Mail(**PLAIN, user="u", password="p").send(a_message(), external)
    await Mail(**PLAIN, user="u", password="p", auth=True).send(a_message(), external)
    open_one, locked = external.mails
    assert open_one.login is None
    assert locked.login
    assert locked.login.password == "p"
    assert "'p'" not in repr(locked)


@pytest.mark.parametrize("wrong", [{"from_": " "}, {"to": ("x@b", "x@b\r\nBcc: z@b")}])
async def test_to_what_is_no_address_nothing_is_sent(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        UndeliverableMessage, match=r"(from|to): found .*, expected an address such as team@example.com"
    ):
        await sent(**wrong)


async def test_a_template_that_cannot_be_filled_in_is_not_tried_again() -> None:
    with pytest.raises(UndeliverableMessage, match="the template message cannot be rendered"):
        await sent(message="{{ .Nope }}")


def test_what_makes_no_sense_is_told_at_load() -> None:
    wrong = Mail(**(PLAIN | {"address": "smtp.test", "to": ("", "x@b\r\nz@b"), "message": "{{ .Node"}))
    assert [key for key, _ in wrong.warnings()] == ["address", "to", "to"]
    assert [key for key, _ in wrong.template_problems()] == ["message"]
    right = Mail(**PLAIN)
    assert [*right.problems(), *right.warnings(), *right.template_problems()] == []


def test_a_password_is_never_shown() -> None:
    assert "hunter2" not in repr(Mail(**PLAIN, password="hunter2"))
