"""The trigger `eviction`: cordons, uncordons or drains the node, with all options of the drain engine."""

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

    `drain` cordons the node first, and the chain continues when the node is empty. All pods are evicted, including
    finished pods, pods without a controller and pods with an `emptyDir`; only static pods and pods of DaemonSets stay.
    PodDisruptionBudgets are respected, and the drain takes as long as they require.

    With `forceEviction` the drain has a limit: a pod that could not be evicted for `evictionTimeout` is deleted
    regardless of its PodDisruptionBudget. A pod that still exists `deletionTimeout` after its eviction or deletion, and
    after its grace period, is force-deleted. Without `forceEviction` neither timeout has an effect.
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

    action: str = option("What to do: `cordon`, `uncordon` or `drain`.", required=True)
    deletion_timeout: timedelta = option(
        "With `forceEviction`: how long an evicted or deleted pod may terminate, before it is force-deleted.",
        default=timedelta(minutes=10),
    )
    eviction_timeout: timedelta = option(
        "With `forceEviction`: how long the eviction of a pod is tried, before it is deleted.",
        default=timedelta(minutes=10),
    )
    force_eviction: bool = option("Delete pods that cannot be evicted in time.", default=False)
    drain: RawObject | None = option(
        "Haulout only, not in the SAP maintenance-controller: a whole drain policy. It takes precedence over the three "
        "keys above.",
        default=None,
    )

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
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
        return self.action != "uncordon"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield an unknown action, and errors in the drain policy."""
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
        """Return the permissions for a drain. A cordon needs none beside those of every configuration."""
        del namespace
        return drain.permissions(self.policy()) if self.action == "drain" else ()

    def policy(self) -> DrainPolicy:
        """Return the drain policy. Raise `PolicyError` if it is not valid."""
        base = DrainPolicy.like_smc()
        if self.force_eviction:
            none = timedelta()  # the SAP maintenance-controller takes negative times, too
            evicts_for, deletes_for = max(self.eviction_timeout, none), max(self.deletion_timeout, none)
            base = DrainPolicy.like_smc(eviction_timeout=evicts_for, deletion_timeout=deletes_for)
        return base if self.drain is None else policy_parser.parse_policy(self.drain, base=base, path="drain")
