"""How the sandbox's API server treats the built-in kinds where they differ."""

from collections import Counter

import pytest

from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.apiserver.builtin_kinds import (
    ALL,
    CLUSTER_ROLE,
    ROLE,
    SECRET,
    SERVICE,
    VALIDATING_WEBHOOKS,
    VOLUME_ATTACHMENT,
)
from haulout_sandbox.apiserver.kinds import KINDS, Kind
from support import samples
from support.asking import ask, merge

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SECRETS = "/api/v1/namespaces/shop/secrets"


def path(kind: Kind, name: str) -> str:
    return kind.path(kind.key("shop", name))


def test_no_kind_is_listed_twice() -> None:
    assert max(Counter((it.group, it.version, it.plural) for it in (*KINDS, *ALL)).values()) == 1


async def test_a_kind_that_is_told_again_is_served_once(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.know(SERVICE)
    _, core = await ask(api, "GET", "/api/v1")
    assert [it["name"] for it in core["resources"]].count("services") == 1


@pytest.mark.parametrize("kind", ALL, ids=lambda it: it.resource)
async def test_every_kind_is_listed_and_discovered(api: InProcessTransport, kind: Kind) -> None:
    code, found = await ask(api, "GET", path(kind, "x").rpartition("/")[0])
    of_tests = [it for it in found["items"] if "kubernetes.io/bootstrapping" not in it["metadata"]["labels"]]
    assert (code, found["kind"], of_tests) == (200, f"{kind.kind}List", [])
    root = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
    _, group = await ask(api, "GET", root)
    row = next(it for it in group["resources"] if it["name"] == kind.plural)
    assert (row["kind"], row["namespaced"]) == (kind.kind, kind.namespaced)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(ROLE, 201), (CLUSTER_ROLE, 201), (SECRET, 404), (SERVICE, 201)],
    ids=lambda it: getattr(it, "resource", it),
)
async def test_some_kinds_are_created_by_a_put(api: InProcessTransport, kind: Kind, code: int) -> None:
    body = next(it for it in samples.ALL if (it["apiVersion"], it["kind"]) == (kind.api_version, kind.kind))
    body = body | {"metadata": {"name": "x"}}
    assert (await ask(api, "PUT", path(kind, "x"), body))[0] == code


@pytest.mark.parametrize("kind", [VOLUME_ATTACHMENT, VALIDATING_WEBHOOKS], ids=lambda it: it.resource)
async def test_some_kinds_are_replaced_only_by_those_who_know_the_version(api: InProcessTransport, kind: Kind) -> None:
    body = samples.sample(kind.api_version, kind.kind, "x")
    await ask(api, "POST", path(kind, "x").rpartition("/")[0], body)
    code, said = await ask(api, "PUT", path(kind, "x"), body)
    assert code == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in said["message"]


async def test_a_generation_counts_what_a_kind_has_instead_of_a_spec(api: InProcessTransport) -> None:
    await ask(api, "POST", HOOKS, samples.sample(VALIDATING_WEBHOOKS.api_version, VALIDATING_WEBHOOKS.kind, "x"))
    _, labelled = await merge(api, f"{HOOKS}/x", metadata={"labels": {"a": "b"}})
    hooks = next(it["webhooks"] for it in samples.CLUSTER if it["kind"] == VALIDATING_WEBHOOKS.kind)
    _, changed = await merge(api, f"{HOOKS}/x", webhooks=hooks)
    assert [it["metadata"]["generation"] for it in (labelled, changed)] == [1, 2]


async def test_secrets_are_selected_by_type(api: InProcessTransport) -> None:
    for name, kind in (("a", "example.com/a"), ("b", "")):
        await ask(api, "POST", SECRETS, samples.sample("v1", "Secret", name, type=kind))
    _, found = await ask(api, "GET", SECRETS, fieldSelector="type=Opaque")
    assert [it["metadata"]["name"] for it in found["items"]] == ["b"]
