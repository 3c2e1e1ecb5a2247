"""What the sandbox promises about admission webhooks: it asks them, waits for them, and does as they say."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from haulout.core.clock import Clock, RealClock
from haulout.errors import Unreachable
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, JsonObject
from haulout_sandbox.apiserver.admission.webhook_client import HttpsWebhookClient, service_url
from haulout_sandbox.event_loops.virtual_time import VirtualClock, VirtualLoop
from support.apiserver.requests import (
    CONFIG_MAPS,
    MERGE_PATCH,
    PODS,
    a_config_map,
    a_node,
    a_pdb,
    a_pod,
    an_eviction,
    merge,
    patch,
    request_json,
    send,
)
from support.builders.crds import NODE_MAINTENANCE_CRD
from support.builders.objects import a_workload
from support.servers.webhook_server import (
    Behaviour,
    a_webhook_configuration,
    a_webhook_entry,
    a_webhook_server,
    allows,
    denies,
    rule,
)

Meanwhile = Callable[[JsonObject], Awaitable[None]]
SECOND = timedelta(seconds=1)


class RecordedWebhooks:
    """Webhooks of a cluster, served in-process; `requests` has the AdmissionRequests by the names of the webhooks."""

    def __init__(self, cluster: ApiServer, clock: Clock) -> None:
        self.requests: list[tuple[str, JsonObject]] = []
        self._cluster = cluster
        self._clock = clock

    def add(
        self,
        *rules: JsonObject,
        behaviour: Behaviour = allows,
        name: str = "guard",
        delay: timedelta = timedelta(),
        meanwhile: Meanwhile | None = None,
        **kwargs: Any,
    ) -> None:
        """Put a webhook in force that answers after a while, and does something `meanwhile`."""
        url = service_url("hooks", name)

        async def handle(review: JsonObject) -> JsonObject:
            request = review["request"]
            self.requests.append((name, request))
            await self._clock.sleep(delay)
            if meanwhile is not None:
                await meanwhile(request)
            return review | {"response": {"uid": request["uid"]} | behaviour(request)}

        self._cluster.webhooks.serve(url, handle)
        client_config = {"service": {"namespace": "hooks", "name": name}}
        hook = a_webhook_entry(client_config, *rules, name=f"{name}.example.com", **kwargs)
        self._cluster.put(a_webhook_configuration(name, hook))

    @property
    def names(self) -> list[str]:
        """Return who was asked."""
        return [name for name, _ in self.requests]

    @property
    def operations(self) -> list[str]:
        """Return what was asked about."""
        return [request["operation"] for _, request in self.requests]


@pytest.fixture
def hooks(cluster: ApiServer, clock: Clock) -> RecordedWebhooks:
    return RecordedWebhooks(cluster, clock)


# What they decide


async def test_what_a_webhook_denies_does_not_happen(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    hooks.add(rule("nodes"), behaviour=denies("not on a Friday"))
    code, status = await request_json(api, "POST", "/api/v1/nodes", a_node())
    assert (code, status["message"]) == (
        400,
        'admission webhook "guard.example.com" denied the request: not on a Friday',
    )
    assert not cluster.has("nodes", "n1")


async def test_a_denied_change_leaves_the_object_as_it_was(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    cluster.put(a_node())
    hooks.add(rule("nodes", operations=("UPDATE", "DELETE")), behaviour=denies())
    before = cluster.get("nodes", "n1")
    assert (await merge(api, "/api/v1/nodes/n1", spec={"unschedulable": True}))[0] == 400
    assert (await request_json(api, "DELETE", "/api/v1/nodes/n1"))[0] == 400
    assert cluster.get("nodes", "n1") == before


async def test_a_webhook_can_put_an_eviction_off(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    """As those do that move a virtual machine first: 429 tells the drain to come back."""
    cluster.put(a_pod())
    cluster.put(a_pdb(disruptionsAllowed=1))
    later = denies("the machine moves", code=429, reason="TooManyRequests", details={"retryAfterSeconds": 5})
    hooks.add(rule("pods/eviction", operations=("CREATE",)), behaviour=later)
    answer = await send(api, "POST", f"{PODS}/cart-0/eviction", an_eviction())
    assert (answer.status, answer.headers["retry-after"]) == (429, "5")
    (_, request) = hooks.requests[0]
    assert (request["kind"]["kind"], request["subResource"], request["name"]) == ("Eviction", "eviction", "cart-0")
    assert "deletionTimestamp" not in cluster.get("pods", "cart-0", "shop")["metadata"]
    assert cluster.get("poddisruptionbudgets", "cart", "shop")["status"]["disruptionsAllowed"] == 1


async def test_an_allowed_eviction_is_no_deletion_to_webhooks(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    cluster.put(a_pod())
    hooks.add(rule("*/*"))
    assert (await request_json(api, "POST", f"{PODS}/cart-0/eviction", an_eviction()))[0] == 201
    assert hooks.operations == ["CREATE"]
    assert "deletionTimestamp" in cluster.get("pods", "cart-0", "shop")["metadata"]


async def test_a_webhook_sees_the_scale_that_is_wanted_and_the_one_before(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    cluster.put(a_workload("Deployment", "shop/cart", replicas=2))
    hooks.add(rule("deployments/scale", group="apps"), behaviour=denies())
    path = "/apis/apps/v1/namespaces/shop/deployments/cart"
    assert (await merge(api, f"{path}/scale", spec={"replicas": 5}))[0] == 400
    (_, request) = hooks.requests[0]
    assert (request["kind"]["kind"], request["operation"]) == ("Scale", "UPDATE")
    assert [request[name]["spec"] for name in ("oldObject", "object")] == [{"replicas": 2}, {"replicas": 5}]
    assert cluster.get("deployments", "cart", "shop")["spec"]["replicas"] == 2
    assert (await merge(api, path, spec={"replicas": 5}))[0] == 200


async def test_a_pod_is_not_bound_against_a_webhooks_will(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    cluster.put(a_pod(node=""))
    hooks.add(rule("pods/binding"), behaviour=denies())
    body = {"metadata": {"name": "cart-0"}, "target": {"name": "n1"}}
    assert (await request_json(api, "POST", f"{PODS}/cart-0/binding", body))[0] == 400
    assert not cluster.get("pods", "cart-0", "shop")["spec"].get("nodeName")


async def test_the_first_of_several_denials_is_the_answer(api: InProcessTransport, hooks: RecordedWebhooks) -> None:
    for name in ("b", "a"):
        hooks.add(rule("nodes"), behaviour=denies(f"says {name}"), name=name)
    _, status = await request_json(api, "POST", "/api/v1/nodes", a_node())
    assert status["message"].endswith("says a")
    assert sorted(hooks.names) == ["a", "b"]


async def test_warnings_reach_the_client(api: InProcessTransport, hooks: RecordedWebhooks) -> None:
    warning = {"allowed": True, "warnings": ['a "quoted" word', "a second"]}
    hooks.add(rule("nodes"), behaviour=lambda _: warning)
    answer = await send(api, "POST", "/api/v1/nodes", a_node())
    assert answer.headers["warning"] == r'299 - "a \"quoted\" word", 299 - "a second"'


async def test_configurations_of_webhooks_are_subject_to_none(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    hooks.add(rule("*/*"), behaviour=denies())
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/guard"
    assert (await request_json(api, "DELETE", path))[0] == 200
    assert (await request_json(api, "POST", "/api/v1/nodes", a_node()))[0] == 201
    assert not hooks.requests
    assert cluster.has("nodes", "n1")


# What they are told


async def test_what_is_new_has_the_same_uid_for_webhooks_and_in_the_cluster(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    hooks.add(rule("configmaps"), delay=5 * SECOND)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "m-"}}
    _, created = await request_json(api, "POST", CONFIG_MAPS, body)
    sent = hooks.requests[0][1]["object"]["metadata"]
    stored = cluster.get("configmaps", created["metadata"]["name"], "shop")["metadata"]
    assert (sent["uid"], sent["name"], sent["creationTimestamp"]) == (
        stored["uid"],
        stored["name"],
        stored["creationTimestamp"],
    )


async def test_a_forced_deletion_is_asked_about_before_and_after_the_mark(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    cluster.put(a_pod())
    hooks.add(rule("pods"), delay=3 * SECOND)
    assert (await request_json(api, "DELETE", f"{PODS}/cart-0", {"gracePeriodSeconds": 0}))[0] == 200
    olds = [request["oldObject"]["metadata"].get("deletionGracePeriodSeconds") for _, request in hooks.requests]
    assert (olds, cluster.has("pods", "cart-0", "shop")) == ([None, 0], False)


async def test_each_object_of_a_collection_is_asked_about_once(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    for name in "abc":
        cluster.put(a_config_map(name))
    hooks.add(rule("configmaps"), delay=SECOND)
    code, deleted = await request_json(api, "DELETE", CONFIG_MAPS)
    assert (code, [item["metadata"]["name"] for item in deleted["items"]]) == (200, ["a", "b", "c"])
    assert [request["oldObject"]["metadata"]["name"] for _, request in hooks.requests] == ["a", "b", "c"]
    assert not cluster.objects("configmaps")


async def test_a_denial_in_a_collection_keeps_the_rest(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    for name in "abc":
        cluster.put(a_config_map(name))
    hooks.add(rule("configmaps"), behaviour=lambda item: {"allowed": item["oldObject"]["metadata"]["name"] != "b"})
    assert (await request_json(api, "DELETE", CONFIG_MAPS))[0] == 400
    assert [item["metadata"]["name"] for item in cluster.objects("configmaps")] == ["b", "c"]


async def test_a_dry_run_is_marked_as_one_and_writes_nothing(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    hooks.add(rule("nodes"))
    assert (await request_json(api, "POST", "/api/v1/nodes", a_node(), dryRun="All"))[0] == 201
    assert (hooks.requests[0][1]["dryRun"], cluster.has("nodes", "n1")) == (True, False)


async def test_a_webhook_with_side_effects_spoils_a_dry_run(api: InProcessTransport, hooks: RecordedWebhooks) -> None:
    hooks.add(rule("nodes"), sideEffects="Unknown")
    code, status = await request_json(api, "POST", "/api/v1/nodes", a_node(), dryRun="All")
    assert (code, status["message"]) == (400, 'admission webhook "guard.example.com" does not support dry run')
    assert not hooks.requests


async def test_a_maintenance_of_a_node_that_is_not_there_is_denied(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    """As the webhook of NodeMaintenance does it: it looks the node up in the cluster."""

    def check(request: JsonObject) -> JsonObject:
        known = cluster.has("nodes", request["object"]["spec"]["nodeName"])
        return {"allowed": known} | ({} if known else {"status": {"message": "no such node"}})

    cluster.put(NODE_MAINTENANCE_CRD)
    cluster.put(a_node("n1"))
    hooks.add(
        rule("nodemaintenances", operations=("CREATE", "UPDATE"), group="nodemaintenance.medik8s.io"), behaviour=check
    )
    path = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances"
    kind = {"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance"}
    codes = []
    for node in ("n1", "n2"):
        order = kind | {"metadata": {"name": f"of-{node}"}, "spec": {"nodeName": node, "reason": "disks"}}
        codes.append((await request_json(api, "POST", path, order))[0])
    assert codes == [201, 400]
    assert [item["metadata"]["name"] for item in cluster.objects("nodemaintenances")] == ["of-n1"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"clientConfig": {}},
        {"admissionReviewVersions": ["v2"]},
        {"sideEffects": "Several"},
        {"matchConditions": [{"name": "x", "expression": "true"}]},
    ],
)
async def test_a_configuration_that_cannot_be_put_in_force_is_refused(api: InProcessTransport, wrong: Any) -> None:
    hook = a_webhook_entry({"url": "https://guard.example/x"}, rule("nodes")) | wrong
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    assert (await request_json(api, "POST", path, a_webhook_configuration("x", hook)))[0] == 422


# Webhooks that do not answer


@pytest.mark.parametrize(("policy", "code"), [("Fail", 500), ("Ignore", 201)])
async def test_a_webhook_that_is_down_counts_as_its_author_wants(
    cluster: ApiServer, api: InProcessTransport, policy: str, code: int
) -> None:
    hook = a_webhook_entry({"url": "https://down.example/x"}, rule("nodes"), failurePolicy=policy)
    cluster.put(a_webhook_configuration("down", hook))
    found, status = await request_json(api, "POST", "/api/v1/nodes", a_node())
    assert found == code
    if policy == "Fail":
        assert status["message"] == (
            'Internal error occurred: failed calling webhook "guard.example.com": '
            'Post "https://down.example/x?timeout=10s": connect: connection refused'
        )


@pytest.mark.parametrize(("policy", "code"), [("Fail", 500), ("Ignore", 201)])
async def test_a_slow_webhook_is_awaited_for_its_timeout(
    api: InProcessTransport, hooks: RecordedWebhooks, clock: Clock, policy: str, code: int
) -> None:
    hooks.add(rule("nodes"), delay=20 * SECOND, timeoutSeconds=3, failurePolicy=policy)
    started_at = clock.now()
    found, status = await request_json(api, "POST", "/api/v1/nodes", a_node())
    assert (found, (clock.now() - started_at).seconds) == (code, 3)
    if policy == "Fail":
        assert status["message"].endswith('?timeout=3s": context deadline exceeded')


async def test_validating_webhooks_think_at_the_same_time(
    api: InProcessTransport, hooks: RecordedWebhooks, clock: Clock
) -> None:
    for name in "abc":
        hooks.add(rule("nodes"), delay=2 * SECOND, name=name)
    started_at = clock.now()
    assert (await request_json(api, "POST", "/api/v1/nodes", a_node()))[0] == 201
    assert (clock.now() - started_at).seconds == 2


async def test_a_request_that_times_out_during_a_webhook_changes_nothing(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks, clock: Clock
) -> None:
    hooks.add(rule("nodes"), delay=5 * SECOND)
    request = Request(method="POST", path="/api/v1/nodes", body=b'{"metadata":{"name":"n1"}}', timeout=SECOND)
    with pytest.raises(Unreachable):
        await api.send(request)
    await clock.sleep(10 * SECOND)
    assert not cluster.has("nodes", "n1")


async def test_a_line_that_breaks_while_a_webhook_thinks_is_noticed_at_once(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks, clock: Clock
) -> None:
    hooks.add(rule("nodes"), delay=5 * SECOND)
    started_at = clock.now()
    asyncio.get_running_loop().call_later(1, api.cut)
    with pytest.raises(Unreachable):
        await request_json(api, "POST", "/api/v1/nodes", a_node())
    assert (clock.now() - started_at).seconds == 1
    assert not cluster.has("nodes", "n1")


# The world goes on


async def test_a_webhook_may_use_the_cluster_while_the_request_waits(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    own = cluster.transport("webhook")

    async def meanwhile(request: JsonObject) -> None:
        assert (await request_json(own, "GET", f"/api/v1/nodes/{request['name']}"))[0] == 404
        await request_json(own, "POST", CONFIG_MAPS, a_config_map("seen"))

    hooks.add(rule("*/*"), meanwhile=meanwhile, objectSelector={"matchLabels": {"watched": "yes"}})
    node = a_node()
    node["metadata"]["labels"] = {"watched": "yes"}
    assert (await request_json(api, "POST", "/api/v1/nodes", node))[0] == 201
    assert [(write.username, write.kind.plural) for write in cluster.history[1:]] == [
        ("webhook", "configmaps"),
        ("api", "nodes"),
    ]


async def test_an_object_that_changed_meanwhile_is_shown_again(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    cluster.put(a_node())
    other, times = cluster.transport("other"), iter((True,))

    async def meanwhile(_: JsonObject) -> None:
        if next(times, False):
            await merge(other, "/api/v1/nodes/n1/status", metadata={"labels": {"by": "another"}})

    hooks.add(rule("nodes"), meanwhile=meanwhile)
    code, status = await merge(api, "/api/v1/nodes/n1", spec={"unschedulable": True})
    assert (code, status["metadata"]["labels"], status["spec"]["unschedulable"]) == (200, {"by": "another"}, True)
    assert [request["oldObject"]["metadata"].get("labels") for _, request in hooks.requests] == [
        None,
        {"by": "another"},
    ]


async def test_a_webhook_that_always_changes_the_object_never_lets_it_be_written(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    cluster.put(a_node())
    count = iter(range(1_000_000))

    async def meanwhile(_: JsonObject) -> None:
        cluster.put(a_node(podCIDR=f"10.0.{next(count)}.0/24"))

    hooks.add(rule("nodes"), meanwhile=meanwhile)
    body = b'{"spec":{"unschedulable":true}}'
    path = "/api/v1/nodes/n1"
    request = Request(method="PATCH", path=path, body=body, content_type=MERGE_PATCH, timeout=SECOND / 10)
    with pytest.raises(Unreachable):
        await api.send(request)
    assert len(hooks.requests) > 10
    assert "unschedulable" not in cluster.get("nodes", "n1")["spec"]


async def test_a_version_that_is_outdated_when_the_webhook_answers_is_a_conflict(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    cluster.put(a_node())

    async def meanwhile(_: JsonObject) -> None:
        cluster.put(a_node(taints=[{"key": "meanwhile", "effect": "NoSchedule"}]))

    hooks.add(rule("nodes"), meanwhile=meanwhile)
    version = cluster.get("nodes", "n1")["metadata"]["resourceVersion"]
    operation = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    taint = {"op": "add", "path": "/spec/unschedulable", "value": True}
    assert (await patch(api, "/api/v1/nodes/n1", operation, taint))[0] == 422
    changed = cluster.get("nodes", "n1") | {"spec": {"unschedulable": True}}
    assert (await request_json(api, "PUT", "/api/v1/nodes/n1", changed))[0] == 409
    assert "unschedulable" not in cluster.get("nodes", "n1")["spec"]


async def test_a_name_that_is_taken_meanwhile_is_taken(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    async def meanwhile(_: JsonObject) -> None:
        cluster.put(a_node())

    hooks.add(rule("nodes"), meanwhile=meanwhile)
    code, status = await request_json(api, "POST", "/api/v1/nodes", a_node())
    assert (code, status["reason"]) == (409, "AlreadyExists")


def test_runs_with_webhooks_repeat_themselves() -> None:
    def run() -> list[Any]:
        async def story() -> list[Any]:
            clock = VirtualClock()
            cluster = ApiServer(clock, random=random.Random(3))
            hooks = RecordedWebhooks(cluster, clock)
            hooks.add(rule("*"), delay=SECOND)
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "m-"}}
            async with asyncio.TaskGroup() as group:
                for name in "abc":
                    group.create_task(request_json(cluster.transport(name), "POST", CONFIG_MAPS, body))
            return [cluster.history, [request["uid"] for _, request in hooks.requests]]

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(story())

    first, second = run(), run()
    assert [(write.written_at, write.after) for write in first[0]] == [
        (write.written_at, write.after) for write in second[0]
    ]
    assert first[1] == second[1]
    uids = [write.after["metadata"]["uid"] for write in first[0] if write.after] + first[1]
    assert len(set(uids)) == len(uids)


# Over the network


@pytest.mark.real_time
async def test_a_service_is_reached_where_the_table_says(tmp_path: Path) -> None:
    async with a_webhook_server(tmp_path, names=("guard.hooks.svc",)) as webhook:
        cluster = ApiServer(
            RealClock(), network=HttpsWebhookClient({("hooks", "guard", 443): f"127.0.0.1:{webhook.port}"})
        )
        webhook.set_behaviour("/check", denies("heard"))
        service = {"namespace": "hooks", "name": "guard", "path": "/check"}
        bundle = webhook.client_config("")["caBundle"]
        cluster.put(
            a_webhook_configuration("g", a_webhook_entry({"service": service, "caBundle": bundle}, rule("nodes")))
        )
        code, status = await request_json(cluster.transport(), "POST", "/api/v1/nodes", a_node())
        assert (code, status["message"].endswith("denied the request: heard")) == (400, True)


@pytest.mark.real_time
async def test_a_certificate_for_another_name_is_not_trusted(tmp_path: Path) -> None:
    async with a_webhook_server(tmp_path, names=("other.hooks.svc",)) as webhook:
        cluster = ApiServer(RealClock(), network=HttpsWebhookClient())
        cluster.put(a_webhook_configuration("g", a_webhook_entry(webhook.client_config("/check"), rule("nodes"))))
        code, status = await request_json(cluster.transport(), "POST", "/api/v1/nodes", a_node())
        assert (code, "certificate" in status["message"]) == (500, True)
        assert not webhook.requests


@pytest.mark.real_time
async def test_a_webhook_that_hangs_up_has_not_answered() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        cluster = ApiServer(RealClock(), network=HttpsWebhookClient())
        cluster.put(
            a_webhook_configuration("g", a_webhook_entry({"url": f"https://127.0.0.1:{port}/x"}, rule("nodes")))
        )
        code, status = await request_json(cluster.transport(), "POST", "/api/v1/nodes", a_node())
    assert (code, "failed calling webhook" in status["message"]) == (500, True)


async def test_wrong_types_in_a_configuration_are_refused(api: InProcessTransport) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    body = a_webhook_configuration("x") | {"webhooks": [{"name": ["a"], "rules": "none"}]}
    assert (await request_json(api, "POST", path, body))[0] == 400
    assert (await request_json(api, "POST", path, a_webhook_configuration("x") | {"webhooks": "none"}))[0] == 400


async def test_webhooks_see_a_status_write_as_subresource(
    cluster: ApiServer, api: InProcessTransport, hooks: RecordedWebhooks
) -> None:
    cluster.put(a_node())
    hooks.add(rule("nodes/status"))
    await merge(api, "/api/v1/nodes/n1", spec={"unschedulable": True})
    await request_json(api, "PATCH", "/api/v1/nodes/n1/status", {"status": {"phase": "Running"}}, kind=MERGE_PATCH)
    assert [request["subResource"] for _, request in hooks.requests] == ["status"]
