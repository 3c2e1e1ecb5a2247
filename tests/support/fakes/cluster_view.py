"""A fake cluster view for plugins.

view = FakeClusterView(a_node("n1"), a_node("n2"), entries={"n1": {"os": a_profile_entry(State.REQUIRED)}})
result = HasLabel(key="ready").evaluate(view.plugin_context("n1"))
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Lease, Node, RawObject
from haulout.api.workloads import EvictedWorkload, WorkloadRecord
from haulout.controllers.profiles.external.smtp import Envelope
from haulout.controllers.profiles.plugin import (
    STATE_LABEL,
    ClusterView,
    ExternalClient,
    ExternalQuery,
    HttpResponse,
    ObservedNode,
    PluginContext,
    ProfileStatus,
    QueryResult,
    State,
)
from haulout.controllers.profiles.view import scheduling
from haulout.controllers.profiles.view.scheduling import NodeCapacity
from haulout.errors import ExternalError

NOW = datetime(2024, 5, 1, 10, 0, tzinfo=UTC)
PROFILE = "os"
MINUTE = timedelta(minutes=1)


def a_profile_entry(state: str, *, since: datetime | None = NOW) -> ProfileStatus:
    """Return what a node's data says about a profile that stands in a state."""
    return ProfileStatus(current=state, previous=state, transition=since)


def a_lease(name: str, *, holder: str = "n9", namespace: str = "kube-system", version: str = "7", **spec: Any) -> Lease:
    """Return a lease; `spec` in the words of Kubernetes."""
    metadata = {"name": name, "namespace": namespace, "resourceVersion": version}
    return msgspec.convert({"metadata": metadata, "spec": {"holderIdentity": holder, **spec}}, Lease)


class FakeClusterView(ClusterView):
    """A cluster view with the given objects."""

    def __init__(
        self,
        *nodes: RawObject,
        entries: Mapping[str, Mapping[str, ProfileStatus]] | None = None,
        pods: Iterable[RawObject] = (),
        leases: Iterable[Lease] = (),
        hypervisors: Iterable[RawObject] = (),
        daemon_sets: Iterable[RawObject] = (),
        evicted: Mapping[str, Collection[EvictedWorkload]] | None = None,
        problems: Mapping[str, str] | None = None,
        slots: Collection[str] = (),
    ) -> None:
        self.raw = {node["metadata"]["name"]: node for node in nodes}
        self.entries = entries or {}
        self.problems = problems or {}
        self.slots = slots  # the nodes that are on their way into maintenance
        self.pods = list(pods)
        self.leases = {(item.namespace, item.name): item for item in leases}
        self.hypervisors = {item["metadata"]["name"]: item for item in hypervisors}
        self._daemon_sets = list(daemon_sets)
        self.evicted = evicted or {}
        self.announced_notices: list[MaintenanceNotice] = []
        self.answers: dict[ExternalQuery, QueryResult] = {}
        self.queries: list[ExternalQuery] = []

    def plugin_context(
        self,
        node: str = "n1",
        *,
        state: State = State.REQUIRED,
        profile: str = PROFILE,
        now: datetime = NOW,
        since: datetime = NOW,
    ) -> PluginContext:
        """Return the context of a node for one of its profiles."""
        return PluginContext(
            now=now,
            node=self.node(node),
            profile=profile,
            state=state,
            status=self.entries.get(node, {}).get(profile) or a_profile_entry(state, since=since),
            is_in_maintenance=state is State.IN_MAINTENANCE,
            logs_details=False,
            cluster=self,
            requeue=MINUTE,
        )

    def node(self, name: str) -> Node:
        """Return a node."""
        return msgspec.convert(self.raw[name], Node)

    # The interface of plugins

    def nodes(self) -> Collection[ObservedNode]:
        """Return all nodes."""
        return [
            ObservedNode(self.node(name), self.entries.get(name, {}), self.problems.get(name, "")) for name in self.raw
        ]

    def nodes_in(self, state: State) -> Collection[ObservedNode]:
        """Return the nodes whose state label says so, or that are on their way."""
        coming = self.slots if state is State.IN_MAINTENANCE else ()
        return [node for node in self.nodes() if node.state == state or node.node.name in coming]

    def nodes_with(self, label: str) -> Collection[ObservedNode]:
        """Return the nodes that have a label."""
        return [node for node in self.nodes() if label in node.node.metadata.labels]

    def notices(self, node: str) -> Collection[MaintenanceNotice]:
        """Return what is announced for a node."""
        return [notice for notice in self.announced_notices if notice.node == node]

    def pods_on(self, node: str) -> Collection[RawObject]:
        """Return the pods on a node."""
        return [pod for pod in self.pods if pod["spec"].get("nodeName") == node]

    def lease(self, namespace: str, name: str) -> Lease | None:
        """Return a lease."""
        return self.leases.get((namespace, name))

    def hypervisor(self, name: str) -> RawObject | None:
        """Return a hypervisor."""
        return self.hypervisors.get(name)

    def free_capacity(self, node: str) -> NodeCapacity | None:
        """Return what a node has left."""
        if node not in self.raw:
            return None
        allocatable = self.raw[node].get("status", {}).get("allocatable", {})
        return scheduling.capacity_of(self.node(node), allocatable, self.pods_on(node))

    def daemon_sets(self) -> Collection[RawObject]:
        """Return all DaemonSets."""
        return self._daemon_sets

    def workloads_on(self, node: str) -> WorkloadRecord:
        """Return none."""
        del node
        return WorkloadRecord()

    def evicted_from(self, node: str) -> Collection[EvictedWorkload]:
        """Return whose pods were evicted."""
        return self.evicted.get(node, ())

    def query_result(self, query: ExternalQuery) -> QueryResult | None:
        """Return the result, and record the query."""
        self.queries.append(query)
        return self.answers.get(query)

    async def run_queries(self, external_client: ExternalClient) -> None:
        """Run the recorded queries, as the controller does."""
        for question in dict.fromkeys(self.queries):
            try:
                self.answers[question] = QueryResult(NOW, await question.fetch(external_client))
            except ExternalError as error:
                self.answers[question] = QueryResult(NOW, problem=str(error))


def in_maintenance(node: RawObject) -> RawObject:
    """Return a node whose label says that it is in maintenance."""
    metadata = node["metadata"]
    return {**node, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), STATE_LABEL: "in-maintenance"}}}


@dataclass(slots=True)
class ScriptedExternalClient(ExternalClient):
    """An external client with scripted replies, which records its requests."""

    replies: list[HttpResponse | ExternalError] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    secrets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str, bytes, dict[str, str]]] = field(default_factory=list)

    def reply_with(self, status: int, body: bytes | str, **headers: str) -> "ScriptedExternalClient":
        """Add the next reply."""
        data = body.encode() if isinstance(body, str) else body
        self.replies.append(
            HttpResponse(status, data, {key.replace("_", "-"): value for key, value in headers.items()})
        )
        return self

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = timedelta(seconds=10),
    ) -> HttpResponse:
        """Answer."""
        del timeout
        self.requests.append((method, url, body, dict(headers or {})))
        reply = self.replies.pop(0)
        if isinstance(reply, ExternalError):
            raise reply
        return reply

    async def read_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Return a Secret."""
        try:
            return self.secrets[f"{namespace}/{name}"]
        except KeyError:
            raise ExternalError(f"there is no Secret {namespace}/{name}") from None

    async def read_file(self, path: str) -> bytes:
        """Return a file."""
        try:
            return self.files[path]
        except KeyError:
            raise ExternalError(f"{path}: there is no such file") from None

    async def send_mail(self, envelope: Envelope) -> None:
        """Send no mail."""
        raise ExternalError(f"{envelope.server} takes no letters")
