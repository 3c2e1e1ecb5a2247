"""The check `stagger`."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.objects import Lease
from haulout.api.resources import LEASES
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import (
    Check,
    CheckResult,
    Claim,
    LeaseClaim,
    Need,
    PluginContext,
    fails,
    passes,
)
from haulout.controllers.profiles.view import topics
from haulout.core.instants import add_saturating
from haulout.core.text_format import format_count, format_duration, format_time
from haulout.kube.rbac import Permission

_INSTANT = timedelta(microseconds=1)
_DURATION = timedelta(seconds=1)
_MAX_LEASES = 1000  # all of them are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Stagger(Check):
    """Passes if enough time is over since the last nodes passed: it lets through `parallel` nodes per `duration`.

    The memory is a number of leases, `leaseName-0`, `leaseName-1` and so on. A lease is free if it is not there or its
    time is over. A transition that rests on this check takes one: its holder is then the node. It is taken by
    compare-and-swap before anything else happens, so two nodes never get the same. Just looking takes nothing, nor does
    a node whose other checks fail, nor a negated stagger.

    A lease keeps the duration it was taken with: a new `duration` in the file counts from the next time on. Leases are
    never deleted; delete one by hand to let the next node through at once.
    """

    type = "stagger"
    example = "duration: 30m\nleaseName: os-patching\nleaseNamespace: kube-system\nparallel: 2"
    needs = frozenset({Need.LEASES})

    duration: timedelta = option("How long a lease is taken for.", required=True)
    lease_name: str = option("The name of the leases, to which their number is added.", required=True)
    lease_namespace: str = option("The namespace of the leases.", required=True)
    parallel: int = option("How many leases there are, at most 1000. With 0 the check never passes.", default=1)

    def evaluate(self, context: PluginContext) -> CheckResult:
        """Return the verdict."""
        if self.parallel < 1:
            return fails(f"parallel is {self.parallel}: no node may ever pass", availableInSec=[])
        ends: list[datetime] = []
        for name, lease in self._leases(context):
            end = self._end(name, lease, context)
            if end is None or context.now > end:
                return passes(f"lease {self.lease_namespace}/{name} is free")
            ends.append(end)
        first = min(ends)
        taken = format_count(self.parallel, "lease")
        reason = f"{taken} of {self.lease_name} taken, the next is free in {format_duration(first - context.now)}"
        seconds = [(end - context.now).total_seconds() for end in ends]
        return fails(f"{reason}, at {format_time(first)}", requeue_at=first + _INSTANT, availableInSec=seconds)

    def claims(self, context: PluginContext) -> tuple[Claim, ...]:
        """Return the first lease that is free; nothing if none is."""
        for name, lease in self._leases(context):
            end = self._end(name, lease, context)
            if end is None or context.now > end:
                return (self._claim(name, lease, holder=context.node.name),)
        return ()

    def _claim(self, name: str, lease: Lease | None, *, holder: str) -> LeaseClaim:
        taken_before = lease.spec.lease_transitions if lease else None
        return LeaseClaim(
            namespace=self.lease_namespace,
            name=name,
            resource_version=lease.resource_version if lease else "",
            holder=holder,
            duration=self.duration,
            transitions=0 if taken_before is None else taken_before + 1,
        )

    def _leases(self, context: PluginContext) -> Iterator[tuple[str, Lease | None]]:
        for name in self._names():
            yield name, context.cluster.lease(self.lease_namespace, name)

    def _names(self) -> Iterator[str]:
        return (f"{self.lease_name}-{number}" for number in range(min(self.parallel, _MAX_LEASES)))

    def _end(self, name: str, lease: Lease | None, context: PluginContext) -> datetime | None:
        """Return until when a lease is taken; None if it is not, as one that nobody ever renewed."""
        if lease is None or lease.spec.renew_time is None:
            return None
        if (self.lease_namespace, name) in context.held_leases:
            return None  # the node took it for a transition that has not happened yet
        seconds = lease.spec.lease_duration_seconds
        return add_saturating(lease.spec.renew_time, self.duration if seconds is None else seconds * _DURATION)

    def lease_namespaces(self) -> tuple[str, ...]:
        """Return where the leases are."""
        return (self.lease_namespace,)

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        """Return what it takes to take the leases."""
        del namespace
        names = tuple(self._names())
        place = LEASES.group, LEASES.plural, self.lease_namespace
        if not names:
            return ()
        # A name cannot restrict making one, as there is no object yet to have it.
        return Permission(("create",), *place, "stagger"), Permission(("patch",), *place, "stagger", names=names)

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes the node."""
        del node
        return tuple(topics.lease(self.lease_namespace, name) for name in self._names())

    def warnings(self) -> Iterator[tuple[str, str]]:
        """Yield what will not do what was probably meant."""
        if self.parallel < 1:
            yield "parallel", f"found {self.parallel}, with which the check never passes; expected at least 1"
        if self.parallel > _MAX_LEASES:
            yield "parallel", f"found {self.parallel}; no more than {_MAX_LEASES} leases are used"
        if self.duration < _DURATION:
            yield "duration", "leases count in whole seconds, so this one is over as soon as it is taken"
