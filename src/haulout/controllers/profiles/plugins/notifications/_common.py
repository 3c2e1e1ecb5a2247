"""What all notifications share: templates filled in, what a message is called, and how an answer is judged."""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from haulout.compat import gotemplate
from haulout.controllers.profiles.external.error_text import origin, quote_response
from haulout.controllers.profiles.notify.template_data import check_template, template_value
from haulout.controllers.profiles.plugin import Message
from haulout.errors import ExternalError, TemplateError, UndeliverableMessage

_ACCEPTED = range(200, 300)


def render(key: str, text: str, message: Message) -> str:
    """Return the template that stands under `key`, filled in."""
    try:
        return gotemplate.parse(text, key).render(template_value(message))
    except TemplateError as error:
        raise UndeliverableMessage(f"the template {key} cannot be filled in: {error}") from None


def template_problems(**texts: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with templates, by their keys, as `Notification.template_problems` wants it."""
    for key, text in texts.items():
        for error in check_template(text, key):
            yield key, str(error)


def message_id(message: Message) -> str:
    """Return a name of the message that no other has, and that it has each time it is sent.

    Whoever gets it twice, because an answer of theirs was lost, can tell by it.
    """
    metadata = message.raw_node.get("metadata", {})
    about = () if message.event is None else (message.involved, message.event.name, message.event.key)
    identity = (
        *(
            metadata.get("name"),
            metadata.get("uid"),
            message.profile,
            message.state,
            message.last_transition,
            message.now,
        ),
        *about,
    )
    return hashlib.sha256(msgspec.json.encode(identity)).hexdigest()[:32]


def require_accepted(url: str, status: int, body: bytes, *, secrets: Iterable[str] = ()) -> None:
    """Raise `ExternalError` unless an answer says that all is well."""
    if status in _ACCEPTED:
        return
    response_text = f": {quote_response(body, secrets=(url, *secrets))}" if body else ""
    raise ExternalError(f"{origin(url)} does not take the message, with status {status}{response_text}")
