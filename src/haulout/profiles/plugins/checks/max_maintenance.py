"""The check `maxMaintenance`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from haulout.budget import slots
from haulout.budget.limits import read_amount, share_of
from haulout.core.shaped import Form
from haulout.kube.access import Permission
from haulout.profiles import topics
from haulout.profiles.options import option
from haulout.profiles.plugin import (
    PROFILE_LABEL,
    STATE_LABEL,
    Check,
    Claim,
    NodeSight,
    Scene,
    SlotClaim,
    State,
    Verdict,
    fails,
    passes,
)
from haulout.profiles.scopes import NodeScope
from haulout.profiles.words import some

LIMIT = Form("a number other than 0, or a share from 1% to 100%", read_amount, numbers=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxMaintenance(Check):
    """Passes if fewer than `max` nodes are in maintenance, in the whole cluster or in the node's group.

    A node counts if its label `cloud.sap/maintenance-state` says `in-maintenance`, whichever profile has brought it
    there. The node itself is no exception. A node that was deleted does not count, though what it did may be missing.

    With `groupBy`, only nodes count that have the same values of these labels as the node. A label that the node does
    not have, or that is empty, groups nothing. With `profile`, only nodes count whose profile label names this profile;
    they may be in maintenance because of another.

    The limit is exact. A transition into maintenance first takes a slot in a ledger in the cluster, by
    compare-and-swap: also two controllers that both believe to lead cannot let in one node too many. Several instances
    with different limits, scopes and names count the same nodes, so that one for each zone and one for all go together.

    Nodes that are out of service for another reason, on a person's order or because they are down, do not count here.
    The section `budget` of the file counts all of them, for all who take nodes out of service. Both hold together.

    Beyond what the SAP maintenance-controller offers: `max` can be a share such as `20%`, which is of the nodes in the
    scope, rounded down, and at least 1. And `limits` sets other limits for some of the groups.
    """

    type = "maxMaintenance"
    example = "max: 10%\ngroupBy:\n- topology.kubernetes.io/zone\nlimits:\n  topology.kubernetes.io/zone=eu-1c: 1"

    max: int | str = option(
        "How many nodes may be in maintenance: a number, or a share of the nodes in scope.", required=True, kind=LIMIT
    )
    profile: str = option("Count only nodes whose profile label names this profile.", default="")
    group_by: tuple[str, ...] = option("Keys of labels: count only nodes with the same values of them.", default=())
    group_label: str = option("One more such key. Deprecated: use `groupBy`.", default="")
    skip_after: timedelta = option(
        "Do not count nodes whose last transition (of `profile`, if that is set and has one) is at least so long ago; "
        "such as those that were forgotten. Nodes without any transition are skipped, too. Without it, all count.",
        default=timedelta(),
    )
    limits: Mapping[str, str] = option(
        "Limits instead of `max` for some groups, by their labels as `scope` names them in what the check says: "
        "`key=value`, or `key=value,key=value` in the order of `groupBy`.",
        default={},
    )

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        scope = self._scope(scene)
        limit = self._limit(scope, scene)
        counted = sorted(self._counted(scope, scene), key=lambda sight: sight.node.name)
        info: dict[str, Any] = {"scope": str(scope), "maintained": len(counted), "max": limit}
        why = f"{len(counted)} of at most {limit} nodes in maintenance in {_said(scope)}"
        if len(counted) < limit:
            return passes(why, **info)
        names = some(sight.node.name for sight in counted)
        return fails(f"{why}: {names}" if names else why, wakes_at=_next_forgotten(scope, counted), **info)

    def claims(self, scene: Scene) -> tuple[Claim, ...]:
        """Return the slot, if the check passes."""
        if not self.look(scene).passed:
            return ()
        scope = self._scope(scene)
        return (SlotClaim(limit=self._limit(scope, scene), scope=scope),)

    def permissions(self, home: str) -> tuple[Permission, ...]:
        """Return what it takes to take slots."""
        return slots.permissions(home)

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes the node."""
        del node
        shares = any("%" in str(it) for it in (self.max, *self.limits.values()))
        size = (topics.NODE_COUNT, *((topics.label(PROFILE_LABEL),) if self.profile else ())) if shares else ()
        return (topics.ROOM, *size, *(topics.label(key) for key in self._keys()))

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what makes no sense in the configuration."""
        yield from _limit_problems("max", self.max)
        for group, limit in self.limits.items():
            yield from _limit_problems(f"limits.{group}", limit)
            parts = [part.partition("=") for part in group.split(",")]
            foreign = [key for key, _, _ in parts if key not in self._keys()]
            if not all(value for _, _, value in parts):
                yield f"limits.{group}", "expected the labels of a group, such as topology.kubernetes.io/zone=eu-1a"
            elif foreign:
                yield f"limits.{group}", f"{some(foreign)} is not in groupBy, so there is no such group"

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what will not do what was probably meant."""
        if isinstance(self.max, int) and self.max < 0:
            yield "max", f"found {self.max}, with which the check never passes"
        if self.group_label:
            yield "groupLabel", f"deprecated, write groupBy: [{self.group_label}]"

    def _keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.group_by, *((self.group_label,) if self.group_label else ()))))

    def _scope(self, scene: Scene) -> NodeScope:
        labels = scene.node.metadata.labels
        return NodeScope(
            labels=tuple((key, labels[key]) for key in self._keys() if labels.get(key)),
            profile=self.profile,
            forgets_after=self.skip_after or None,
        )

    def _limit(self, scope: NodeScope, scene: Scene) -> int:
        limit = read_amount(self.limits.get(str(scope), self.max))
        return share_of(limit, 0 if isinstance(limit, int) else sum(map(scope.covers, scene.sights.nodes())))

    def _counted(self, scope: NodeScope, scene: Scene) -> Iterator[NodeSight]:
        itself = scene.node.name
        itself_counts = scene.node.metadata.labels.get(STATE_LABEL) == State.IN_MAINTENANCE
        for sight in scene.sights.nodes_in(State.IN_MAINTENANCE):
            # A slot that the node took before a crash is no reason to refuse it another one.
            if (sight.node.name != itself or itself_counts) and scope.counts(sight, scene.now):
                yield sight


def _next_forgotten(scope: NodeScope, counted: list[NodeSight]) -> datetime | None:
    return min((end for sight in counted if (end := scope.forgotten_at(sight))), default=None)


def _limit_problems(key: str, limit: int | str) -> Iterator[tuple[str, str]]:
    try:
        read_amount(limit)
    except ValueError:
        yield key, f"found {limit}, expected {LIMIT.expected}"


def _said(scope: NodeScope) -> str:
    return f"{scope}, with profile {scope.profile}" if scope.profile else str(scope)
