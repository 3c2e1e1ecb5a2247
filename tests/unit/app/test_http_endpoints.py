"""HTTP endpoints of the operator: cases C30 to C36 of the SAP maintenance-controller, and our own."""

import asyncio
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from controlplane import free_port
from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.api.objects import RawObject
from haulout.app.http_endpoints import serve_http
from haulout.app.operator import OperatorSettings, run_operator, shared_informers
from haulout.app.operator_status import OperatorStatus
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL
from haulout.core.clock import Clock, RealClock
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth.settings import AccessSettings
from haulout.errors import ExternalError, UsageError
from haulout.httpserver.listener import ListenAddress
from haulout.httpserver.metrics import Exposition
from haulout.kube.client import Client
from haulout.runtime.manager import Manager, ManagerSettings
from haulout.webhook.settings import CertificateFolder, WebhookSettings
from haulout_sandbox.apiserver import ApiServer, User
from support.builders.objects import a_namespace, a_node, a_pod, a_workload
from support.expectations.eventually import eventually
from support.fakes.external_client import FakeExternalClient
from support.servers.certificates import Authority

HOME = "haulout"
LOCAL, ALSO_LOCAL = "127.0.0.1", "127.0.0.2"
REQUEUE = timedelta(milliseconds=200)

SUITE = """
intervals: {requeue: 200ms, notify: 500ms}
instances:
  check:
  - {name: transition, type: hasLabel, config: {key: transition, value: "true"}}
  - {name: fail, type: prometheusInstant, config: {url: "http://bad", query: up, expr: value > 0}}
profiles:
- name: multi
  operational:
    transitions: [{check: transition, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: transition, next: in-maintenance}]
- name: broken
  operational:
    transitions: [{check: fail, next: maintenance-required}]
"""


@dataclass
class World:
    """A cluster without machines, and the status of the operator in it."""

    api: ApiServer
    clock: Clock
    vitals: OperatorStatus

    def samples(self) -> dict[tuple[str, ...], float]:
        """Return the samples by name and labels."""
        return samples(Exposition(self.vitals.collect_metrics).text().decode())

    async def until(self, check: Callable[[], object]) -> None:
        """Wait for something."""
        await eventually(self.clock, check, within=timedelta(minutes=1), every=timedelta(milliseconds=50))

    async def shuffled(self, owner: str) -> tuple[float, float]:
        """Return the shuffle count of pods of an owner, and the count per replica, once they exist."""
        count = ("maintenance_controller_pod_shuffle_count", owner, "multi")
        await self.until(lambda: self.samples().get(count))
        return self.samples()[count], self.samples()["maintenance_controller_pod_shuffles_per_replica", owner, "multi"]


def samples(text: str) -> dict[tuple[str, ...], float]:
    assert list(text_string_to_metric_families(text))  # the parser would rename our counters
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {(name.partition("{")[0], *re.findall('="(.*?)"', name)): float(value) for name, _, value in lines}


def a_client(api: ApiServer, clock: Clock, name: str = "operator") -> Client:
    return Client(api.transport(name), clock=clock, random=Random(name))


@asynccontextmanager
async def operated(clock: Clock, folder: Path, *objects: RawObject, behave: Any = None) -> AsyncIterator[World]:
    """Yield a cluster in which the operator runs by the suite's configuration."""
    api = ApiServer(clock)
    for obj in (a_namespace(HOME), a_namespace("default"), *objects):
        api.put(obj)
    file = folder / "maintenance.yaml"
    file.write_text(SUITE)
    profiles = ProfilesComponent(ProfilesFile(file, environ={}, clock=clock), FakeExternalClient(reply_to=behave))
    world = World(api, clock, OperatorStatus())
    settings = OperatorSettings(namespace=HOME, identity="haulout-1_x")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(
            run_operator(a_client(api, clock), settings, profiles=profiles, status=world.vitals)
        )
        try:
            await world.until(lambda: profiles.controller)
            yield world
        finally:
            running.cancel()


def node_to_maintain(profile: str = "multi") -> RawObject:
    """Return a node that goes into maintenance."""
    return a_node("n1", labels={PROFILE_LABEL: profile, "transition": "true"})


def a_set(kind: str, name: str, **more: Any) -> RawObject:
    return {**a_workload(kind, f"shop/{name}"), **more}


def its_pod(kind: str, name: str) -> RawObject:
    return a_pod(f"shop/{name}-0", on="n1", owner=f"{kind}/{name}")


async def test_c30_pod_of_an_unready_daemon_set_counts_one_shuffle_and_infinite_per_replica(
    clock: Clock, tmp_path: Path
) -> None:
    objects = a_namespace("shop"), a_set("DaemonSet", "ds"), its_pod("DaemonSet", "ds"), node_to_maintain()
    async with operated(clock, tmp_path, *objects) as world:
        assert await world.shuffled("daemon_set_ds") == (1, float("inf"))


async def test_c31_pod_of_a_bare_replica_set_counts_one_shuffle(clock: Clock, tmp_path: Path) -> None:
    objects = a_namespace("shop"), a_set("ReplicaSet", "rs"), its_pod("ReplicaSet", "rs"), node_to_maintain()
    async with operated(clock, tmp_path, *objects) as world:
        assert await world.shuffled("replica_set_rs") == (1, 1)


async def test_c32_pod_of_a_stateful_set_counts_one_shuffle(clock: Clock, tmp_path: Path) -> None:
    objects = a_namespace("shop"), a_set("StatefulSet", "ss"), its_pod("StatefulSet", "ss"), node_to_maintain()
    async with operated(clock, tmp_path, *objects) as world:
        assert await world.shuffled("stateful_set_ss") == (1, 1)
        await clock.sleep(100 * REQUEUE)
        assert await world.shuffled("stateful_set_ss") == (1, 1)


async def test_c33_failing_check_is_counted_each_time(clock: Clock, tmp_path: Path) -> None:
    async with operated(clock, tmp_path, node_to_maintain("broken"), behave=lambda _: ExternalError("down")) as world:
        count = ("maintenance_controller_transition_failure_count", "broken")
        started = clock.monotonic()
        await world.until(lambda: world.samples().get(count, 0) >= 5)
        assert clock.monotonic() - started < 3
        events = [it for it in world.api.objects("events") if it["reason"] == "ChangeMaintenanceStateFailed"]
        assert len(events) == 1


async def test_persistent_failure_refreshes_its_event_with_few_writes(clock: Clock, tmp_path: Path) -> None:
    async with operated(clock, tmp_path, node_to_maintain("broken"), behave=lambda _: ExternalError("down")) as world:
        await clock.sleep(timedelta(minutes=1))
        before = len(world.api.history)
        await clock.sleep(timedelta(minutes=20))
        writes = [it for it in world.api.history[before:] if "/leases/" not in it.path]
        assert 3 <= len(writes) <= 5
        assert {it.path.split("/")[-2] for it in writes} == {"events"}


# Over HTTP


OPEN = AccessSettings(mode=AuthMode.OFF)  # access control has its own tests


async def get(url: str, **headers: str) -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.read()


def served(world: World, at: ListenAddress, **more: Any) -> Any:
    client = a_client(world.api, world.clock, "server")
    return serve_http(client, world.vitals, address=at, namespace=HOME, identity="haulout-1_x", access=OPEN, **more)


@pytest.mark.real_time
async def test_c34_info_endpoint_shows_decisions_and_next_reconcile_of_nodes(tmp_path: Path) -> None:
    async with operated(RealClock(), tmp_path, a_node("n1")) as world, served(world, ListenAddress(0, LOCAL)) as port:
        await world.until(lambda: world.api.get("nodes", "n1")["metadata"].get("labels", {}).get(STATE_LABEL))
        await world.until(world.vitals.infos)
        status, body = await get(f"http://{LOCAL}:{port}/api/v1/info")
        assert status == 200
        [node] = json.loads(body)
        assert (node["node"], node["nextReconcile"], node["requeueOn"], node["problem"]) == ("n1", None, [], "")


@pytest.mark.real_time
async def test_c35_root_path_serves_the_dashboard(tmp_path: Path) -> None:
    async with operated(RealClock(), tmp_path) as world, served(world, ListenAddress(0, LOCAL)) as port:
        status, body = await get(f"http://{LOCAL}:{port}/")
        assert status == 200
        assert b"<title>Haulout</title>" in body
        status, body = await get(f"http://{LOCAL}:{port}/metrics")
        found = samples(body.decode())
        assert found["leader_election_master_status", LEADER_LEASE] == 1
        assert found["leader_election_master_status", PROFILES_LEASE] == 1
        assert found[("haulout_profiles_configuration_valid",)] == 1


@asynccontextmanager
async def stopping_server(world: World, lingers: timedelta) -> AsyncIterator[tuple[asyncio.Task[None], int]]:
    """Yield a server that is being stopped, and its port."""
    ports: asyncio.Queue[int] = asyncio.Queue()

    async def serve() -> None:
        async with served(world, ListenAddress(0, LOCAL), metrics_linger=lingers) as port:
            ports.put_nowait(port)
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(serve())
        port = await ports.get()
        task.cancel()
        yield task, port
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.real_time
async def test_c36_server_stops_after_metrics_are_scraped_once_more(tmp_path: Path) -> None:
    async with operated(RealClock(), tmp_path) as world, stopping_server(world, timedelta(minutes=5)) as (task, port):
        assert (await get(f"http://{LOCAL}:{port}/api/v1/info"))[0] == 200
        assert not task.done()
        assert (await get(f"http://{LOCAL}:{port}/metrics"))[0] == 200


@pytest.mark.real_time
async def test_c36_server_stops_after_the_linger_time_without_a_scrape(tmp_path: Path) -> None:
    async with (
        operated(RealClock(), tmp_path) as world,
        stopping_server(world, timedelta(milliseconds=50)) as (task, _),
    ):
        await asyncio.wait([task], timeout=30)
        assert task.cancelled()


@pytest.mark.real_time
async def test_second_cancellation_stops_the_server_at_once(tmp_path: Path) -> None:
    async with operated(RealClock(), tmp_path) as world, stopping_server(world, timedelta(minutes=5)) as (task, port):
        assert (await get(f"http://{LOCAL}:{port}/api/v1/info"))[0] == 200
        task.cancel()


@pytest.mark.real_time
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a machine has one address of its own")
async def test_follower_proxies_the_info_endpoint_of_the_leader(tmp_path: Path) -> None:
    pod = {**a_pod(f"{HOME}/haulout-1"), "status": {"phase": "Running", "podIP": ALSO_LOCAL}}
    port = free_port()
    async with (
        operated(RealClock(), tmp_path, pod, a_node("n1")) as world,
        served(world, ListenAddress(port, ALSO_LOCAL)),
    ):
        await world.until(world.vitals.infos)
        profiles = ProfilesComponent(world.vitals.profiles.file, FakeExternalClient())  # type: ignore[union-attr]  # they exist here
        client = a_client(world.api, world.clock, "haulout-2")
        manager_settings = ManagerSettings(namespace=HOME, identity="haulout-2_x", lease=LEADER_LEASE, reporter="test")
        manager = Manager(client, [profiles], settings=manager_settings, share=shared_informers)  # it never leads
        follower = OperatorStatus(profiles=profiles, manager=manager)
        at = ListenAddress(port, LOCAL)
        serving = serve_http(client, follower, address=at, namespace=HOME, identity="haulout-2_x", access=OPEN)
        async with serving:
            status, body = await get(f"http://{LOCAL}:{port}/api/v1/info")
            assert (status, [it["node"] for it in json.loads(body)]) == (200, ["n1"])
            found = samples((await get(f"http://{LOCAL}:{port}/metrics"))[1].decode())
            assert found["leader_election_master_status", PROFILES_LEASE] == 0
            assert not any(name == "haulout_profiles_nodes" for name, *_ in found)


@pytest.mark.real_time
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a machine has one address of its own")
async def test_dashboard_of_a_follower_shows_the_data_of_the_leader(tmp_path: Path) -> None:
    pod = {**a_pod(f"{HOME}/haulout-1"), "status": {"phase": "Running", "podIP": ALSO_LOCAL}}
    port = free_port()
    async with (
        operated(RealClock(), tmp_path, pod, a_node("n1")) as world,
        served(world, ListenAddress(port, ALSO_LOCAL)),
        serve_http(
            a_client(world.api, world.clock, "haulout-2"),
            OperatorStatus(),
            address=ListenAddress(port, LOCAL),
            namespace=HOME,
            identity="haulout-2_x",
            access=OPEN,
        ),
        aiohttp.ClientSession(f"http://{LOCAL}:{port}") as session,
    ):
        await world.until(lambda: world.vitals.source)
        async with session.get("/api/v2/summary") as answer:
            summary = await answer.json()
            assert (summary["leader"]["identity"], summary["total"]) == ("haulout-1_x", 1)
        async with session.get("/api/v2/nodes/n1") as answer:
            assert (await answer.json())["summary"]["name"] == "n1"
        async with session.get("/api/v2/events") as answer:
            assert (await answer.content.readline()) == b"event: hello\n"
            world.api.put(a_node("n2"))
            async for line in answer.content:
                if b'"n2"' in line:
                    break
    async with serve_http(
        a_client(world.api, RealClock(), "haulout-2"),
        OperatorStatus(),
        address=ListenAddress(port, LOCAL),
        namespace=HOME,
        identity="haulout-2_x",
        access=OPEN,
    ):
        status, body = await get(f"http://{LOCAL}:{port}/api/v2/nodes")
        assert (status in (502, 503), b"lead" in body) == (True, True)
        status, body = await get(f"http://{LOCAL}:{port}/api/v2/summary")
        assert (status, json.loads(body)["banners"][0]["level"]) == (200, "critical")


@pytest.mark.real_time
@pytest.mark.parametrize("what", ["metrics_address", "health_port"])
async def test_port_in_use_is_reported_before_anything_starts(tmp_path: Path, what: str) -> None:
    del tmp_path
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        chosen: Mapping[str, Any] = {what: ListenAddress(port) if what == "metrics_address" else port}
        settings = OperatorSettings(namespace=HOME, identity="x", **chosen)
        with pytest.raises(UsageError, match=f"cannot listen on port {port} for "):
            await run_operator(a_client(ApiServer(RealClock()), RealClock()), settings)


# Status and probes


def lines(vitals: OperatorStatus) -> Iterator[str]:
    yield from (*vitals.status_lines(), *vitals.unready(), *vitals.troubles())


async def test_probes_report_leader_configuration_and_skipped_nodes(clock: Clock, tmp_path: Path) -> None:
    node = a_node("n1")
    node["metadata"]["annotations"] = {DATA_ANNOTATION: "{"}
    async with operated(clock, tmp_path, node) as world:
        await world.until(world.vitals.infos)
        file = tmp_path / "maintenance.yaml"
        assert list(lines(world.vitals)) == [
            "[+] leader: this replica leads",
            f"[+] configuration: {file} is in force",
            "[+] profiles: reconciled by this replica; nodes due: 0",
            "[+] notices: MaintenanceNotice is not installed; `haulout manifests --crds-only` prints it",
            "1 node cannot be reconciled: /api/v1/info shows why",
        ]
        assert world.samples()[("haulout_profiles_nodes_skipped",)] == 1
        file.write_text("profiles: 1")
        await world.until(lambda: world.samples()[("haulout_profiles_configuration_valid",)] == 0)
        status = list(lines(world.vitals))
        assert f"[-] configuration: the last valid version of {file} is in force" in status
        assert status[-2].startswith(f"the last good configuration stays in force: {file}:1: ")
        assert world.vitals.unready() == []
    status = list(world.vitals.status_lines())
    assert [status[0], *status[2:]] == [
        "[+] leader: another replica leads, or none does yet",
        "[+] profiles: not reconciled by this replica; the leader reconciles them",
        "[+] notices: reconciled by the leader, not by this replica",
    ]


async def test_leader_without_permission_to_list_nodes_is_not_ready(clock: Clock, tmp_path: Path) -> None:
    async with operated(clock, tmp_path) as world:
        controller = world.vitals.profiles.controller  # type: ignore[union-attr]  # they exist here
        assert controller is not None
        await world.until(lambda: not controller.unready_reason())
    vitals = OperatorStatus(profiles=world.vitals.profiles)
    api = ApiServer(clock)
    transport = api.transport("operator")
    transport.faults.fail_before_effect(response=403, method="GET", path="/api/v1/nodes", times=None)
    async with asyncio.TaskGroup() as group:
        settings = OperatorSettings(namespace=HOME, identity="haulout-1_x")
        client = Client(transport, clock=clock, random=Random(1))
        running = group.create_task(run_operator(client, settings, profiles=vitals.profiles, status=vitals))
        api.put(a_namespace(HOME))
        await clock.sleep(timedelta(seconds=30))
        [why] = vitals.unready()
        assert why.startswith("profiles are not reconciled: nodes are not known yet: ")
        assert any(line.startswith("[-] profiles: nodes are not known yet") for line in vitals.status_lines())
        running.cancel()


async def test_operator_without_profiles_reports_no_nodes(clock: Clock) -> None:
    del clock
    vitals = OperatorStatus()
    assert (vitals.infos(), list(vitals.unready()), list(vitals.troubles())) == ([], [], [])
    metric_names = [it.metric.name for it in vitals.collect_metrics()]
    assert metric_names == ["haulout_build_info", "leader_election_master_status", "haulout_dashboard_viewers"]


async def test_counters_outlive_leadership_and_gauges_do_not(clock: Clock, tmp_path: Path) -> None:
    objects = a_namespace("shop"), a_set("StatefulSet", "ss"), its_pod("StatefulSet", "ss"), node_to_maintain()
    async with operated(clock, tmp_path, *objects) as world:
        await world.shuffled("stateful_set_ss")
        assert world.samples()["haulout_profiles_nodes", "multi", "in-maintenance"] == 1
        reconciles = world.samples()["controller_runtime_reconcile_total", "node", "success"]
    found = world.samples()
    assert found["maintenance_controller_pod_shuffle_count", "stateful_set_ss", "multi"] == 1
    assert found["controller_runtime_reconcile_total", "node", "success"] >= reconciles
    assert not any(name in ("haulout_profiles_nodes", "workqueue_depth") for name, *_ in found)


@pytest.mark.real_time
async def test_secure_metrics_are_served_over_https_with_authentication(tmp_path: Path) -> None:
    issued, clock, port = Authority().issue(LOCAL), RealClock(), free_port()
    (tmp_path / "tls.crt").write_bytes(issued.cert_pem)
    (tmp_path / "tls.key").write_bytes(issued.key_pem)
    api = ApiServer(clock, namespaces=[HOME])
    api.add_token("secret", User("prometheus", ("system:masters",)))
    settings = OperatorSettings(
        namespace=HOME,
        identity="haulout-0",
        webhook=WebhookSettings(host=LOCAL, port=0, namespace=HOME, certificate=CertificateFolder(tmp_path)),
        secure_metrics_address=ListenAddress(port, LOCAL),
    )
    client = Client(api.transport(), clock=clock, random=Random(1))
    url, insecurely = f"https://{LOCAL}:{port}/metrics", aiohttp.TCPConnector(ssl=False)
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession(connector=insecurely) as session:
        operator = group.create_task(run_operator(client, settings))
        await eventually(clock, lambda: _listens(port))
        async with session.get(url) as answer:
            assert answer.status == 401
        async with session.get(url, headers={"Authorization": "Bearer secret"}) as answer:
            assert ("leader_election_master_status", LEADER_LEASE) in samples(await answer.text())
        operator.cancel()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOCAL, port)) == 0
