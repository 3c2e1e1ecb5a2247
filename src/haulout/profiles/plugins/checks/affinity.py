"""The check `affinity`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from haulout.profiles import topics
from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Need, Scene, Sights, State, Verdict, broken, fails, passes
from haulout.profiles.preference import prefers_operational
from haulout.profiles.words import counted, some


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity(Check):
    """Lets nodes without delicate pods go first, so that such pods move as seldom as possible.

    Delicate is a pod that prefers operational nodes: among its preferred node affinity is an expression with the key
    `cloud.sap/maintenance-state`, the operator `In` and the only value `operational`. While nodes of the same profile
    in `maintenance-required` have no such pod, those which have one wait. When they are evicted at last, most nodes are
    operational again, and they come to stay there.

    It makes sense in `maintenance-required` only.
    """

    type = "affinity"
    example = "minOperational: 3"
    needs = frozenset({Need.PODS})

    min_operational: int = option(
        "Pass at once if at least so many nodes of the profile are operational, since delicate pods then find a place "
        "to stay. With 0 that does not matter.",
        default=0,
    )

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        if scene.state is not State.REQUIRED:
            return broken(_misplaced(scene.state))
        node, sights = scene.node.name, scene.sights
        states = {
            it.node.name: it.entries[scene.profile].current for it in sights.nodes() if scene.profile in it.entries
        }
        operational = sum(state == State.OPERATIONAL for state in states.values())
        if 0 < self.min_operational <= operational:
            there_are = f"{counted(operational, 'node')} of profile {scene.profile} operational"
            return _told(passes, f"{there_are}, {self.min_operational} needed")
        if not _is_delicate(node, sights):
            return _told(passes, f"no pod on node {node} prefers operational nodes")
        waiting = sorted(name for name, state in states.items() if state == State.REQUIRED)
        first = [name for name in waiting if not _is_delicate(name, sights)]
        if first:
            which = f"{some(first)} which {'has' if len(first) == 1 else 'have'} none"
            return _told(fails, f"node {node} has pods that prefer operational nodes, and lets go first {which}")
        return _told(passes, f"all nodes of profile {scene.profile} that wait have pods that prefer operational nodes")

    def problems_in(self, state: State) -> Iterator[str]:
        """Yield why it makes no sense in other states."""
        if state is not State.REQUIRED:
            yield _misplaced(state)

    def topics(self, node: str) -> tuple[str, ...]:
        """Return what wakes the node."""
        del node
        return topics.STATES, topics.PREFERRING


def _is_delicate(node: str, sights: Sights) -> bool:
    return any(map(prefers_operational, sights.pods_on(node)))


def _told(says: Callable[..., Verdict], why: str) -> Verdict:
    return says(why, reason=why)


def _misplaced(state: State) -> str:
    return f"affinity compares nodes in {State.REQUIRED}, and cannot be used in {state}"
