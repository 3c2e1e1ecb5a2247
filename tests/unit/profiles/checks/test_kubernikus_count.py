"""Whether all nodes that Kubernikus should have made are there."""

import json

import pytest

from haulout.core import cloudprovider
from haulout.errors import OutsideError
from haulout.profiles import topics
from haulout.profiles.plugin import Verdict
from haulout.profiles.plugins.checks.kubernikus_count import KubernikusCount, SecretReference
from support.builders import a_node
from support.scenes import Cluster, Stranger

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


def the_outside(settings: str = SETTINGS) -> Stranger:
    return Stranger(files={"./provider/cloudprovider.conf": settings.encode()})


def trusted(settings: str = SETTINGS) -> Stranger:
    return the_outside(settings).says(201, "{}", X_Subject_Token="t0ken")


async def looked(outside: Stranger, check: KubernikusCount = CHECK, *, nodes: int = 3) -> Verdict:
    cluster = Cluster(*(a_node(f"n{number}") for number in range(1, nodes + 1)))
    assert check.look(cluster.scene()).passed is None
    await cluster.ask(outside)
    return check.look(cluster.scene())


@pytest.mark.parametrize(("sizes", "passed"), [((2, 1), True), ((2,), True), ((2, 2), False), ((), True)])
async def test_there_must_be_as_many_nodes_as_the_pools_should_have(sizes: tuple[int, ...], *, passed: bool) -> None:
    outside = trusted().says(200, pools(*sizes))
    verdict = await looked(outside)
    assert verdict.passed is passed
    assert verdict.info == {"reason": verdict.reason}
    login, question = outside.heard
    assert login[:2] == ("POST", "https://identity.example/v3/auth/tokens")
    user = {"name": "kubernikus", "password": 's3"cret#;', "domain": {"name": "kubernikus"}}
    assert json.loads(login[2]) == {
        "auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"id": "p1"}},
        }
    }
    assert question[:2] == ("GET", "https://kubernikus.qa-de-1.cloud.sap/api/v1/clusters/shop")
    assert question[3]["x-auth-token"] == "t0ken"


async def test_the_settings_can_come_from_a_secret() -> None:
    """I10."""
    outside = trusted().says(200, pools(3))
    outside.files.clear()
    outside.secrets["ops/conf"] = {"cloudprovider.conf": SETTINGS.encode()}
    assert (await looked(outside, BY_SECRET)).passed


async def test_half_a_secret_is_none() -> None:
    half = KubernikusCount(cluster="shop", cloud_provider_secret=SecretReference(name="conf"))
    assert (await looked(trusted().says(200, pools(3)), half)).passed


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (404, "{}", "kubernikus.qa-de-1.cloud.sap answered 404 when asked for cluster shop"),
        (500, pools(1), "kubernikus.qa-de-1.cloud.sap answered 500 when asked for cluster shop"),
        *(
            (200, body, "what kubernikus.qa-de-1.cloud.sap says of cluster shop has no spec.nodePools with a size each")
            for body in ("{}", "<html>", '{"spec": {"nodePools": [{"size": "2"}]}}', '{"spec": {"nodePools": 1}}', "[]")
        ),
    ],
)
async def test_an_answer_without_pools_is_an_error(status: int, body: str, problem: str) -> None:
    """W25."""
    verdict = await looked(trusted().says(status, body))
    assert verdict.passed is None
    assert verdict.error == problem


async def test_without_a_token_it_is_an_error_that_shows_no_password() -> None:
    outside = the_outside().says(401, '{"error": {"code": 401, "message": "Disabled user"}}')
    verdict = await looked(outside)
    assert verdict.error == (
        "Keystone at https://identity.example/v3 gives user kubernikus of domain kubernikus no token: "
        "it answered 401, 'Disabled user'"
    )
    assert "s3" not in str(verdict)
    assert (await looked(the_outside().says(201, "{}"))).error.endswith("it answered 201")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("", "has no auth-url, username, password, region, domain-name, tenant-id in [Global]"),
        (SETTINGS.replace("region", "area"), "has no region in [Global]"),
        ("[Global]\npassword s3cret\n", "cannot be read, line 2: expected key = value"),
        ("password = s3cret\n", "cannot be read, line 1: expected key = value"),
    ],
)
async def test_settings_that_make_no_sense_are_told_without_their_content(settings: str, problem: str) -> None:
    verdict = await looked(the_outside(settings))
    assert verdict.error == f"./provider/cloudprovider.conf {problem}"


async def test_settings_that_are_not_there() -> None:
    assert (await looked(Stranger())).error == "./provider/cloudprovider.conf: there is no such file"
    empty = Stranger(secrets={"ops/conf": {}})
    assert (await looked(empty, BY_SECRET)).error == "Secret ops/conf has no key cloudprovider.conf"
    binary = Stranger(secrets={"ops/conf": {"cloudprovider.conf": b"\xff"}})
    assert (await looked(binary, BY_SECRET)).error == "cloudprovider.conf in Secret ops/conf is not text in UTF-8"


@pytest.mark.parametrize("url", ["https://identity.example", "https://identity.example/v3"])
async def test_the_version_of_keystone_may_be_left_out(url: str) -> None:
    outside = trusted(SETTINGS.replace("https://identity.example/v3/", url)).says(200, pools())
    await looked(outside)
    assert outside.heard[0][1] == "https://identity.example/v3/auth/tokens"


def test_a_password_is_not_shown_with_its_settings() -> None:
    assert "s3" not in repr(cloudprovider.read(SETTINGS, where="x"))
    with pytest.raises(OutsideError):
        cloudprovider.read("", where="x")


def test_a_new_node_wakes_it() -> None:
    assert CHECK.topics("n1") == (topics.NODE_COUNT,)
