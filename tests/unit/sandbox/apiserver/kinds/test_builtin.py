"""How the sandbox's API server treats the built-in kinds where they differ."""

from collections import Counter

import pytest

from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.apiserver.kinds.builtin import (
    BUILTIN_KINDS,
    CLUSTER_ROLE,
    ROLE,
    SECRET,
    SERVICE,
    VALIDATING_WEBHOOK_CONFIGURATION,
    VOLUME_ATTACHMENT,
)
from haulout_sandbox.apiserver.kinds.kind import CORE_KINDS, Kind
from support.apiserver.requests import merge, request_json
from support.builders import samples

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SECRETS = "/api/v1/namespaces/shop/secrets"


def path(kind: Kind, name: str) -> str:
    return kind.path(kind.key("shop", name))


def test_no_kind_is_listed_twice() -> None:
    assert max(Counter((kind.group, kind.version, kind.plural) for kind in (*CORE_KINDS, *BUILTIN_KINDS)).values()) == 1


async def test_a_kind_that_is_added_twice_is_served_once(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.add_kind(SERVICE)
    _, core = await request_json(api, "GET", "/api/v1")
    assert [item["name"] for item in core["resources"]].count("services") == 1


@pytest.mark.parametrize("kind", BUILTIN_KINDS, ids=lambda it: it.resource)
async def test_every_kind_is_listed_and_discovered(api: InProcessTransport, kind: Kind) -> None:
    code, found = await request_json(api, "GET", path(kind, "x").rpartition("/")[0])
    created = [item for item in found["items"] if "kubernetes.io/bootstrapping" not in item["metadata"]["labels"]]
    assert (code, found["kind"], created) == (200, f"{kind.kind}List", [])
    root = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
    _, group = await request_json(api, "GET", root)
    row = next(item for item in group["resources"] if item["name"] == kind.plural)
    assert (row["kind"], row["namespaced"]) == (kind.kind, kind.namespaced)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ROLE, 201), (CLUSTER_ROLE, 201), (SECRET, 404), (SERVICE, 201)],
    ids=lambda it: getattr(it, "resource", it),
)
async def test_some_kinds_are_created_by_a_put(api: InProcessTransport, kind: Kind, code: int) -> None:
    body = next(item for item in samples.ALL if (item["apiVersion"], item["kind"]) == (kind.api_version, kind.kind))
    body = body | {"metadata": {"name": "x"}}
    assert (await request_json(api, "PUT", path(kind, "x"), body))[0] == code


@pytest.mark.parametrize("kind", [VOLUME_ATTACHMENT, VALIDATING_WEBHOOK_CONFIGURATION], ids=lambda it: it.resource)
async def test_some_kinds_require_a_resource_version_on_update(api: InProcessTransport, kind: Kind) -> None:
    body = samples.sample(kind.api_version, kind.kind, "x")
    await request_json(api, "POST", path(kind, "x").rpartition("/")[0], body)
    code, status = await request_json(api, "PUT", path(kind, "x"), body)
    assert code == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in status["message"]


async def test_a_generation_counts_what_a_kind_has_instead_of_a_spec(api: InProcessTransport) -> None:
    await request_json(
        api,
        "POST",
        HOOKS,
        samples.sample(VALIDATING_WEBHOOK_CONFIGURATION.api_version, VALIDATING_WEBHOOK_CONFIGURATION.kind, "x"),
    )
    _, labelled = await merge(api, f"{HOOKS}/x", metadata={"labels": {"a": "b"}})
    hooks = next(item["webhooks"] for item in samples.CLUSTER if item["kind"] == VALIDATING_WEBHOOK_CONFIGURATION.kind)
    _, changed = await merge(api, f"{HOOKS}/x", webhooks=hooks)
    assert [item["metadata"]["generation"] for item in (labelled, changed)] == [1, 2]


async def test_secrets_are_selected_by_type(api: InProcessTransport) -> None:
    for name, kind in (("a", "example.com/a"), ("b", "")):
        await request_json(api, "POST", SECRETS, samples.sample("v1", "Secret", name, type=kind))
    _, found = await request_json(api, "GET", SECRETS, fieldSelector="type=Opaque")
    assert [item["metadata"]["name"] for item in found["items"]] == ["b"]
