"""The check `maxMaintenance`: limits how many nodes are in maintenance, by slots in a ledger.

A limit has no name. The limited quantity is always the set of nodes in maintenance; each check defines over which nodes
it counts (its scope) and how many there may be. So instances with different limits over the same nodes, such as one for
each zone and another for all zones, and instances of the same name in an edited file, count the same nodes and agree on
what is taken.

`haulout.budget.slots` explains how a limit stays exact while several processes decide at the same time with stale
caches: one ledger serves the limits of all checks and the budget that profiles share with NodeMaintenances. These have
slots in the ledger, too; a check counts only the slots of profiles.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from haulout.budget import slots
from haulout.budget.limits import parse_amount, scaled_value
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import (
    PROFILE_LABEL,
    STATE_LABEL,
    Check,
    CheckResult,
    Claim,
    ObservedNode,
    PluginContext,
    ProfileStatus,
    SlotClaim,
    State,
    fails,
    passes,
)
from haulout.controllers.profiles.view import topics
from haulout.core.text import format_list
from haulout.core.timestamps import add_saturating
from haulout.core.yaml_decoder import TextFormat
from haulout.kube.rbac import Permission


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScope:
    """Nodes with certain labels, nodes with a certain profile, or all nodes."""

    labels: tuple[tuple[str, str], ...] = ()
    profile: str = ""
    excluded_after: timedelta | None = None  # how long a node in maintenance counts; None: without limit

    def covers(self, observed: ObservedNode) -> bool:
        """Return whether a node shares the limit."""
        labels = observed.node.metadata.labels
        if self.profile and self.profile not in observed.profiles:
            return False
        return all(labels.get(key) == value for key, value in self.labels)

    def counts(self, observed: ObservedNode, now: datetime) -> bool:
        """Return whether a node in maintenance counts, or one on its way there whose label does not show it yet."""
        if not self.covers(observed):
            return False
        if self.excluded_after is None or observed.state != State.IN_MAINTENANCE:
            return True
        if observed.problem:
            return True  # unknown how long it has been in maintenance: count it, to be safe
        ends = self.excluded_at(observed)
        return ends is not None and now < ends

    def excluded_at(self, observed: ObservedNode) -> datetime | None:
        """Return when a node in maintenance stops counting; None if its data does not show that."""
        latest = max(self._transitions(observed), default=None)
        return None if latest is None or self.excluded_after is None else add_saturating(latest, self.excluded_after)

    def _transitions(self, observed: ObservedNode) -> Iterator[datetime]:
        own_status = observed.statuses.get(self.profile)
        statuses: tuple[ProfileStatus, ...] = (own_status,) if own_status else tuple(observed.statuses.values())
        return (status.transition for status in statuses if status.transition is not None)

    def __str__(self) -> str:
        """Return the scope for people: the labels that nodes share, as a selector."""
        return ",".join(f"{key}={value}" for key, value in self.labels) or "the whole cluster"


LIMIT = TextFormat("a number other than 0, or a share from 1% to 100%", parse_amount, accepts_numbers=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxMaintenance(Check):
    """Passes if fewer than `max` nodes are in maintenance, in the whole cluster or in the node's group.

    A node counts if its label `cloud.sap/maintenance-state` is `in-maintenance`, whichever profile has set it. This
    includes the node itself. A deleted node does not count, even if its capacity is still missing.

    With `groupBy`, only nodes count that have the same values of these labels as the node. A label that is missing or
    empty on the node is ignored. With `profile`, only nodes count whose profile label names this profile; they may be
    in maintenance because of another profile.

    The limit is exact. A transition into maintenance first takes a slot in a ledger in the cluster, by
    compare-and-swap: even two controllers that both believe to be the leader cannot exceed the limit. Several instances
    with different limits, scopes and names count the same nodes, so one for each zone and one for all zones can be
    combined.

    Nodes that are unavailable for other reasons, because of a NodeMaintenance or because they are down, do not count
    here. The section `budget` of the file counts all unavailable nodes, whatever the cause. Both limits apply.

    Beyond the SAP maintenance-controller: `max` can be a percentage such as `20%` of the nodes in the scope, rounded
    down and at least 1. And `limits` sets other limits for some of the groups.
    """

    type = "maxMaintenance"
    example = "max: 10%\ngroupBy:\n- topology.kubernetes.io/zone\nlimits:\n  topology.kubernetes.io/zone=eu-1c: 1"

    max: int | str = option(
        "How many nodes may be in maintenance: a number, or a percentage of the nodes in scope.",
        required=True,
        kind=LIMIT,
    )
    profile: str = option("Count only nodes whose profile label names this profile.", default="")
    group_by: tuple[str, ...] = option("Label keys: count only nodes with the same values of these labels.", default=())
    group_label: str = option("One more label key. Deprecated: use `groupBy`.", default="")
    skip_after: timedelta = option(
        "Do not count nodes whose last transition (of `profile`, if that is set and has one) is at least this long "
        "ago. Nodes without any transition are not counted, either. By default all count.",
        default=timedelta(),
    )
    limits: Mapping[str, str] = option(
        "Limits instead of `max` for some groups, by their labels as in `scope` of the result of the check: "
        "`key=value`, or `key=value,key=value` in the order of `groupBy`.",
        default={},
    )

    def evaluate(self, context: PluginContext) -> CheckResult:
        scope = self._scope(context)
        limit = self._limit(scope, context)
        counted = sorted(self._counted_nodes(scope, context), key=lambda observed: observed.node.name)
        info: dict[str, Any] = {"scope": str(scope), "maintained": len(counted), "max": limit}
        reason = f"{len(counted)} of at most {limit} nodes in maintenance in {_scope_text(scope)}"
        if len(counted) < limit:
            return passes(reason, **info)
        names = format_list(observed.node.name for observed in counted)
        return fails(f"{reason}: {names}" if names else reason, requeue_at=_next_exclusion(scope, counted), **info)

    def claims(self, context: PluginContext) -> tuple[Claim, ...]:
        """Return the slot claim. If the check does not pass, there is nothing to claim: the chain passed without it."""
        if not self.evaluate(context).passed:
            return ()
        scope = self._scope(context)
        return (SlotClaim(limit=self._limit(scope, context), scope=scope),)

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        return slots.permissions(namespace)

    def topics(self, node: str) -> tuple[str, ...]:
        del node
        shares = any("%" in str(limit) for limit in (self.max, *self.limits.values()))
        size = (topics.NODE_COUNT, *((topics.label(PROFILE_LABEL),) if self.profile else ())) if shares else ()
        return (topics.MAINTENANCE_ROOM, *size, *(topics.label(key) for key in self._keys()))

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from _limit_problems("max", self.max)
        for group, limit in self.limits.items():
            yield from _limit_problems(f"limits.{group}", limit)
            parts = [part.partition("=") for part in group.split(",")]
            foreign = [key for key, _, _ in parts if key not in self._keys()]
            if not all(value for _, _, value in parts):
                yield f"limits.{group}", "expected the labels of a group, such as topology.kubernetes.io/zone=eu-1a"
            elif foreign:
                yield f"limits.{group}", f"{format_list(foreign)} is not in groupBy, so there is no such group"

    def warnings(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.max, int) and self.max < 0:
            yield "max", f"found {self.max}, with which the check never passes"
        if self.group_label:
            yield "groupLabel", f"deprecated, write groupBy: [{self.group_label}]"

    def _keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.group_by, *((self.group_label,) if self.group_label else ()))))

    def _scope(self, context: PluginContext) -> NodeScope:
        labels = context.node.metadata.labels
        return NodeScope(
            labels=tuple((key, labels[key]) for key in self._keys() if labels.get(key)),
            profile=self.profile,
            excluded_after=self.skip_after or None,
        )

    def _limit(self, scope: NodeScope, context: PluginContext) -> int:
        limit = parse_amount(self.limits.get(str(scope), self.max))
        return scaled_value(limit, 0 if isinstance(limit, int) else sum(map(scope.covers, context.cluster.nodes())))

    def _counted_nodes(self, scope: NodeScope, context: PluginContext) -> Iterator[ObservedNode]:
        own_name = context.node.name
        counts_itself = context.node.metadata.labels.get(STATE_LABEL) == State.IN_MAINTENANCE
        for observed in context.cluster.nodes_in(State.IN_MAINTENANCE):
            # A slot that the node took before a crash does not block the node itself.
            if (observed.node.name != own_name or counts_itself) and scope.counts(observed, context.now):
                yield observed


def _next_exclusion(scope: NodeScope, counted: list[ObservedNode]) -> datetime | None:
    return min((end for observed in counted if (end := scope.excluded_at(observed))), default=None)


def _limit_problems(key: str, limit: int | str) -> Iterator[tuple[str, str]]:
    try:
        parse_amount(limit)
    except ValueError:
        yield key, f"found {limit}, expected {LIMIT.expected}"


def _scope_text(scope: NodeScope) -> str:
    return f"{scope}, with profile {scope.profile}" if scope.profile else str(scope)
