"""MachineDrainRules that are followed: what nodes are to say, and when somebody looks again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout.hub.rule_book import RuleBook
from haulout.kinds.clusterapi import Cluster, Machine, drain_rules
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.objects import RawObject
from haulout.kube.resources import DEFINITIONS
from haulout_sandbox.apiserver import ApiServer
from support.bare_metal import EVENTS, a_definition
from support.eventually import eventually

RULES = drain_rules("v1beta1").of(RawObject)
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


class Shelf:
    """A book that is kept, and how often it told of changes."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.api = ApiServer(clock, namespaces=["a", "b"])
        self.client = Client(self.api.transport(), clock=clock, random=Random(1))
        self.events = EventRecorder(self.client, instance="test")
        self.changes = 0
        self.book = RuleBook(self.client, events=self.events, changed=self.count)

    def count(self) -> None:
        """Note that somebody looks again."""
        self.changes += 1

    def says(self) -> str | None:
        """Return what a node is to say."""
        return self.book.annotation(MACHINE, CLUSTER)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Have it kept while the context lasts."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(it) for it in (self.book.run("v1beta1"), self.events.run())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()


async def test_a_node_says_what_holds_and_somebody_looks_again_when_that_changes(clock: Clock) -> None:
    shelf = Shelf(clock)
    await shelf.client.create(DEFINITIONS, a_definition(RULES))
    await shelf.client.create(RULES, a_rule("x", namespace="b"), namespace="b")
    assert shelf.says() is None, "nobody knows yet"
    async with shelf.kept():
        await eventually(clock, lambda: shelf.changes, becomes=1)
        assert shelf.says() == "", "rules of another namespace do not count"
        by_stage = [{"clusterSelector": {"matchLabels": {"stage": "prod"}}}]
        for name in ("c", "a", "b"):
            await shelf.client.create(RULES, a_rule(name, machines=by_stage), namespace="a")
        await clock.sleep(10 * SECOND)
        assert 2 <= shelf.changes <= 3, "many changes at once are one"
        assert [it["name"] for it in msgspec.json.decode(shelf.says() or "")["rules"]] == ["a", "b", "c"]
        assert shelf.book.annotation(MACHINE, msgspec.structs.replace(CLUSTER, metadata=MACHINE.metadata)) == ""


async def test_where_nobody_knows_such_rules_none_hold_until_somebody_does(clock: Clock) -> None:
    shelf = Shelf(clock)
    async with shelf.kept():
        await eventually(clock, lambda: shelf.changes, becomes=1)
        assert shelf.says() == ""
        await shelf.client.create(DEFINITIONS, a_definition(RULES))
        await shelf.client.create(RULES, a_rule("a"), namespace="a")
        await eventually(clock, shelf.says, within=timedelta(minutes=10))
        assert shelf.changes == 2


async def test_one_that_cannot_be_read_leaves_nodes_of_its_namespace_as_they_are(clock: Clock) -> None:
    shelf = Shelf(clock)
    await shelf.client.create(DEFINITIONS, a_definition(RULES))
    await shelf.client.create(RULES, a_rule("odd", pods="all"), namespace="a")
    async with shelf.kept():
        await eventually(clock, lambda: shelf.changes)
        assert shelf.says() is None
        elsewhere = msgspec.structs.replace(MACHINE, metadata=msgspec.structs.replace(MACHINE.metadata, namespace="b"))
        assert shelf.book.annotation(elsewhere, None) == ""


async def test_why_pods_will_wait_is_told_once(clock: Clock) -> None:
    shelf = Shelf(clock)
    await shelf.client.create(DEFINITIONS, a_definition(RULES))
    await shelf.client.create(RULES, a_rule("odd", machines=[{"selector": {"matchFields": {}}}]), namespace="a")
    async with shelf.kept():
        await eventually(clock, lambda: shelf.changes)
        assert [shelf.says() for _ in range(3)] == [shelf.says()] * 3
        await clock.sleep(60 * SECOND)
        (event,) = (await shelf.client.list(EVENTS, namespace="a")).items
        assert (event["reason"], event.get("series")) == ("DrainRuleUnreadable", None)
        why = "MachineDrainRule odd: spec.machines[0].selector.matchFields: unknown, expected matchLabels"
        assert event["note"] == f"pods on its node wait when it is drained: {why} or matchExpressions"
