"""Scenes for plugins: a cluster that is made up, and one of its nodes to look at.

cluster = Cluster(a_node("n1"), a_node("n2"), entries={"n1": {"os": entry(State.REQUIRED)}})
verdict = HasLabel(key="ready").look(cluster.scene("n1"))
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from haulout.drain.workloads import Record, Workload
from haulout.errors import OutsideError
from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.objects import Lease, Node, RawObject
from haulout.profiles import fitting
from haulout.profiles.fitting import Room
from haulout.profiles.plugin import (
    STATE_LABEL,
    Answer,
    Entry,
    NodeSight,
    Outside,
    Question,
    Reply,
    Scene,
    Sights,
    State,
)
from haulout.profiles.smtp import Envelope

NOW = datetime(2024, 5, 1, 10, 0, tzinfo=UTC)
PROFILE = "os"
MINUTE = timedelta(minutes=1)


def entry(state: str, *, since: datetime | None = NOW) -> Entry:
    """Return what a node's data says about a profile that stands in a state."""
    return Entry(current=state, previous=state, transition=since)


def a_lease(name: str, *, holder: str = "n9", namespace: str = "kube-system", version: str = "7", **spec: Any) -> Lease:
    """Return a lease; `spec` in the words of Kubernetes."""
    metadata = {"name": name, "namespace": namespace, "resourceVersion": version}
    return msgspec.convert({"metadata": metadata, "spec": {"holderIdentity": holder, **spec}}, Lease)


class Cluster(Sights):
    """What is known of a cluster, as it was told."""

    def __init__(
        self,
        *nodes: RawObject,
        entries: Mapping[str, Mapping[str, Entry]] | None = None,
        pods: Iterable[RawObject] = (),
        leases: Iterable[Lease] = (),
        hypervisors: Iterable[RawObject] = (),
        daemon_sets: Iterable[RawObject] = (),
        evicted: Mapping[str, Collection[Workload]] | None = None,
        problems: Mapping[str, str] | None = None,
        slots: Collection[str] = (),
    ) -> None:
        self.raw = {node["metadata"]["name"]: node for node in nodes}
        self.entries = entries or {}
        self.problems = problems or {}
        self.slots = slots  # the nodes that are on their way into maintenance
        self.pods = list(pods)
        self.leases = {(it.namespace, it.name): it for it in leases}
        self.hypervisors = {it["metadata"]["name"]: it for it in hypervisors}
        self._daemon_sets = list(daemon_sets)
        self.evicted = evicted or {}
        self.announced: list[MaintenanceNotice] = []
        self.answers: dict[Question, Answer] = {}
        self.asked: list[Question] = []

    def scene(
        self,
        node: str = "n1",
        *,
        state: State = State.REQUIRED,
        profile: str = PROFILE,
        now: datetime = NOW,
        since: datetime = NOW,
    ) -> Scene:
        """Return a node to look at, for one of its profiles."""
        return Scene(
            now=now,
            node=self.node(node),
            profile=profile,
            state=state,
            entry=self.entries.get(node, {}).get(profile) or entry(state, since=since),
            is_in_maintenance=state is State.IN_MAINTENANCE,
            logs_details=False,
            sights=self,
            requeue=MINUTE,
        )

    def node(self, name: str) -> Node:
        """Return a node."""
        return msgspec.convert(self.raw[name], Node)

    # As plugins ask

    def nodes(self) -> Collection[NodeSight]:
        """Return all nodes."""
        return [NodeSight(self.node(it), self.entries.get(it, {}), self.problems.get(it, "")) for it in self.raw]

    def nodes_in(self, state: State) -> Collection[NodeSight]:
        """Return the nodes whose state label says so, or that are on their way."""
        coming = self.slots if state is State.IN_MAINTENANCE else ()
        return [it for it in self.nodes() if it.state == state or it.node.name in coming]

    def nodes_with(self, label: str) -> Collection[NodeSight]:
        """Return the nodes that have a label."""
        return [it for it in self.nodes() if label in it.node.metadata.labels]

    def notices(self, node: str) -> Collection[MaintenanceNotice]:
        """Return what is announced for a node."""
        return [it for it in self.announced if it.node == node]

    def pods_on(self, node: str) -> Collection[RawObject]:
        """Return the pods on a node."""
        return [it for it in self.pods if it["spec"].get("nodeName") == node]

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Return a lease."""
        return self.leases.get((namespace, name))

    def hypervisor(self, name: str) -> RawObject | None:
        """Return a hypervisor."""
        return self.hypervisors.get(name)

    def room(self, node: str) -> Room | None:
        """Return what a node has left."""
        if node not in self.raw:
            return None
        allocatable = self.raw[node].get("status", {}).get("allocatable", {})
        return fitting.room_of(self.node(node), allocatable, self.pods_on(node))

    def daemon_sets(self) -> Collection[RawObject]:
        """Return all DaemonSets."""
        return self._daemon_sets

    def workloads_on(self, node: str) -> Record:
        """Return none."""
        del node
        return Record()

    def evicted_from(self, node: str) -> Collection[Workload]:
        """Return whose pods were evicted."""
        return self.evicted.get(node, ())

    def answer(self, question: Question) -> Answer | None:
        """Return the answer, and remember the question."""
        self.asked.append(question)
        return self.answers.get(question)

    async def ask(self, outside: Outside) -> None:
        """Ask what was asked for, as the controller does."""
        for question in dict.fromkeys(self.asked):
            try:
                self.answers[question] = Answer(NOW, await question.ask(outside))
            except OutsideError as error:
                self.answers[question] = Answer(NOW, problem=str(error))


def maintained(node: RawObject) -> RawObject:
    """Return a node whose label says that it is in maintenance."""
    metadata = node["metadata"]
    return {**node, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), STATE_LABEL: "in-maintenance"}}}


@dataclass(slots=True)
class Stranger(Outside):
    """An outside world that says what it was told to, in order, and remembers what it was asked."""

    replies: list[Reply | OutsideError] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    secrets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    heard: list[tuple[str, str, bytes, dict[str, str]]] = field(default_factory=list)

    def says(self, status: int, body: bytes | str, **headers: str) -> "Stranger":
        """Let it answer so next."""
        data = body.encode() if isinstance(body, str) else body
        self.replies.append(Reply(status, data, {key.replace("_", "-"): value for key, value in headers.items()}))
        return self

    async def request(self, method: str, url: str, **more: Any) -> tuple[int, bytes]:
        """Answer without headers."""
        reply = await self.exchange(method, url, **more)
        return reply.status, reply.body

    async def exchange(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Answer."""
        self.heard.append((method, url, body, dict(headers or {})))
        reply = self.replies.pop(0)
        if isinstance(reply, OutsideError):
            raise reply
        return reply

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return a Secret."""
        try:
            return self.secrets[f"{namespace}/{name}"]
        except KeyError:
            raise OutsideError(f"there is no Secret {namespace}/{name}") from None

    async def file(self, path: str) -> bytes:
        """Return a file."""
        try:
            return self.files[path]
        except KeyError:
            raise OutsideError(f"{path}: there is no such file") from None

    async def mail(self, envelope: Envelope) -> None:
        """Take no letters."""
        raise OutsideError(f"{envelope.server} takes no letters")
