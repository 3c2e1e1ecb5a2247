"""The behaviour of the OCI Node Maintenance Handler, as its users know it, from the stream to the uncordoned node.

On the sandbox with the handler's own times. On a real control plane with seconds instead of minutes, there over HTTP
with Oracle's SDK, if it is installed.
"""

import base64
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from haulout.api.maintenancenotice import NoticePhase, definition
from haulout.api.objects import Node
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.component import EventSourceComponent
from haulout.providers.oci import sdk
from haulout.providers.oci.api import Compute, Streaming
from haulout.providers.oci.event_source import OciEventSource
from haulout.providers.oci.handler_cronjobs import CRON_JOBS
from haulout.providers.oci.settings import Auth, OciSettings
from haulout.providers.oci.stream_consumer import ConsumerOptions
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import STREAM
from haulout_sandbox.clouds.oci.server import serve
from support.clouds.oci_config_file import a_config_file
from support.clouds.oci_events import ENDED, SCHEDULED, sample
from support.clouds.oci_handler_cronjob import a_drain_cronjob
from support.clusters.cluster_plan import PlanFactory
from support.clusters.live_cluster import LiveCluster, SandboxCluster
from support.expectations.objects import condition_status
from support.fakes.external_client import FakeExternalClient
from support.operators.nodemaintenance import with_operator_rbac
from support.operators.profiles import NAMESPACE, set_profiles, state

PROFILE = """
intervals: {requeue: 1m}
instances:
  check:
  - {type: notice, name: due, config: {when: due, leadTime: LEAD}}
  - {type: condition, name: ready, config: {type: Ready, status: "True"}}
  - {type: maxMaintenance, name: one, config: {max: 1}}
  trigger:
  - {type: eviction, name: drain, config: {action: drain}}
  - {type: eviction, name: uncordon, config: {action: uncordon}}
profiles:
- name: noticed
  operational:
    transitions: [{check: due, next: maintenance-required}]
  maintenance-required:
    transitions:
    - {check: "!due", next: operational, trigger: uncordon}
    - {check: due && one, next: in-maintenance, trigger: drain}
  in-maintenance:
    transitions: [{check: "!due && ready", next: operational, trigger: uncordon}]
"""
RIGHTS = operator_manifests.role_objects(Installation(image="example/haulout", handler_namespace=NAMESPACE))


@dataclass(frozen=True)
class OciCluster:
    """A cluster on OCI, in which the operator runs."""

    cluster: LiveCluster
    cloud: OciCloud
    lead: timedelta
    machines: dict[str, str]  # by node

    def in_lead_times(self, leads: float) -> datetime:
        """Return an instant that is so many lead times ahead."""
        return self.cluster.clock.now() + leads * self.lead

    def announce(self, node: str = "n1", *, leads: float) -> str:
        """Announce a maintenance that begins so many lead times from now."""
        return self.cloud.schedule(self.machines[node], start=self.in_lead_times(leads))

    def is_cordoned(self, node: str = "n1") -> bool:
        """Tell whether a node takes no pods."""
        return bool(self.cluster.get("nodes", node)["spec"].get("unschedulable"))

    def movable_pods(self, node: str = "n1") -> list[str]:
        """Return the pods on a node that can be elsewhere."""
        return [item for item in self.cluster.pods_on(node) if "cart" in item]

    def phase(self, event: str) -> str:
        """Return the phase of a maintenance."""
        return str(self.cluster.get("maintenancenotices", f"oci-{event}").get("status", {}).get("phase"))

    async def wait_lead_times(self, leads: float) -> None:
        """Let lead times pass."""
        await self.cluster.pass_time(seconds=(leads * self.lead).total_seconds())

    async def wait_for_phase(self, event: str, phase: NoticePhase) -> None:
        """Wait until a maintenance has this phase."""
        await self.cluster.eventually(lambda: self.phase(event), becomes=phase)

    async def wait_until_drained(self, node: str = "n1") -> None:
        """Wait until a node is out of service, and empty."""
        await self.cluster.eventually(lambda: (self.is_cordoned(node), self.movable_pods(node)), becomes=(True, []))

    async def wait_until_back(self, node: str = "n1") -> None:
        """Wait until a node serves again."""
        await self.cluster.eventually(lambda: (self.is_cordoned(node), state(self.cluster, node)), becomes=_IN_SERVICE)


_IN_SERVICE = (False, "operational")


@asynccontextmanager
async def an_oci_cluster(
    plans: PlanFactory, folder: Path, *, nodes: int = 2, by_default: bool = False
) -> AsyncIterator[OciCluster]:
    """Run a cluster without maintenance; with `by_default` also without a configuration file."""
    plan = with_operator_rbac(plans(), RIGHTS).with_crd(definition())
    cloud = OciCloud(plan.clock, id_seed=folder.name.replace("_", "")[:30])
    machines = {f"n{number}": cloud.launch(f"oke-{number}") for number in range(1, nodes + 1)}
    for machine in machines.values():
        plan = plan.with_nodes(1, provider_id=machine)
    plan = plan.with_deployment("shop/cart", replicas=4).with_daemon_set("shop/agent")
    async with plan.running() as cluster, _source_transport(cluster, cloud, folder) as (streaming, compute):
        lead = timedelta(minutes=15) if isinstance(cluster, SandboxCluster) else timedelta(seconds=5)
        file = folder / "maintenance.yaml"
        if not by_default:
            file.write_text(PROFILE.replace("LEAD", f"{lead.seconds}s"))
            for node in machines:
                await set_profiles(cluster, node, "noticed")

        def make(client: Client, nodes: Informer[Node]) -> OciEventSource:
            poll_pause = timedelta(seconds=0.5)
            consumer_options = ConsumerOptions(instance="haulout-0", idle_pause=poll_pause, pause=poll_pause)
            clock, random = client.clock, Random(7)
            source = OciEventSource(
                compute, streaming=streaming, consumer_options=consumer_options, clock=clock, random=random
            )
            source.adopt_cronjobs(client, nodes=nodes, namespace=NAMESPACE)
            return source

        async def operate(client: Client) -> None:
            profiles = ProfilesComponent(
                ProfilesFile(file, environ={}, clock=client.clock, is_optional=by_default), FakeExternalClient()
            )
            settings = OperatorSettings(namespace=NAMESPACE, identity="operator_1")
            notices = NoticesComponent([EventSourceComponent("oci", make)])
            await run_operator(client, settings, profiles=profiles, notices=notices)

        cluster.run(operate)
        if not by_default:
            await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        yield OciCluster(cluster, cloud, lead, machines)


@asynccontextmanager
async def _source_transport(
    cluster: LiveCluster, cloud: OciCloud, folder: Path
) -> AsyncIterator[tuple[Streaming, Compute]]:
    """Yield the clients of OCI."""
    if isinstance(cluster, SandboxCluster) or importlib.util.find_spec("oci") is None:
        yield cloud.streaming(), cloud.compute()
        return
    async with serve(cloud, host="127.0.0.1") as port:
        url = f"http://127.0.0.1:{port}"
        found = OciSettings(
            stream=STREAM,
            endpoint=url,
            compute_endpoint=url,
            auth=Auth.CONFIG_FILE,
            config_file=str(a_config_file(folder)),
        )
        streaming, compute = sdk.new_clients(found)
        assert streaming is not None
        yield streaming, compute


async def test_oci_event_leads_to_drain_and_uncordon(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """ONMH cases 1, 5, 6 and 7: nothing before its time, then the drain that its users know, then the node is back."""
    async with an_oci_cluster(a_cluster, tmp_path) as oci:
        await oci.cluster.eventually(lambda: bool(oci.movable_pods()))
        event = oci.announce(leads=2)
        await oci.wait_lead_times(0.8)
        assert oci.phase(event) in (
            NoticePhase.PLANNED,
            NoticePhase.DUE,
        )  # a real one has only seconds
        assert not oci.is_cordoned()
        assert oci.movable_pods()
        await oci.wait_lead_times(0.2)
        await oci.wait_until_drained()
        assert [item for item in oci.cluster.pods_on("n1") if "agent" in item]
        await oci.wait_lead_times(1)
        oci.cloud.start_maintenance(event)
        await oci.wait_for_phase(event, NoticePhase.ACTIVE)
        assert oci.is_cordoned()
        oci.cloud.end_maintenance(event)
        await oci.wait_until_back()
        await oci.wait_for_phase(event, NoticePhase.COMPLETED)


async def test_event_published_by_hand_drains_at_once(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """ONMH cases 2 and 3: put on the stream by a person, for a few minutes ahead; its end is put there as well."""
    async with an_oci_cluster(a_cluster, tmp_path) as oci:
        unknown = oci.cloud.schedule(oci.machines["n1"], start=oci.in_lead_times(0.7), silent=True)
        document = oci.cloud.event_document(unknown)
        oci.cloud.publish(document)
        await oci.wait_until_drained()
        oci.cloud.publish(document | {"eventType": f"{document['eventType']}.end"})
        await oci.wait_until_back()


async def test_sample_of_the_readme_drains_each_time_it_is_published(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """Its `eventTime` is of 2023, and all its identifiers are the same each time: OCI does not know of it."""
    async with an_oci_cluster(a_cluster, tmp_path) as oci:
        for _ in range(2):
            start = f"{oci.in_lead_times(0.7):%Y-%m-%dT%H:%M:%S.000Z}"
            event, end = (sample(oci.machines["n1"], start=start, kind=kind) for kind in (SCHEDULED, ENDED))
            for document in (event, end):
                document["data"]["resourceId"] += tmp_path.name  # tests of one server must not share a notice
            oci.cloud.publish(event)
            await oci.wait_until_drained()
            await oci.cluster.pass_time(seconds=12)  # longer than until Compute is asked
            assert oci.is_cordoned()
            oci.cloud.publish(end)
            await oci.wait_until_back()


async def test_default_configuration_behaves_like_the_handler(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """Ten minutes ahead is less than the quarter of an hour in which the handler drains at once."""
    async with an_oci_cluster(a_cluster, tmp_path, by_default=True) as oci:
        start = oci.cluster.clock.now() + timedelta(minutes=10)
        event = oci.cloud.schedule(oci.machines["n1"], start=start)
        await oci.wait_until_drained()
        assert not oci.is_cordoned("n2")
        oci.cloud.start_maintenance(event)
        await oci.wait_for_phase(event, NoticePhase.ACTIVE)
        oci.cloud.end_maintenance(event)
        await oci.cluster.eventually(lambda: not oci.is_cordoned())


async def test_end_event_right_after_the_start_event_leaves_no_node_cordoned(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """ONMH weakness 11: there two jobs ran against each other."""
    async with an_oci_cluster(a_cluster, tmp_path) as oci:
        event = oci.announce(leads=9)
        oci.cloud.start_maintenance(event)
        await oci.cluster.eventually(oci.is_cordoned)
        oci.cloud.end_maintenance(event)
        await oci.wait_until_back()
        await oci.wait_lead_times(0.5)
        assert not oci.is_cordoned()


async def test_case_20_user_cordon_is_kept(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with an_oci_cluster(a_cluster, tmp_path) as oci:
        await oci.cluster.cordon("n1")
        event = oci.announce(leads=0.5)
        await oci.wait_until_drained()
        oci.cloud.start_maintenance(event)
        oci.cloud.end_maintenance(event)
        await oci.wait_for_phase(event, NoticePhase.COMPLETED)
        await oci.cluster.eventually(lambda: state(oci.cluster, "n1"), becomes="operational")
        assert oci.is_cordoned()


async def test_node_of_a_failed_maintenance_stays_cordoned_until_it_succeeds(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """ONMH case 21."""
    async with an_oci_cluster(a_cluster, tmp_path) as oci:
        event = oci.announce(leads=0.5)
        await oci.wait_until_drained()
        oci.cloud.start_maintenance(event)
        oci.cloud.end_maintenance(event, state="FAILED")
        await oci.wait_for_phase(event, NoticePhase.ACTIVE)
        await oci.wait_lead_times(0.5)
        assert oci.is_cordoned()
        oci.cloud.end_maintenance(event)
        await oci.wait_until_back()


async def test_node_that_is_not_ready_at_the_end_stays_cordoned(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with an_oci_cluster(a_cluster, tmp_path) as oci:
        event = oci.announce(leads=0.5)
        await oci.wait_until_drained()
        await oci.cluster.eventually(lambda: state(oci.cluster, "n1"), becomes="in-maintenance")
        oci.cluster.stop_kubelet("n1")
        await oci.cluster.eventually(lambda: condition_status(oci.cluster.get("nodes", "n1"), "Ready")[0] != "True")
        oci.cloud.end_maintenance(event)
        await oci.wait_for_phase(event, NoticePhase.COMPLETED)
        await oci.wait_lead_times(0.5)
        assert oci.is_cordoned()
        oci.cluster.start_kubelet("n1")
        await oci.wait_until_back()


async def test_rescheduled_or_cancelled_maintenance_does_not_drain_at_the_old_time(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """ONMH cases 17 and 22, weaknesses 2 and 9."""
    async with an_oci_cluster(a_cluster, tmp_path) as oci:
        moved, cancelled = oci.announce("n1", leads=2), oci.announce("n2", leads=2)
        await oci.cluster.eventually(lambda: bool(oci.phase(moved) and oci.phase(cancelled)))
        oci.cloud.reschedule(moved, oci.in_lead_times(4))
        oci.cloud.end_maintenance(cancelled, state="CANCELED")
        await oci.wait_for_phase(cancelled, NoticePhase.CANCELLED)
        await oci.wait_lead_times(1.5)
        assert (oci.is_cordoned("n1"), oci.is_cordoned("n2")) == (False, False)
        await oci.wait_lead_times(1.6)
        await oci.wait_until_drained("n1")
        assert not oci.is_cordoned("n2")


async def test_case_30_concurrent_maintenances_respect_the_maximum(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with an_oci_cluster(a_cluster, tmp_path, nodes=3) as oci:
        nodes = list(oci.machines)
        events = {item: oci.announce(item, leads=0.5) for item in nodes}
        for _ in nodes:
            await oci.cluster.eventually(lambda: any(oci.is_cordoned(item) for item in events))
            (cordoned_node,) = [item for item in events if oci.is_cordoned(item)]
            await oci.wait_until_drained(cordoned_node)
            oci.cloud.end_maintenance(events.pop(cordoned_node))
            await oci.wait_until_back(cordoned_node)


async def test_case_33_planned_cron_job_of_the_handler_is_adopted_and_suspended(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with an_oci_cluster(a_cluster, tmp_path) as oci:
        client = oci.cluster.admin
        start = oci.cluster.clock.now() + timedelta(hours=2)
        event = oci.cloud.schedule(oci.machines["n1"], start=start, silent=True)
        job = a_drain_cronjob("n1", start=start, namespace=NAMESPACE)
        made = await client.create(CRON_JOBS, job, namespace=NAMESPACE)

        async def is_suspended() -> bool:
            return (await client.get(CRON_JOBS, made.name, namespace=NAMESPACE)).spec.suspend

        await oci.wait_for_phase(event, NoticePhase.PLANNED)
        await oci.cluster.eventually(is_suspended)
        oci.cloud.start_maintenance(event)
        await oci.wait_until_drained()
        await client.delete(CRON_JOBS, made.name, namespace=NAMESPACE)


async def test_invalid_message_does_not_stop_the_source(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """ONMH case 10."""
    async with an_oci_cluster(a_cluster, tmp_path) as oci:
        oci.cloud.publish_bytes(base64.b64encode(b"\xff" * 99))
        oci.announce(leads=0.5)
        await oci.wait_until_drained()
