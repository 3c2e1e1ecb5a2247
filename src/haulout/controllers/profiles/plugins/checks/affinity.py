"""The check `affinity`: nodes with pods that prefer operational nodes wait for nodes without such pods."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import (
    Check,
    CheckResult,
    ClusterView,
    Need,
    PluginContext,
    State,
    check_error,
    fails,
    passes,
)
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.transform import prefers_operational
from haulout.core.text import format_count, format_list


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity(Check):
    """Lets nodes without sensitive pods go first, so that sensitive pods move as seldom as possible.

    A pod is sensitive if it prefers operational nodes: its preferred node affinity contains an expression with the key
    `cloud.sap/maintenance-state`, the operator `In` and the only value `operational`. While nodes of the same profile
    in `maintenance-required` have no such pod, nodes that have one wait. By the time their pods are evicted, most nodes
    are operational again, and the pods can stay where they are scheduled.

    Use it in `maintenance-required` only.
    """

    type = "affinity"
    example = "minOperational: 3"
    needs = frozenset({Need.PODS})

    min_operational: int = option(
        "Pass at once if at least this many nodes of the profile are operational: pods that prefer such nodes then "
        "have a place. 0 disables this.",
        default=0,
    )

    def evaluate(self, context: PluginContext) -> CheckResult:
        if context.state is not State.REQUIRED:
            return check_error(_wrong_state_text(context.state))
        node, cluster = context.node.name, context.cluster
        states = {
            observed.node.name: observed.statuses[context.profile].current
            for observed in cluster.nodes()
            if context.profile in observed.statuses
        }
        operational = sum(state == State.OPERATIONAL for state in states.values())
        if 0 < self.min_operational <= operational:
            there_are = f"{format_count(operational, 'node')} of profile {context.profile} operational"
            return _with_reason(passes, f"{there_are}, {self.min_operational} needed")
        if not _has_preferring_pods(node, cluster):
            return _with_reason(passes, f"no pod on node {node} prefers operational nodes")
        waiting = sorted(name for name, state in states.items() if state == State.REQUIRED)
        first = [name for name in waiting if not _has_preferring_pods(name, cluster)]
        if first:
            which = f"{format_list(first)} which {'has' if len(first) == 1 else 'have'} none"
            return _with_reason(fails, f"node {node} has pods that prefer operational nodes, and waits for {which}")
        return _with_reason(
            passes, f"all nodes of profile {context.profile} that wait have pods that prefer operational nodes"
        )

    def problems_in(self, state: State) -> Iterator[str]:
        """Yield why the check makes no sense in states other than maintenance-required."""
        if state is not State.REQUIRED:
            yield _wrong_state_text(state)

    def topics(self, node: str) -> tuple[str, ...]:
        del node
        return topics.STATES, topics.POD_PREFERENCE


def _has_preferring_pods(node: str, cluster: ClusterView) -> bool:
    return any(map(prefers_operational, cluster.pods_on(node)))


def _with_reason(outcome: Callable[..., CheckResult], reason: str) -> CheckResult:
    return outcome(reason, reason=reason)


def _wrong_state_text(state: State) -> str:
    return f"affinity compares nodes in {State.REQUIRED}, and cannot be used in {state}"
