"""Reconciles one Kubernikus node: its version label, and the order to delete it."""

from collections.abc import Callable
from datetime import datetime

from haulout.api.objects import Node, RawObject
from haulout.api.reasons import KubernikusEventReason
from haulout.api.resources import NODES
from haulout.budget.cordon_copies import CordonCopies
from haulout.budget.unavailable_nodes import is_unavailable
from haulout.controllers.kubernikus import decision as steps
from haulout.controllers.kubernikus import events
from haulout.controllers.kubernikus.decision import Decision, Observation, decide
from haulout.controllers.kubernikus.kubelet_version import KubeletVersions
from haulout.controllers.kubernikus.labels import CORDON_OWNER
from haulout.controllers.kubernikus.servers import Servers
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.drain.eviction_requests import RequestOwner
from haulout.drain.manager import DrainManager
from haulout.history.cordon_history import CordonHistory
from haulout.kube.client import Client
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import node_patch
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.journal import Journal, Transition
from haulout.runtime.reconciler import Reconciler


class KubernikusReconciler(Reconciler[str, Observation, Decision]):
    """Keys are names of nodes. `before_drain` is called before a drain begins, and may raise."""

    def __init__(  # noqa: PLR0913 - dependencies, each passed by keyword
        self,
        client: Client,
        *,
        nodes: MutationCache[Node],
        kubelet_versions: KubeletVersions,
        servers: Servers,
        drains: DrainManager,
        cordon_copies: CordonCopies,
        settings: Callable[[], KubernikusSettings],
        journal: Journal,
        freezes: FreezeSource,
        before_drain: Callable[[str], object],
    ) -> None:
        self._freezes = freezes
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._kubelet_versions = kubelet_versions
        self._servers = servers
        self._drains = drains
        self._cordon_copies = cordon_copies
        self._settings = settings
        self._journal = journal
        self._before_drain = before_drain
        self._history = CordonHistory(CORDON_OWNER, journal.history, client.clock)
        self._cordoned_at: dict[str, datetime] = {}  # by node: when we last cordoned it

    async def observe(self, key: str) -> Observation | None:
        await self._cordon_copies.load(self._nodes.informer.all)
        node = self._nodes.get(key)
        if node is None:
            return None
        return Observation(
            node=node,
            now=self._clock.now(),
            settings=self._settings(),
            kubelet_version=self._kubelet_versions.check(node),
            drain=self._drains.snapshot(key),
            lookup=self._servers.lookup(node),
            deleted_server=self._servers.deleted_server(node),
            cordoned_at=self._cordoned_at.get(key),
            cordon_copy=self._cordon_copies.get(node),
            freezes=self._freezes.current(),
        )

    def decide(self, observation: Observation) -> Decision:
        return decide(observation)

    async def act(self, observation: Observation, decision: Decision) -> bool:
        node = observation.node
        self._history.observe(node)
        self._history.record_drain(node, observation.drain)
        if decision.action is None:
            return False
        await self._execute(node, decision.action)
        return True

    async def report(self, observation: Observation, decision: Decision) -> datetime | None:
        node = observation.node
        await self._cordon_copies.sync(node)
        if problem := observation.kubelet_version.problem:
            self._record(node, events.VERSION, events.version_unknown(node, problem))
        else:
            self._journal.clear((node.name, events.VERSION))
        if decision.reason:
            self._record(node, events.ORDER, events.order_status(node, decision))
        else:
            self._journal.clear((node.name, events.ORDER))
        return None

    async def refresh(self, key: str, error: Exception) -> bool:
        del error
        return await self._nodes.refresh(self._client, NODES, key) is not None

    async def forget(self, key: str) -> datetime | None:
        await self._drains.stop(key)
        await self._cordon_copies.remove_node(key)
        self._cordoned_at.pop(key, None)
        self._servers.forget(key)
        self._journal.forget(key)
        self._history.forget(key)
        return None

    async def _execute(self, node: Node, action: steps.Action) -> None:
        match action:
            case steps.LabelNode(change):
                await self._kubelet_versions.label(node, change)
            case steps.CordonNode():
                await self._cordon(node, action)
            case steps.ReleaseNode(change):
                await self._release(node, change)
            case steps.RecordServer(change):
                await self._patch(node, change)
            case steps.FindServers():
                await self._servers.find(node, valid_for=self._settings().interval)
            case steps.DeleteServer(server):
                await self._delete_server(node, server)
            case _:
                await self._execute_drain_action(node, action)

    async def _cordon(self, node: Node, action: steps.CordonNode) -> None:
        changed = await self._patch(node, action.change)
        self._cordoned_at[node.name] = self._clock.now()
        if action.is_first:
            self._record_order(changed)
        elif action.tampering:
            self._record(node, events.ORDER, events.cordon_restored(node, action.tampering))

    async def _release(self, node: Node, change: RawObject) -> None:
        await self._cordon_copies.remove_owners(node)
        await self._patch(node, change)
        entry = self._history.end_entry(node, events.WITHDRAWN)
        self._record(node, events.ORDER, events.order_withdrawn(node, entry))

    async def _delete_server(self, node: Node, server: str) -> None:
        if await self._servers.delete(node, server, valid_for=self._settings().interval):
            why = f"Nova has accepted the deletion of its server {server}"
            self._journal.history.add(node, self._history.action_entry(KubernikusEventReason.SERVER_DELETED, why))

    async def _execute_drain_action(
        self, node: Node, action: steps.StartDrain | steps.ChangeDrainPolicy | steps.StopDrain
    ) -> None:
        name = node.name
        match action:
            case steps.StartDrain(policy):
                self._before_drain(name)
                owner = RequestOwner(name=f"{name}.delete-node")
                self._drains.start(name, node, policy, owner=owner, keep_running=True)
            case steps.ChangeDrainPolicy(policy):
                self._drains.set_policy(name, policy)
            case steps.StopDrain():
                await self._drains.stop(name)

    async def _patch(self, node: Node, change: RawObject) -> Node:
        changed = self._nodes.record_write(await self._client.patch(NODES, node.name, node_patch(change)))
        await self._cordon_copies.sync(changed)
        return changed

    def _record_order(self, node: Node) -> None:
        others = [other for other in self._nodes.informer.all() if other.name != node.name]
        now = self._clock.now()
        unavailable = sum(is_unavailable(other, now) for other in others)
        message = events.order_message(unavailable=unavailable, total=len(others))
        entry = self._history.start_entry(node, message)
        self._record(node, events.ORDER, events.order_started(node, message, entry))

    def _record(self, node: Node, topic: str, transition: Transition) -> None:
        self._journal.record_once((node.name, topic), transition)
