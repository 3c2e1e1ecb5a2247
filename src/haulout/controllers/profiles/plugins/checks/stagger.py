"""The check `stagger`: lets a number of nodes pass per period, by leases that expire."""

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
from haulout.core.text import format_count, format_duration, format_time
from haulout.core.timestamps import add_saturating
from haulout.kube.rbac import Permission

_INSTANT = timedelta(microseconds=1)
_DURATION = timedelta(seconds=1)
_MAX_LEASES = 1000  # all of them are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Stagger(Check):
    """Passes if enough time has passed since the last nodes passed: it lets `parallel` nodes pass per `duration`.

    The state is in leases named `leaseName-0`, `leaseName-1` and so on. A lease is free if it does not exist or has
    expired. A transition that depends on this check takes one, with the node as holder. The lease is taken by
    compare-and-swap before anything else happens, so two nodes never take the same one. Evaluating the check takes no
    lease, nor does a node whose other checks fail, nor a negated stagger.

    A lease keeps the duration with which it was taken: a new `duration` in the file applies from the next time on.
    Leases are never deleted; delete one manually to let the next node pass at once.
    """

    type = "stagger"
    example = "duration: 30m\nleaseName: os-patching\nleaseNamespace: kube-system\nparallel: 2"
    needs = frozenset({Need.LEASES})
    object_options = frozenset({"lease_name", "lease_namespace"})

    duration: timedelta = option("How long a lease is taken for.", required=True)
    lease_name: str = option("The name of the leases, to which their number is added.", required=True)
    lease_namespace: str = option("The namespace of the leases.", required=True)
    parallel: int = option("How many leases there are, at most 1000. With 0 the check never passes.", default=1)

    def evaluate(self, context: PluginContext) -> CheckResult:
        if self.parallel < 1:
            return fails(f"parallel is {self.parallel}: no node may ever pass", availableInSec=[])
        ends: list[datetime] = []
        for name, lease in self._leases(context):
            end = self._end(name, lease, context)
            if end is None or context.now > end:
                return passes(f"Lease {self.lease_namespace}/{name} is free")
            ends.append(end)
        first = min(ends)
        taken = format_count(self.parallel, "lease")
        reason = f"{taken} of {self.lease_name} taken, the next is free in {format_duration(first - context.now)}"
        seconds = [(end - context.now).total_seconds() for end in ends]
        return fails(f"{reason}, at {format_time(first)}", requeue_at=first + _INSTANT, availableInSec=seconds)

    def claims(self, context: PluginContext) -> tuple[Claim, ...]:
        """Return a claim for the first free lease, if there is one."""
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
        """Return when a lease expires; None if it is free, as one without a renew time is."""
        if lease is None or lease.spec.renew_time is None:
            return None
        if (self.lease_namespace, name) in context.held_leases:
            return None  # the node took it for a transition that has not happened yet
        seconds = lease.spec.lease_duration_seconds
        return add_saturating(lease.spec.renew_time, self.duration if seconds is None else seconds * _DURATION)

    def lease_namespaces(self) -> tuple[str, ...]:
        return (self.lease_namespace,)

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        """Return the permissions to take the leases."""
        del namespace
        names = tuple(self._names())
        place = LEASES.group, LEASES.plural, self.lease_namespace
        if not names:
            return ()
        # RBAC cannot restrict `create` by resourceNames, since the name is not known at authorization time.
        return Permission(("create",), *place, "stagger"), Permission(("patch",), *place, "stagger", names=names)

    def topics(self, node: str) -> tuple[str, ...]:
        del node
        return tuple(topics.lease(self.lease_namespace, name) for name in self._names())

    def warnings(self) -> Iterator[tuple[str, str]]:
        if self.parallel < 1:
            yield "parallel", f"found {self.parallel}, with which the check never passes; expected at least 1"
        if self.parallel > _MAX_LEASES:
            yield "parallel", f"found {self.parallel}; no more than {_MAX_LEASES} leases are used"
        if self.duration < _DURATION:
            yield "duration", "leases count in whole seconds, so this one is over as soon as it is taken"
