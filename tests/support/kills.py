"""Leaders that are killed at random instants while a cloud announces maintenance, and a judge of what comes of it.

    async with judged(client) as judge:
        story = Story(client, cloud, replicas, judge, random=Random(7))
        for _ in range(50):
            await story.round()

In each round AWS announces the reboot of two nodes, where the profile allows one to be out of service at a time. The
leader is killed at a random instant of all that follows, and another standby is started. Some pods are protected by a
PodDisruptionBudget until then, so that the next leader evicts pods that the killed one tried to evict. Both reboots
must come to their end. The judge knows only what watches show: a notice for each event and no other, each node
cordoned, drained and given back once, the budget never exceeded, no Kubernetes Event and no message to people repeated.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import Protocol

from haulout.drain.budgets import BUDGETS
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, Phase
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Node, Pod, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import EVENTS, NODES, PODS
from haulout.profiles.plugin import STATE_LABEL, State
from haulout_sandbox.clouds.aws import AwsCloud
from support.builders import a_budget, a_node, a_pod
from support.eventually import eventually

NODE_NAMES = ("n1", "n2")
SHOP = "shop"
QUEUE = "https://sqs.eu-west-1.amazonaws.com/111122223333/maintenance"
CONFIGURATION = """\
intervals: {requeue: 30s}
instances:
  check:
  - {name: due, type: notice, config: {when: due, leadTime: 15m, kinds: [Reboot]}}
  - {name: room, type: maxMaintenance, config: {max: 1}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
  notify:
  - name: tell
    type: slack
    config: {hook: "${HOOK}", channel: nodes, message: "{{ .Node.Name }} {{ .State }}"}
    schedule: {type: periodic, config: {interval: 24h}}
profiles:
- name: kills
  onNotice: true
  operational:
    transitions:
    - {check: due, next: maintenance-required}
  maintenance-required:
    notify: tell
    transitions:
    - {check: due && room, next: in-maintenance, trigger: drain}
  in-maintenance:
    notify: tell
    transitions:
    - {check: "!due", next: operational, trigger: uncordon}
"""
_START_IN = timedelta(minutes=10)
_WITHIN = timedelta(seconds=100)  # a message that a dead leader had received is hidden by AWS for a while
_OUT_FOR = timedelta(seconds=2)  # AWS tells times in whole seconds: what it says within one has no order
_LAST_WORDS = timedelta(seconds=3)  # Events and messages are sent in the background
_LATEST_KILL = timedelta(seconds=4)
_PROTECTED = 0.5  # of all pods
_FULL_CIRCLE = [State.REQUIRED, State.IN_MAINTENANCE, State.OPERATIONAL]


class Replicas(Protocol):
    """Operators of which one leads and another one stands by."""

    messages: list[str]  # that people got

    def kill_leader(self) -> None:
        """Kill the leader, as SIGKILL does, and start another replica."""
        ...

    async def wait_for_standby(self) -> None:
        """Return when one leads, and another has seen that."""
        ...

    def last_logged(self) -> Sequence[str]:
        """Return what they logged last."""
        ...


@dataclass
class Judge:
    """What watches have shown so far."""

    nodes: Cache[Node]
    notices: Cache[MaintenanceNotice]
    pods: Cache[Pod]
    cordoned: dict[str, list[bool]] = field(default_factory=dict)  # by node, each change
    states: dict[str, list[str]] = field(default_factory=dict)  # by node, each change
    phases: dict[str, list[str]] = field(default_factory=dict)  # by notice, each change
    made: Counter[str] = field(default_factory=Counter)  # notices, by what their cloud calls them
    most_cordoned: int = 0

    def __post_init__(self) -> None:
        """Look at everything."""
        self.nodes.subscribe(self._saw_node)
        self.notices.subscribe(self._saw_notice)

    def _saw_node(self, before: Node | None, after: Node | None) -> None:
        if before is None or after is None:
            return
        if before.spec.unschedulable != after.spec.unschedulable:
            self.cordoned.setdefault(after.name, []).append(bool(after.spec.unschedulable))
        was, now = (it.metadata.labels.get(STATE_LABEL, State.OPERATIONAL) for it in (before, after))
        if was != now:
            self.states.setdefault(after.name, []).append(now)
        self.most_cordoned = max(self.most_cordoned, sum(bool(it.spec.unschedulable) for it in self.nodes.all()))

    def _saw_notice(self, before: MaintenanceNotice | None, after: MaintenanceNotice | None) -> None:
        if after is None:
            return
        if before is None:
            self.made[after.spec.notice_id] += 1
        seen = self.phases.setdefault(after.name, [])
        if after.status.phase and after.status.phase not in seen[-1:]:
            seen.append(after.status.phase)

    def begin_round(self) -> None:
        """Forget what nodes went through."""
        self.cordoned.clear()
        self.states.clear()

    def expect_full_circles(self) -> None:
        """Each node was cordoned once, drained and given back once, and never more than one at a time."""
        assert sorted(self.cordoned) == sorted(NODE_NAMES)
        assert all(it == [True, False] for it in self.cordoned.values()), self.cordoned
        assert sorted(self.states) == sorted(NODE_NAMES)
        assert all(it == _FULL_CIRCLE for it in self.states.values()), self.states
        assert self.most_cordoned <= 1, "the budget was exceeded"

    def is_out(self, name: str) -> bool:
        """Tell whether a node is in maintenance, and empty."""
        node = self.nodes.get(name)
        is_empty = not any(it.spec.node_name == name for it in self.pods.all())
        return bool(node and node.metadata.labels.get(STATE_LABEL) == State.IN_MAINTENANCE) and is_empty

    def is_over(self, name: str, event: str) -> bool:
        """Tell whether a node is back in service, and the notice of an event completed."""
        node = self.nodes.get(name)
        found = [it for it in self.notices.all() if it.spec.notice_id == event]
        is_back = bool(node and node.metadata.labels.get(STATE_LABEL) == State.OPERATIONAL)
        return is_back and [it.status.phase for it in found] == [Phase.COMPLETED]


@asynccontextmanager
async def judged(client: Client) -> AsyncIterator[Judge]:
    """Yield a judge that watches until the end."""
    judge = Judge(
        nodes=Cache(client, Selection(NODES), row=as_is),
        notices=Cache(client, Selection(MAINTENANCE_NOTICES), row=as_is),
        pods=Cache(client, Selection(PODS), row=as_is),
    )
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(it) for it in (judge.nodes.run(), judge.notices.run(), judge.pods.run())]
        await judge.nodes.wait_synced()
        await judge.notices.wait_synced()
        yield judge
        for task in tasks:
            task.cancel()


class Story:
    """Rounds of announced reboots, each with a kill."""

    def __init__(self, client: Client, cloud: AwsCloud, replicas: Replicas, judge: Judge, *, random: Random) -> None:
        self.client = client
        self.cloud = cloud
        self.replicas = replicas
        self.judge = judge
        self.random = random
        self.rounds = 0
        self.instances = {name: cloud.launch() for name in NODE_NAMES}
        self.events: list[str] = []
        self.protected: list[str] = []  # names of pods, and of their budgets

    async def prepare(self) -> None:
        """Have the instances be nodes. They have no kubelets, so that pods without a grace period end at once."""
        for name, instance in self.instances.items():
            await self.client.create(NODES, a_node(name).with_spec(providerID=f"aws:///eu-west-1a/{instance}"))

    async def round(self) -> None:
        """Announce two reboots, kill the leader at some instant, and judge."""
        self.rounds += 1
        await self.replicas.wait_for_standby()
        self.judge.begin_round()
        self.replicas.messages.clear()
        before = Counter(await self._events())
        for name in NODE_NAMES:
            await self._run_pod(f"web-{self.rounds}-{name}", on=name, is_protected=self.random.random() < _PROTECTED)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._kill())
            for name in NODE_NAMES:
                group.create_task(self._reboot(name))
        await self.client.clock.sleep(_LAST_WORDS)
        self.judge.expect_full_circles()
        # A message that was on its way when the process died is lost; none may come twice.
        assert max(Counter(self.replicas.messages).values(), default=0) <= 1, self.replicas.messages
        said = Counter(await self._events()) - before
        repeated = {what: count for what, count in said.items() if count > 1}
        assert not repeated, repeated

    async def _run_pod(self, name: str, *, on: str, is_protected: bool) -> None:
        # A budget protects running pods only, and until a controller has computed its status it allows no eviction.
        pod = a_pod(name, on=on, grace=0, labels={"app": name})
        await self.client.create(PODS, pod, namespace=SHOP)
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.patch(PODS, name, merge_patch({"status": running}), namespace=SHOP, subresource="status")
        if is_protected:
            await self.client.create(BUDGETS, a_budget(name, minAvailable=1), namespace=SHOP)
            self.protected.append(name)

    async def _kill(self) -> None:
        # Most that is done is done within the first seconds; what follows a failover is killed in the next round.
        await self.client.clock.sleep(_LATEST_KILL * self.random.random() ** 2)
        self.replicas.kill_leader()
        while self.protected:
            await self.client.delete(BUDGETS, self.protected.pop(), namespace=SHOP)

    async def _reboot(self, name: str) -> None:
        clock, instance = self.client.clock, self.instances[name]
        event = self.cloud.schedule(instance, start=clock.now() + _START_IN)
        self.events.append(event)
        until = partial(eventually, clock, within=_WITHIN, happened=self.replicas.last_logged)
        await until(lambda: self.judge.is_out(name))
        await clock.sleep(_OUT_FOR)
        self.cloud.finish(instance, event)
        await until(lambda: self.judge.is_over(name, event))
        self.cloud.forget(instance, event)

    async def _events(self) -> list[tuple[str, ...]]:
        """Return what Kubernetes Events say, each as often as it was said."""
        found = (await self.client.list(EVENTS)).items
        return [_said(it) for it in found for _ in range((it.get("series") or {}).get("count", 1))]

    def expect_nothing_lost_or_told_twice(self) -> None:
        """Each event of the cloud became one notice, which went through its phases in order and once."""
        assert self.judge.made == Counter(self.events)
        order: list[str] = [Phase.PLANNED, Phase.DUE, Phase.ACTIVE, Phase.COMPLETED]
        for name, phases in self.judge.phases.items():
            assert phases == sorted(set(phases), key=order.index), f"{name}: {phases}"


def _said(event: RawObject) -> tuple[str, ...]:
    about = event.get("regarding") or {}
    return event["reason"], about.get("kind", ""), about.get("name", ""), str(event.get("note", ""))
