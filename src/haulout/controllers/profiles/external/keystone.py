"""Access to an OpenStack project: its settings (`haulout.compat.openstack_config`), and a token from Keystone.

No error text here contains a password or a token.
"""

from typing import Any

import msgspec

from haulout.compat.openstack_config import DEFAULT_FILE, SECRET_KEY, OpenStackSettings, parse
from haulout.controllers.profiles.plugin import ExternalClient, HttpResponse
from haulout.errors import ExternalError

_CREATED = 201
_VERSION = "/v3"


async def read_settings(external: ExternalClient, *, namespace: str, secret: str) -> OpenStackSettings:
    """Return the settings from a Secret, or from the default file if no Secret is named."""
    if not (namespace and secret):
        return parse(await external.read_file(DEFAULT_FILE), source=DEFAULT_FILE)
    where = f"{SECRET_KEY} in Secret {namespace}/{secret}"
    data = await external.read_secret(namespace, secret)
    if SECRET_KEY not in data:
        raise ExternalError(f"Secret {namespace}/{secret} has no key {SECRET_KEY}")
    return parse(data[SECRET_KEY], source=where)


async def fetch_token(external: ExternalClient, settings: OpenStackSettings) -> str:
    """Return a token for the project, authenticated by password."""
    user = {"name": settings.username, "password": settings.password, "domain": {"name": settings.domain_name}}
    auth = {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": {"id": settings.tenant_id}},
    }
    address = settings.auth_url.rstrip("/")
    address = address if address.endswith(_VERSION) else f"{address}{_VERSION}"
    reply = await external.request(
        "POST",
        f"{address}/auth/tokens",
        body=msgspec.json.encode({"auth": auth}),
        headers={"Content-Type": "application/json", "Accept": "application/json"},
    )
    token_value = next((value for name, value in reply.headers.items() if name.lower() == "x-subject-token"), "")
    if reply.status != _CREATED or not token_value:
        user_text = f"user {settings.username} of domain {settings.domain_name}"
        raise ExternalError(
            f"Keystone at {address} issues no token to {user_text}: status {reply.status}{_message(reply)}"
        )
    return token_value


def _message(reply: HttpResponse) -> str:
    """Return the message in Keystone's error response; empty if it cannot be parsed."""
    try:
        answer: Any = msgspec.json.decode(reply.body)
        message = answer["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
    return f", {message!r:.200}"
