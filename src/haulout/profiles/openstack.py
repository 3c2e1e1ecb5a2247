"""The way into an OpenStack project: its settings in a `cloudprovider.conf`, and a token from Keystone.

The file is that of the OpenStack cloud provider: sections, and lines such as `username = "operator"`. Only `[Global]`
is read. Quotes around values are taken off; in them a backslash keeps the next character.

No message here ever contains a password or a token.
"""

import configparser
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from haulout.errors import OutsideError
from haulout.profiles.plugin import Outside, Reply

FILE = "./provider/cloudprovider.conf"
SECRET_KEY = "cloudprovider.conf"  # noqa: S105 - the name of a key, not a secret

_SECTION = "Global"
_KEYS = ("auth-url", "username", "password", "region", "domain-name", "tenant-id")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:[#;].*)?')
_CREATED = 201
_VERSION = "/v3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Who we are, and where."""

    auth_url: str
    username: str
    password: str = field(repr=False)
    region: str
    domain_name: str  # of the user
    tenant_id: str  # the project


def read(text: str, *, where: str) -> Settings:
    """Read a `cloudprovider.conf`; raises `OutsideError` with what is missing."""
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#", ";"))
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise OutsideError(f"{where} cannot be read{_line(error)}: expected key = value") from None
    section = parser[_SECTION] if parser.has_section(_SECTION) else {}
    found = {key: _plain(section[key]) for key in _KEYS if key in section}
    if missing := [key for key in _KEYS if not found.get(key)]:
        raise OutsideError(f"{where} has no {', '.join(missing)} in [{_SECTION}]")
    return Settings(**{key.replace("-", "_"): value for key, value in found.items()})


async def settings(outside: Outside, *, namespace: str, secret: str) -> Settings:
    """Return the settings out of a Secret, or out of the file if none is named."""
    if not (namespace and secret):
        return read(_text(await outside.file(FILE), where=FILE), where=FILE)
    where = f"{SECRET_KEY} in Secret {namespace}/{secret}"
    data = await outside.secret(namespace, secret)
    if SECRET_KEY not in data:
        raise OutsideError(f"Secret {namespace}/{secret} has no key {SECRET_KEY}")
    return read(_text(data[SECRET_KEY], where=where), where=where)


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


def _line(error: configparser.Error) -> str:
    """Return where an error is; its own text repeats the line, which may hold the password."""
    numbers = [number for number, _ in getattr(error, "errors", ())] or [getattr(error, "lineno", 0)]
    return f", line {numbers[0]}" if numbers[0] else ""


def _text(data: bytes, *, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise OutsideError(f"{where} is not text in UTF-8") from None


def _plain(value: str) -> str:
    match = _QUOTED.fullmatch(value.strip())
    return re.sub(r"\\(.)", r"\1", match[1]) if match else value.strip()
