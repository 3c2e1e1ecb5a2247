"""The story of the OCI Node Maintenance Handler, as its users know it, from the stream to the uncordoned node.

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
from haulout.app.notices import NoticesComponent
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import ProfilesComponent
from haulout.app.profiles_file import ProfilesFile
from haulout.kube.client import Client
from haulout.kube.informer import Informer
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
    """A cluster on OCI, in which the operator is at work."""

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
        """Return how a maintenance stands."""
        return str(self.cluster.get("maintenancenotices", f"oci-{event}").get("status", {}).get("phase"))

    async def wait_lead_times(self, leads: float) -> None:
        """Let lead times pass."""
        await self.cluster.pass_time(seconds=(leads * self.lead).total_seconds())

    async def wait_for_phase(self, event: str, phase: NoticePhase) -> None:
        """Wait until a maintenance stands so."""
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
    """Run a cluster in which nobody has heard of a maintenance yet; `by_default`: nor has configured anything."""
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

        def sources(client: Client, nodes: Informer[Node]) -> list[OciEventSource]:
            pace = timedelta(seconds=0.5)
            place = ConsumerOptions(instance="haulout-0", idle_pause=pace, pause=pace)
            clock, random = client.clock, Random(7)
            source = OciEventSource(compute, streaming=streaming, consumer_options=place, clock=clock, random=random)
            source.adopt_cronjobs(client, nodes=nodes, namespace=NAMESPACE)
            return [source]

        async def operate(client: Client) -> None:
            profiles = ProfilesComponent(
                ProfilesFile(file, environ={}, clock=client.clock, is_optional=by_default), FakeExternalClient()
            )
            settings = OperatorSettings(namespace=NAMESPACE, identity="operator_1")
            await run_operator(client, settings, profiles=profiles, notices=NoticesComponent(sources))

        cluster.run(operate)
        if not by_default:
            await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        yield OciCluster(cluster, cloud, lead, machines)


@asynccontextmanager
async def _source_transport(
    cluster: LiveCluster, cloud: OciCloud, folder: Path
) -> AsyncIterator[tuple[Streaming, Compute]]:
    """Yield the way to OCI."""
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


async def test_from_an_event_on_the_stream_to_the_uncordoned_node(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """ONMH cases 1, 5, 6 and 7: nothing before its time, then the drain that its users know, then the node is back."""
    async with an_oci_cluster(a_cluster, tmp_path) as story:
        await story.cluster.eventually(lambda: bool(story.movable_pods()))
        event = story.announce(leads=2)
        await story.wait_lead_times(0.8)
        assert story.phase(event) in (
            NoticePhase.PLANNED,
            NoticePhase.DUE,
        )  # a real one has only seconds
        assert not story.is_cordoned()
        assert story.movable_pods()
        await story.wait_lead_times(0.2)
        await story.wait_until_drained()
        assert [item for item in story.cluster.pods_on("n1") if "agent" in item]
        await story.wait_lead_times(1)
        story.cloud.start_maintenance(event)
        await story.wait_for_phase(event, NoticePhase.ACTIVE)
        assert story.is_cordoned()
        story.cloud.end_maintenance(event)
        await story.wait_until_back()
        await story.wait_for_phase(event, NoticePhase.COMPLETED)


async def test_an_event_by_hand_as_the_readme_has_it_drains_at_once(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """ONMH cases 2 and 3: put on the stream by a person, for a few minutes ahead; its end is put there as well."""
    async with an_oci_cluster(a_cluster, tmp_path) as story:
        unknown = story.cloud.schedule(story.machines["n1"], start=story.in_lead_times(0.7), silent=True)
        document = story.cloud.event_document(unknown)
        story.cloud.publish(document)
        await story.wait_until_drained()
        story.cloud.publish(document | {"eventType": f"{document['eventType']}.end"})
        await story.wait_until_back()


async def test_the_sample_of_the_readme_drains_each_time_it_is_sent(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """Its `eventTime` is of 2023, and all its identifiers are the same each time: OCI does not know of it."""
    async with an_oci_cluster(a_cluster, tmp_path) as story:
        for _ in range(2):
            start = f"{story.in_lead_times(0.7):%Y-%m-%dT%H:%M:%S.000Z}"
            event, end = (sample(story.machines["n1"], start=start, kind=kind) for kind in (SCHEDULED, ENDED))
            for document in (event, end):
                document["data"]["resourceId"] += tmp_path.name  # tests of one server must not share a notice
            story.cloud.publish(event)
            await story.wait_until_drained()
            await story.cluster.pass_time(seconds=12)  # longer than until Compute is asked
            assert story.is_cordoned()
            story.cloud.publish(end)
            await story.wait_until_back()


async def test_without_a_configuration_the_handlers_behaviour_is_the_default(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """Ten minutes ahead is less than the quarter of an hour in which the handler drains at once."""
    async with an_oci_cluster(a_cluster, tmp_path, by_default=True) as story:
        start = story.cluster.clock.now() + timedelta(minutes=10)
        event = story.cloud.schedule(story.machines["n1"], start=start)
        await story.wait_until_drained()
        assert not story.is_cordoned("n2")
        story.cloud.start_maintenance(event)
        await story.wait_for_phase(event, NoticePhase.ACTIVE)
        story.cloud.end_maintenance(event)
        await story.cluster.eventually(lambda: not story.is_cordoned())


async def test_an_end_that_follows_its_beginning_at_once_leaves_no_node_cordoned(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """ONMH weakness 11: there two jobs ran against each other."""
    async with an_oci_cluster(a_cluster, tmp_path) as story:
        event = story.announce(leads=9)
        story.cloud.start_maintenance(event)
        await story.cluster.eventually(story.is_cordoned)
        story.cloud.end_maintenance(event)
        await story.wait_until_back()
        await story.wait_lead_times(0.5)
        assert not story.is_cordoned()


async def test_case_20_a_node_that_a_person_had_cordoned_stays_cordoned(a_cluster: PlanFactory, tmp_path: Path) -> None:
    async with an_oci_cluster(a_cluster, tmp_path) as story:
        await story.cluster.cordon("n1")
        event = story.announce(leads=0.5)
        await story.wait_until_drained()
        story.cloud.start_maintenance(event)
        story.cloud.end_maintenance(event)
        await story.wait_for_phase(event, NoticePhase.COMPLETED)
        await story.cluster.eventually(lambda: state(story.cluster, "n1"), becomes="operational")
        assert story.is_cordoned()


async def test_a_node_whose_maintenance_failed_stays_away_until_it_has_succeeded(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """ONMH case 21."""
    async with an_oci_cluster(a_cluster, tmp_path) as story:
        event = story.announce(leads=0.5)
        await story.wait_until_drained()
        story.cloud.start_maintenance(event)
        story.cloud.end_maintenance(event, state="FAILED")
        await story.wait_for_phase(event, NoticePhase.ACTIVE)
        await story.wait_lead_times(0.5)
        assert story.is_cordoned()
        story.cloud.end_maintenance(event)
        await story.wait_until_back()


async def test_a_node_that_is_not_ready_when_its_maintenance_ends_stays_away(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with an_oci_cluster(a_cluster, tmp_path) as story:
        event = story.announce(leads=0.5)
        await story.wait_until_drained()
        await story.cluster.eventually(lambda: state(story.cluster, "n1"), becomes="in-maintenance")
        story.cluster.stop_kubelet("n1")
        await story.cluster.eventually(lambda: condition_status(story.cluster.get("nodes", "n1"), "Ready")[0] != "True")
        story.cloud.end_maintenance(event)
        await story.wait_for_phase(event, NoticePhase.COMPLETED)
        await story.wait_lead_times(0.5)
        assert story.is_cordoned()
        story.cluster.start_kubelet("n1")
        await story.wait_until_back()


async def test_a_maintenance_that_is_moved_or_called_off_drains_nothing_at_its_old_time(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """ONMH cases 17 and 22, weaknesses 2 and 9."""
    async with an_oci_cluster(a_cluster, tmp_path) as story:
        moved, cancelled = story.announce("n1", leads=2), story.announce("n2", leads=2)
        await story.cluster.eventually(lambda: bool(story.phase(moved) and story.phase(cancelled)))
        story.cloud.reschedule(moved, story.in_lead_times(4))
        story.cloud.end_maintenance(cancelled, state="CANCELED")
        await story.wait_for_phase(cancelled, NoticePhase.CANCELLED)
        await story.wait_lead_times(1.5)
        assert (story.is_cordoned("n1"), story.is_cordoned("n2")) == (False, False)
        await story.wait_lead_times(1.6)
        await story.wait_until_drained("n1")
        assert not story.is_cordoned("n2")


async def test_case_30_of_many_maintenances_at_once_no_more_than_allowed_are_away(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with an_oci_cluster(a_cluster, tmp_path, nodes=3) as story:
        nodes = list(story.machines)
        events = {item: story.announce(item, leads=0.5) for item in nodes}
        for _ in nodes:
            await story.cluster.eventually(lambda: any(story.is_cordoned(item) for item in events))
            (away,) = [item for item in events if story.is_cordoned(item)]
            await story.wait_until_drained(away)
            story.cloud.end_maintenance(events.pop(away))
            await story.wait_until_back(away)


async def test_case_33_what_the_handler_had_planned_is_done_and_its_cron_job_is_gone(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    async with an_oci_cluster(a_cluster, tmp_path) as story:
        client = story.cluster.admin
        start = story.cluster.clock.now() + timedelta(hours=2)
        event = story.cloud.schedule(story.machines["n1"], start=start, silent=True)
        job = a_drain_cronjob("n1", start=start, namespace=NAMESPACE)
        made = await client.create(CRON_JOBS, job, namespace=NAMESPACE)

        async def is_suspended() -> bool:
            return (await client.get(CRON_JOBS, made.name, namespace=NAMESPACE)).spec.suspend

        await story.wait_for_phase(event, NoticePhase.PLANNED)
        await story.cluster.eventually(is_suspended)
        story.cloud.start_maintenance(event)
        await story.wait_until_drained()
        await client.delete(CRON_JOBS, made.name, namespace=NAMESPACE)


async def test_a_message_that_makes_no_sense_stops_nothing(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """ONMH case 10."""
    async with an_oci_cluster(a_cluster, tmp_path) as story:
        story.cloud.publish_bytes(base64.b64encode(b"\xff" * 99))
        story.announce(leads=0.5)
        await story.wait_until_drained()
