import random
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.api.resources import LEASES, NODES, PODS, Resource
from haulout.core.clock import Clock
from haulout.errors import Forbidden, MalformedResponse, Unauthorized, Unreachable
from haulout.kube.client import Client
from haulout.kube.discovery import Discovery, discover
from haulout.kube.transport import Response
from support.fakes.scripted_transport import ScriptedTransport, json_response, status_response

Answer = Response | Exception


async def run_discovery(clock: Clock, *answers: Answer) -> tuple[Discovery, ScriptedTransport]:
    transport = ScriptedTransport(list(answers))
    client = Client(transport, clock=clock, random=random.Random(7))
    return await discover(client), transport


# Newer servers


def an_aggregated_list(*groups: dict[str, Any]) -> Response:
    return json_response(
        {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": list(groups)}
    )


def a_group(name: str, *versions: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": None}, "versions": list(versions)}


def a_version(version: str, *resources: dict[str, Any], freshness: str = "Current") -> dict[str, Any]:
    return {"version": version, "freshness": freshness, "resources": list(resources)}


def a_resource(plural: str, kind: str, *, scope: str = "Namespaced", **more: Any) -> dict[str, Any]:
    return {
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": scope,
        "singularResource": kind.lower(),
        "verbs": ["get", "list"],
        **more,
    }


CORE = a_group(
    "",
    a_version(
        "v1",
        a_resource("nodes", "Node", scope="Cluster", shortNames=["no"]),
        a_resource("pods", "Pod", subresources=[{"subresource": "eviction", "verbs": ["create"]}]),
    ),
)
COORDINATION = a_group("coordination.k8s.io", a_version("v1", a_resource("leases", "Lease")))


async def test_aggregated_discovery_takes_two_requests(clock: Clock) -> None:
    discovery, transport = await run_discovery(clock, an_aggregated_list(CORE), an_aggregated_list(COORDINATION))

    assert [request.path for request in transport.requests] == ["/api", "/apis"]
    assert discovery.serves(NODES)
    assert discovery.serves(PODS)
    assert discovery.serves(LEASES)
    assert discovery.unavailable == ()


async def test_accept_header_prefers_the_newest_aggregated_discovery_version(clock: Clock) -> None:
    _, transport = await run_discovery(clock, an_aggregated_list(), an_aggregated_list())

    forms = transport.requests[1].accept.split(",")
    assert [form.rpartition("v=")[2] for form in forms[:2]] == [
        "v2;as=APIGroupDiscoveryList",
        "v2beta1;as=APIGroupDiscoveryList",
    ]
    assert forms[2] == "application/json"


async def test_resource_has_kind_scope_short_names_verbs_and_subresources(clock: Clock) -> None:
    discovery, _ = await run_discovery(clock, an_aggregated_list(CORE), an_aggregated_list())

    nodes, pods = discovery.find("", "nodes"), discovery.find("", "pods")
    assert nodes is not None
    assert (nodes.kind, nodes.namespaced, nodes.short_names, nodes.verbs) == ("Node", False, ("no",), ("get", "list"))
    assert pods is not None
    assert (pods.namespaced, pods.subresources, pods.preferred_version) == (True, ("eviction",), "v1")


async def test_preferred_version_is_the_first_version_that_has_the_resource(clock: Clock) -> None:
    group = a_group(
        "example.dev",
        a_version("v2", a_resource("gadgets", "Gadget")),
        a_version("v1", a_resource("gadgets", "OldGadget"), a_resource("widgets", "Widget")),
    )
    discovery, _ = await run_discovery(clock, an_aggregated_list(CORE), an_aggregated_list(group))

    gadgets, widgets = discovery.find("example.dev", "gadgets"), discovery.find("example.dev", "widgets")
    assert gadgets is not None
    assert (gadgets.versions, gadgets.preferred_version, gadgets.kind) == (("v2", "v1"), "v2", "Gadget")
    assert widgets is not None
    assert widgets.versions == ("v1",)


async def test_resource_in_another_version_than_required_is_not_served(clock: Clock) -> None:
    group = a_group("coordination.k8s.io", a_version("v2", a_resource("leases", "Lease")))
    discovery, _ = await run_discovery(clock, an_aggregated_list(CORE), an_aggregated_list(group))

    assert not discovery.serves(LEASES)
    assert discovery.find("coordination.k8s.io", "leases") is not None


async def test_stale_group_is_reported_as_unavailable_and_other_groups_are_served(clock: Clock) -> None:
    stale = a_group("metrics.k8s.io", a_version("v1beta1", a_resource("nodes", "NodeMetrics"), freshness="Stale"))
    discovery, _ = await run_discovery(clock, an_aggregated_list(CORE), an_aggregated_list(stale, COORDINATION))

    assert discovery.unavailable == ("metrics.k8s.io/v1beta1",)
    assert discovery.find("metrics.k8s.io", "nodes") is None
    assert not discovery.is_complete_for("metrics.k8s.io")
    assert discovery.is_complete_for("coordination.k8s.io")
    assert discovery.serves(LEASES)


async def test_null_lists_and_resources_without_a_kind_are_ignored(clock: Clock) -> None:
    odd = a_group(
        "odd.dev",
        {"version": "v1", "resources": None},
        a_version("v0", {**a_resource("things", ""), "verbs": None}, {**a_resource("parts", "Part"), "verbs": None}),
    )
    discovery, _ = await run_discovery(clock, an_aggregated_list(CORE), an_aggregated_list(odd))

    assert discovery.find("odd.dev", "things") is None
    parts = discovery.find("odd.dev", "parts")
    assert parts is not None
    assert parts.verbs == ()


# Older servers

OLD_CORE = json_response({"kind": "APIVersions", "versions": ["v1"]})
OLD_CORE_V1 = json_response(
    {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {"name": "pods", "namespaced": True, "kind": "Pod", "verbs": ["get"], "shortNames": ["po"]},
            {"name": "pods/eviction", "namespaced": True, "kind": "Eviction", "verbs": ["create"]},
        ],
    }
)


def old_groups(**groups: list[str]) -> Response:
    """Return a list of groups; the last version of each is the preferred one, though the others come first."""
    items = [
        {
            "name": name.replace("_", "."),
            "versions": [{"groupVersion": f"{name}/{version}", "version": version} for version in versions],
            "preferredVersion": {"groupVersion": f"{name}/{versions[-1]}", "version": versions[-1]},
        }
        for name, versions in groups.items()
    ]
    return json_response({"kind": "APIGroupList", "groups": items})


def old_version(*resources: str) -> Response:
    return json_response(
        {
            "kind": "APIResourceList",
            "resources": [
                {"name": name, "namespaced": True, "kind": name.title(), "verbs": None} for name in resources
            ],
        }
    )


async def test_older_server_is_discovered_by_one_request_per_group_version(clock: Clock) -> None:
    discovery, transport = await run_discovery(
        clock,
        OLD_CORE,
        OLD_CORE_V1,
        old_groups(example_dev=["v1", "v2"]),
        old_version("gadgets"),
        old_version("gadgets"),
    )

    assert [request.path for request in transport.requests] == [
        "/api",
        "/api/v1",
        "/apis",
        "/apis/example.dev/v2",
        "/apis/example.dev/v1",
    ]
    pods, gadgets = discovery.find("", "pods"), discovery.find("example.dev", "gadgets")
    assert pods is not None
    assert (pods.kind, pods.subresources, pods.short_names) == ("Pod", ("eviction",), ("po",))
    assert gadgets is not None
    assert (gadgets.versions, gadgets.preferred_version) == (("v2", "v1"), "v2")
    assert discovery.serves(Resource("example.dev", "v1", "gadgets", "Gadget", namespaced=True, model=RawObject))


async def test_group_that_is_down_on_an_older_server_is_reported_as_unavailable(clock: Clock) -> None:
    """Each document is requested several times, because a 503 may be transient."""
    down = status_response(503, "ServiceUnavailable")
    groups = old_groups(metrics_k8s_io=["v1beta1"], example_dev=["v1"])
    discovery, _ = await run_discovery(
        clock, OLD_CORE, OLD_CORE_V1, groups, down, down, down, down, old_version("gadgets")
    )

    assert discovery.unavailable == ("metrics.k8s.io/v1beta1",)
    assert discovery.find("example.dev", "gadgets") is not None


# Responses that are no discovery documents


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (status_response(401, "Unauthorized"), Unauthorized),
        (status_response(403, "Forbidden"), Forbidden),
        (json_response(b"<html><title>Sign in</title></html>"), MalformedResponse),
        (json_response({"kind": "PodList"}), MalformedResponse),
        (json_response({"hello": "world"}), MalformedResponse),
        (json_response([1, 2]), MalformedResponse),
    ],
)
async def test_response_that_is_no_discovery_document_is_an_error(
    clock: Clock, given: Response, error: type[Exception]
) -> None:
    with pytest.raises(error, match="discovering what is served under /api"):
        await run_discovery(clock, given)


async def test_unauthorized_during_discovery_is_not_a_missing_group(clock: Clock) -> None:
    with pytest.raises(Unauthorized):
        await run_discovery(clock, OLD_CORE, status_response(401, "Unauthorized"))


async def test_server_unreachable_during_discovery_is_not_a_missing_group(clock: Clock) -> None:
    unreachable = Unreachable("connection refused", sent=False)
    with pytest.raises(Unreachable):
        await run_discovery(clock, OLD_CORE, unreachable, unreachable, unreachable, unreachable)
