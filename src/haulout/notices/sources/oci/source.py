"""OCI as a source of notices: the stream tells at once, Compute tells for certain; either may be missing.

Without a stream everything is found within the few minutes between two looks. Without a compartment to look into, those
that the stream names are looked into.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random

from haulout.core import gotime
from haulout.core.clock import Clock
from haulout.errors import CannotMove, CloudError
from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.notices.adoption import Adoption
from haulout.notices.inbox import Inbox
from haulout.notices.sources.calls import Pulse, answered
from haulout.notices.sources.oci import SOURCE
from haulout.notices.sources.oci.cloud import Compute, Document, Streaming
from haulout.notices.sources.oci.consumer import Consumer, Place
from haulout.notices.sources.oci.reconciler import Reconciler
from haulout.notices.sources.quarantine import Quarantine

_REFUSALS = (400, 403, 404, 409)  # what may not be changed is not found


class OciSource:
    """Maintenance of instances of OCI."""

    name = SOURCE

    def __init__(
        self,
        compute: Compute,
        *,
        streaming: Streaming | None = None,
        place: Place | None = None,
        compartments: Sequence[str] = (),
        clock: Clock,
        random: Random,
    ) -> None:
        self.quarantine = Quarantine(SOURCE, clock)
        self._pulse = Pulse(clock)
        self._compute = compute
        self._reconciler = Reconciler(
            compute,
            clock=clock,
            random=random,
            quarantine=self.quarantine,
            compartments=compartments,
            beat=self._pulse.beat,
        )
        self._adoption: Adoption | None = None
        self._consumer = None
        if streaming is not None:
            self._consumer = Consumer(
                streaming,
                place or Place(instance=f"haulout-{random.getrandbits(64):016x}"),
                clock=clock,
                random=random,
                quarantine=self.quarantine,
                hears=self._reconciler.hears,
                compute=self._reconciler,
                beat=self._pulse.beat,
            )

    @property
    def taken(self) -> int:
        """How many messages about a maintenance have become notices."""
        return 0 if self._consumer is None else self._consumer.taken

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what OCI says."""
        return not self._unheard()

    def troubles(self) -> Sequence[str]:
        """Return what keeps it from its work, and what makes no sense."""
        adopting = () if self._adoption is None else self._adoption.troubles()
        return (*self._unheard(), *adopting, *self.quarantine.troubles())

    def silence(self) -> timedelta | None:
        """Return how long ago OCI last answered."""
        return self._pulse.ago()

    async def run(self, inbox: Inbox) -> None:
        """Report what OCI says, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reconciler.run(inbox))
            if self._consumer is not None:
                group.create_task(self._consumer.run(inbox))
            if self._adoption is not None:
                group.create_task(self._adoption.run())

    def _unheard(self) -> list[str]:
        found = self._reconciler.trouble, "" if self._consumer is None else self._consumer.trouble
        return [it for it in found if it]

    def adopt(self, client: Client, *, nodes: Cache[Node], namespace: str = "") -> None:
        """Take over what the OCI Node Maintenance Handler has planned, in one namespace or in all; before it runs."""
        ask = self._reconciler.of_instance
        self._adoption = Adoption(client, nodes=nodes, ask=ask, namespace=namespace)

    async def move(self, notice: MaintenanceNotice, to: datetime) -> None:
        """Have a maintenance begin at another time; nothing happens if it does so already."""
        event = notice.spec.notice_id
        doing = f"moving maintenance {event}"
        entry, etag = await answered(self._compute.maintenance_event(event), doing=doing)
        if _instant(entry, "timeWindowStart") == to:
            return
        problem = _why_not(entry, to)
        if problem:
            raise CannotMove(f"{doing}: {problem}")
        token = hashlib.sha256(f"{event} {to.isoformat()} {etag}".encode()).hexdigest()[:40]
        try:
            await answered(self._compute.move_event(event, start=to, etag=etag, token=token), doing=doing)
        except CloudError as error:
            if error.status not in _REFUSALS:
                raise
            raise CannotMove(f"{doing}: OCI says no: {error.message}") from error
        self._reconciler.look_soon()


def _why_not(entry: Document, to: datetime) -> str:
    state = entry.get("lifecycleState")
    if state != "SCHEDULED":
        return f"it is {state}, and only one that is SCHEDULED can be moved"
    if entry.get("canReschedule") is not True:
        return "OCI does not let it be moved"
    due = _instant(entry, "timeHardDueDate")
    return f"it has to begin by {due:%Y-%m-%d %H:%M} UTC" if due is not None and to > due else ""


def _instant(entry: Document, key: str) -> datetime | None:
    try:
        return gotime.parse(str(entry.get(key))).instant
    except ValueError:
        return None
