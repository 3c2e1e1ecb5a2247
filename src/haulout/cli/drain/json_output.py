"""The result of a drain as one JSON document. Fields are only ever added."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from haulout.cli.drain.drain_runner import NodeDrain, NodeDrainState
from haulout.drain.blockers import Blocker, blocker_fields
from haulout.drain.dry_run import DrainDryRun, NodeDryRun
from haulout.drain.progress import PodProgress


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class BlockerJson(_Json, frozen=True):
    """What blocks a pod."""

    kind: str
    pod: str
    object: str
    workload: str
    reason: str
    remedy: str
    since: datetime | None


class PodJson(_Json, frozen=True):
    """A pod that has not left yet."""

    pod: str
    uid: str
    state: str
    message: str
    since: datetime | None
    next_at: datetime | None
    blocker: BlockerJson | None


class NodeJson(_Json, frozen=True):
    """The result of one node."""

    node: str
    result: str
    cordoned: bool
    was_cordoned: bool
    problem: str
    started: datetime | None
    ended: datetime | None
    total: int
    removed: int
    pods: tuple[PodJson, ...]
    returning: tuple[str, ...]
    warning: str


class ReportJson(_Json, frozen=True):
    """The result of all nodes."""

    drained: bool
    interrupted: bool
    nodes: tuple[NodeJson, ...]


def drain_report(node_drains: Sequence[NodeDrain], *, interrupted: bool) -> bytes:
    """Return the result of all nodes as JSON."""
    nodes = tuple(map(_node, node_drains))
    drained = all(record.result is NodeDrainState.DRAINED for record in node_drains)
    return _to_json(ReportJson(drained=drained, interrupted=interrupted, nodes=nodes))


def _node(node_drain: NodeDrain) -> NodeJson:
    progress = node_drain.progress
    return NodeJson(
        node=node_drain.node,
        result=node_drain.result,
        cordoned=node_drain.is_cordoned,
        was_cordoned=node_drain.was_cordoned,
        problem=node_drain.problem,
        started=node_drain.started,
        ended=node_drain.ended,
        total=progress.total if progress else 0,
        removed=progress.gone if progress else 0,
        pods=tuple(map(_pod, node_drain.pods)),
        returning=progress.returning if progress else (),
        warning=progress.warning if progress else "",
    )


def _pod(pod: PodProgress) -> PodJson:
    active_blocker = pod.active_blocker
    return PodJson(
        pod=pod.pod,
        uid=pod.uid,
        state=pod.state,
        message=pod.message,
        since=pod.turn_since,
        next_at=pod.next_at,
        blocker=blocker_json(active_blocker.blocker, active_blocker.since) if active_blocker else None,
    )


def blocker_json(blocker: Blocker, since: datetime | None = None) -> BlockerJson:
    """Return a blocker as a JSON value."""
    return BlockerJson(**blocker_fields(blocker), since=since)


# Dry runs


class BudgetJson(_Json, frozen=True):
    """The simulation of one PodDisruptionBudget over all nodes."""

    name: str
    outcome: str
    allowed: int
    charged: tuple[str, ...]
    uncharged: tuple[str, ...]
    message: str


class NodeDryRunJson(_Json, frozen=True):
    """The dry run of one node."""

    node: str
    would_drain: bool
    pods: tuple[str, ...]
    refusals: tuple[str, ...]
    blockers: tuple[BlockerJson, ...]
    warning: str


class DryRunJson(_Json, frozen=True):
    """The dry run of all nodes."""

    dry_run: str
    would_drain: bool
    nodes: tuple[NodeDryRunJson, ...]
    pod_disruption_budgets: tuple[BudgetJson, ...]
    pods_with_several_pod_disruption_budgets: dict[str, tuple[str, ...]]  # by pod


def dry_run_report(outcome: DrainDryRun, undrainable: Sequence[NodeDryRun], *, dry_run: str) -> bytes:
    """Return the dry run as JSON; `undrainable` are the nodes that would not be drained."""
    nodes = tuple(
        NodeDryRunJson(
            node=entry.node,
            would_drain=entry not in undrainable,
            pods=entry.leaving,
            refusals=entry.refusals,
            blockers=tuple(map(blocker_json, entry.blockers)),
            warning=entry.warning,
        )
        for entry in outcome.nodes
    )
    budgets = tuple(
        BudgetJson(
            name=entry.pdb,
            outcome=entry.outcome,
            allowed=entry.allowed,
            charged=entry.charged,
            uncharged=entry.uncharged,
            message=str(entry),
        )
        for entry in outcome.pdbs.pdbs
    )
    pods_with_several_budgets = dict(outcome.pdbs.pods_with_several_pdbs)
    return _to_json(
        DryRunJson(
            dry_run=dry_run,
            would_drain=not undrainable,
            nodes=nodes,
            pod_disruption_budgets=budgets,
            pods_with_several_pod_disruption_budgets=pods_with_several_budgets,
        )
    )


def _to_json(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value))
