"""Kills leaders at random instants while a cloud announces maintenance, and checks the result from watches.

    async with observed_reboots(client) as observer:
        rounds = KillRounds(client, cloud, replicas, observer, random=Random(7))
        for _ in range(50):
            await rounds.run_round()

In each round AWS announces the reboot of two nodes, while the profile allows one to be out of service at a time. The
leader is killed at a random instant after that, and another standby is started. A PodDisruptionBudget protects some
pods until then, so that the next leader evicts pods whose eviction the killed one attempted. Both reboots must
complete. The observer uses only watches: it expects one notice per event and no other, each node cordoned, drained and
released once, the budget never exceeded, and no Kubernetes Event or notification repeated.
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

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticePhase
from haulout.api.objects import Node, Pod, RawObject
from haulout.api.resources import EVENTS, NODES, PODS
from haulout.controllers.profiles.plugin import STATE_LABEL, State
from haulout.drain.pdb_simulation import POD_DISRUPTION_BUDGETS
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.reflector import ListWatch
from haulout_sandbox.clouds.aws import AwsCloud
from support.builders.objects import a_node, a_pdb, a_pod
from support.expectations.eventually import eventually

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
_MAINTENANCE_TIME = timedelta(seconds=2)  # AWS tells times in whole seconds: what it says within one has no order
_FLUSH_TIME = timedelta(seconds=3)  # Events and messages are sent in the background
_LATEST_KILL = timedelta(seconds=4)
_PROTECTED_SHARE = 0.5  # of all pods
_FULL_CYCLE = [State.REQUIRED, State.IN_MAINTENANCE, State.OPERATIONAL]


class Replicas(Protocol):
    """Operators of which one leads and another one stands by."""

    messages: list[str]  # that people got

    def kill_leader(self) -> None:
        """Kill the leader, as SIGKILL does, and start another replica."""
        ...

    async def wait_for_standby(self) -> None:
        """Return when one replica leads, and another one has observed that."""
        ...

    def recent_log_lines(self) -> Sequence[str]:
        """Return what they logged last."""
        ...


@dataclass
class RebootObserver:
    """What watches have shown so far."""

    nodes: Informer[Node]
    notices: Informer[MaintenanceNotice]
    pods: Informer[Pod]
    cordoned: dict[str, list[bool]] = field(default_factory=dict)  # by node, each change
    states: dict[str, list[str]] = field(default_factory=dict)  # by node, each change
    phases: dict[str, list[str]] = field(default_factory=dict)  # by notice, each change
    notice_counts: Counter[str] = field(default_factory=Counter)  # notices, by what their cloud calls them
    most_cordoned: int = 0

    def __post_init__(self) -> None:
        """Look at everything."""
        self.nodes.subscribe(self._on_node_change)
        self.notices.subscribe(self._on_notice_change)

    def _on_node_change(self, before: Node | None, after: Node | None) -> None:
        if before is None or after is None:
            return
        if before.spec.unschedulable != after.spec.unschedulable:
            self.cordoned.setdefault(after.name, []).append(bool(after.spec.unschedulable))
        state_before, state = (node.metadata.labels.get(STATE_LABEL, State.OPERATIONAL) for node in (before, after))
        if state_before != state:
            self.states.setdefault(after.name, []).append(state)
        self.most_cordoned = max(self.most_cordoned, sum(bool(node.spec.unschedulable) for node in self.nodes.all()))

    def _on_notice_change(self, before: MaintenanceNotice | None, after: MaintenanceNotice | None) -> None:
        if after is None:
            return
        if before is None:
            self.notice_counts[after.spec.notice_id] += 1
        phases = self.phases.setdefault(after.name, [])
        if after.status.phase and after.status.phase not in phases[-1:]:
            phases.append(after.status.phase)

    def begin_round(self) -> None:
        """Clear the recorded changes of nodes."""
        self.cordoned.clear()
        self.states.clear()

    def expect_full_cycles(self) -> None:
        """Each node was cordoned once, drained and given back once, and never more than one at a time."""
        assert sorted(self.cordoned) == sorted(NODE_NAMES)
        assert all(state == [True, False] for state in self.cordoned.values()), self.cordoned
        assert sorted(self.states) == sorted(NODE_NAMES)
        assert all(state == _FULL_CYCLE for state in self.states.values()), self.states
        assert self.most_cordoned <= 1, "the budget was exceeded"

    def is_in_maintenance(self, name: str) -> bool:
        """Tell whether a node is in maintenance, and empty."""
        node = self.nodes.get(name)
        is_empty = not any(pod.spec.node_name == name for pod in self.pods.all())
        return bool(node and node.metadata.labels.get(STATE_LABEL) == State.IN_MAINTENANCE) and is_empty

    def is_completed(self, name: str, event: str) -> bool:
        """Tell whether a node is back in service, and the notice of an event completed."""
        node = self.nodes.get(name)
        found = [notice for notice in self.notices.all() if notice.spec.notice_id == event]
        is_back = bool(node and node.metadata.labels.get(STATE_LABEL) == State.OPERATIONAL)
        return is_back and [notice.status.phase for notice in found] == [NoticePhase.COMPLETED]


@asynccontextmanager
async def observed_reboots(client: Client) -> AsyncIterator[RebootObserver]:
    """Yield an observer that watches until the context ends."""
    observer = RebootObserver(
        nodes=Informer(client, ListWatch(NODES), transform=as_is),
        notices=Informer(client, ListWatch(MAINTENANCE_NOTICES), transform=as_is),
        pods=Informer(client, ListWatch(PODS), transform=as_is),
    )
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(coroutine)
            for coroutine in (observer.nodes.run(), observer.notices.run(), observer.pods.run())
        ]
        await observer.nodes.wait_synced()
        await observer.notices.wait_synced()
        yield observer
        for task in tasks:
            task.cancel()


class KillRounds:
    """Rounds of announced reboots, each with a kill."""

    def __init__(
        self, client: Client, cloud: AwsCloud, replicas: Replicas, observer: RebootObserver, *, random: Random
    ) -> None:
        self.client = client
        self.cloud = cloud
        self.replicas = replicas
        self.observer = observer
        self.random = random
        self.rounds = 0
        self.instances = {name: cloud.launch() for name in NODE_NAMES}
        self.events: list[str] = []
        self.protected: list[str] = []  # names of pods, and of their budgets

    async def prepare(self) -> None:
        """Register the instances as nodes. They have no kubelets, so that pods without a grace period end at once."""
        for name, instance in self.instances.items():
            await self.client.create(NODES, a_node(name).with_spec(providerID=f"aws:///eu-west-1a/{instance}"))

    async def run_round(self) -> None:
        """Announce two reboots, kill the leader at some instant, and check the result."""
        self.rounds += 1
        await self.replicas.wait_for_standby()
        self.observer.begin_round()
        self.replicas.messages.clear()
        before = Counter(await self._events())
        for name in NODE_NAMES:
            await self._run_pod(
                f"web-{self.rounds}-{name}", on=name, is_protected=self.random.random() < _PROTECTED_SHARE
            )
        async with asyncio.TaskGroup() as group:
            group.create_task(self._kill_leader())
            for name in NODE_NAMES:
                group.create_task(self._reboot(name))
        await self.client.clock.sleep(_FLUSH_TIME)
        self.observer.expect_full_cycles()
        # A message that was on its way when the process died is lost; none may come twice.
        assert max(Counter(self.replicas.messages).values(), default=0) <= 1, self.replicas.messages
        new_events = Counter(await self._events()) - before
        repeated = {event: count for event, count in new_events.items() if count > 1}
        assert not repeated, repeated

    async def _run_pod(self, name: str, *, on: str, is_protected: bool) -> None:
        # A budget protects running pods only, and until a controller has computed its status it allows no eviction.
        pod = a_pod(name, on=on, grace=0, labels={"app": name})
        await self.client.create(PODS, pod, namespace=SHOP)
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.patch(PODS, name, merge_patch({"status": running}), namespace=SHOP, subresource="status")
        if is_protected:
            await self.client.create(POD_DISRUPTION_BUDGETS, a_pdb(name, minAvailable=1), namespace=SHOP)
            self.protected.append(name)

    async def _kill_leader(self) -> None:
        # Most that is done is done within the first seconds; what follows a failover is killed in the next round.
        await self.client.clock.sleep(_LATEST_KILL * self.random.random() ** 2)
        self.replicas.kill_leader()
        while self.protected:
            await self.client.delete(POD_DISRUPTION_BUDGETS, self.protected.pop(), namespace=SHOP)

    async def _reboot(self, name: str) -> None:
        clock, instance = self.client.clock, self.instances[name]
        event = self.cloud.schedule(instance, start=clock.now() + _START_IN)
        self.events.append(event)
        wait_until = partial(eventually, clock, within=_WITHIN, recent_events=self.replicas.recent_log_lines)
        await wait_until(lambda: self.observer.is_in_maintenance(name))
        await clock.sleep(_MAINTENANCE_TIME)
        self.cloud.complete_event(instance, event)
        await wait_until(lambda: self.observer.is_completed(name, event))
        self.cloud.forget_event(instance, event)

    async def _events(self) -> list[tuple[str, ...]]:
        """Return the notes of Kubernetes Events, each with its count."""
        found = (await self.client.list(EVENTS)).items
        return [_event_key(event) for event in found for _ in range((event.get("series") or {}).get("count", 1))]

    def expect_nothing_lost_or_repeated(self) -> None:
        """Each event of the cloud became one notice, which went through its phases in order and once."""
        assert self.observer.notice_counts == Counter(self.events)
        order: list[str] = [NoticePhase.PLANNED, NoticePhase.DUE, NoticePhase.ACTIVE, NoticePhase.COMPLETED]
        for name, phases in self.observer.phases.items():
            assert phases == sorted(set(phases), key=order.index), f"{name}: {phases}"


def _event_key(event: RawObject) -> tuple[str, ...]:
    about = event.get("regarding") or {}
    return event["reason"], about.get("kind", ""), about.get("name", ""), str(event.get("note", ""))
