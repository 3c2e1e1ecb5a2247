"""The way into an OpenStack project: its settings (`haulout.core.cloudprovider`), and a token from Keystone.

No message here ever contains a password or a token.
"""

from typing import Any

import msgspec

from haulout.core.cloudprovider import FILE, SECRET_KEY, Settings, read
from haulout.errors import OutsideError
from haulout.profiles.plugin import Outside, Reply

_CREATED = 201
_VERSION = "/v3"


async def settings(outside: Outside, *, namespace: str, secret: str) -> Settings:
    """Return the settings out of a Secret, or out of the file if none is named."""
    if not (namespace and secret):
        return read(await outside.file(FILE), where=FILE)
    where = f"{SECRET_KEY} in Secret {namespace}/{secret}"
    data = await outside.secret(namespace, secret)
    if SECRET_KEY not in data:
        raise OutsideError(f"Secret {namespace}/{secret} has no key {SECRET_KEY}")
    return read(data[SECRET_KEY], where=where)


async def token(outside: Outside, settings: Settings) -> str:
    """Return a token for the project, by the user's password."""
    user = {"name": settings.username, "password": settings.password, "domain": {"name": settings.domain_name}}
    auth = {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": {"id": settings.tenant_id}},
    }
    address = settings.auth_url.rstrip("/")
    address = address if address.endswith(_VERSION) else f"{address}{_VERSION}"
    reply = await outside.exchange(
        "POST",
        f"{address}/auth/tokens",
        body=msgspec.json.encode({"auth": auth}),
        headers={"Content-Type": "application/json", "Accept": "application/json"},
    )
    found = next((value for name, value in reply.headers.items() if name.lower() == "x-subject-token"), "")
    if reply.status != _CREATED or not found:
        who = f"user {settings.username} of domain {settings.domain_name}"
        raise OutsideError(f"Keystone at {address} gives {who} no token: it answered {reply.status}{_message(reply)}")
    return found


def _message(reply: Reply) -> str:
    """Return what Keystone says about an error, if it can be read."""
    try:
        answer: Any = msgspec.json.decode(reply.body)
        message = answer["error"]["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
    return f", {message!r:.200}"
