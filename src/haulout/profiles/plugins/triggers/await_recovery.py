"""The trigger `awaitRecovery`."""

from dataclasses import dataclass
from datetime import timedelta

from haulout.errors import HauloutError
from haulout.profiles.instants import later
from haulout.profiles.options import option
from haulout.profiles.plugin import Effect, Need, Scene, Trigger, Wait, Warn, unknown
from haulout.profiles.plugins.checks.recovered import Recovered
from haulout.profiles.words import lasting

TIMED_OUT = "RecoveryTimedOut"  # the reason of an event about a node
_CHECK = Recovered(daemon_sets=False, workloads=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitRecovery(Trigger):
    """Waits until the node is Ready and the workloads that were evicted from it are available again.

    This trigger is Haulout's own. Use it on the way out of `in-maintenance`, after a trigger that uncordons the node:
    some workloads can only recover where they were. Meanwhile the node counts as in maintenance, so that the next one
    waits. Workloads count as for the check `recovered`.

    It waits for `timeout` at most. Then the node is taken for recovered, and the event `RecoveryTimedOut` says what was
    missing. It stops waiting at once if the checks of its transition do not pass any more although the node is Ready,
    as when the next maintenance is due.
    """

    type = "awaitRecovery"
    example = "timeout: 15m"
    needs = frozenset({Need.PODS, Need.WORKLOADS})

    timeout: timedelta = option("How long to wait at most.", default=timedelta(minutes=10))

    def effects(self, scene: Scene) -> tuple[Effect, ...]:
        """Wait, or go on."""
        try:
            verdict = _CHECK.look(scene)
        except HauloutError as error:
            verdict = unknown(str(error))
        if verdict.passed or (not scene.passes and _is_ready(scene)):
            return ()
        began = scene.began or scene.now
        until = later(began, self.timeout)
        if scene.now >= until:
            return (
                Warn(
                    reason=TIMED_OUT, note=f"it is taken for recovered after {lasting(self.timeout)}: {verdict.reason}"
                ),
            )
        return (Wait(reason=verdict.reason, until=until, topics=_CHECK.topics(scene.node.name)),)

    @property
    def only_waits(self) -> bool:
        """Whether it does nothing else than to wait, and not for ever."""
        return True

    @property
    def compares_workloads(self) -> bool:
        """Whether it asks who was evicted."""
        return True


def _is_ready(scene: Scene) -> bool:
    return any(it.type == "Ready" and it.status == "True" for it in scene.node.status.conditions)
