"""Workload identity federation: a token that somebody else gave us is exchanged for one of Google's.

    federated = read(found)                 # a file of the type external_account; ValueError: it will not do
    token = await exchanged(federated, scope=scope, reach=reach, clock=clock)

The foreign token is in a file, such as the projected token of a service account of Kubernetes, or is fetched from an
address on this machine. Google's Security Token Service takes it (RFC 8693). Its token is used as it is, or else to
speak for a service account, where the file says so. Nothing of this needs a key that somebody would have to keep.

Foreign tokens that have to be signed (AWS), or that a program gives, are not supported.
"""

import base64
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from haulout.core import gotime
from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.notices.sources.fetching import UNREADABLE, Fetch
from haulout.notices.sources.gcp.granting import DOING, Token, document, granted, refusal

TYPE = "external_account"
_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS = "urn:ietf:params:oauth:token-type:access_token"
_ALL = "https://www.googleapis.com/auth/cloud-platform"  # to speak for an account; what that may is asked for then
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_JSON = {"Content-Type": "application/json"}
_OK, _UNAUTHORIZED = 200, 401
_LONGEST = 1 << 16

Reach = Callable[[str], Fetch]


class Format(msgspec.Struct, frozen=True):
    """How the foreign token is written."""

    type: str = "text"
    subject_token_field_name: str = ""


class Origin(msgspec.Struct, frozen=True):
    """Where the foreign token is."""

    file: str = ""
    url: str = ""
    headers: Mapping[str, str] = {}
    format: Format = Format()
    environment_id: str = ""
    executable: Mapping[str, Any] | None = None


class Impersonation(msgspec.Struct, frozen=True):
    """How long a token of the service account is to last."""

    token_lifetime_seconds: int = 3600


class Federated(msgspec.Struct, frozen=True):
    """What such a file says."""

    audience: str
    subject_token_type: str
    token_url: str
    credential_source: Origin
    service_account_impersonation_url: str = ""
    service_account_impersonation: Impersonation = Impersonation()
    client_id: str = ""
    client_secret: str = ""
    workforce_pool_user_project: str = ""


def read(found: Mapping[str, Any]) -> Federated:
    """Return what a file says; raises ValueError, with what was expected."""
    federated: Federated = msgspec.convert(found, type=Federated)
    origin = federated.credential_source
    if origin.environment_id or origin.executable is not None:
        raise ValueError(
            "expected a credential_source with a file or a url; those of AWS and programs are not supported"
        )
    if bool(origin.file) == bool(origin.url):
        raise ValueError("expected a credential_source with either a file or a url")
    if origin.url:
        _address(origin.url, "credential_source.url", ("https", "http"))  # it is often on this machine
    if origin.format.type not in ("text", "json"):
        raise ValueError(f"expected the credential_source.format.type text or json, found {origin.format.type[:40]!r}")
    if origin.format.type == "json" and not origin.format.subject_token_field_name:
        raise ValueError("expected a credential_source.format.subject_token_field_name, found none")
    _address(federated.token_url, "token_url")
    if federated.service_account_impersonation_url:
        _address(federated.service_account_impersonation_url, "service_account_impersonation_url")
    return federated


async def exchanged(federated: Federated, *, scope: str, reach: Reach, clock: Clock) -> Token:
    """Return a token of Google; raises `CloudError`."""
    foreign = await _foreign(federated.credential_source, reach)
    speaks_for = federated.service_account_impersonation_url
    form = {
        "grant_type": _GRANT,
        "audience": federated.audience,
        "scope": _ALL if speaks_for else scope,
        "requested_token_type": _ACCESS,
        "subject_token": foreign,
        "subject_token_type": federated.subject_token_type,
    }
    if federated.workforce_pool_user_project and not federated.client_id:
        form["options"] = msgspec.json.encode({"userProject": federated.workforce_pool_user_project}).decode()
    fetch, target, who = _reached(federated.token_url, reach)
    answer = await fetch("POST", target, headers=_FORM | _client(federated), body=urlencode(form).encode())
    token = granted(answer, who)
    return await _impersonated(federated, token, scope=scope, reach=reach, clock=clock) if speaks_for else token


async def _impersonated(federated: Federated, token: Token, *, scope: str, reach: Reach, clock: Clock) -> Token:
    lifetime = federated.service_account_impersonation.token_lifetime_seconds
    body = msgspec.json.encode({"scope": [scope], "lifetime": f"{lifetime}s"})
    fetch, target, who = _reached(federated.service_account_impersonation_url, reach)
    headers = {**_JSON, "Authorization": f"Bearer {token.value}"}
    answer = await fetch("POST", target, headers=headers, body=body)
    said = document(answer, who)
    value, expires = said.get("accessToken"), said.get("expireTime")
    if not isinstance(value, str) or not value:
        raise refusal(answer, who)
    try:
        lasts = gotime.parse(str(expires)).instant - clock.now()
    except ValueError:
        lasts = timedelta()
    return Token(value, lasts)


async def _foreign(origin: Origin, reach: Reach) -> str:
    """Return the token that is to be exchanged, as it is now: whoever gives it renews it."""
    where = origin.file or origin.url
    if origin.file:
        try:
            written = _start_of(Path(origin.file))
        except OSError as error:
            raise _none(f"expected a token in the file {where!r}: {error.strerror}") from error
    else:
        fetch, target, who = _reached(origin.url, reach)
        answer = await fetch("GET", target, headers=origin.headers)
        if answer.status != _OK:
            raise refusal(answer, who)
        written = answer.body
    return _token_in(written, origin.format, where)


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LONGEST)


def _token_in(written: bytes, how: Format, where: str) -> str:
    found: object
    try:
        found = written.decode() if how.type == "text" else msgspec.json.decode(written, type=dict[str, Any])
    except UNREADABLE:
        raise _none(f"expected {how.type} in {where!r}") from None
    name = how.subject_token_field_name
    value = found.get(name) if isinstance(found, dict) else found
    if not isinstance(value, str) or not value.strip():
        raise _none(f"expected a token {f'as {name} ' if isinstance(found, dict) else ''}in {where!r}, found none")
    return value.strip()


def _none(problem: str) -> CloudError:
    return CloudError(problem, doing=DOING, status=_UNAUTHORIZED, code="NoAccess")


def _client(federated: Federated) -> dict[str, str]:
    if not federated.client_id:
        return {}
    both = base64.b64encode(f"{federated.client_id}:{federated.client_secret}".encode()).decode()
    return {"Authorization": f"Basic {both}"}


def _reached(address: str, reach: Reach) -> tuple[Fetch, str, str]:
    """Return the way to an address, its path, and its host."""
    url = urlsplit(address)
    path = url.path or "/"
    return reach(f"{url.scheme}://{url.netloc}"), f"{path}?{url.query}" if url.query else path, url.netloc


def _address(written: str, name: str, schemes: tuple[str, ...] = ("https",)) -> None:
    url = urlsplit(written)
    if url.scheme not in schemes or not url.hostname:
        raise ValueError(f"expected an address with {' or '.join(schemes)} as {name}, found {written[:80]!r}")
