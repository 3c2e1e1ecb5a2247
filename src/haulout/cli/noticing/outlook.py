"""What will come of a notice that was just written, as far as it can be known."""

from collections.abc import Iterator
from datetime import timedelta

from haulout.cli.noticing.sights import Sight, sight
from haulout.cli.noticing.text import draining, lead
from haulout.cli.times import told
from haulout.errors import KubeError
from haulout.kinds.notice import MAINTENANCE_NOTICES, Kind, MaintenanceNotice, NoticeCondition
from haulout.kube.client import Client

_PATIENCE = timedelta(seconds=2)
_STEP = timedelta(milliseconds=250)


async def looked_at(client: Client, notice: MaintenanceNotice, *, within: timedelta = _PATIENCE) -> Sight:
    """Return how it stands once the operator has looked at it; as it is, if none does in time."""
    until = client.clock.now() + within
    seen = sight(notice, now=client.clock.now())
    while not seen.is_looked_at and client.clock.now() < until:
        await client.clock.sleep(_STEP)
        try:
            seen = sight(await client.get(MAINTENANCE_NOTICES, notice.name), now=client.clock.now())
        except KubeError:
            break  # it is written, whether or not we may read it
    return seen


def outlook(seen: Sight, *, is_there: bool, is_real: bool = True) -> Iterator[str]:
    """Yield sentences; `is_there` tells whether its node is, `is_real` whether the notice is."""
    spec, now = seen.notice.spec, seen.now
    start = "at any moment" if spec.start is None else f"at {told(spec.start, now=now)}"
    end = "" if spec.end is None else f", expected to be over by {told(spec.end, now=now)}"
    yield f"{spec.kind} of node {spec.node_name} {start}{end}."
    if not is_there:
        yield f"There is no node {spec.node_name} yet: the notice waits for it."
    yield from _drain(seen)
    if spec.end is None:
        yield f"No end is known. When it is over: haulout notice end {seen.notice.name}"
    if is_real and not seen.is_looked_at:
        yield "The operator has not looked at it yet. Does it run?"


def _drain(seen: Sight) -> Iterator[str]:
    spec = seen.notice.spec
    if spec.kind == Kind.FREEZE:
        yield "A Freeze takes seconds: by default the node is not drained for it."
        return
    if spec.start is not None and spec.start <= seen.now:
        yield "This is not in the future: it counts as begun, and the node is to be drained at once."
        return
    when = f"{draining(seen)}{lead(seen)}" if seen.drain_at and seen.drain_at > seen.now else "at once"
    yield f"It is to be drained {when}, by a profile that goes by notices."
    on_time = seen.notice.status.condition(NoticeCondition.ON_TIME)
    if seen.is_looked_at and on_time is not None and on_time.status == "False":
        yield f"It will not be empty in time: {on_time.message}"
