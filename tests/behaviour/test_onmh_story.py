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

from haulout.app import manifests
from haulout.app.configured import Configured
from haulout.app.manifests import Installation
from haulout.app.notices import Notices
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.profiles import Profiles
from haulout.kinds.notice import Phase, definition
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.sources.oci import sdk
from haulout.notices.sources.oci.cloud import Compute, Streaming
from haulout.notices.sources.oci.consumer import Place
from haulout.notices.sources.oci.handler import CRON_JOBS
from haulout.notices.sources.oci.settings import Auth, OciSettings
from haulout.notices.sources.oci.source import OciSource
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import STREAM
from haulout_sandbox.clouds.oci.front import serving
from support.clusters import Plans
from support.live import LiveCluster, SandboxCluster
from support.looking import condition
from support.maintaining import entitled
from support.oci_events import ENDED, SCHEDULED, sample
from support.oci_session import a_config_file
from support.onmh import a_scheduled_drain
from support.outside import FakeOutside
from support.profiled import NAMESPACE, attach, state

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
RIGHTS = manifests.permissions(Installation(image="example/haulout", handler_namespace=NAMESPACE))


@dataclass(frozen=True)
class Story:
    """A cluster on OCI, in which the operator is at work."""

    cluster: LiveCluster
    cloud: OciCloud
    lead: timedelta
    machines: dict[str, str]  # by node

    def soon(self, leads: float) -> datetime:
        """Return an instant that is so many lead times ahead."""
        return self.cluster.clock.now() + leads * self.lead

    def announce(self, node: str = "n1", *, leads: float) -> str:
        """Announce a maintenance that begins so many lead times from now."""
        return self.cloud.schedule(self.machines[node], start=self.soon(leads))

    def is_cordoned(self, node: str = "n1") -> bool:
        """Tell whether a node takes no pods."""
        return bool(self.cluster.get("nodes", node)["spec"].get("unschedulable"))

    def carts(self, node: str = "n1") -> list[str]:
        """Return the pods on a node that can be elsewhere."""
        return [it for it in self.cluster.pods_on(node) if "cart" in it]

    def phase(self, event: str) -> str:
        """Return how a maintenance stands."""
        return str(self.cluster.get("maintenancenotices", f"oci-{event}").get("status", {}).get("phase"))

    async def wait(self, leads: float) -> None:
        """Let lead times pass."""
        await self.cluster.pass_time(seconds=(leads * self.lead).total_seconds())

    async def becomes(self, event: str, phase: Phase) -> None:
        """Wait until a maintenance stands so."""
        await self.cluster.eventually(lambda: self.phase(event), becomes=phase)

    async def drained(self, node: str = "n1") -> None:
        """Wait until a node is out of service, and empty."""
        await self.cluster.eventually(lambda: (self.is_cordoned(node), self.carts(node)), becomes=(True, []))

    async def back(self, node: str = "n1") -> None:
        """Wait until a node serves again."""
        await self.cluster.eventually(lambda: (self.is_cordoned(node), state(self.cluster, node)), becomes=_SERVES)


_SERVES = (False, "operational")


@asynccontextmanager
async def a_story(plans: Plans, folder: Path, *, nodes: int = 2, by_default: bool = False) -> AsyncIterator[Story]:
    """Run a cluster in which nobody has heard of a maintenance yet; `by_default`: nor has configured anything."""
    plan = entitled(plans(), RIGHTS).with_definition(definition())
    cloud = OciCloud(plan.clock, realm=folder.name.replace("_", "")[:30])
    machines = {f"n{number}": cloud.launch(f"oke-{number}") for number in range(1, nodes + 1)}
    for machine in machines.values():
        plan = plan.with_nodes(1, provider_id=machine)
    plan = plan.with_deployment("shop/cart", replicas=4).with_daemon_set("shop/agent")
    async with plan.running() as cluster, _line(cluster, cloud, folder) as (streaming, compute):
        lead = timedelta(minutes=15) if isinstance(cluster, SandboxCluster) else timedelta(seconds=5)
        file = folder / "maintenance.yaml"
        if not by_default:
            file.write_text(PROFILE.replace("LEAD", f"{lead.seconds}s"))
            for node in machines:
                await attach(cluster, node, "noticed")

        def sources(client: Client, nodes: Cache[Node]) -> list[OciSource]:
            pace = timedelta(seconds=0.5)
            place = Place(instance="haulout-0", idle_pause=pace, pause=pace)
            clock, random = client.clock, Random(7)
            source = OciSource(compute, streaming=streaming, place=place, clock=clock, random=random)
            source.adopt(client, nodes=nodes, namespace=NAMESPACE)
            return [source]

        async def operate(client: Client) -> None:
            profiles = Profiles(Configured(file, environ={}, clock=client.clock, may_lack=by_default), FakeOutside())
            settings = OperatorSettings(namespace=NAMESPACE, identity="operator_1")
            await run_operator(client, settings, profiles=profiles, notices=Notices(sources))

        cluster.run(operate)
        if not by_default:
            await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        yield Story(cluster, cloud, lead, machines)


@asynccontextmanager
async def _line(cluster: LiveCluster, cloud: OciCloud, folder: Path) -> AsyncIterator[tuple[Streaming, Compute]]:
    """Yield the way to OCI."""
    if isinstance(cluster, SandboxCluster) or importlib.util.find_spec("oci") is None:
        yield cloud.streaming(), cloud.compute()
        return
    async with serving(cloud, host="127.0.0.1") as port:
        url = f"http://127.0.0.1:{port}"
        found = OciSettings(
            stream=STREAM,
            endpoint=url,
            compute_endpoint=url,
            auth=Auth.CONFIG_FILE,
            config_file=str(a_config_file(folder)),
        )
        streaming, compute = sdk.connected(found)
        assert streaming is not None
        yield streaming, compute


async def test_from_an_event_on_the_stream_to_the_uncordoned_node(a_cluster: Plans, tmp_path: Path) -> None:
    """ONMH cases 1, 5, 6 and 7: nothing before its time, then the drain that its users know, then the node is back."""
    async with a_story(a_cluster, tmp_path) as story:
        await story.cluster.eventually(lambda: bool(story.carts()))
        event = story.announce(leads=2)
        await story.wait(0.8)
        assert story.phase(event) in (
            Phase.PLANNED,
            Phase.DUE,
        )  # a real one has only seconds
        assert not story.is_cordoned()
        assert story.carts()
        await story.wait(0.2)
        await story.drained()
        assert [it for it in story.cluster.pods_on("n1") if "agent" in it]
        await story.wait(1)
        story.cloud.begin(event)
        await story.becomes(event, Phase.ACTIVE)
        assert story.is_cordoned()
        story.cloud.end(event)
        await story.back()
        await story.becomes(event, Phase.COMPLETED)


async def test_an_event_by_hand_as_the_readme_has_it_drains_at_once(a_cluster: Plans, tmp_path: Path) -> None:
    """ONMH cases 2 and 3: put on the stream by a person, for a few minutes ahead; its end is put there as well."""
    async with a_story(a_cluster, tmp_path) as story:
        unknown = story.cloud.schedule(story.machines["n1"], start=story.soon(0.7), silent=True)
        document = story.cloud.told(unknown)
        story.cloud.publish(document)
        await story.drained()
        story.cloud.publish(document | {"eventType": f"{document['eventType']}.end"})
        await story.back()


async def test_the_sample_of_the_readme_drains_each_time_it_is_sent(a_cluster: Plans, tmp_path: Path) -> None:
    """Its `eventTime` is of 2023, and all its identifiers are the same each time: OCI does not know of it."""
    async with a_story(a_cluster, tmp_path) as story:
        for _ in range(2):
            start = f"{story.soon(0.7):%Y-%m-%dT%H:%M:%S.000Z}"
            event, end = (sample(story.machines["n1"], start=start, kind=kind) for kind in (SCHEDULED, ENDED))
            for document in (event, end):
                document["data"]["resourceId"] += tmp_path.name  # tests of one server must not share a notice
            story.cloud.publish(event)
            await story.drained()
            await story.cluster.pass_time(seconds=12)  # longer than until Compute is asked
            assert story.is_cordoned()
            story.cloud.publish(end)
            await story.back()


async def test_without_a_configuration_the_handlers_behaviour_is_the_default(a_cluster: Plans, tmp_path: Path) -> None:
    """Ten minutes ahead is less than the quarter of an hour in which the handler drains at once."""
    async with a_story(a_cluster, tmp_path, by_default=True) as story:
        start = story.cluster.clock.now() + timedelta(minutes=10)
        event = story.cloud.schedule(story.machines["n1"], start=start)
        await story.drained()
        assert not story.is_cordoned("n2")
        story.cloud.begin(event)
        await story.becomes(event, Phase.ACTIVE)
        story.cloud.end(event)
        await story.cluster.eventually(lambda: not story.is_cordoned())


async def test_an_end_that_follows_its_beginning_at_once_leaves_no_node_cordoned(
    a_cluster: Plans, tmp_path: Path
) -> None:
    """ONMH weakness 11: there two jobs ran against each other."""
    async with a_story(a_cluster, tmp_path) as story:
        event = story.announce(leads=9)
        story.cloud.begin(event)
        await story.cluster.eventually(story.is_cordoned)
        story.cloud.end(event)
        await story.back()
        await story.wait(0.5)
        assert not story.is_cordoned()


async def test_case_20_a_node_that_a_person_had_cordoned_stays_cordoned(a_cluster: Plans, tmp_path: Path) -> None:
    async with a_story(a_cluster, tmp_path) as story:
        await story.cluster.cordon("n1")
        event = story.announce(leads=0.5)
        await story.drained()
        story.cloud.begin(event)
        story.cloud.end(event)
        await story.becomes(event, Phase.COMPLETED)
        await story.cluster.eventually(lambda: state(story.cluster, "n1"), becomes="operational")
        assert story.is_cordoned()


async def test_a_node_whose_maintenance_failed_stays_away_until_it_has_succeeded(
    a_cluster: Plans, tmp_path: Path
) -> None:
    """ONMH case 21."""
    async with a_story(a_cluster, tmp_path) as story:
        event = story.announce(leads=0.5)
        await story.drained()
        story.cloud.begin(event)
        story.cloud.end(event, state="FAILED")
        await story.becomes(event, Phase.ACTIVE)
        await story.wait(0.5)
        assert story.is_cordoned()
        story.cloud.end(event)
        await story.back()


async def test_a_node_that_is_not_ready_when_its_maintenance_ends_stays_away(a_cluster: Plans, tmp_path: Path) -> None:
    async with a_story(a_cluster, tmp_path) as story:
        event = story.announce(leads=0.5)
        await story.drained()
        await story.cluster.eventually(lambda: state(story.cluster, "n1"), becomes="in-maintenance")
        story.cluster.kill("n1")
        await story.cluster.eventually(lambda: condition(story.cluster.get("nodes", "n1"), "Ready")[0] != "True")
        story.cloud.end(event)
        await story.becomes(event, Phase.COMPLETED)
        await story.wait(0.5)
        assert story.is_cordoned()
        story.cluster.revive("n1")
        await story.back()


async def test_a_maintenance_that_is_moved_or_called_off_drains_nothing_at_its_old_time(
    a_cluster: Plans, tmp_path: Path
) -> None:
    """ONMH cases 17 and 22, weaknesses 2 and 9."""
    async with a_story(a_cluster, tmp_path) as story:
        moved, cancelled = story.announce("n1", leads=2), story.announce("n2", leads=2)
        await story.cluster.eventually(lambda: bool(story.phase(moved) and story.phase(cancelled)))
        story.cloud.reschedule(moved, story.soon(4))
        story.cloud.end(cancelled, state="CANCELED")
        await story.becomes(cancelled, Phase.CANCELLED)
        await story.wait(1.5)
        assert (story.is_cordoned("n1"), story.is_cordoned("n2")) == (False, False)
        await story.wait(1.6)
        await story.drained("n1")
        assert not story.is_cordoned("n2")


async def test_case_30_of_many_maintenances_at_once_no_more_than_allowed_are_away(
    a_cluster: Plans, tmp_path: Path
) -> None:
    async with a_story(a_cluster, tmp_path, nodes=3) as story:
        nodes = list(story.machines)
        events = {it: story.announce(it, leads=0.5) for it in nodes}
        for _ in nodes:
            await story.cluster.eventually(lambda: any(story.is_cordoned(it) for it in events))
            (away,) = [it for it in events if story.is_cordoned(it)]
            await story.drained(away)
            story.cloud.end(events.pop(away))
            await story.back(away)


async def test_case_33_what_the_handler_had_planned_is_done_and_its_cron_job_is_gone(
    a_cluster: Plans, tmp_path: Path
) -> None:
    async with a_story(a_cluster, tmp_path) as story:
        client = story.cluster.me
        start = story.cluster.clock.now() + timedelta(hours=2)
        event = story.cloud.schedule(story.machines["n1"], start=start, silent=True)
        job = a_scheduled_drain("n1", start=start, namespace=NAMESPACE)
        made = await client.create(CRON_JOBS, job, namespace=NAMESPACE)

        async def is_suspended() -> bool:
            return (await client.get(CRON_JOBS, made.name, namespace=NAMESPACE)).spec.suspend

        await story.becomes(event, Phase.PLANNED)
        await story.cluster.eventually(is_suspended)
        story.cloud.begin(event)
        await story.drained()
        await client.delete(CRON_JOBS, made.name, namespace=NAMESPACE)


async def test_a_message_that_makes_no_sense_stops_nothing(a_cluster: Plans, tmp_path: Path) -> None:
    """ONMH case 10."""
    async with a_story(a_cluster, tmp_path) as story:
        story.cloud.put(base64.b64encode(b"\xff" * 99))
        story.announce(leads=0.5)
        await story.drained()
