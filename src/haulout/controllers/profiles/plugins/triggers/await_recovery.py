"""The trigger `awaitRecovery`: waits, for a limited time, until the node and its evicted workloads are available."""

from dataclasses import dataclass
from datetime import timedelta

from haulout.api.reasons import ProfileEventReason
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Action, Need, PluginContext, Trigger, Wait, Warn, unknown
from haulout.controllers.profiles.plugins.checks.recovered import Recovered
from haulout.core.text import format_duration
from haulout.core.timestamps import add_saturating
from haulout.errors import HauloutError

TIMED_OUT = ProfileEventReason.RECOVERY_TIMED_OUT  # event reason
_CHECK = Recovered(daemon_sets=False, workloads=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitRecovery(Trigger):
    """Waits until the node is Ready and the workloads that were evicted from it are available again.

    This trigger is Haulout's own. Use it on the way out of `in-maintenance`, after a trigger that uncordons the node:
    some workloads can recover only on the node where they were. Meanwhile the node counts as in maintenance, so that
    the next node waits. Workloads count as in the check `recovered`.

    It waits for `timeout` at most. Then the node counts as recovered, and the event `RecoveryTimedOut` lists what was
    missing. It stops waiting at once if the node is Ready but the checks of its transition no longer pass, for example
    because the next maintenance is due.
    """

    type = "awaitRecovery"
    example = "timeout: 15m"
    needs = frozenset({Need.PODS, Need.WORKLOADS})

    timeout: timedelta = option("How long to wait at most.", default=timedelta(minutes=10))

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        """Return a `Wait`, nothing once the node has recovered, or a warning after the timeout."""
        try:
            result = _CHECK.evaluate(context)
        except HauloutError as error:
            result = unknown(str(error))
        if result.passed or (not context.checks_still_pass and context.node.is_ready):
            return ()
        started_at = context.chain_started_at or context.now
        until = add_saturating(started_at, self.timeout)
        if context.now >= until:
            return (
                Warn(
                    reason=TIMED_OUT,
                    note=f"the node counts as recovered after {format_duration(self.timeout)}: {result.reason}",
                ),
            )
        return (Wait(reason=result.reason, until=until, topics=_CHECK.topics(context.node.name)),)

    @property
    def only_waits(self) -> bool:
        return True

    @property
    def needs_workload_record(self) -> bool:
        return True
