"""The operator, profiles with a window, and a cloud that schedules maintenance outside of it."""

from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from haulout.api.maintenancenotice import definition
from haulout.api.objects import Node, RawObject
from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.notices.component import NoticesComponent
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.core.clock import Clock
from haulout.core.timestamps import whole_seconds
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.component import EventSourceComponent
from haulout.providers.event_source import EventSource
from haulout.providers.oci.event_source import OciEventSource
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import COMPARTMENT
from support.builders.objects import a_node
from support.clusters.process import Process
from support.fakes.external_client import FakeExternalClient
from support.operators.replicas import NAMESPACE, a_replica_cluster, event_notes

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
MONDAYS = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: due, type: notice}
  - {name: over, type: notice, config: {when: over}}
  - {name: window, type: timeWindow, config: {start: '10:30', end: '12:00', weekdays: [mon]}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain, evictionTimeout: 10m, deletionTimeout: 2m}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: mondays
  operational: {transitions: [{check: due && window, next: in-maintenance, trigger: drain}]}
  in-maintenance: {transitions: [{check: over, next: operational, trigger: uncordon}]}
"""


async def test_maintenance_is_rescheduled_into_the_profile_window_and_the_node_is_drained_in_time(
    clock: Clock, tmp_path: Path
) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(MONDAYS)
    cloud = OciCloud(clock)
    machine = cloud.launch("n1")

    def make(client: Client, nodes: Informer[Node]) -> EventSource:
        del nodes
        return OciEventSource(cloud.compute(), compartments=[COMPARTMENT], clock=client.clock, random=Random(1))

    async def program(client: Client) -> None:
        profiles = ProfilesComponent(ProfilesFile(file, environ={}, clock=client.clock), FakeExternalClient())
        settings = OperatorSettings(namespace=NAMESPACE, identity="one")
        notices = NoticesComponent([EventSourceComponent("oci", make)])
        await run_operator(client, settings, profiles=profiles, notices=notices)

    async with a_replica_cluster(clock) as town:
        town.put(definition())
        labels = {"cloud.sap/maintenance-profile": "mondays"}
        town.put(a_node("n1", labels=labels).with_spec(providerID=machine))
        Process(town.cluster, "one", program).start()
        planned = clock.now().replace(hour=9, minute=50, second=0, microsecond=0)
        cloud.schedule(machine, start=planned, hard_due_date=planned + timedelta(days=3))

        def notice() -> RawObject:
            (found,) = town.api.objects("maintenancenotices") or [{}]
            return dict(found)

        def notice_start() -> datetime | None:
            start = notice().get("spec", {}).get("start")
            return None if start is None else datetime.fromisoformat(start)

        window_start = planned.replace(hour=10, minute=46)
        await town.wait_until(lambda: notice_start() == window_start, within=HOUR)
        assert {"RescheduleRequested", "MaintenanceRescheduled"} <= set(event_notes(town, "n1"))
        await town.wait_until(
            lambda: "drainAt" in notice()["status"] and clock.now() >= window_start - 14 * MINUTE, within=14 * HOUR
        )
        assert town.api.get("nodes", "n1")["spec"].get("unschedulable")
        conditions = {it["type"]: it for it in notice()["status"]["conditions"]}
        assert (conditions["OnTime"]["status"], conditions["OnTime"]["reason"]) == ("True", "Empty")
        assert conditions["Rescheduled"]["reason"] == "Accepted"


async def test_notice_of_a_node_without_a_notice_profile_has_no_drain_time(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(MONDAYS)

    async def program(client: Client) -> None:
        profiles = ProfilesComponent(ProfilesFile(file, environ={}, clock=client.clock), FakeExternalClient())
        await run_operator(client, OperatorSettings(namespace=NAMESPACE, identity="one"), profiles=profiles)

    async with a_replica_cluster(clock) as town:
        town.put(definition())
        for name, labels in {"n1": {"cloud.sap/maintenance-profile": "mondays"}, "n2": {}}.items():
            town.put(a_node(name, labels=labels))
            start = whole_seconds(clock.now() + timedelta(days=3))
            spec = {"nodeName": name, "kind": "Reboot", "source": "me", "noticeID": name, "start": start}
            kind = {"apiVersion": "haulout.dev/v1alpha1", "kind": "MaintenanceNotice"}
            town.put({**kind, "metadata": {"name": f"for-{name}"}, "spec": spec})
        Process(town.cluster, "one", program).start()
        await clock.sleep(MINUTE)
        found = {it["metadata"]["name"]: it["status"] for it in town.api.objects("maintenancenotices")}
        reasons = {
            name: [it["reason"] for it in status["conditions"] if it["type"] == "OnTime"]
            for name, status in found.items()
        }
        assert reasons == {"for-n1": ["Planned"], "for-n2": ["NoProfileMatches"]}
        assert ("drainAt" in found["for-n1"], "drainAt" in found["for-n2"]) == (True, False)
