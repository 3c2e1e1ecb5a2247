"""Request metrics: the number of requests, their status codes and their durations."""

import random
from datetime import timedelta

import pytest

from haulout.api.resources import LEASES, NODES, PODS
from haulout.core.clock import Clock
from haulout.core.metrics import RecentValues
from haulout.errors import Forbidden, HauloutError, NotFound, TooManyRequests, Unreachable
from haulout.kube.client import Client
from haulout.kube.metrics import BUCKET_BOUNDS, NO_RESPONSE, RequestMetrics, RequestSeries
from haulout.kube.patches import merge_patch
from support.fakes.scripted_transport import ScriptedAnswer, ScriptedTransport, json_response, status_response

NODE = {"metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}}
GONE = status_response(404, "NotFound")
FORBIDDEN = status_response(403, "Forbidden")
BUDGET = status_response(429, "TooManyRequests", "not now")
BROKEN = status_response(500, "InternalError")
LOST = Unreachable("no answer within 30 s", sent=True)


def a_client(clock: Clock, *script: ScriptedAnswer) -> Client:
    return Client(ScriptedTransport(list(script)), clock=clock, random=random.Random(1))


def request_counts(client: Client) -> dict[tuple[str, str], tuple[int, int]]:
    return {(series.verb, series.resource): (series.count, series.errors) for series in client.request_metrics.all()}


async def test_requests_are_counted_by_verb_and_resource(clock: Clock) -> None:
    page = {"metadata": {"resourceVersion": "1"}, "items": []}
    client = a_client(
        clock, *[json_response(NODE)] * 3, json_response(page), json_response({}), json_response({}), json_response({})
    )
    await client.get(NODES, "n1")
    await client.get(NODES, "n1")
    await client.patch(NODES, "n1", merge_patch({}), subresource="status")
    await client.list(LEASES, namespace="shop")
    await client.delete(PODS, "cart-0", namespace="shop")
    await client.evict("cart-1", namespace="shop")
    await client.server_version()
    assert request_counts(client) == {
        ("get", "nodes"): (2, 0),
        ("patch", "nodes/status"): (1, 0),
        ("list", "leases.coordination.k8s.io"): (1, 0),
        ("delete", "pods"): (1, 0),
        ("create", "pods/eviction"): (1, 0),
        ("other", ""): (1, 0),
    }


async def test_each_retry_of_a_request_is_counted(clock: Clock) -> None:
    client = a_client(clock, LOST, BROKEN, json_response(NODE))
    await client.get(NODES, "n1")
    (series,) = client.request_metrics.all()
    assert series.codes == {NO_RESPONSE: 1, 500: 1, 200: 1}
    assert request_counts(client) == {("get", "nodes"): (3, 2)}


@pytest.mark.parametrize(
    ("script", "failure", "errors"), [(GONE, NotFound, 0), (FORBIDDEN, Forbidden, 1)], ids=["not there", "not allowed"]
)
async def test_not_found_is_not_counted_as_an_error_and_forbidden_is(
    clock: Clock, script: ScriptedAnswer, failure: type[HauloutError], errors: int
) -> None:
    client = a_client(clock, script)
    with pytest.raises(failure):
        await client.get(NODES, "n1")
    assert request_counts(client) == {("get", "nodes"): (1, errors)}


async def test_eviction_refused_by_a_pdb_is_not_counted_as_an_error(clock: Clock) -> None:
    client = a_client(clock, BUDGET)
    with pytest.raises(TooManyRequests):
        await client.evict("cart-0", namespace="shop")
    assert request_counts(client) == {("create", "pods/eviction"): (1, 0)}


async def test_fenced_client_shares_the_request_metrics_of_its_parent(clock: Clock) -> None:
    client = a_client(clock, json_response(NODE))
    await client.with_fence(lambda: None).get(NODES, "n1")
    assert request_counts(client) == {("get", "nodes"): (1, 0)}


async def test_watch_is_counted_when_it_is_opened_or_refused(clock: Clock) -> None:
    client = a_client(clock, GONE, json_response())
    with pytest.raises(NotFound):
        async with client.watch(NODES):
            pass
    async with client.watch(NODES):
        pass
    assert request_counts(client) == {("watch", "nodes"): (2, 0)}


async def test_request_durations_are_recorded_by_bucket_median_and_maximum(clock: Clock) -> None:
    calls = RequestMetrics(clock)
    for seconds in (0.02, 0.02, 0.02, 40.0):
        calls.observe(("get", "nodes", "", ""), started=clock.monotonic() - seconds, code=200)
    (series,) = calls.all()
    assert dict(zip((*BUCKET_BOUNDS, "more"), series.buckets, strict=True))[0.025] == 3
    assert series.buckets[-1] == 1
    assert series.seconds == pytest.approx(40.06)
    assert series.recent.median(clock.monotonic()) == pytest.approx(0.02)
    assert series.recent.maximum(clock.monotonic()) == pytest.approx(40)


async def test_number_of_series_is_bounded_for_any_number_of_resources(clock: Clock) -> None:
    calls = RequestMetrics(clock)
    for number in range(1_000):
        calls.observe(("get", f"kind{number}", "", ""), started=clock.monotonic(), code=200)
    assert len(calls.all()) < 300
    assert sum(series.count for series in calls.all()) == 1_000
    assert [series.verb for series in calls.all()][-1] == "other"


@pytest.mark.parametrize("code", [409, 410, 422])
def test_conflict_gone_and_invalid_are_not_counted_as_errors(code: int) -> None:
    assert not RequestSeries(("patch", "leases", "", "")).is_error(code)


def test_maximum_is_kept_for_minutes_and_then_expires() -> None:
    recent = RecentValues()
    recent.record(9, at=0)
    for number in range(1_000):
        recent.record(0.1, at=number / 10)
    assert recent.maximum(100) == 9
    assert recent.median(100) == 0.1
    later = timedelta(minutes=6).total_seconds()
    assert recent.maximum(later) == 0
    assert recent.median(later + 100) == 0


def test_recent_values_without_records_are_zero() -> None:
    assert (RecentValues().maximum(5), RecentValues().median(5)) == (0, 0)
