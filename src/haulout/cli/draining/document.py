"""A drain for programs: one JSON document at its end. Fields are only ever added."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from haulout.cli.draining.records import Record, Result
from haulout.drain.blockers import Blocker, fields_of
from haulout.drain.progress import PodProgress
from haulout.drain.rehearsal import NodeRehearsal, Rehearsal


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class BlockerJson(_Json, frozen=True):
    """What stands in a pod's way."""

    kind: str
    pod: str
    object: str
    workload: str
    reason: str
    advice: str
    since: datetime | None


class PodJson(_Json, frozen=True):
    """A pod that is still there."""

    pod: str
    uid: str
    state: str
    words: str
    since: datetime | None
    next_at: datetime | None
    blocker: BlockerJson | None


class NodeJson(_Json, frozen=True):
    """What became of one node."""

    node: str
    result: str
    cordoned: bool
    was_cordoned: bool
    problem: str
    started: datetime | None
    ended: datetime | None
    total: int
    gone: int
    pods: tuple[PodJson, ...]
    returning: tuple[str, ...]
    warning: str


class ReportJson(_Json, frozen=True):
    """What became of all."""

    drained: bool
    interrupted: bool
    nodes: tuple[NodeJson, ...]


def report(records: Sequence[Record], *, interrupted: bool) -> bytes:
    """Return what became of nodes."""
    nodes = tuple(map(_node, records))
    drained = all(it.result is Result.DRAINED for it in records)
    return _formatted(ReportJson(drained=drained, interrupted=interrupted, nodes=nodes))


def _node(record: Record) -> NodeJson:
    progress = record.progress
    return NodeJson(
        node=record.node,
        result=record.result,
        cordoned=record.is_cordoned,
        was_cordoned=record.was_cordoned,
        problem=record.problem,
        started=record.started,
        ended=record.ended,
        total=progress.total if progress else 0,
        gone=progress.gone if progress else 0,
        pods=tuple(map(_pod, record.pods)),
        returning=progress.returning if progress else (),
        warning=progress.warning if progress else "",
    )


def _pod(row: PodProgress) -> PodJson:
    standing = row.standing
    return PodJson(
        pod=row.pod,
        uid=row.uid,
        state=row.state,
        words=row.words,
        since=row.since,
        next_at=row.next_at,
        blocker=blocker_json(standing.blocker, standing.since) if standing else None,
    )


def blocker_json(blocker: Blocker, since: datetime | None = None) -> BlockerJson:
    """Return a blocker for programs."""
    return BlockerJson(**fields_of(blocker), since=since)


# Dry runs


class BudgetJson(_Json, frozen=True):
    """What one disruption budget is asked for by all nodes together."""

    budget: str
    way: str
    allowed: int
    charged: tuple[str, ...]
    free: tuple[str, ...]
    words: str


class RehearsedJson(_Json, frozen=True):
    """What would become of one node."""

    node: str
    would_drain: bool
    pods: tuple[str, ...]
    refusals: tuple[str, ...]
    blockers: tuple[BlockerJson, ...]
    warning: str


class RehearsalJson(_Json, frozen=True):
    """What would become of all."""

    dry_run: str
    would_drain: bool
    nodes: tuple[RehearsedJson, ...]
    budgets: tuple[BudgetJson, ...]
    several_budgets: dict[str, tuple[str, ...]]  # by pod


def rehearsal_report(rehearsal: Rehearsal, stuck: Sequence[NodeRehearsal], *, dry_run: str) -> bytes:
    """Return what would become of nodes, of which those in `stuck` would not be drained."""
    nodes = tuple(
        RehearsedJson(
            node=it.node,
            would_drain=it not in stuck,
            pods=it.leaving,
            refusals=it.refusals,
            blockers=tuple(map(blocker_json, it.blockers)),
            warning=it.warning,
        )
        for it in rehearsal.nodes
    )
    budgets = tuple(
        BudgetJson(budget=it.budget, way=it.way, allowed=it.allowed, charged=it.charged, free=it.free, words=str(it))
        for it in rehearsal.tallies.budgets
    )
    several = dict(rehearsal.tallies.several)
    return _formatted(
        RehearsalJson(dry_run=dry_run, would_drain=not stuck, nodes=nodes, budgets=budgets, several_budgets=several)
    )


def _formatted(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value))
