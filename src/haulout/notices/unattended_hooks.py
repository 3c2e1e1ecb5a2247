"""Terminations by Auto Scaling whose lifecycle hooks nobody completes. Pure.

The agent of a node sees that Auto Scaling terminates its instance. It has no rights in AWS. Where the operator has none
either, or does not listen to AWS at all, a lifecycle hook runs to its heartbeat timeout: the instance goes later than
it could, or earlier than its node is empty. The notice says so, once.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from haulout.kinds.notice import MaintenanceNotice, Stage
from haulout.notices.happenings import Happening
from haulout.notices.sources.aws.readings import SOURCE, Family

EVENT = "LifecycleHookNotCompleted"
_WAIT = timedelta(minutes=1)  # for whoever has the right to find the hook
_WHAT = (
    "Auto Scaling terminates the instance, and nobody here completes its lifecycle hooks: if it has some, they run to"
    " their heartbeat timeout, whether the node is empty or not"
)


def unattended_at(notice: MaintenanceNotice) -> datetime | None:
    """Return from when on this is to be said about a notice; None: it is not, or was said."""
    spec, names = notice.spec, notice.metadata.annotations
    is_waiting = spec.source == SOURCE and spec.stage == Stage.SCHEDULED and spec.reported_at is not None
    if not is_waiting or Family.TARGET not in names or Family.LIFECYCLE in names:
        return None
    if spec.reported_at is None or any(it.what == _WHAT for it in notice.status.history):
        return None
    return spec.reported_at + _WAIT


def unattended(notice: MaintenanceNotice, *, now: datetime) -> Iterator[Happening]:
    """Yield that nobody completes the hooks, when it is time to say so."""
    at = unattended_at(notice)
    if at is not None and now >= at:
        yield Happening(EVENT, _WHAT, is_bad=True)
