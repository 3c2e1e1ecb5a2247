"""The notification `webhook`: posts JSON to any URL, with a standard signature.

The signature follows the Standard Webhooks specification (standardwebhooks.com), for which there are libraries: an
HMAC-SHA256 of the message's id, the time of sending and the body, which prevents replay of a recorded message.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from haulout.api.notification_events import InvolvedObject
from haulout.controllers.profiles.config.options import option, secret_option
from haulout.controllers.profiles.external.error_text import url_problem
from haulout.controllers.profiles.plugin import ExternalClient, Message, Notification
from haulout.controllers.profiles.plugins.notifications._common import (
    message_id,
    render,
    require_accepted,
    template_problems,
)
from haulout.core.timestamps import whole_seconds
from haulout.errors import UndeliverableMessage

_ENCODED_PREFIX = "whsec_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(Notification):
    """Posts JSON to any URL. This notification is Haulout's own.

    The message counts as sent if the status code of the response is 2xx. With `secret`, the headers `webhook-id`,
    `webhook-timestamp` and `webhook-signature` let the receiver verify the sender, as Standard Webhooks specifies. A
    message that is sent again has the same `webhook-id`.
    """

    type = "webhook"
    example = """\
url: https://hooks.example.com/nodes
secret: ${HOOK_SECRET}
body: '{"node": {{ printf "%q" .Node.Name }}, "state": "{{ .State }}"}'
"""

    url: str = secret_option("The URL to which it is posted.", required=True)
    token: str = secret_option("Sent as `Authorization: Bearer …`.", default="")
    body: str = option(
        "A template of the body, which must render to JSON. Without it, the body contains all data.", default=""
    )
    secret: str = secret_option(
        "The key of the signature: any text, or `whsec_` and base64. Without it nothing is signed.", default=""
    )

    async def send(self, message: Message, external: ExternalClient) -> None:
        body = self._body(message)
        headers = {"Content-Type": "application/json", **self._signature(message, body)}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token.strip()}"
        response = await external.request("POST", self.url, body=body, headers=headers)
        require_accepted(self.url, response, secrets=(self.token, self.secret))

    def problems(self) -> Iterator[tuple[str, str]]:
        if problem := url_problem(self.url):
            yield "url", problem
        if _signing_key(self.secret) is None:
            yield "secret", f"found {_ENCODED_PREFIX} and something that is not base64, expected base64 after it"

    def template_problems(self) -> Iterator[tuple[str, str]]:
        yield from template_problems(body=self.body)

    def _body(self, message: Message) -> bytes:
        if not self.body:
            return msgspec.json.encode(_default_body(message))
        body = render("body", self.body, message).encode()
        try:
            msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise UndeliverableMessage(f"the template body does not render to JSON: {error}") from None
        return body

    def _signature(self, message: Message, body: bytes) -> Mapping[str, str]:
        name, sent_at = message_id(message), int(message.client.clock.now().timestamp())
        headers = {"webhook-id": name, "webhook-timestamp": str(sent_at)}
        if key := _signing_key(self.secret):
            signed = b"%s.%d.%s" % (name.encode(), sent_at, body)
            digest = hmac.new(key, signed, hashlib.sha256).digest()
            headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
        return headers


def _signing_key(secret: str) -> bytes | None:
    """Return the signing key that an option specifies; None if its base64 is not valid."""
    secret = secret.strip()
    if not secret.startswith(_ENCODED_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED_PREFIX), validate=True)
    except binascii.Error:
        return None


def _default_body(message: Message) -> Mapping[str, Any]:
    """Return the body that is sent without a template."""
    if message.event is not None and message.involved is not None:
        return {
            "type": f"{message.involved.kind.lower()}.{message.state.lower()}",
            "id": message_id(message),
            "time": _format_instant(message.now),
            "event": message.event.name,
            "message": message.text,
            **_involved_fields(message.involved),
        }
    return {
        "type": "node.maintenance",
        "id": message_id(message),
        "time": _format_instant(message.now),
        "node": message.raw_node.get("metadata", {}).get("name", ""),
        "profile": message.profile,
        "state": message.state,
        "inMaintenance": message.is_in_maintenance,
        "lastTransition": _format_instant(message.last_transition),
        "labels": message.raw_node.get("metadata", {}).get("labels", {}),
    }


def _involved_fields(involved: InvolvedObject) -> Mapping[str, Any]:
    return {
        "kind": involved.kind,
        "name": involved.name,
        "uid": involved.uid,
        "node": involved.node,
        "phase": involved.phase,
        "reason": involved.reason,
        "requestedBy": involved.requested_by,
        "blockers": [
            {
                "kind": blocker.kind,
                "object": blocker.object,
                "reason": blocker.reason,
                "remedy": blocker.remedy,
                "pod": blocker.pod,
                "workload": blocker.workload,
                "since": _format_instant(blocker.since),
            }
            for blocker in involved.blockers
        ],
    }


def _format_instant(instant: datetime | None) -> str | None:
    return None if instant is None else whole_seconds(instant)
