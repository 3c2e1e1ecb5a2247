"""Workload identity federation: subject tokens are exchanged for access tokens, as in external_account files."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haulout.app.sandbox.clouds import gcp_fetch
from haulout.core.clock import Clock
from haulout.errors import CloudError, ConfigError
from haulout.providers.gcp.compute_api import RestCompute
from haulout.providers.gcp.settings import read
from haulout.providers.gcp.tokens import FileTokenIssuer, TokenCache
from haulout.providers.http_fetch import Fetch, FetchedResponse
from support.clouds.gcp_token_endpoints import GcpTokenEndpoints

AUDIENCE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k"
ACCOUNT = "haulout@my-project.iam.gserviceaccount.com"
SPEAK = f"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken"
SCOPE = "https://www.googleapis.com/auth/compute.readonly"


def a_file(folder: Path, **fields: Any) -> Path:
    token = folder / "token"
    if not token.exists():
        token.write_text("foreign\n")
    whole = {
        "type": "external_account",
        "audience": AUDIENCE,
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "credential_source": {"file": str(token)},
    }
    path = folder / "external.json"
    path.write_bytes(msgspec.json.encode(whole | fields))
    return path


class FakeFetch:
    """Fetches from Google and from the issuer of subject tokens; it records the requests."""

    def __init__(self, cloud: GcpTokenEndpoints) -> None:
        self.requests: list[tuple[str, Mapping[str, str], bytes]] = []
        self.response = FetchedResponse(200, {}, b'{"id_token": "foreign"}')
        self._google = gcp_fetch(cloud)

    def __call__(self, address: str) -> Fetch:
        """Return the fetch function for an address."""

        async def fetch(
            method: str,
            target: str,
            *,
            headers: Mapping[str, str],
            body: bytes | None = None,
            within: timedelta = timedelta(seconds=10),
        ) -> FetchedResponse:
            self.requests.append((f"{method} {address}{target}", headers, body or b""))
            if "googleapis.com" not in address:
                return self.response
            return await self._google(method, target, headers=headers, body=body, within=within)

        return fetch


def a_cloud(clock: Clock) -> GcpTokenEndpoints:
    cloud = GcpTokenEndpoints(clock)
    cloud.external_tokens[AUDIENCE] = "foreign"
    return cloud


def tokens(path: Path, way: FakeFetch, clock: Clock) -> TokenCache:
    return TokenCache(FileTokenIssuer(path=path, scope=SCOPE, fetch_for=way, clock=clock), clock=clock)


async def test_subject_token_in_a_file_is_exchanged_for_an_access_token(clock: Clock, tmp_path: Path) -> None:
    cloud = a_cloud(clock)
    cloud.launch("n1")
    compute = RestCompute(gcp_fetch(cloud), tokens(a_file(tmp_path), FakeFetch(cloud), clock))
    (found,) = (await compute.instances("sandbox-project")).instances
    assert found["name"] == "n1"


async def test_renewed_subject_token_is_used_for_the_next_exchange(clock: Clock, tmp_path: Path) -> None:
    cloud = a_cloud(clock)
    found = tokens(a_file(tmp_path), FakeFetch(cloud), clock)
    await found.current()
    cloud.external_tokens[AUDIENCE] = "renewed"
    found.forget()
    with pytest.raises(CloudError, match=r"400 invalid_grant: sts.googleapis.com issued no token: .*rejected"):
        await found.current()
    (tmp_path / "token").write_text("renewed")
    assert await found.current()


async def test_service_account_impersonation_follows_the_credentials_file(clock: Clock, tmp_path: Path) -> None:
    cloud = a_cloud(clock)
    fetch = FakeFetch(cloud)
    lifetime = {"token_lifetime_seconds": 1800}
    path = a_file(tmp_path, service_account_impersonation_url=SPEAK, service_account_impersonation=lifetime)
    found = tokens(path, fetch, clock)
    with pytest.raises(
        CloudError, match=r"403.*iamcredentials.googleapis.com issued no token: .*getAccessToken denied"
    ):
        await found.current()
    cloud.impersonatable_accounts.add(ACCOUNT)
    token = await found.current()
    cloud.access_tokens.check(f"Bearer {token}")
    request_line, _, body = fetch.requests[-1]
    assert request_line == f"POST {SPEAK}"
    assert msgspec.json.decode(body) == {"scope": [SCOPE], "lifetime": "1800s"}
    await clock.sleep(timedelta(minutes=50))
    assert await found.current() == token
    await clock.sleep(timedelta(minutes=7))
    assert await found.current() != token


async def test_subject_token_may_be_fetched_as_json(clock: Clock, tmp_path: Path) -> None:
    cloud = a_cloud(clock)
    way = FakeFetch(cloud)
    token_format = {"type": "json", "subject_token_field_name": "id_token"}
    source = {"url": "http://169.254.1.1/token?for=google", "headers": {"X-Metadata": "yes"}, "format": token_format}
    found = tokens(a_file(tmp_path, credential_source=source, client_id="c", client_secret="s"), way, clock)
    assert await found.current()
    (request_line, headers, _), (_, sent, _) = way.requests
    assert (request_line, headers["X-Metadata"]) == ("GET http://169.254.1.1/token?for=google", "yes")
    assert sent["Authorization"] == "Basic Yzpz"


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (FetchedResponse(404, {}, b"not here"), "404: 169.254.1.1 issued no token: not here"),
        (FetchedResponse(200, {}, b"{}"), "expected a token as id_token in 'http://169.254.1.1/token', found none"),
        (FetchedResponse(200, {}, b"no json"), "expected json in 'http://169.254.1.1/token'"),
        (FetchedResponse(200, {}, b'{"id_token": "\xff"}'), "expected json in"),
        (FetchedResponse(200, {}, b"[" * 100_000), "expected json in"),
    ],
)
async def test_missing_subject_token_is_reported_with_its_source(
    clock: Clock, tmp_path: Path, gives: FetchedResponse, message: str
) -> None:
    way = FakeFetch(a_cloud(clock))
    way.response = gives
    token_format = {"type": "json", "subject_token_field_name": "id_token"}
    path = a_file(tmp_path, credential_source={"url": "http://169.254.1.1/token", "format": token_format})
    with pytest.raises(CloudError, match=message):
        await tokens(path, way, clock).current()


async def test_missing_subject_token_file_is_reported_with_its_path(clock: Clock, tmp_path: Path) -> None:
    path = a_file(tmp_path)
    (tmp_path / "token").unlink()
    with pytest.raises(CloudError, match=r"expected a token in the file '.*token': No such file"):
        await tokens(path, FakeFetch(a_cloud(clock)), clock).current()
    (tmp_path / "token").write_text(" \n")
    with pytest.raises(CloudError, match=r"expected a token in '.*token', found none"):
        await tokens(path, FakeFetch(a_cloud(clock)), clock).current()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"credential_source": {"environment_id": "aws1"}}, "those of AWS and programs are not supported"),
        ({"credential_source": {"executable": {"command": "x"}}}, "those of AWS and programs are not supported"),
        ({"credential_source": {}}, "expected a credential_source with either a file or a url"),
        ({"credential_source": {"file": "a", "url": "http://b"}}, "either a file or a url"),
        ({"credential_source": {"url": "ftp://b"}}, "expected an address with https or http as credential_source.url"),
        ({"credential_source": {"file": "a", "format": {"type": "xml"}}}, "format.type text or json, found 'xml'"),
        ({"credential_source": {"file": "a", "format": {"type": "json"}}}, "subject_token_field_name, found none"),
        ({"token_url": "http://sts.googleapis.com/v1/token"}, "expected an address with https as token_url"),
        ({"service_account_impersonation_url": "x"}, "https as service_account_impersonation_url, found 'x'"),
        ({"audience": 7}, "Expected `str`, got `int` - at `.*audience`"),
    ],
)
def test_invalid_external_account_file_is_rejected_at_the_start(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    path = str(a_file(tmp_path, **fields))
    with pytest.raises(ConfigError, match=message) as error:
        read({"HAULOUT_GCP": "true", "GOOGLE_APPLICATION_CREDENTIALS": path})
    assert error.value.key == "GOOGLE_APPLICATION_CREDENTIALS"
