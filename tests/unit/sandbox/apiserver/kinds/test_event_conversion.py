"""Events are one thing in two APIs, and go after an hour."""

from datetime import timedelta

import msgspec
import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, JsonObject
from support.apiserver.requests import event_names, merge, request_json, watch

OLD = "/api/v1/namespaces/shop/events"
NEW = "/apis/events.k8s.io/v1/namespaces/shop/events"
POD = {"kind": "Pod", "namespace": "shop", "name": "p"}
AN_OLD_ONE: JsonObject = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "old"},
    "involvedObject": POD,
    "message": "pulled",
    "source": {"component": "kubelet"},
    "firstTimestamp": "2026-01-05T09:00:00Z",
    "lastTimestamp": "2026-01-05T09:30:00Z",
    "count": 3,
}
A_NEW_ONE: JsonObject = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "new"},
    "eventTime": "2026-01-05T09:00:00.000000Z",
    "regarding": POD,
    "action": "Drain",
    "reason": "Drained",
    "type": "Normal",
    "note": "drained",
    "reportingController": "haulout.dev/operator",
    "reportingInstance": "haulout-0",
    "series": {"count": 2, "lastObservedTime": "2026-01-05T09:00:00.000000Z"},
}


@pytest.fixture
async def events(api: InProcessTransport) -> None:
    assert (await request_json(api, "POST", OLD, AN_OLD_ONE))[0] == 201
    assert (await request_json(api, "POST", NEW, A_NEW_ONE))[0] == 201


@pytest.mark.usefixtures("events")
async def test_an_old_event_is_read_by_the_new_api(api: InProcessTransport) -> None:
    _, found = await request_json(api, "GET", f"{NEW}/old")
    del found["metadata"]
    assert found == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": None,
        "regarding": POD,
        "note": "pulled",
        "deprecatedSource": {"component": "kubelet"},
        "deprecatedFirstTimestamp": "2026-01-05T09:00:00Z",
        "deprecatedLastTimestamp": "2026-01-05T09:30:00Z",
        "deprecatedCount": 3,
    }


@pytest.mark.usefixtures("events")
async def test_a_new_event_is_read_by_the_old_api(api: InProcessTransport) -> None:
    _, found = await request_json(api, "GET", f"{OLD}/new")
    del found["metadata"]
    assert found == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": POD,
        "action": "Drain",
        "reason": "Drained",
        "type": "Normal",
        "message": "drained",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": "2026-01-05T09:00:00.000000Z",
        "reportingComponent": "haulout.dev/operator",
        "reportingInstance": "haulout-0",
        "series": {"count": 2, "lastObservedTime": "2026-01-05T09:00:00.000000Z"},
    }


@pytest.mark.usefixtures("events")
async def test_a_change_by_one_event_api_shows_in_the_other(api: InProcessTransport) -> None:
    await merge(api, f"{OLD}/new", message="drained again")
    watched = await watch(api, NEW, resourceVersion="0", fieldSelector="regarding.name=p")
    assert event_names(watched) == [("ADDED", "new"), ("ADDED", "old")]
    assert watched[0][1]["note"] == "drained again"
    assert watched[0][1]["apiVersion"] == "events.k8s.io/v1"
    await request_json(api, "DELETE", f"{NEW}/old")
    assert [item["metadata"]["name"] for item in (await request_json(api, "GET", OLD))[1]["items"]] == ["new"]


@pytest.mark.usefixtures("events")
async def test_the_source_of_an_event_is_its_reporting_controller(api: InProcessTransport) -> None:
    for source, found in (("kubelet", ["old"]), ("haulout.dev/operator", ["new"]), ("nobody", [])):
        _, listed = await request_json(api, "GET", OLD, fieldSelector=f"source={source}")
        assert [item["metadata"]["name"] for item in listed["items"]] == found


@pytest.mark.usefixtures("events")
async def test_an_unchanged_event_expires_after_an_hour(
    cluster: ApiServer, api: InProcessTransport, clock: Clock
) -> None:
    await clock.sleep(timedelta(minutes=50))
    await merge(api, f"{NEW}/new", series={"count": 3})
    since = str(cluster.revision)
    await clock.sleep(timedelta(minutes=20))
    assert event_names(await watch(api, NEW, resourceVersion=since)) == [("DELETED", "old")]
    assert [item["metadata"]["name"] for item in (await request_json(api, "GET", OLD))[1]["items"]] == ["new"]
    await clock.sleep(timedelta(minutes=41))
    assert (await request_json(api, "GET", OLD))[1]["items"] == []
    assert {write.username for write in cluster.history if write.verb == "expire"} == {"etcd"}


@pytest.mark.usefixtures("events")
async def test_a_watch_gets_the_expiry_of_an_event_without_another_request(
    api: InProcessTransport, clock: Clock
) -> None:
    started_at = clock.now()
    query = (("watch", "1"), ("resourceVersion", "0"), ("allowWatchBookmarks", "1"), ("timeoutSeconds", "7200"))
    async with api.stream(Request(method="GET", path=OLD, query=query)) as stream:
        async for line in stream.lines():
            if msgspec.json.decode(line)["type"] == "DELETED":
                break
    assert timedelta(hours=1) <= clock.now() - started_at <= timedelta(minutes=62)
