"""The check kubernikusCount: whether all nodes of the node pools exist."""

import json

import pytest

from haulout.compat import openstack_config
from haulout.controllers.profiles.plugin import CheckResult
from haulout.controllers.profiles.plugins.checks.kubernikus_count import KubernikusCount, SecretReference
from haulout.controllers.profiles.view import topics
from haulout.errors import ExternalError
from support.builders.objects import a_node
from support.fakes.cluster_view import FakeClusterView, ScriptedExternalClient

SETTINGS = """\
# who we are
[Global]
auth-url = "https://identity.example/v3/"
username = "kubernikus"
password = "s3\\"cret#;"  ; not to be shown
region = "qa-de-1"
domain-name = kubernikus
tenant-id = "p1"
[LoadBalancer]
subnet-id = x
"""
CHECK = KubernikusCount(cluster="shop")
BY_SECRET = KubernikusCount(cluster="shop", cloud_provider_secret=SecretReference(name="conf", namespace="ops"))


def pools(*sizes: int) -> str:
    return json.dumps({"name": "shop", "spec": {"nodePools": [{"name": "x", "size": size} for size in sizes]}})


def an_external_client(settings: str = SETTINGS) -> ScriptedExternalClient:
    return ScriptedExternalClient(files={"./provider/cloudprovider.conf": settings.encode()})


def trusted(settings: str = SETTINGS) -> ScriptedExternalClient:
    return an_external_client(settings).reply_with(201, "{}", X_Subject_Token="t0ken")


async def evaluate(external: ScriptedExternalClient, check: KubernikusCount = CHECK, *, nodes: int = 3) -> CheckResult:
    cluster = FakeClusterView(*(a_node(f"n{number}") for number in range(1, nodes + 1)))
    assert check.evaluate(cluster.plugin_context()).passed is None
    await cluster.run_queries(external)
    return check.evaluate(cluster.plugin_context())


@pytest.mark.parametrize(("sizes", "passed"), [((2, 1), True), ((2,), True), ((2, 2), False), ((), True)])
async def test_node_count_must_reach_the_pool_sizes(sizes: tuple[int, ...], *, passed: bool) -> None:
    external = trusted().reply_with(200, pools(*sizes))
    result = await evaluate(external)
    assert result.passed is passed
    assert result.info == {"reason": result.reason}
    login, query = external.requests
    assert login[:2] == ("POST", "https://identity.example/v3/auth/tokens")
    user = {"name": "kubernikus", "password": 's3"cret#;', "domain": {"name": "kubernikus"}}
    assert json.loads(login[2]) == {
        "auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"id": "p1"}},
        }
    }
    assert query[:2] == ("GET", "https://kubernikus.qa-de-1.cloud.sap/api/v1/clusters/shop")
    assert query[3]["x-auth-token"] == "t0ken"


async def test_openstack_settings_may_come_from_a_secret() -> None:
    """I10."""
    external = trusted().reply_with(200, pools(3))
    external.files.clear()
    external.secrets["ops/conf"] = {"cloudprovider.conf": SETTINGS.encode()}
    assert (await evaluate(external, BY_SECRET)).passed


async def test_incomplete_secret_reference_is_ignored() -> None:
    half = KubernikusCount(cluster="shop", cloud_provider_secret=SecretReference(name="conf"))
    assert (await evaluate(trusted().reply_with(200, pools(3)), half)).passed


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (404, "{}", "kubernikus.qa-de-1.cloud.sap answered 404 to the request for cluster shop"),
        (500, pools(1), "kubernikus.qa-de-1.cloud.sap answered 500 to the request for cluster shop"),
        *(
            (
                200,
                body,
                "the response of kubernikus.qa-de-1.cloud.sap for cluster shop has no spec.nodePools with a size each",
            )
            for body in ("{}", "<html>", '{"spec": {"nodePools": [{"size": "2"}]}}', '{"spec": {"nodePools": 1}}', "[]")
        ),
    ],
)
async def test_response_without_pools_is_an_error(status: int, body: str, problem: str) -> None:
    """W25."""
    result = await evaluate(trusted().reply_with(status, body))
    assert result.passed is None
    assert result.error == problem


async def test_missing_token_is_an_error_without_the_password() -> None:
    external = an_external_client().reply_with(401, '{"error": {"code": 401, "message": "Disabled user"}}')
    result = await evaluate(external)
    assert result.error == (
        "Keystone at https://identity.example/v3 issues no token to user kubernikus of domain kubernikus: "
        "status 401, 'Disabled user'"
    )
    assert "s3" not in str(result)
    assert (await evaluate(an_external_client().reply_with(201, "{}"))).error.endswith("status 201")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("", "has no auth-url, username, password, region, domain-name, tenant-id in [Global]"),
        (SETTINGS.replace("region", "area"), "has no region in [Global]"),
        ("[Global]\npassword s3cret\n", "cannot be read, line 2: expected key = value"),
        ("password = s3cret\n", "cannot be read, line 1: expected key = value"),
    ],
)
async def test_invalid_settings_are_reported_without_their_content(settings: str, problem: str) -> None:
    result = await evaluate(an_external_client(settings))
    assert result.error == f"./provider/cloudprovider.conf {problem}"


async def test_missing_settings_are_reported() -> None:
    assert (await evaluate(ScriptedExternalClient())).error == "./provider/cloudprovider.conf: there is no such file"
    empty = ScriptedExternalClient(secrets={"ops/conf": {}})
    assert (await evaluate(empty, BY_SECRET)).error == "Secret ops/conf has no key cloudprovider.conf"
    binary = ScriptedExternalClient(secrets={"ops/conf": {"cloudprovider.conf": b"\xff"}})
    assert (await evaluate(binary, BY_SECRET)).error == "cloudprovider.conf in Secret ops/conf is not text in UTF-8"


@pytest.mark.parametrize("url", ["https://identity.example", "https://identity.example/v3"])
async def test_keystone_version_may_be_omitted(url: str) -> None:
    external = trusted(SETTINGS.replace("https://identity.example/v3/", url)).reply_with(200, pools())
    await evaluate(external)
    assert external.requests[0][1] == "https://identity.example/v3/auth/tokens"


def test_repr_of_settings_hides_the_password() -> None:
    assert "s3" not in repr(openstack_config.parse(SETTINGS, source="x"))
    with pytest.raises(ExternalError):
        openstack_config.parse("", source="x")


def test_topic_is_the_node_count() -> None:
    assert CHECK.topics("n1") == (topics.NODE_COUNT,)
