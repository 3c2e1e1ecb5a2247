"""Helpers for notifications: rendering of templates, message ids, and validation of responses."""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from haulout.compat import gotemplate
from haulout.controllers.profiles.external.error_text import origin, quote_response
from haulout.controllers.profiles.notify.template_data import check_template, template_value
from haulout.controllers.profiles.plugin import HttpResponse, Message
from haulout.errors import ExternalError, TemplateError, UndeliverableMessage

_ACCEPTED = range(200, 300)


def render(key: str, text: str, message: Message) -> str:
    """Render the template of the option `key`. Raise `UndeliverableMessage` if that fails."""
    try:
        return gotemplate.parse(text, key).render(template_value(message))
    except TemplateError as error:
        raise UndeliverableMessage(f"the template {key} cannot be rendered: {error}") from None


def template_problems(**texts: str) -> Iterator[tuple[str, str]]:
    """Yield the errors in templates, by key, as `Notification.template_problems` does."""
    for key, text in texts.items():
        for error in check_template(text, key):
            yield key, str(error)


def message_id(message: Message) -> str:
    """Return an id that is unique to the message, and the same each time the message is sent.

    A receiver can recognize a duplicate by it, which is sent if the response to the first attempt was lost.
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


def require_accepted(url: str, response: HttpResponse, *, secrets: Iterable[str] = ()) -> None:
    """Raise `ExternalError` unless the status of the response is 2xx."""
    if response.status in _ACCEPTED:
        return
    response_text = f": {quote_response(response.body, secrets=(url, *secrets))}" if response.body else ""
    raise ExternalError(f"{origin(url)} does not accept the message: status {response.status}{response_text}")
