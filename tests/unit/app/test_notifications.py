"""Notifications of NodeMaintenances and MaintenanceNotices, by operators in virtual time."""

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.maintenancenotice import definition as notice_definition
from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenanceStatus, PhaseTransition
from haulout.app.operator import OperatorSettings, run_operator
from haulout.controllers.nodemaintenance import notification
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.model import Member, NotificationRule
from haulout.controllers.profiles.config.profiles_file import ProfilesFile
from haulout.controllers.profiles.notify.object_notifier import NOTIFICATIONS_ANNOTATION, NotifiedKind, ObjectNotifier
from haulout.controllers.profiles.plugins.notifications.webhook import Webhook
from haulout.core.clock import Clock
from haulout.errors import ExternalError
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout.runtime.journal import Journal
from support.clusters.drain_cluster import DrainCluster, a_pdb
from support.fakes.external_client import FakeExternalClient
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.operators.replicas import (
    NAMESPACE,
    a_replica_cluster,
    create_maintenance,
    is_done,
    leader,
    maintenance,
    start_replica_with_profiles,
)

FILE = """
instances:
  notify:
  - {name: ops-slack, type: slack, config: {hook: "https://slack.test/x", channel: "#ops", message: "{{ .Message }}"}}
  - {name: hook, type: webhook, config: {url: "https://hook.test/x"}}
notifications:
- notify: [ops-slack]
  events: [NodeMaintenanceBlocked, NodeMaintenanceFailed, NoticeReceived, NoticeLate]
  after: 5m
- notify: [hook]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a configuration with notifications and without profiles."""
    path = tmp_path / "maintenance.yaml"
    path.write_text(FILE)
    return path


def slack(external: FakeExternalClient) -> list[str]:
    """Return the texts sent to Slack."""
    return [it.json["text"] for it in external.requests if "slack" in it.url]


def hooked(*external_clients: FakeExternalClient) -> list[Any]:
    """Return the bodies sent to the webhook."""
    return [it.json for external in external_clients for it in external.requests if "hook.test" in it.url]


def webhook_event_names(notifications: Sequence[Any]) -> list[str]:
    """Return the event names of webhook bodies."""
    return [it["event"] for it in notifications]


async def a_blocked_order(town: DrainCluster) -> None:
    """Create pods that may not be evicted, and a NodeMaintenance of their node."""
    await town.run_pods("cart", 2, on="n1")
    town.put(a_pdb("cart", app="cart", minAvailable=2))
    create_maintenance(town, "n1", reason="new kernel")


async def test_blocked_maintenance_is_notified_once_with_the_remedy(clock: Clock, file: Path) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        one = start_replica_with_profiles(town, "one", file)
        await a_blocked_order(town)
        await clock.sleep(timedelta(minutes=4))
        assert slack(one.external_client) == []
        await clock.sleep(timedelta(minutes=2))
        (text,) = slack(one.external_client)
        assert text.startswith("NodeMaintenance m1 of node n1 is blocked since ")
        assert "PodDisruptionBudget shop/cart" in text
        (blocked,) = (it for it in hooked(one.external_client) if it["event"] == "NodeMaintenanceBlocked")
        assert (blocked["type"], blocked["reason"], blocked["node"]) == ("nodemaintenance.blocked", "new kernel", "n1")
        assert blocked["blockers"][0]["object"] == "PodDisruptionBudget shop/cart"
        assert blocked["blockers"][0]["remedy"] == "run more replicas, or relax the PodDisruptionBudget"
        assert blocked["blockers"][0]["remedy"] in text
        assert set(json.loads(maintenance(town)["metadata"]["annotations"][NOTIFICATIONS_ANNOTATION])) == {
            "ops-slack",
            "hook",
        }
        await clock.sleep(timedelta(minutes=15))
        assert len(slack(one.external_client)) == 1
        assert webhook_event_names(hooked(one.external_client)) == ["NodeMaintenanceStarted", "NodeMaintenanceBlocked"]
        town.api.remove("poddisruptionbudgets", "cart", "shop")
        await town.wait_until(lambda: is_done(town))
        await town.wait_until(
            lambda: webhook_event_names(hooked(one.external_client))[-1] == "NodeMaintenanceSucceeded"
        )


async def test_successor_repeats_no_notification(clock: Clock, file: Path) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        one = start_replica_with_profiles(town, "one", file)
        await a_blocked_order(town)
        await clock.sleep(timedelta(minutes=6))
        assert len(slack(one.external_client)) == 1
        one.process.kill()
        two = start_replica_with_profiles(town, "two", file)
        await town.wait_until(lambda: leader(town) == "two")
        await clock.sleep(timedelta(minutes=10))
        assert slack(two.external_client) == hooked(two.external_client) == []


async def test_successor_sends_notifications_that_fall_due_later(clock: Clock, file: Path) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        one = start_replica_with_profiles(town, "one", file)
        await a_blocked_order(town)
        await clock.sleep(timedelta(minutes=2))
        one.process.kill()
        two = start_replica_with_profiles(town, "two", file)
        await clock.sleep(timedelta(minutes=7))
        assert slack(one.external_client) == []
        assert len(slack(two.external_client)) == 1


async def test_failing_receiver_is_retried_and_does_not_stop_the_maintenance(clock: Clock, file: Path) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        one = start_replica_with_profiles(town, "one", file)
        one.external_client.replies = [ExternalError("https://hook.test: connection refused")] * 3
        await town.run_pods("cart", 2, on="n1", stop=1)
        create_maintenance(town, "n1")
        await town.wait_until(lambda: is_done(town))
        await clock.sleep(timedelta(minutes=2))
        notifications = hooked(one.external_client)
        assert len(notifications) > len({it["id"] for it in notifications}) == 2
        assert webhook_event_names(notifications)[-1] == "NodeMaintenanceSucceeded"
        assert "NotificationFailed" in {it["reason"] for it in town.api.objects("events")}


async def test_received_notice_is_notified(clock: Clock, file: Path) -> None:
    async with a_replica_cluster(clock, "n1", "n2") as town:
        town.put(notice_definition())
        one = start_replica_with_profiles(town, "one", file)
        await town.wait_until(lambda: leader(town) == "one")
        town.put(
            {
                "apiVersion": MAINTENANCE_NOTICES.api_version,
                "kind": MAINTENANCE_NOTICES.kind,
                "metadata": {"name": "chg-17", "generation": 1},
                "spec": {"nodeName": "n1", "source": "dc", "kind": "Reboot", "start": "2026-01-06T09:00:00Z"},
            }
        )
        await clock.sleep(timedelta(minutes=1))
        (text,) = slack(one.external_client)
        assert text == ("MaintenanceNotice chg-17 of node n1: dc announces Reboot, not before 2026-01-06 09:00 UTC")
        assert webhook_event_names(hooked(one.external_client)) == ["NoticeReceived"]


async def test_old_events_are_not_notified_when_the_operator_starts(clock: Clock, tmp_path: Path) -> None:
    silent = tmp_path / "silent.yaml"
    silent.write_text("budget: [{max: 5}]\n")
    async with a_replica_cluster(clock, "n1", "n2") as town:
        one = start_replica_with_profiles(town, "one", silent)
        create_maintenance(town, "n1")
        await town.wait_until(lambda: is_done(town))
        await clock.sleep(timedelta(minutes=31))
        silent.write_text(FILE)
        await clock.sleep(timedelta(minutes=1))
        assert one.profiles.file.configuration.notifications
        assert one.external_client.requests == []


def test_notifications_are_sent_once_after_a_crash_after_any_write(file: Path) -> None:
    external_clients: list[FakeExternalClient] = []

    async def scenario(crash_run: CrashRun) -> None:
        external_clients.append(FakeExternalClient())
        async with a_replica_cluster(crash_run.clock, "n1", "n2") as town:
            crash_run.start_operator(town.cluster)
            await town.wait_until(lambda: leader(town) == "operator")
            await a_blocked_order(town)
            await crash_run.clock.sleep(timedelta(minutes=6))
            town.api.remove("poddisruptionbudgets", "cart", "shop")
            await town.wait_until(lambda: is_done(town))
            await crash_run.clock.sleep(timedelta(minutes=1))
            event_names = webhook_event_names(hooked(external_clients[-1]))
            assert len(event_names) == len(set(event_names)) >= 2
            assert len(slack(external_clients[-1])) <= 1

    async def operator(client: Client) -> None:
        profiles = ProfilesComponent(ProfilesFile(file, environ={}, clock=client.clock), external_clients[-1])
        await run_operator(client, OperatorSettings(namespace=NAMESPACE, identity="operator"), profiles=profiles)

    writes = assert_survives_crashes(scenario, operator=operator, compare=lambda _: {})
    assert writes >= 8


async def test_only_one_of_two_notifiers_sends_a_notification(clock: Clock) -> None:
    """Both read the same state of the object: the write of the second is refused."""
    async with a_replica_cluster(clock, "n1") as town:
        create_maintenance(town, "n1")
        change = PhaseTransition(number=1, phase="Running", time=clock.now())
        external, client = FakeExternalClient(), town.client
        found = await client.get(NODE_MAINTENANCES, "m1")
        observed = msgspec.structs.replace(
            found, status=NodeMaintenanceStatus(phase="Running", phase_transitions=(change,))
        )
        kind = NotifiedKind(
            resource=NODE_MAINTENANCES,
            get=lambda _: observed,
            all=lambda: [observed],
            events=notification.object_events,
            involved_object=notification.involved_object,
        )
        rule = NotificationRule(members=(Member("hook", Webhook(url="https://hook.test/x")),))
        journal = Journal("x", EventRecorder(client, instance="x", controller="x"), metrics=client.metrics)
        async with asyncio.TaskGroup() as group:
            tasks = []
            for _ in range(2):
                notifier = ObjectNotifier(client, external, journal=journal, kinds=(kind,))
                notifier.use((rule,))
                tasks.append(group.create_task(notifier.run()))
            await clock.sleep(timedelta(minutes=5))
            for task in tasks:
                task.cancel()
        assert webhook_event_names(hooked(external)) == ["NodeMaintenanceStarted"]
