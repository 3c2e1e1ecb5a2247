"""Credentials for Google: credential files and access tokens."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from haulout.app.sandbox.clouds import gcp_fetch
from haulout.core.clock import Clock
from haulout.errors import CloudError, ConfigError
from haulout.providers.gcp.tokens import FileTokenIssuer, MetadataTokenIssuer, TokenCache, read_credentials
from haulout.providers.http_fetch import FetchedResponse
from support.clouds.gcp_token_endpoints import GcpTokenEndpoints

ACCOUNT = "haulout@my-project.iam.gserviceaccount.com"
SCOPE = "https://www.googleapis.com/auth/compute.readonly"


@pytest.fixture(scope="module")
def pair() -> tuple[str, bytes]:
    """Return a private and a public key."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    public = private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode(), public


def a_file(folder: Path, **fields: Any) -> Path:
    path = folder / "key.json"
    path.write_bytes(msgspec.json.encode(fields))
    return path


def a_key(folder: Path, private: str, **fields: Any) -> Path:
    whole = {"type": "service_account", "client_email": ACCOUNT, "private_key": private, "private_key_id": "1"}
    return a_file(folder, **(whole | {"token_uri": "https://oauth2.example.com/token"} | fields))


def tokens(cloud: GcpTokenEndpoints, path: Path, clock: Clock) -> TokenCache:
    return TokenCache(
        FileTokenIssuer(path=path, scope=SCOPE, fetch_for=lambda _: gcp_fetch(cloud), clock=clock), clock=clock
    )


async def test_service_account_key_signs_the_token_request(
    clock: Clock, tmp_path: Path, pair: tuple[str, bytes]
) -> None:
    cloud = GcpTokenEndpoints(clock)
    cloud.add_service_account_key(ACCOUNT, pair[1])
    found = tokens(cloud, a_key(tmp_path, pair[0]), clock)
    token = await found.current()
    cloud.access_tokens.check(f"Bearer {token}")
    assert await found.current() == token
    await clock.sleep(timedelta(minutes=57))
    renewed = await found.current()
    assert renewed != token
    found.forget()
    assert await found.current() != renewed


async def test_rotated_service_account_key_is_used_without_a_restart(
    clock: Clock, tmp_path: Path, pair: tuple[str, bytes]
) -> None:
    cloud = GcpTokenEndpoints(clock)
    path = a_key(tmp_path, pair[0])
    found = tokens(cloud, path, clock)
    with pytest.raises(CloudError, match=r"invalid_grant: .*Invalid JWT Signature"):
        await found.current()
    cloud.add_service_account_key("other@example.com", pair[1])
    a_key(tmp_path, pair[0], client_email="other@example.com")
    assert await found.current()


async def test_authorized_user_credentials_of_gcloud_are_supported(clock: Clock, tmp_path: Path) -> None:
    path = a_file(tmp_path, type="authorized_user", client_id="i", client_secret="s", refresh_token="r")
    assert await tokens(GcpTokenEndpoints(clock), path, clock).current()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "external_account"}, "missing required field `audience`"),
        ({"type": "gdch_service_account"}, "expected the type .*external_account.* found type gdch_service_account"),
        ({}, "found type none, which is not supported"),
        ({"type": "service_account", "client_email": ACCOUNT}, "expected private_key in"),
        ({"type": "authorized_user", "client_id": 7}, "expected client_id in"),
    ],
)
def test_invalid_credentials_file_is_rejected_with_its_variable(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read_credentials(a_file(tmp_path, **fields))
    assert error.value.key == "GOOGLE_APPLICATION_CREDENTIALS"


def test_missing_or_malformed_credentials_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a readable file, found .*No such file"):
        read_credentials(tmp_path / "none.json")
    (tmp_path / "x.json").write_text("not json")
    with pytest.raises(ConfigError, match="expected JSON in"):
        read_credentials(tmp_path / "x.json")


async def test_invalid_private_key_is_reported_without_its_value(clock: Clock, tmp_path: Path) -> None:
    with pytest.raises(CloudError, match="private_key is not an RSA key in PEM") as error:
        await tokens(GcpTokenEndpoints(clock), a_key(tmp_path, "c2VjcmV0"), clock).current()
    assert "c2VjcmV0" not in str(error.value)


@pytest.mark.parametrize("body", [b'{"access_token": "\xff"}', b"[" * 100_000, b"{}", b'{"access_token": ""}'])
async def test_malformed_token_response_is_an_error(clock: Clock, body: bytes) -> None:
    async def fetch(*_: Any, **__: Any) -> FetchedResponse:
        return FetchedResponse(200, {}, body)

    with pytest.raises(CloudError, match=r"getting a Google access token: .*the metadata server issued no token"):
        await TokenCache(MetadataTokenIssuer(fetch), clock=clock).current()


async def test_token_lifetime_is_capped_at_twelve_hours() -> None:
    async def fetch(*_: Any, **__: Any) -> FetchedResponse:
        return FetchedResponse(200, {}, b'{"access_token": "a", "expires_in": 1e300}')

    assert (await MetadataTokenIssuer(fetch).issue()).expires_in == timedelta(hours=12)
