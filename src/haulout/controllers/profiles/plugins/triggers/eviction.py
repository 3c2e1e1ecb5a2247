"""The trigger `eviction`: cordons, uncordons and drains, the last with all that the drain engine can do."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from haulout.api.objects import RawObject
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Action, Cordon, Drain, PluginContext, Trigger, Uncordon
from haulout.drain import permissions as drain
from haulout.drain import policy_parser
from haulout.drain.policy import DrainPolicy
from haulout.errors import PolicyError
from haulout.kube.rbac import Permission

_ACTIONS = ("cordon", "uncordon", "drain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction(Trigger):
    """Cordons, uncordons or drains the node.

    `drain` cordons the node first, and the chain goes on when the node is empty. All pods leave, also finished ones,
    those without a controller and those with an `emptyDir`; only static pods and those of DaemonSets stay. Disruption
    budgets are respected, and the drain goes on for as long as it takes.

    With `forceEviction` that has an end: a pod that could not be evicted for `evictionTimeout` is deleted whatever its
    budget says, and one that is still there `deletionTimeout` after it was told to go, and has had its grace period,
    is ended at once. Without it neither time has an effect.
    """

    type = "eviction"
    example = """\
action: drain
forceEviction: true
evictionTimeout: 30m
drain:
  order:
    storageLast: true
"""

    action: str = option("What is to be done: `cordon`, `uncordon` or `drain`.", required=True)
    deletion_timeout: timedelta = option(
        "With `forceEviction`: how long a pod that was told to go may take, before it gets no more time.",
        default=timedelta(minutes=10),
    )
    eviction_timeout: timedelta = option(
        "With `forceEviction`: how long a pod is asked to leave, before it is deleted.", default=timedelta(minutes=10)
    )
    force_eviction: bool = option("Delete pods that cannot be evicted in time.", default=False)
    drain: RawObject | None = option(
        "Of Haulout, not of the SAP maintenance-controller: a whole drain policy. What it says goes before the three "
        "keys above.",
        default=None,
    )

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        """Return what is to be done."""
        del context
        match self.action:
            case "cordon":
                return (Cordon(),)
            case "uncordon":
                return (Uncordon(),)
            case _:
                return (Cordon(), Drain(self.policy()))

    @property
    def may_cordon(self) -> bool:
        """Whether it cordons nodes."""
        return self.action != "uncordon"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield actions that nobody knows, and what is wrong with the drain policy."""
        if self.action not in _ACTIONS:
            yield "action", f"found {self.action!r}, expected one of {', '.join(_ACTIONS)}"
        elif self.drain is not None and self.action != "drain":
            yield "drain", f"found with action {self.action}, expected only with action drain"
        try:
            self.policy()
        except PolicyError as error:
            for problem in error.problems:
                key, _, text = problem.partition(": ")
                yield key, text

    def permissions(self, namespace: str) -> tuple[Permission, ...]:
        """Return what a drain takes; to cordon is to change the node, which is always needed."""
        del namespace
        return drain.permissions(self.policy()) if self.action == "drain" else ()

    def policy(self) -> DrainPolicy:
        """Return how a node is drained; raises `PolicyError`."""
        base = DrainPolicy.like_smc()
        if self.force_eviction:
            none = timedelta()  # the SAP maintenance-controller takes negative times, too
            evicts_for, deletes_for = max(self.eviction_timeout, none), max(self.deletion_timeout, none)
            base = DrainPolicy.like_smc(eviction_timeout=evicts_for, deletion_timeout=deletes_for)
        return base if self.drain is None else policy_parser.parse_policy(self.drain, base=base, path="drain")
