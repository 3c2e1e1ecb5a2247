"""Workload identity federation: exchange an external token for a Google access token.

    account = parse_external_account(found)   # a file of type external_account; raises ValueError
    token = await exchange_token(account, scope=scope, fetch_for=fetch_for, clock=clock)

The external token is in a file, such as the projected token of a Kubernetes service account, or is fetched from a URL
on this machine. Google's Security Token Service exchanges it (RFC 8693). The resulting token is used directly, or to
impersonate a service account if the file says so. No long-lived key is needed. External tokens that must be signed
(AWS), or that an executable provides, are not supported.

`parse_token` is for all responses to requests for an access token: the token, or the reason why there is none.
"""

import base64
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from haulout.core import timestamps
from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.providers.http_fetch import DECODE_ERRORS, Fetch, FetchedResponse, retry_after

TYPE = "external_account"
_TOKEN_EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - names, not secrets
_ACCESS_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - names, not secrets
_CLOUD_PLATFORM_SCOPE = (
    "https://www.googleapis.com/auth/cloud-platform"  # for impersonation; `scope` applies to the result
)
_FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded"}
_JSON_HEADERS = {"Content-Type": "application/json"}
_OK, _UNAUTHORIZED = 200, 401
_MAX_FILE_BYTES = 1 << 16

FetchFor = Callable[[str], Fetch]

DOING = "getting a Google access token"
_HTTP_OK = 200
_MAX_LIFETIME_SECONDS = timedelta(hours=12).total_seconds()  # the longest lifetime that Google issues


class TokenFormat(msgspec.Struct, frozen=True):
    """The format of the external token: the whole text, or a field of a JSON document."""

    type: str = "text"
    subject_token_field_name: str = ""


class CredentialSource(msgspec.Struct, frozen=True):
    """The location of the external token. The fields are those of Google's credentials file."""

    file: str = ""
    url: str = ""
    headers: Mapping[str, str] = {}
    format: TokenFormat = TokenFormat()
    environment_id: str = ""
    executable: Mapping[str, Any] | None = None


class Impersonation(msgspec.Struct, frozen=True):
    """The lifetime of the service account's token."""

    token_lifetime_seconds: int = 3600


class ExternalAccount(msgspec.Struct, frozen=True):
    """A credentials file of type external_account, as Google's libraries read it."""

    audience: str
    subject_token_type: str
    token_url: str
    credential_source: CredentialSource
    service_account_impersonation_url: str = ""
    service_account_impersonation: Impersonation = Impersonation()
    client_id: str = ""
    client_secret: str = ""
    workforce_pool_user_project: str = ""


def parse_external_account(found: Mapping[str, Any]) -> ExternalAccount:
    """Parse a credentials file; raise ValueError with what was expected."""
    account: ExternalAccount = msgspec.convert(found, type=ExternalAccount)
    credential_source = account.credential_source
    if credential_source.environment_id or credential_source.executable is not None:
        raise ValueError(
            "expected a credential_source with a file or a url; those of AWS and programs are not supported"
        )
    if bool(credential_source.file) == bool(credential_source.url):
        raise ValueError("expected a credential_source with either a file or a url")
    if credential_source.url:
        _check_url(credential_source.url, "credential_source.url", ("https", "http"))  # http, too: often a local URL
    if credential_source.format.type not in ("text", "json"):
        raise ValueError(
            f"expected the credential_source.format.type text or json, found {credential_source.format.type[:40]!r}"
        )
    if credential_source.format.type == "json" and not credential_source.format.subject_token_field_name:
        raise ValueError("expected a credential_source.format.subject_token_field_name, found none")
    _check_url(account.token_url, "token_url")
    if account.service_account_impersonation_url:
        _check_url(account.service_account_impersonation_url, "service_account_impersonation_url")
    return account


class AccessToken(NamedTuple):
    """An access token and its remaining lifetime."""

    value: str
    expires_in: timedelta


async def exchange_token(account: ExternalAccount, *, scope: str, fetch_for: FetchFor, clock: Clock) -> AccessToken:
    """Return a Google access token; raise `CloudError`."""
    subject_token = await _read_subject_token(account.credential_source, fetch_for)
    impersonation_url = account.service_account_impersonation_url
    form = {
        "grant_type": _TOKEN_EXCHANGE_GRANT,
        "audience": account.audience,
        "scope": _CLOUD_PLATFORM_SCOPE if impersonation_url else scope,
        "requested_token_type": _ACCESS_TOKEN_TYPE,
        "subject_token": subject_token,
        "subject_token_type": account.subject_token_type,
    }
    # As google/auth/external_account.py in google-auth-library-python: the ID of a client is sufficient to determine
    # the project.
    if account.workforce_pool_user_project and not account.client_id:
        form["options"] = msgspec.json.encode({"userProject": account.workforce_pool_user_project}).decode()
    fetch, target, host = _resolve(account.token_url, fetch_for)
    answer = await fetch(
        "POST", target, headers=_FORM_HEADERS | _client_authorization(account), body=urlencode(form).encode()
    )
    token = parse_token(answer, host)
    return (
        await _impersonate(account, token, scope=scope, fetch_for=fetch_for, clock=clock)
        if impersonation_url
        else token
    )


async def _impersonate(
    account: ExternalAccount, token: AccessToken, *, scope: str, fetch_for: FetchFor, clock: Clock
) -> AccessToken:
    lifetime = account.service_account_impersonation.token_lifetime_seconds
    body = msgspec.json.encode({"scope": [scope], "lifetime": f"{lifetime}s"})
    fetch, target, host = _resolve(account.service_account_impersonation_url, fetch_for)
    headers = {**_JSON_HEADERS, "Authorization": f"Bearer {token.value}"}
    answer = await fetch("POST", target, headers=headers, body=body)
    body_fields = parse_fields(answer, host)
    value, expires = body_fields.get("accessToken"), body_fields.get("expireTime")
    if not isinstance(value, str) or not value:
        raise token_error(answer, host)
    try:
        expires_in = timestamps.parse_go_time(str(expires)).instant - clock.now()
    except ValueError:
        # Without a readable expiry the token is used for this request only, and the next one fetches another.
        expires_in = timedelta()
    return AccessToken(value, expires_in)


async def _read_subject_token(credential_source: CredentialSource, fetch_for: FetchFor) -> str:
    """Read the external token. It is read each time, since its issuer renews it."""
    place_name = credential_source.file or credential_source.url
    if credential_source.file:
        try:
            content = _read_limited(Path(credential_source.file))
        except OSError as error:
            raise _no_token_error(f"expected a token in the file {place_name!r}: {error.strerror}") from error
    else:
        fetch, target, host = _resolve(credential_source.url, fetch_for)
        answer = await fetch("GET", target, headers=credential_source.headers)
        if answer.status != _OK:
            raise token_error(answer, host)
        content = answer.body
    return _extract_token(content, credential_source.format, place_name)


def _read_limited(path: Path) -> bytes:
    with path.open("rb") as file:
        # Limited, because the path comes from a file that may point at a device or a log.
        return file.read(_MAX_FILE_BYTES)


def _extract_token(content: bytes, token_format: TokenFormat, place_name: str) -> str:
    found: object
    try:
        found = content.decode() if token_format.type == "text" else msgspec.json.decode(content, type=dict[str, Any])
    except DECODE_ERRORS:
        raise _no_token_error(f"expected {token_format.type} in {place_name!r}") from None
    name = token_format.subject_token_field_name
    value = found.get(name) if isinstance(found, dict) else found
    if not isinstance(value, str) or not value.strip():
        raise _no_token_error(
            f"expected a token {f'as {name} ' if isinstance(found, dict) else ''}in {place_name!r}, found none"
        )
    return value.strip()


def _no_token_error(problem: str) -> CloudError:
    return CloudError(problem, doing=DOING, status=_UNAUTHORIZED, code="NoAccess")


def _client_authorization(account: ExternalAccount) -> dict[str, str]:
    if not account.client_id:
        return {}
    encoded = base64.b64encode(f"{account.client_id}:{account.client_secret}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


def _resolve(address: str, fetch_for: FetchFor) -> tuple[Fetch, str, str]:
    """Return a `Fetch` for the address, its path with query, and its host."""
    url = urlsplit(address)
    path = url.path or "/"
    return fetch_for(f"{url.scheme}://{url.netloc}"), f"{path}?{url.query}" if url.query else path, url.netloc


def _check_url(text: str, name: str, schemes: tuple[str, ...] = ("https",)) -> None:
    url = urlsplit(text)
    if url.scheme not in schemes or not url.hostname:
        raise ValueError(f"expected an address with {' or '.join(schemes)} as {name}, found {text[:80]!r}")


def parse_token(fetched: FetchedResponse, host: str) -> AccessToken:
    """Return the token in a response (RFC 6749); raise `CloudError`."""
    fields = parse_fields(fetched, host)
    value, expires_in = fields.get("access_token"), fields.get("expires_in")
    if not isinstance(value, str) or not value:
        raise token_error(fetched, host)
    return AccessToken(
        value,
        timedelta(seconds=min(max(expires_in, 0), _MAX_LIFETIME_SECONDS) if isinstance(expires_in, int | float) else 0),
    )


def parse_fields(fetched: FetchedResponse, host: str) -> dict[str, Any]:
    """Return the fields of a successful response; raise `CloudError`."""
    if fetched.status != _HTTP_OK:
        raise token_error(fetched, host)
    return _decode(fetched)


def token_error(fetched: FetchedResponse, host: str) -> CloudError:
    """Return the error of a response, in OAuth's format or in that of Google's APIs."""
    fields = _decode(fetched)
    error: Any = fields.get("error")
    description: Any = fields.get("error_description")
    if isinstance(error, dict):
        error, description = error.get("status"), error.get("message")
    reason = description or fetched.body.decode("utf-8", "replace").strip()[:200] or "no reason given"
    code = error if isinstance(error, str) else ""
    problem = f"{host} issued no token: {reason}"
    return CloudError(problem, doing=DOING, status=fetched.status, code=code, retry_after=retry_after(fetched))


def _decode(fetched: FetchedResponse) -> dict[str, Any]:
    try:
        return msgspec.json.decode(fetched.body, type=dict[str, Any])
    except DECODE_ERRORS:
        return {}
