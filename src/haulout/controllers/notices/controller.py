"""The MaintenanceNotice controller: its informer, its work queues, and the changes that enqueue a key.

`reconciler` keeps each notice's status current, records events, and deletes expired notices. Beside it,
`node_conditions` writes conditions of nodes, `reschedule` and `early_start` ask clouds, and `notice_quota` deletes what
an agent should not have written.

Of nodes, the controller writes conditions only. Profiles decide what happens to a node; they watch the same notices.
"""

from contextlib import ExitStack

from haulout.api.hold import hold_of
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticePhase
from haulout.api.objects import Node, machine_key
from haulout.api.resources import NODES
from haulout.budget.unavailable_nodes import STATE_LABEL
from haulout.controllers.notices import node_conditions
from haulout.controllers.notices.conditions import cordon_owners
from haulout.controllers.notices.decision import NoticeDecision, NoticeOptions
from haulout.controllers.notices.drain_prediction import DrainHistory, DrainPredictor
from haulout.controllers.notices.early_start import EarlyStarter, EarlyStartSourceOf
from haulout.controllers.notices.events import NoticeEvent
from haulout.controllers.notices.node_conditions import (
    NodeConditionDecision,
    NodeConditionObservation,
    NodeConditionReconciler,
)
from haulout.controllers.notices.node_lookup import MACHINE_ADDRESS, NodeLookup, alias_values, has_same_identity
from haulout.controllers.notices.notice_quota import (
    BY_AGENT,
    NoticeQuota,
    QuotaDecision,
    QuotaObservation,
    agent_node,
)
from haulout.controllers.notices.profile_policy import ProfilePolicy
from haulout.controllers.notices.reconciler import NoticeObservation, NoticeReconciler, OnStatusWritten
from haulout.controllers.notices.remaining_pods import cordoned_since, drained_at
from haulout.controllers.notices.reschedule import (
    ReschedulableSourceOf,
    RescheduleDecision,
    RescheduleObservation,
    RescheduleReconciler,
    is_reschedule_candidate,
)
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.recorder import EventRecorder, object_reference
from haulout.kube.reflector import ListWatch
from haulout.runtime.controller import Controller
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.journal import Journal, Transition

_NODE_WORKERS = 8
_FEW_WORKERS = 4
BY_NODE = "node"


def notice_informer(client: Client) -> Informer[MaintenanceNotice]:
    """Return an informer for all notices, indexed by node and by agent. Other components may share it."""
    indexes = {BY_NODE: _node_of, BY_AGENT: agent_node}
    return Informer(client, ListWatch(MAINTENANCE_NOTICES), transform=as_is, indexes=indexes)


class MaintenanceNoticeController:
    """Reconciles all notices. Call `run` at most once. `on_status_written` is called after each status write."""

    def __init__(  # noqa: PLR0913 - dependencies, each passed by keyword
        self,
        client: Client,
        *,
        events: EventRecorder,
        nodes: Informer[Node],
        notices: Informer[MaintenanceNotice],
        options: NoticeOptions | None = None,
        predictor: DrainPredictor | None = None,
        reschedulable_source_of: ReschedulableSourceOf = lambda _: None,
        early_start_source_of: EarlyStartSourceOf = lambda _: None,
        profile_policy: ProfilePolicy | None = None,
        on_status_written: OnStatusWritten = lambda *_: None,
        freezes: FreezeSource,
    ) -> None:
        self._freezes = freezes
        self.notices = notices
        cache = MutationCache(self.notices)
        profile_policy = profile_policy or ProfilePolicy()
        self._journal = Journal("notices", events, metrics=client.metrics)
        self._predictor = predictor or DrainHistory(client, nodes)
        self._nodes = nodes
        self._node_lookup = NodeLookup()
        self._open_notices: set[str] = set()  # names of notices that are not over
        self._quota = NoticeQuota(client, cache, nodes, journal=self._journal, requeue=self._enqueue)
        self._reconciler = NoticeReconciler(
            client,
            cache,
            node_lookup=self._node_lookup,
            predictor=self._predictor,
            options=options or NoticeOptions(),
            profile_policy=profile_policy,
            exceeds_quota=self._quota.exceeds_quota,
            record_event=self._record_event,
            record_change=self._record_change,
            on_status_written=on_status_written,
            freezes=self._freezes,
        )
        self._controller: Controller[str, NoticeObservation, NoticeDecision] = Controller(
            self._reconciler, client, name="notices"
        )
        self._node_conditions: Controller[str, NodeConditionObservation, NodeConditionDecision] = Controller(
            NodeConditionReconciler(client, nodes, notices_of_node=lambda node: self.notices.by_index(BY_NODE, node)),
            client,
            name="node conditions",
            workers=_NODE_WORKERS,
        )
        self._rescheduler: Controller[str, RescheduleObservation, RescheduleDecision] = Controller(
            RescheduleReconciler(
                client,
                cache,
                node_of=lambda notice: self._node_lookup.resolve(notice).node,
                reschedulable_source_of=reschedulable_source_of,
                calendar=profile_policy.calendar,
                record_event=self._record_event,
            ),
            client,
            name="notice rescheduling",
            workers=_FEW_WORKERS,
        )
        self._early_starter = EarlyStarter(client, cache, early_start_source_of=early_start_source_of)
        self._quota_controller: Controller[str, QuotaObservation, QuotaDecision] = Controller(
            self._quota, client, name="notice quota", workers=_FEW_WORKERS
        )

    async def run(self) -> None:
        """Run until cancelled. The caller runs both informers."""
        background = (
            self._run_predictor,
            self._node_conditions.run,
            self._rescheduler.run,
            self._early_starter.run,
            self._quota_controller.run,
        )
        await self._controller.run(background=background, start=self._start)

    async def _start(self, subscriptions: ExitStack) -> None:
        await self._nodes.wait_synced()
        subscriptions.callback(self._nodes.subscribe(self._on_node))  # this informer outlasts the controller
        await self.notices.wait_synced()
        subscriptions.callback(self.notices.subscribe(self._on_notice))
        subscriptions.callback(self._freezes.subscribe(self._enqueue_open))

    async def _run_predictor(self) -> None:
        await self._predictor.run(self._on_drain_history)

    def _enqueue_open(self) -> None:
        for name in self._open_notices:
            self._controller.queue.add(name)

    def _enqueue(self, name: str) -> None:
        self._controller.queue.add(name)

    def _record_change(self, name: str) -> None:
        self._controller.record_change(name)

    # Event handlers

    def _on_notice(self, old: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        for notice in (old, new):
            if notice is not None:
                for node in self._quota.affected_nodes(notice):
                    self._quota_controller.queue.add(node)
        if new is not None and self._quota.exceeds_quota(new):
            return
        for notice in (old, new):
            if notice is not None:
                self._controller.queue.add(notice.name)
                if notice.status.node_name:
                    self._node_conditions.queue.add(notice.status.node_name)
        if new is not None:
            self._early_starter.add(new)
        if new is not None and is_reschedule_candidate(new):
            self._rescheduler.queue.add(new.name)
        self._track_open((new or old or MaintenanceNotice()).name, is_open=new is not None and not _is_over(new))

    def _track_open(self, name: str, *, is_open: bool) -> None:
        """Read the history of drains only while there are open notices."""
        (self._open_notices.add if is_open else self._open_notices.discard)(name)
        self._predictor.set_enabled(enabled=bool(self._open_notices))

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        self._node_lookup.update(old, new)
        if new is not None and (
            node_conditions.has_our_conditions(new)
            if old is None
            else not node_conditions.has_same_conditions(old, new)
        ):
            self._node_conditions.queue.add(new.name)
        if old is not None and new is not None and _is_equivalent(old, new):
            return
        names = {node.name for node in (old, new) if node is not None}
        machines = {machine_key(node.spec.provider_id) for node in (old, new) if node is not None}
        aliases = {name for node in (old, new) if node is not None for name in alias_values(node)}
        for name in names:
            self._reconciler.forget_pods(name)
        for notice in self.notices.all():
            spec = notice.spec
            is_affected = notice.node in names or machine_key(spec.provider_id) in machines
            if (
                is_affected
                or spec.machine_name in aliases
                or notice.metadata.annotations.get(MACHINE_ADDRESS) in aliases
            ):
                self._controller.queue.add(notice.name)

    def _on_drain_history(self, node: str) -> None:
        for name in (
            self._open_notices if not node else [notice.name for notice in self.notices.by_index(BY_NODE, node)]
        ):
            self._controller.queue.add(name)

    # Events

    def _record_event(self, notice: MaintenanceNotice, event: NoticeEvent) -> None:
        node = self._node_lookup.resolve(notice).node
        references = [object_reference(MAINTENANCE_NOTICES, notice)]
        references += [] if node is None else [object_reference(NODES, node)]
        self._journal.record(
            Transition(
                regarding=tuple(references),
                subject="MaintenanceNotice",  # the message begins with its name
                reason=event.reason,
                message=f"{notice.name}: {event.message}",
                action="Review",
                is_warning=event.is_warning,
                log_fields={"notice": notice.name},
            )
        )


def _node_of(notice: MaintenanceNotice) -> tuple[str, ...]:
    return (notice.status.node_name,) if notice.status.node_name else ()


def _is_over(notice: MaintenanceNotice) -> bool:
    return notice.status.phase in {phase for phase in NoticePhase if phase.is_over}


def _is_equivalent(old: Node, new: Node) -> bool:
    """Return whether both versions of the node lead to the same notice status. A freeze selects by labels."""
    return has_same_identity(old, new) and _progress(old) == _progress(new)


def _progress(node: Node) -> tuple[object, ...]:
    state = node.metadata.labels.get(STATE_LABEL)  # a profile changes the state label after it has emptied the node
    owners, since, drained, hold = cordon_owners(node), cordoned_since(node), drained_at(node), hold_of(node)
    return state, node.spec.unschedulable, owners, since, drained, hold, node.metadata.labels
