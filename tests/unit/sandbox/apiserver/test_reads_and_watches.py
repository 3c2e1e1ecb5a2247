"""What the sandbox's API server promises: to be read and watched as Kubernetes 1.36 is."""

import base64
from datetime import timedelta

import msgspec
import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, Kind
from support.apiserver.requests import (
    CONFIG_MAPS,
    INITIAL,
    LEASES,
    NODES,
    PODS,
    a_config_map,
    a_lease,
    a_node,
    a_pod,
    event_names,
    merge,
    request_json,
    send,
    watch,
)

# Reading


async def test_an_object_carries_what_the_server_gave_it(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node())
    code, node = await request_json(api, "GET", f"{NODES}/n1")
    assert (code, node["kind"], node["apiVersion"]) == (200, "Node", "v1")
    assert node["metadata"]["resourceVersion"] == str(cluster.revision) == "101"
    assert node["metadata"]["creationTimestamp"] == "2026-01-05T09:00:00Z"
    assert len(node["metadata"]["uid"]) == 36


async def test_what_is_not_there_is_not_found(api: InProcessTransport) -> None:
    assert await request_json(api, "GET", f"{LEASES}/lock") == (
        404,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": 'leases.coordination.k8s.io "lock" not found',
            "reason": "NotFound",
            "details": {"name": "lock", "group": "coordination.k8s.io", "kind": "leases"},
            "code": 404,
        },
    )


async def test_unknown_kinds_and_unknown_groups_are_refused_in_different_ways(api: InProcessTransport) -> None:
    code, status = await request_json(api, "GET", "/api/v1/gadgets")
    assert (code, status["details"]) == (404, {})
    answer = await send(api, "GET", "/apis/gadgets.example/v1/gadgets")
    assert (answer.status, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")


async def test_an_unknown_method_is_not_allowed(api: InProcessTransport) -> None:
    code, status = await request_json(api, "POST", "/api/v1/pods", a_pod())
    assert (code, status["reason"]) == (405, "MethodNotAllowed")


async def test_list_items_do_not_repeat_their_kind(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_node())
    _, found = await request_json(api, "GET", NODES)
    assert (found["kind"], found["apiVersion"], found["metadata"]) == ("NodeList", "v1", {"resourceVersion": "101"})
    assert "kind" not in found["items"][0]


async def test_list_items_of_a_custom_kind_do(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.add_kind(Kind(group="haulout.dev", version="v1alpha1", plural="gadgets", kind="Gadget", is_custom=True))
    cluster.put({"apiVersion": "haulout.dev/v1alpha1", "kind": "Gadget", "metadata": {"name": "g"}})
    _, found = await request_json(api, "GET", "/apis/haulout.dev/v1alpha1/gadgets")
    assert found["items"][0]["kind"] == "Gadget"


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("color=red", "a c"),
        ("color==red,size!=2", "a"),
        ("color!=red", "b d"),
        ("color in (red, blue)", "a b c"),
        ("color notin (red),color", "b"),
        ("!color", "d"),
        ("size", "a b c"),
        ("size>1", "b c"),
        ("size<2,color=red", "a"),
    ],
)
async def test_labels_select(cluster: ApiServer, api: InProcessTransport, selector: str, found: str) -> None:
    cluster.put(a_config_map("a", labels={"color": "red", "size": "1"}))
    cluster.put(a_config_map("b", labels={"color": "blue", "size": "2"}))
    cluster.put(a_config_map("c", labels={"color": "red", "size": "2"}))
    cluster.put(a_config_map("d"))
    _, listed = await request_json(api, "GET", CONFIG_MAPS, labelSelector=selector)
    assert " ".join(item["metadata"]["name"] for item in listed["items"]) == found
    assert " ".join(entry["metadata"]["name"] for entry in cluster.objects("configmaps", labels=selector)) == found


async def test_fields_select(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod("a", node="n1"))
    cluster.put(a_pod("b", node="n2"))
    cluster.put(a_pod("c", node="n1", phase="Failed"))
    _, found = await request_json(api, "GET", "/api/v1/pods", fieldSelector="spec.nodeName=n1,status.phase!=Failed")
    assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
    cluster.put(a_node())
    _, found = await request_json(api, "GET", NODES, fieldSelector="spec.unschedulable=false")
    assert len(found["items"]) == 1


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        (PODS, {"fieldSelector": "spec.color=red"}, "field label not supported: spec.color"),
        (LEASES, {"fieldSelector": "spec.color=red"}, "field label not supported: spec.color"),
        (PODS, {"fieldSelector": "color"}, "invalid field selector: can't understand 'color'"),
        (PODS, {"labelSelector": "a=b=c"}, "unable to parse label selector 'a=b=c'"),
        (PODS, {"limit": "many"}, 'the parameter limit is no number: "many"'),
    ],
)
async def test_an_invalid_query_is_a_bad_request(
    api: InProcessTransport, path: str, query: dict[str, str], message: str
) -> None:
    code, status = await request_json(api, "GET", path, **query)
    assert (code, status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith(message)


async def test_pages_show_the_revision_of_the_first(cluster: ApiServer, api: InProcessTransport) -> None:
    for name in "abcde":
        cluster.put(a_config_map(name))
    _, first = await request_json(api, "GET", CONFIG_MAPS, limit="2")
    assert first["metadata"]["remainingItemCount"] == 3
    cluster.remove("configmaps", "d", "shop")
    cluster.put(a_config_map("c", late="yes"))
    _, second = await request_json(api, "GET", CONFIG_MAPS, limit="2", **{"continue": first["metadata"]["continue"]})
    assert [(item["metadata"]["name"], item.get("data")) for item in second["items"]] == [("c", None), ("d", None)]
    _, third = await request_json(api, "GET", CONFIG_MAPS, limit="2", **{"continue": second["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in third["items"]] == ["e"]
    assert third["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}
    _, full = await request_json(api, "GET", CONFIG_MAPS, limit="4")
    assert (len(full["items"]), "continue" in full["metadata"]) == (4, False)


async def test_a_selected_page_does_not_count_the_rest(cluster: ApiServer, api: InProcessTransport) -> None:
    for name in "abc":
        cluster.put(a_config_map(name, labels={"is": name}))
    _, page = await request_json(api, "GET", CONFIG_MAPS, limit="1", labelSelector="is=a")
    assert "remainingItemCount" not in page["metadata"]
    _, rest = await request_json(
        api, "GET", CONFIG_MAPS, limit="1", labelSelector="is=a", **{"continue": page["metadata"]["continue"]}
    )
    assert rest["items"] == []


async def test_a_page_after_compaction_is_expired_and_can_go_on_inconsistently(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    for name in "abc":
        cluster.put(a_config_map(name))
    _, first = await request_json(api, "GET", CONFIG_MAPS, limit="1")
    cluster.remove("configmaps", "b", "shop")
    cluster.compact()
    code, status = await request_json(api, "GET", CONFIG_MAPS, limit="1", **{"continue": first["metadata"]["continue"]})
    assert (code, status["reason"]) == (410, "Expired")
    assert status["message"].startswith("The provided continue parameter is too old")
    _, rest = await request_json(api, "GET", CONFIG_MAPS, **{"continue": status["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]


async def test_a_continue_token_has_the_content_of_a_real_one(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a"))
    cluster.put(a_config_map("b"))
    _, page = await request_json(api, "GET", CONFIG_MAPS, limit="1")
    token = page["metadata"]["continue"]
    decoded = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert (decoded["v"], decoded["rv"]) == ("meta.k8s.io/v1", 102)
    code, _ = await request_json(api, "GET", CONFIG_MAPS, resourceVersion="101", **{"continue": token})
    assert code == 400


async def test_a_list_is_exact_or_not_older_or_the_latest(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a"))
    cluster.put(a_config_map("b"))
    cluster.put(a_lease("a"))
    cluster.put(a_config_map("c"))

    async def revision_and_count(**query: str) -> tuple[str, int]:
        _, found = await request_json(api, "GET", CONFIG_MAPS, **query)
        return found["metadata"]["resourceVersion"], len(found["items"])

    assert await revision_and_count() == ("104", 3)
    assert await revision_and_count(resourceVersion="102", resourceVersionMatch="Exact") == ("102", 2)
    assert await revision_and_count(resourceVersion="102", limit="5") == ("102", 2)  # exact without saying so
    assert await revision_and_count(resourceVersion="102", resourceVersionMatch="NotOlderThan", limit="5") == ("104", 3)
    assert await revision_and_count(resourceVersion="102") == ("104", 3)
    assert await revision_and_count(resourceVersion="0", limit="1") == ("104", 3)  # the limit is not honoured


async def test_an_exact_list_of_a_compacted_revision_is_expired(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a"))
    cluster.compact()
    code, status = await request_json(api, "GET", CONFIG_MAPS, resourceVersion="101", resourceVersionMatch="Exact")
    assert (code, status["message"]) == (410, "The resourceVersion for the provided list is too old.")


async def test_a_revision_still_to_come_times_out_after_three_seconds(api: InProcessTransport, clock: Clock) -> None:
    code, status = await request_json(api, "GET", CONFIG_MAPS, resourceVersion="5000")
    assert clock.monotonic() == pytest.approx(3, abs=0.01)
    assert (code, status["reason"]) == (504, "Timeout")
    assert status["message"] == "Timeout: Too large resource version: 5000, current: 100"
    assert status["details"] == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"sendInitialEvents": "true"},
    ],
)
async def test_list_options_that_contradict_each_other_are_invalid(
    api: InProcessTransport, query: dict[str, str]
) -> None:
    code, status = await request_json(api, "GET", CONFIG_MAPS, **query)
    assert (code, status["reason"]) == (422, "Invalid")
    assert status["details"]["causes"][0]["field"] in query


# Watching


async def test_a_watch_sends_what_happened_since_its_revision(cluster: ApiServer, api: InProcessTransport) -> None:
    before = cluster.put(a_config_map("a"))["metadata"]["resourceVersion"]
    cluster.put(a_config_map("b"))
    cluster.put(a_config_map("a", new="yes"))
    cluster.remove("configmaps", "b", "shop")
    cluster.put(a_lease("c"))
    events = await watch(api, CONFIG_MAPS, resourceVersion=before)
    assert event_names(events) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert [obj["metadata"]["resourceVersion"] for _, obj in events] == ["102", "103", "104"]
    assert events[0][1]["kind"] == "ConfigMap"


async def test_a_watch_gets_writes_while_it_is_open(cluster: ApiServer, api: InProcessTransport, clock: Clock) -> None:
    clock.call_at(clock.now() + timedelta(seconds=5), lambda: cluster.put(a_config_map("a")))
    request = Request(method="GET", path=CONFIG_MAPS, query=(("watch", "1"), ("resourceVersion", "100")))
    async with api.stream(request) as stream:
        assert stream.status == 200
        line = await anext(stream.lines())
    assert msgspec.json.decode(line)["object"]["metadata"]["name"] == "a"
    assert 5 < clock.monotonic() < 5.01


async def test_objects_that_start_or_stop_to_match_come_and_go(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a", labels={"on": "yes"}))
    cluster.put(a_config_map("b"))
    start = str(cluster.revision)
    cluster.put(a_config_map("a", labels={"on": "no"}))
    cluster.put(a_config_map("b", labels={"on": "yes"}))
    cluster.put(a_config_map("b", labels={"on": "yes"}, x="y"))
    events = await watch(api, CONFIG_MAPS, labelSelector="on=yes", resourceVersion=start)
    assert event_names(events) == [("DELETED", "a"), ("ADDED", "b"), ("MODIFIED", "b")]
    gone = events[0][1]["metadata"]
    assert (gone["labels"], gone["resourceVersion"]) == ({"on": "yes"}, "103")


async def test_a_watch_of_one_namespace_gets_no_events_of_others(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a") | {"metadata": {"name": "a", "namespace": "other"}})
    assert await watch(api, CONFIG_MAPS, resourceVersion="100") == []
    assert event_names(await watch(api, "/api/v1/configmaps", resourceVersion="100")) == [("ADDED", "a")]


async def test_a_compacted_watch_gets_410_in_an_event(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a"))
    cluster.compact()
    ((kind, status),) = await watch(api, CONFIG_MAPS, resourceVersion="5", timeoutSeconds="600")
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"] == f"too old resource version: 5 ({cluster.revision})"
    ((kind, _),) = await watch(api, CONFIG_MAPS, resourceVersion="101")
    assert kind == "ERROR"


async def test_only_a_window_of_history_is_kept_for_watches(clock: Clock) -> None:
    cluster = ApiServer(clock, window=2, namespaces=["shop"])
    for name in "abcd":
        cluster.put(a_config_map(name))
    api = cluster.transport()
    assert event_names(await watch(api, CONFIG_MAPS, resourceVersion="102")) == [("ADDED", "c"), ("ADDED", "d")]
    assert [kind for kind, _ in await watch(api, CONFIG_MAPS, resourceVersion="101")] == ["ERROR"]
    assert [write.revision for write in cluster.history] == [101, 102, 103, 104]


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_from_nowhere_starts_with_what_there_is(
    cluster: ApiServer, api: InProcessTransport, version: str
) -> None:
    cluster.put(a_config_map("b"))
    cluster.put(a_config_map("a"))
    assert event_names(await watch(api, CONFIG_MAPS, resourceVersion=version)) == [("ADDED", "a"), ("ADDED", "b")]


async def test_initial_events_end_with_a_marked_bookmark(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    cluster.put(a_node())
    events = await watch(api, PODS, allowWatchBookmarks="true", **INITIAL)
    assert [kind for kind, _ in events] == ["ADDED", "BOOKMARK"]
    assert events[1][1] == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "102", "annotations": {"k8s.io/initial-events-end": "true"}},
        "spec": {},
        "status": {},
    }


async def test_a_watch_list_can_start_without_initial_events(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_config_map("a"))
    assert await watch(api, CONFIG_MAPS, **(INITIAL | {"sendInitialEvents": "false"})) == []


async def test_a_watch_list_of_a_revision_still_to_come_fails_in_an_event(
    api: InProcessTransport, clock: Clock
) -> None:
    ((kind, status),) = await watch(api, CONFIG_MAPS, resourceVersion="5000", timeoutSeconds="9", **INITIAL)
    assert (kind, status["code"]) == ("ERROR", 504)
    assert clock.monotonic() == pytest.approx(3, abs=0.01)


async def test_an_older_server_refuses_watch_lists(clock: Clock) -> None:
    api = ApiServer(clock, watch_lists=False).transport()
    code, status = await request_json(api, "GET", CONFIG_MAPS, **INITIAL)
    assert (code, status["reason"]) == (422, "Invalid")
    assert [item["field"] for item in status["details"]["causes"]] == ["sendInitialEvents"]


@pytest.mark.parametrize(("watch_lists", "kinds"), [(True, ["ADDED", "BOOKMARK"]), (False, ["ADDED"])])
async def test_an_older_server_does_not_mark_the_end_of_what_there_is(
    clock: Clock, kinds: list[str], *, watch_lists: bool
) -> None:
    cluster = ApiServer(clock, watch_lists=watch_lists)
    cluster.put(a_config_map("a"))
    events = await watch(cluster.transport(), CONFIG_MAPS, resourceVersion="0", allowWatchBookmarks="1")
    assert [kind for kind, _ in events] == kinds


async def test_bookmarks_come_each_minute_and_before_the_end_once_the_revision_moved(
    cluster: ApiServer, api: InProcessTransport, clock: Clock
) -> None:
    clock.call_at(clock.now() + timedelta(seconds=90), lambda: cluster.put(a_node()))
    request = Request(
        method="GET",
        path=CONFIG_MAPS,
        query=(("watch", "1"), ("resourceVersion", "100"), ("allowWatchBookmarks", "1"), ("timeoutSeconds", "200")),
    )
    bookmarks = []
    async with api.stream(request) as stream:
        async for line in stream.lines():
            event = msgspec.json.decode(line)
            bookmarks.append((round(clock.monotonic()), event["type"], event["object"]["metadata"]["resourceVersion"]))
    assert bookmarks == [(120, "BOOKMARK", "101"), (180, "BOOKMARK", "101"), (198, "BOOKMARK", "101")]
    assert clock.monotonic() == pytest.approx(200, abs=0.01)


# Discovery


async def test_the_version_is_served(api: InProcessTransport) -> None:
    code, version = await request_json(api, "GET", "/version")
    assert (code, version["gitVersion"]) == (200, "v1.36.3")
    assert (await send(api, "GET", "/readyz")).body == b"ok"


async def test_plain_discovery_lists_groups_and_resources(api: InProcessTransport) -> None:
    assert (await request_json(api, "GET", "/api"))[1]["versions"] == ["v1"]
    _, groups = await request_json(api, "GET", "/apis")
    assert {"coordination.k8s.io", "events.k8s.io", "policy"} <= {group["name"] for group in groups["groups"]}
    _, group = await request_json(api, "GET", "/apis/policy")
    assert group["preferredVersion"] == {"groupVersion": "policy/v1", "version": "v1"}
    _, core = await request_json(api, "GET", "/api/v1")
    found = {resource["name"]: resource for resource in core["resources"]}
    assert list(found) == sorted(found)
    assert found["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert found["nodes"]["shortNames"] == ["no"]
    assert "deletecollection" not in found["namespaces"]["verbs"]
    _, leases = await request_json(api, "GET", "/apis/coordination.k8s.io/v1")
    assert [resource["name"] for resource in leases["resources"]] == ["leases"]


async def test_aggregated_discovery_returns_all_kinds_at_once(api: InProcessTransport) -> None:
    media_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    answer = await api.send(Request(method="GET", path="/api", accept=f"{media_type},application/json"))
    assert answer.headers["content-type"] == media_type
    core = msgspec.json.decode(answer.body)
    assert (core["kind"], core["items"][0]["metadata"]) == ("APIGroupDiscoveryList", {})
    pods = next(item for item in core["items"][0]["versions"][0]["resources"] if item["resource"] == "pods")
    assert pods["scope"] == "Namespaced"
    assert {"eviction", "log", "status"} <= {item["subresource"] for item in pods["subresources"]}
    assert pods["categories"] == ["all"]
    answer = await api.send(Request(method="GET", path="/apis", accept=media_type))
    groups = msgspec.json.decode(answer.body)["items"]
    assert {"coordination.k8s.io", "events.k8s.io", "policy"} <= {item["metadata"]["name"] for item in groups}


# The test's own hand


async def test_the_history_has_every_write_with_its_author_and_object(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    cluster.put(a_node())
    await merge(api, f"{NODES}/n1", spec={"unschedulable": True})
    await request_json(api, "DELETE", f"{NODES}/n1")
    assert [(write.revision, write.username, write.verb, write.type, write.path) for write in cluster.history] == [
        (101, "test", "put", "ADDED", "/api/v1/nodes/n1"),
        (102, "api", "patch", "MODIFIED", "/api/v1/nodes/n1"),
        (103, "api", "delete", "DELETED", "/api/v1/nodes/n1"),
    ]
    assert [len(cluster.objects("nodes", revision=revision)) for revision in (100, 101, 102, 103)] == [0, 1, 1, 0]
    assert cluster.objects("nodes", revision=101)[0]["spec"] == {}


async def test_what_a_test_holds_is_a_copy(cluster: ApiServer) -> None:
    own = a_node(unschedulable=True)
    cluster.put(own)["spec"].clear()
    cluster.get("nodes", "n1")["spec"].clear()
    cluster.objects("nodes")[0]["spec"].clear()
    assert own == a_node(unschedulable=True)
    own["spec"].clear()
    assert cluster.get("nodes", "n1")["spec"] == {"unschedulable": True}


async def test_put_replaces_an_object_and_keeps_its_uid(cluster: ApiServer) -> None:
    first = cluster.put(a_node())["metadata"]
    second = cluster.put(a_node(unschedulable=True))["metadata"]
    assert (first["uid"], first["creationTimestamp"]) == (second["uid"], second["creationTimestamp"])
    cluster.remove("nodes", "n1")
    assert cluster.put(a_node())["metadata"]["uid"] != first["uid"]


async def test_an_unknown_object_in_a_test_is_an_error_with_its_name(cluster: ApiServer) -> None:
    with pytest.raises(KeyError, match="no nodes n1"):
        cluster.get("nodes", "n1")
    with pytest.raises(KeyError, match="no kind gadgets"):
        cluster.objects("gadgets")
    with pytest.raises(KeyError, match="no kind v1 Gadget"):
        cluster.put({"apiVersion": "v1", "kind": "Gadget", "metadata": {"name": "g"}})


async def test_kinds_of_the_same_plural_are_distinguished_by_group(cluster: ApiServer) -> None:
    cluster.put({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}})
    assert [item["apiVersion"] for item in cluster.objects("events.events.k8s.io")] == ["events.k8s.io/v1"]
    assert [item["apiVersion"] for item in cluster.objects("events")] == ["v1"]


async def test_all_terminating_pods_can_be_finished_at_once(cluster: ApiServer, api: InProcessTransport) -> None:
    for name in ("a", "b", "c"):
        cluster.put(a_pod(name))
    await request_json(api, "DELETE", PODS, fieldSelector="metadata.name!=b")
    cluster.finish_deletion()
    assert [pod["metadata"]["name"] for pod in cluster.objects("pods")] == ["b"]
