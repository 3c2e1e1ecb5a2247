"""The informer of MachineDrainRules: annotations of nodes and change notifications."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import msgspec

from haulout.api.clusterapi import Cluster, Machine, machine_drain_rule_resource
from haulout.api.objects import RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from haulout.controllers.clusterapi.machine_drain_rules import MachineDrainRuleInformer
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout_sandbox.apiserver import ApiServer
from support.expectations.eventually import eventually
from support.platforms.metal3 import EVENTS, a_crd

RULES = machine_drain_rule_resource("v1beta1").with_model(RawObject)
MACHINE = msgspec.convert({"metadata": {"name": "m1", "namespace": "a", "uid": "u1"}}, Machine)
CLUSTER = msgspec.convert({"metadata": {"name": "prod", "namespace": "a", "labels": {"stage": "prod"}}}, Cluster)
SECOND = timedelta(seconds=1)


def a_rule(name: str, *, namespace: str = "a", **spec: Any) -> RawObject:
    return {
        "apiVersion": RULES.api_version,
        "kind": RULES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"drain": {"behavior": "Skip"}, **spec},
    }


class InformerHarness:
    """A running informer with a counter of its change notifications."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.api = ApiServer(clock, namespaces=["a", "b"])
        self.client = Client(self.api.transport(), clock=clock, random=Random(1))
        self.events = EventRecorder(self.client, instance="test")
        self.changes = 0
        self.informer = MachineDrainRuleInformer(self.client, events=self.events, on_change=self.count)

    def count(self) -> None:
        """Count a change notification."""
        self.changes += 1

    def annotation(self) -> str | None:
        """Return the annotation for the Machine."""
        return self.informer.annotation_for(MACHINE, CLUSTER)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the informer while the context lasts."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in (self.informer.run("v1beta1"), self.events.run())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()


async def test_informer_returns_applicable_rules_and_notifies_on_changes(clock: Clock) -> None:
    harness = InformerHarness(clock)
    await harness.client.create(CUSTOM_RESOURCE_DEFINITIONS, a_crd(RULES))
    await harness.client.create(RULES, a_rule("x", namespace="b"), namespace="b")
    assert harness.annotation() is None, "not synced yet"
    async with harness.running():
        await eventually(clock, lambda: harness.changes, becomes=1)
        assert harness.annotation() == "", "rules of another namespace do not count"
        by_stage = [{"clusterSelector": {"matchLabels": {"stage": "prod"}}}]
        for name in ("c", "a", "b"):
            await harness.client.create(RULES, a_rule(name, machines=by_stage), namespace="a")
        await clock.sleep(10 * SECOND)
        assert 2 <= harness.changes <= 3, "many changes at once are one"
        assert [rule["name"] for rule in msgspec.json.decode(harness.annotation() or "")["rules"]] == ["a", "b", "c"]
        assert (
            harness.informer.annotation_for(MACHINE, msgspec.structs.replace(CLUSTER, metadata=MACHINE.metadata)) == ""
        )


async def test_missing_crd_means_no_rules_until_it_is_created(clock: Clock) -> None:
    harness = InformerHarness(clock)
    async with harness.running():
        await eventually(clock, lambda: harness.changes, becomes=1)
        assert harness.annotation() == ""
        await harness.client.create(CUSTOM_RESOURCE_DEFINITIONS, a_crd(RULES))
        await harness.client.create(RULES, a_rule("a"), namespace="a")
        await eventually(clock, harness.annotation, within=timedelta(minutes=10))
        assert harness.changes == 2


async def test_unreadable_rule_leaves_the_annotations_of_its_namespace_unchanged(clock: Clock) -> None:
    harness = InformerHarness(clock)
    await harness.client.create(CUSTOM_RESOURCE_DEFINITIONS, a_crd(RULES))
    await harness.client.create(RULES, a_rule("odd", pods="all"), namespace="a")
    async with harness.running():
        await eventually(clock, lambda: harness.changes)
        assert harness.annotation() is None
        elsewhere = msgspec.structs.replace(MACHINE, metadata=msgspec.structs.replace(MACHINE.metadata, namespace="b"))
        assert harness.informer.annotation_for(elsewhere, None) == ""


async def test_unreadable_rule_is_reported_by_one_event(clock: Clock) -> None:
    harness = InformerHarness(clock)
    await harness.client.create(CUSTOM_RESOURCE_DEFINITIONS, a_crd(RULES))
    await harness.client.create(RULES, a_rule("odd", machines=[{"selector": {"matchFields": {}}}]), namespace="a")
    async with harness.running():
        await eventually(clock, lambda: harness.changes)
        assert [harness.annotation() for _ in range(3)] == [harness.annotation()] * 3
        await clock.sleep(60 * SECOND)
        (event,) = (await harness.client.list(EVENTS, namespace="a")).items
        assert (event["reason"], event.get("series")) == ("DrainRuleUnreadable", None)
        why = "MachineDrainRule odd: spec.machines[0].selector.matchFields: unknown, expected matchLabels"
        assert event["note"] == f"a drain of its node cannot evict all pods: {why} or matchExpressions"
