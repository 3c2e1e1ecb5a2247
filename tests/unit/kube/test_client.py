"""Single requests of the client: their form, when they are retried, and the texts of errors."""

import json
import random
from datetime import timedelta
from typing import Any

import pytest

from haulout import errors
from haulout.api.objects import RawObject
from haulout.api.resources import LEASES, NODES, PODS
from haulout.core.clock import Clock
from haulout.kube import patches
from haulout.kube.client import Client
from support.fakes.scripted_transport import ScriptedAnswer, ScriptedTransport, json_response, status_response

NODE = {"metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}}
THROTTLED = status_response(429, "TooManyRequests", "slow down", retryAfterSeconds=3)
BUDGET = status_response(
    429,
    "TooManyRequests",
    "Cannot evict pod as it would violate the pod's disruption budget.",
    causes=[{"reason": "DisruptionBudget", "message": "The disruption budget cart needs 2 healthy pods and has 2"}],
)
LOST = errors.Unreachable("no answer within 30 s", sent=True)
REFUSED = errors.Unreachable("connection refused", sent=False)
CUT_SHORT = errors.MalformedResponse("the response was cut off")
BROKEN = status_response(500, "InternalError", "etcdserver: leader changed")


def a_client(clock: Clock, *script: ScriptedAnswer) -> tuple[Client, ScriptedTransport]:
    transport = ScriptedTransport(list(script))
    return Client(transport, clock=clock, random=random.Random(1)), transport


def query(transport: ScriptedTransport, *, request: int = -1) -> dict[str, str]:
    return dict(transport.requests[request].query)


def body(transport: ScriptedTransport) -> Any:
    return json.loads(transport.requests[-1].body or b"null")


# The requests that are sent


async def test_get_requests_one_object_and_decodes_it(clock: Clock) -> None:
    client, transport = a_client(clock, json_response(NODE))
    node = await client.get(NODES, "n1")
    assert (node.key, node.uid, node.resource_version) == ("n1", "u1", "7")
    assert (transport.requests[0].method, transport.requests[0].path) == ("GET", "/api/v1/nodes/n1")


async def test_raw_object_keeps_fields_that_no_struct_declares(clock: Clock) -> None:
    client, _ = a_client(clock, json_response({**NODE, "status": {"nodeInfo": {"osImage": "Debian"}}}))
    node = await client.get(NODES.with_model(RawObject), "n1")
    assert node["status"]["nodeInfo"]["osImage"] == "Debian"


def test_object_name_with_slashes_is_escaped_in_the_path() -> None:
    assert NODES.path("../secrets") == "/api/v1/nodes/..%2Fsecrets"


def test_path_requires_a_namespace_exactly_when_the_resource_is_namespaced() -> None:
    with pytest.raises(ValueError, match="no namespace was given for 'cart-0'"):
        PODS.path("cart-0")
    with pytest.raises(ValueError, match="'shop' was given"):
        NODES.path("n1", namespace="shop")


async def test_list_reads_all_pages_at_one_resource_version(clock: Clock) -> None:
    first = {"metadata": {"resourceVersion": "50", "continue": "more"}, "items": [NODE]}
    second = {"metadata": {"resourceVersion": "50"}, "items": [{"metadata": {"name": "n2"}}]}
    client, transport = a_client(clock, json_response(first), json_response(second))
    nodes = await client.list(NODES, labels="pool=a", fields="spec.unschedulable=true", page_size=1)
    assert [node.name for node in nodes.items] == ["n1", "n2"]
    assert nodes.resource_version == "50"
    assert query(transport, request=0) == {
        "labelSelector": "pool=a",
        "fieldSelector": "spec.unschedulable=true",
        "limit": "1",
    }
    assert query(transport)["continue"] == "more"


async def test_list_from_cache_sends_no_resource_version_on_later_pages(clock: Clock) -> None:
    first = {"metadata": {"resourceVersion": "50", "continue": "more"}, "items": []}
    client, transport = a_client(
        clock, json_response(first), json_response({"metadata": {"resourceVersion": "50"}, "items": []})
    )
    await client.list(NODES, from_cache=True)
    assert query(transport, request=0)["resourceVersion"] == "0"
    assert "resourceVersion" not in query(transport)


async def test_list_with_expired_continue_token_is_repeated_without_a_limit(clock: Clock) -> None:
    first = {"metadata": {"resourceVersion": "50", "continue": "more"}, "items": [NODE]}
    whole = {"metadata": {"resourceVersion": "60"}, "items": [NODE, {"metadata": {"name": "n2"}}]}
    client, transport = a_client(clock, json_response(first), status_response(410, "Expired"), json_response(whole))
    nodes = await client.list(NODES, page_size=1)
    assert [node.name for node in nodes.items] == ["n1", "n2"]
    assert "limit" not in query(transport)


async def test_each_patch_type_sends_its_content_type(clock: Clock) -> None:
    client, transport = a_client(clock, *[json_response(NODE)] * 4)
    await client.patch(NODES, "n1", patches.json_patch(patches.require("/metadata/resourceVersion", "7")))
    await client.patch(NODES, "n1", patches.merge_patch({"spec": {"unschedulable": None}}))
    await client.patch(NODES, "n1", patches.strategic_patch({}), subresource="status")
    await client.patch(NODES, "n1", patches.apply_patch({"kind": "Node"}), force=True, dry_run=True)
    assert [request.content_type for request in transport.requests] == [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ]
    assert transport.requests[2].path == "/api/v1/nodes/n1/status"
    assert query(transport) == {"fieldManager": "haulout", "dryRun": "All", "force": "true"}


def test_json_pointer_escapes_slash_and_tilde_of_label_keys() -> None:
    assert patches.pointer("metadata", "labels", "a/b~c") == "/metadata/labels/a~1b~0c"


async def test_delete_sends_preconditions_grace_period_and_propagation_policy(clock: Clock) -> None:
    client, transport = a_client(clock, json_response({"kind": "Status"}))
    await client.delete(
        PODS, "p", namespace="shop", uid="u", resource_version="9", grace=timedelta(0), propagation="Foreground"
    )
    assert body(transport) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "9"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }


async def test_eviction_has_the_uid_of_the_pod_as_precondition(clock: Clock) -> None:
    client, transport = a_client(clock, json_response({"kind": "Status"}))
    await client.evict("p", namespace="shop", uid="u", dry_run=True)
    assert transport.requests[0].path == "/api/v1/namespaces/shop/pods/p/eviction"
    assert body(transport)["deleteOptions"]["preconditions"] == {"uid": "u"}
    assert query(transport) == {"dryRun": "All"}


# Retries


async def test_read_is_retried_after_any_failure(clock: Clock) -> None:
    client, _ = a_client(clock, LOST, CUT_SHORT, BROKEN, json_response(NODE))
    assert (await client.get(NODES, "n1")).name == "n1"


async def test_retries_end_after_four_attempts(clock: Clock) -> None:
    client, transport = a_client(clock, *[BROKEN] * 9)
    with pytest.raises(errors.ServerFailure, match="getting nodes n1: etcdserver: leader changed"):
        await client.get(NODES, "n1")
    assert len(transport.requests) == 4


@pytest.mark.parametrize("uncertain", [LOST, CUT_SHORT, BROKEN], ids=["timed out", "cut short", "500"])
async def test_write_that_may_have_taken_effect_is_not_retried(clock: Clock, uncertain: ScriptedAnswer) -> None:
    client, transport = a_client(clock, uncertain, json_response(NODE))
    with pytest.raises(errors.KubeError):
        await client.patch(NODES, "n1", patches.merge_patch({}))
    assert len(transport.requests) == 1


@pytest.mark.parametrize("certain", [REFUSED, THROTTLED], ids=["never sent", "throttled"])
async def test_write_that_cannot_have_taken_effect_is_retried(clock: Clock, certain: ScriptedAnswer) -> None:
    client, transport = a_client(clock, certain, json_response(NODE))
    await client.patch(NODES, "n1", patches.merge_patch({}))
    assert len(transport.requests) == 2


async def test_retry_waits_for_the_retry_after_duration(clock: Clock) -> None:
    client, _ = a_client(clock, json_response(b"busy", status=429, headers={"retry-after": "17"}), json_response(NODE))
    started = clock.monotonic()
    await client.get(NODES, "n1")
    assert 17 <= clock.monotonic() - started < 18


async def test_very_long_retry_after_is_raised_to_the_caller(clock: Clock) -> None:
    client, _ = a_client(clock, json_response(b"busy", status=503, headers={"retry-after": "600"}))
    with pytest.raises(errors.ServerFailure) as caught:
        await client.get(NODES, "n1")
    assert caught.value.retry_after == timedelta(minutes=10)


@pytest.mark.parametrize("refusal", [BUDGET, THROTTLED], ids=["budget", "throttled"])
async def test_refused_eviction_is_not_retried(clock: Clock, refusal: ScriptedAnswer) -> None:
    client, transport = a_client(clock, refusal, json_response({}))
    with pytest.raises(errors.TooManyRequests):
        await client.evict("p", namespace="shop")
    assert len(transport.requests) == 1


async def test_eviction_refused_by_a_pdb_carries_the_disruption_budget_cause(clock: Clock) -> None:
    client, _ = a_client(clock, BUDGET)
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.evict("p", namespace="shop")
    assert caught.value.causes == (
        errors.Cause("DisruptionBudget", "", "The disruption budget cart needs 2 healthy pods and has 2"),
    )


async def test_fence_is_checked_before_each_write_and_each_retry(clock: Clock) -> None:
    client, transport = a_client(clock, REFUSED, json_response(NODE), json_response(NODE))
    fence_results = iter([None, errors.LeadershipLost("too late")])

    def may_write() -> None:
        if (error := next(fence_results)) is not None:
            raise error

    fenced = client.with_fence(may_write)
    with pytest.raises(errors.LeadershipLost):
        await fenced.patch(NODES, "n1", patches.merge_patch({}))
    assert len(transport.requests) == 1
    await fenced.get(NODES, "n1")


# Errors


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.ApiError),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Gone", errors.Expired),
        (410, "Expired", errors.Expired),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerFailure),
        (504, "Timeout", errors.ServerFailure),
    ],
)
async def test_each_status_code_and_reason_has_its_own_error_type(
    clock: Clock, code: int, reason: str, kind: type[errors.ApiError]
) -> None:
    client, _ = a_client(clock, *[status_response(code, reason)] * 4)
    with pytest.raises(errors.ApiError, match=r"creating leases\.coordination\.k8s\.io kube/a: no") as caught:
        await client.create(LEASES, {"metadata": {"name": "a"}}, namespace="kube")
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.reason) == (code, reason)


@pytest.mark.parametrize(
    ("garbage", "shown"),
    [
        (b"<!DOCTYPE html><html><head><title>Sign in\n to Corp</title>", "an HTML page titled 'Sign in to Corp'"),
        (b'{"metadata": {"name"', 'got {"metadata": {"name"; is a proxy'),
        (b"", "got an empty body"),
        (b"\x16\x03\x01\x02", "expected JSON"),
        (b'{"metadata": []}', r"not of the Kubernetes API: Expected `object`, got `array` - at `$.metadata`"),
    ],
)
async def test_response_that_is_not_from_kubernetes_is_quoted_in_one_line(
    clock: Clock, garbage: bytes, shown: str
) -> None:
    client, _ = a_client(clock, json_response(garbage))
    with pytest.raises(errors.MalformedResponse) as caught:
        await client.get(NODES, "n1")
    assert shown in str(caught.value)
    assert str(caught.value).startswith("getting nodes n1: ")
    assert "\n" not in str(caught.value)


async def test_html_error_page_is_a_server_failure_that_quotes_its_title(clock: Clock) -> None:
    page = b"<html><title>502 Bad Gateway</title></html>"
    client, _ = a_client(clock, *[json_response(page, status=502)] * 4)
    with pytest.raises(errors.ServerFailure, match="HTTP 502: an HTML page titled '502 Bad Gateway'"):
        await client.get(NODES, "n1")


async def test_undecodable_object_in_a_list_is_named(clock: Clock) -> None:
    page = {"items": [NODE, {"metadata": {"name": "bad"}, "spec": {"taints": "all"}}]}
    client, _ = a_client(clock, json_response(page))
    with pytest.raises(errors.MalformedResponse, match="listing nodes: bad cannot be decoded: Expected `array`"):
        await client.list(NODES)


async def test_refused_watch_raises_the_api_error(clock: Clock) -> None:
    client, _ = a_client(clock, status_response(403, "Forbidden", 'nodes is forbidden: User "eve" cannot watch'))
    with pytest.raises(errors.Forbidden, match='watching nodes: nodes is forbidden: User "eve"'):
        async with client.watch(NODES):
            pass


async def test_error_event_in_a_watch_is_raised_as_its_api_error(clock: Clock) -> None:
    error_event = {
        "type": "ERROR",
        "object": json.loads(status_response(410, "Expired", "too old resource version: 5 (9)").body),
    }
    client, _ = a_client(clock, json_response(error_event))
    with pytest.raises(errors.Expired, match="watching nodes: too old resource version"):
        async with client.watch(NODES, resource_version="5") as events:
            assert [event async for event in events] == []


async def test_retry_after_header_takes_precedence_over_retry_after_seconds(clock: Clock) -> None:
    status = {"kind": "Status", "code": 429, "message": "busy", "details": {"retryAfterSeconds": 20}}
    busy = json_response(status, status=429, headers={"retry-after": "2"})
    client, _ = a_client(clock, busy, busy, busy, busy)
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.get(NODES, "n1")
    assert caught.value.retry_after == timedelta(seconds=2)


async def test_retry_after_is_capped_at_a_day(clock: Clock) -> None:
    client, _ = a_client(clock, json_response(b"", status=503, headers={"retry-after": "9" * 30}))
    with pytest.raises(errors.ServerFailure) as caught:
        await client.get(NODES, "n1")
    assert caught.value.retry_after == timedelta(days=1)


async def test_watch_event_of_an_unknown_type_is_a_malformed_response(clock: Clock) -> None:
    client, _ = a_client(clock, json_response(b'{"type":"RENAMED","object":{"metadata":{"name":"n1"}}}'))
    async with client.watch(NODES) as events:
        with pytest.raises(errors.MalformedResponse, match="unknown type 'RENAMED'"):
            await anext(events)


async def test_fenced_client_keeps_its_field_manager(clock: Clock) -> None:
    transport = ScriptedTransport([json_response(NODE)])
    client = Client(transport, clock=clock, random=random.Random(1), field_manager="drainer").with_fence(lambda: None)
    await client.create(NODES, NODE)
    assert query(transport)["fieldManager"] == "drainer"


async def test_watch_sends_its_timeout_to_the_server(clock: Clock) -> None:
    client, transport = a_client(clock, json_response(b""))
    async with client.watch(NODES, watch_timeout=timedelta(minutes=5)):
        pass
    assert query(transport)["timeoutSeconds"] == "300"


@pytest.mark.parametrize("nonsense", [b"{}", b'{"status":"ok"}', b'{"kind":"Status","status":"Success","code":200}'])
async def test_json_without_items_is_not_an_empty_list(clock: Clock, nonsense: bytes) -> None:
    client, _ = a_client(clock, json_response(nonsense))
    with pytest.raises(errors.MalformedResponse, match="missing required field `items`"):
        await client.list(PODS)


async def test_null_items_are_an_empty_list(clock: Clock) -> None:
    client, _ = a_client(clock, json_response({"kind": "PodList", "items": None}))
    assert (await client.list(PODS)).items == ()


@pytest.mark.parametrize("other", [{}, {"metadata": {"name": "n2"}}], ids=["nothing", "another"])
async def test_response_about_another_object_is_a_malformed_response(clock: Clock, other: Any) -> None:
    client, _ = a_client(clock, json_response(other), json_response(other))
    with pytest.raises(errors.MalformedResponse, match="getting nodes n1: the response is"):
        await client.get(NODES, "n1")
    with pytest.raises(errors.MalformedResponse, match="getting nodes n1: the response is"):
        await client.get(NODES.with_model(RawObject), "n1")


async def test_redirect_is_an_error_that_shows_the_location(clock: Clock) -> None:
    client, _ = a_client(clock, json_response(b"", status=302, headers={"location": "https://login.example"}))
    with pytest.raises(errors.ApiError, match=r"HTTP 302: go to https://login\.example"):
        await client.get(NODES, "n1")


async def test_retries_are_logged_with_their_reason(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    client, _ = a_client(clock, THROTTLED, json_response(NODE))
    await client.get(NODES, "n1")
    assert "getting nodes n1: slow down; trying again in 3s" in caplog.text
