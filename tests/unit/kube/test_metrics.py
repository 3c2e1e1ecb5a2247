"""What is known of requests afterwards: how many, how they were answered, and how long it took."""

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


async def test_requests_are_counted_by_verb_and_kind_whatever_they_name(clock: Clock) -> None:
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


async def test_each_repetition_of_a_request_counts(clock: Clock) -> None:
    client = a_client(clock, LOST, BROKEN, json_response(NODE))
    await client.get(NODES, "n1")
    (series,) = client.request_metrics.all()
    assert series.codes == {NO_RESPONSE: 1, 500: 1, 200: 1}
    assert request_counts(client) == {("get", "nodes"): (3, 2)}


@pytest.mark.parametrize(
    ("script", "failure", "errors"), [(GONE, NotFound, 0), (FORBIDDEN, Forbidden, 1)], ids=["not there", "not allowed"]
)
async def test_a_no_that_answers_the_question_is_no_error(
    clock: Clock, script: ScriptedAnswer, failure: type[HauloutError], errors: int
) -> None:
    client = a_client(clock, script)
    with pytest.raises(failure):
        await client.get(NODES, "n1")
    assert request_counts(client) == {("get", "nodes"): (1, errors)}


async def test_a_budget_that_holds_back_an_eviction_is_no_error(clock: Clock) -> None:
    client = a_client(clock, BUDGET)
    with pytest.raises(TooManyRequests):
        await client.evict("cart-0", namespace="shop")
    assert request_counts(client) == {("create", "pods/eviction"): (1, 0)}


async def test_a_fenced_client_counts_with_the_one_it_came_from(clock: Clock) -> None:
    client = a_client(clock, json_response(NODE))
    await client.with_fence(lambda: None).get(NODES, "n1")
    assert request_counts(client) == {("get", "nodes"): (1, 0)}


async def test_a_watch_counts_when_it_begins_or_does_not(clock: Clock) -> None:
    client = a_client(clock, GONE, json_response())
    with pytest.raises(NotFound):
        async with client.watch(NODES):
            pass
    async with client.watch(NODES):
        pass
    assert request_counts(client) == {("watch", "nodes"): (2, 0)}


async def test_how_long_answers_took_is_known_by_bucket_median_and_worst(clock: Clock) -> None:
    calls = RequestMetrics(clock)
    for seconds in (0.02, 0.02, 0.02, 40.0):
        calls.observe(("get", "nodes", "", ""), started=clock.monotonic() - seconds, code=200)
    (series,) = calls.all()
    assert dict(zip((*BUCKET_BOUNDS, "more"), series.buckets, strict=True))[0.025] == 3
    assert series.buckets[-1] == 1
    assert series.seconds == pytest.approx(40.06)
    assert series.recent.median(clock.monotonic()) == pytest.approx(0.02)
    assert series.recent.maximum(clock.monotonic()) == pytest.approx(40)


async def test_odd_kinds_without_end_do_not_take_room_without_end(clock: Clock) -> None:
    calls = RequestMetrics(clock)
    for number in range(1_000):
        calls.observe(("get", f"kind{number}", "", ""), started=clock.monotonic(), code=200)
    assert len(calls.all()) < 300
    assert sum(series.count for series in calls.all()) == 1_000
    assert [series.verb for series in calls.all()][-1] == "other"


@pytest.mark.parametrize("code", [409, 410, 422])
def test_somebody_who_was_quicker_is_no_error(code: int) -> None:
    assert not RequestSeries(("patch", "leases", "", "")).is_error(code)


def test_the_worst_stays_for_minutes_however_many_follow_and_then_goes() -> None:
    lately = RecentValues()
    lately.record(9, at=0)
    for number in range(1_000):
        lately.record(0.1, at=number / 10)
    assert lately.maximum(100) == 9
    assert lately.median(100) == 0.1
    later = timedelta(minutes=6).total_seconds()
    assert lately.maximum(later) == 0
    assert lately.median(later + 100) == 0


def test_what_was_never_noted_is_nothing() -> None:
    assert (RecentValues().maximum(5), RecentValues().median(5)) == (0, 0)
