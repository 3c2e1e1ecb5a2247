"""What all notifications share: templates filled in, what a message is called, and how an answer is judged."""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from haulout.core import templates
from haulout.errors import OutsideError, TemplateError, Unsendable
from haulout.profiles.message import data_of, problems_of
from haulout.profiles.plugin import Message
from haulout.profiles.said import origin, quoted

_ACCEPTED = range(200, 300)


def render(key: str, text: str, message: Message) -> str:
    """Return the template that stands under `key`, filled in."""
    try:
        return templates.parse(text, key).render(data_of(message))
    except TemplateError as error:
        raise Unsendable(f"the template {key} cannot be filled in: {error}") from None


def template_problems(**texts: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with templates, by their keys, as `Notification.template_problems` wants it."""
    for key, text in texts.items():
        for error in problems_of(text, key):
            yield key, str(error)


def message_id(message: Message) -> str:
    """Return a name of the message that no other has, and that it has each time it is sent.

    Whoever gets it twice, because an answer of theirs was lost, can tell by it.
    """
    meta = message.raw.get("metadata", {})
    about = () if message.event is None else (message.involved, message.event.name, message.event.key)
    told = (
        *(meta.get("name"), meta.get("uid"), message.profile, message.state, message.last_transition, message.now),
        *about,
    )
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:32]


def expect_accepted(url: str, status: int, body: bytes, *, secrets: Iterable[str] = ()) -> None:
    """Raise `OutsideError` unless an answer says that all is well."""
    if status in _ACCEPTED:
        return
    said = f": {quoted(body, secrets=(url, *secrets))}" if body else ""
    raise OutsideError(f"{origin(url)} does not take the message, with status {status}{said}")
