"""Reads the queue: what a message says becomes notices, and only then is the message deleted.

While we are at work on a message it stays hidden from others, however long that takes. If something goes wrong it is
left where it is, and comes again; that, and whatever else makes a message come twice, is harmless.

AWS Health names a maintenance otherwise than EC2 does. So EC2 is asked about the instances that Health names before its
word is taken: what EC2 knows is already there then, and joined with it.

A message that cannot be understood stays in the queue, so that its dead-letter policy decides about it. It is hidden
for longer than others: however many there are, messages that can be understood are received in between.

A launch is no maintenance. It is completed when the node of the instance is ready; until then its message is what
remembers it.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta

from haulout.core.backoff import Backoff
from haulout.errors import CloudError, KubeError, LeadershipLost
from haulout.kube.client import Client
from haulout.notices.sources.aws.cloud import MOST_MESSAGES, Document, Sqs, explained, is_busy
from haulout.notices.sources.aws.desk import Desk
from haulout.notices.sources.aws.fleet import Fleet, is_ready
from haulout.notices.sources.aws.identities import Identities
from haulout.notices.sources.aws.lifecycles import Lifecycles
from haulout.notices.sources.aws.messages import Launch, read_message
from haulout.notices.sources.aws.polling import Poll
from haulout.notices.sources.aws.readings import Family, Nonsense, Reading
from haulout.notices.sources.aws.tags import Tags
from haulout.notices.sources.calls import Pulse, answered
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

_WAIT = timedelta(seconds=20)
_ASK_EC2_WITHIN = timedelta(seconds=5)
_LAUNCH_AGAIN = timedelta(seconds=20)
_UNREADABLE_AGAIN = timedelta(minutes=1)
_PAUSE = Backoff(first=timedelta(seconds=1), limit=timedelta(minutes=1), jitter=0.5)


class QueueReader:
    """Reads one queue."""

    def __init__(  # noqa: PLR0913 - what it needs, each by its name
        self,
        sqs: Sqs,
        *,
        client: Client,
        fleet: Fleet,
        poll: Poll,
        lifecycles: Lifecycles,
        tags: Tags,
        identities: Identities,
        quarantine: Quarantine,
        hidden: timedelta,
    ) -> None:
        self.trouble = ""
        self.taken = 0  # messages whose notices exist
        self.ignored = 0  # messages that were none of our business
        self._sqs = sqs
        self.pulse = Pulse(client.clock)
        self._clock = client.clock
        self._random = client.random
        self._fleet = fleet
        self._poll = poll
        self._lifecycles = lifecycles
        self._tags = tags
        self._identities = identities
        self._quarantine = quarantine
        self._hidden = hidden
        self._comes_by = 0.0  # when a message would be back that was not done with; if not, its deletion took effect

    async def run(self, desk: Desk) -> None:
        """Read until cancelled."""
        failures = 0
        while True:
            try:
                messages = await self._received()
            except CloudError as error:
                failures += 1
                self._complain(f"the queue cannot be read, which is tried again: {explained(error)}")
                pause = _PAUSE.delay(failures, self._random)
                await self._clock.sleep(max(pause, error.retry_after or timedelta()))
                continue
            self.pulse.beat()
            has_not_come = not messages and self._clock.monotonic() > self._comes_by
            self.trouble = "" if failures or has_not_come else self.trouble
            failures = 0
            await self._work(desk, messages)

    async def _received(self) -> Sequence[Document]:
        waiting = self._sqs.receive(most=MOST_MESSAGES, wait=_WAIT, hidden=self._hidden)
        return await answered(waiting, doing="reading the queue", within=3 * _WAIT)

    async def _work(self, desk: Desk, messages: Sequence[Document]) -> None:
        """See to messages, and keep those hidden that are not done with yet."""
        held = {_receipt(it) for it in messages}
        async with asyncio.TaskGroup() as keeping:
            keeper = keeping.create_task(self._keep_hidden(held))
            try:
                async with asyncio.TaskGroup() as group:
                    for message in messages:
                        group.create_task(self._handle(desk, message, held))
            finally:
                keeper.cancel()

    async def _keep_hidden(self, held: Collection[str]) -> None:
        while True:
            await self._clock.sleep(self._hidden / 2)
            for receipt in tuple(held):
                try:
                    await answered(self._sqs.hide(receipt, hidden=self._hidden), doing="keeping a message hidden")
                except CloudError as error:
                    log.info("aws: a message may come twice: %s", error)

    async def _handle(self, desk: Desk, message: Document, held: set[str]) -> None:
        """See to one message, whatever is in it: the others must not suffer."""
        receipt, called = _receipt(message), str(message.get("MessageId", ""))
        try:
            is_done = await self._take(desk, str(message.get("Body", "")), called)
            held.discard(receipt)
            if is_done is None:
                await self._leave(receipt)
            elif is_done:
                await answered(self._sqs.delete(receipt), doing="deleting a message")
                self.trouble = ""
            else:
                await answered(self._sqs.hide(receipt, hidden=_LAUNCH_AGAIN), doing="putting a message off")
        except CloudError as error:
            self._complain(f"message {called} comes again: {explained(error)}")
        except KubeError as error:
            self._complain(f"message {called} comes again, since its notice cannot be written: {error}")
        except LeadershipLost:
            raise  # somebody else reads the queue now
        except Exception as error:  # the boundary of its task: a message that breaks us must not stop the others
            log.exception("aws: message %s", called)
            self._quarantine.put(where=f"message {called}", why=f"{type(error).__name__}: {error}", what=message)
        finally:
            held.discard(receipt)

    # What it says

    async def _leave(self, receipt: str) -> None:
        """Leave a message in the queue for whoever understands it."""
        try:
            await answered(self._sqs.hide(receipt, hidden=_UNREADABLE_AGAIN), doing="leaving a message in the queue")
        except CloudError as error:
            log.debug("aws: a message that cannot be read comes again sooner: %s", error)

    async def _take(self, desk: Desk, body: str, called: str) -> bool | None:
        """Return whether a message is done with; None if it cannot be understood."""
        try:
            said = read_message(body, now=self._clock.now(), called=called)
        except Nonsense as problem:
            self._quarantine.put(where=f"message {called}", why=str(problem), what=body)
            return None
        if said.launch is not None:
            return await self._launched(said.launch)
        readings = await self._ours(said.readings)
        if not readings:
            self.ignored += 1
            log.debug("aws: message %s is ignored: %s", called, said.ignored or "none of its instances is ours")
            return True
        await self._ask_first(desk, readings)
        await desk.take(readings)
        self.taken += 1
        return True

    async def _ours(self, readings: Sequence[Reading]) -> list[Reading]:
        """Return what is about instances that are managed; of a state only what is about a node."""
        managed = await self._tags.managed({it.instance for it in readings})
        ours = [await self._identified(it) for it in readings if it.instance in managed]
        return [it for it in ours if it.family is not Family.STATE or self._fleet.nodes(it.instance)]

    async def _identified(self, reading: Reading) -> Reading:
        """Return a reading with what its instance is called, if a node may be found only by that."""
        try:
            identity = await self._identities.of(reading.instance)
        except CloudError as error:
            if is_busy(error):
                raise
            log.warning("aws: nodes without a providerID cannot be found: %s", explained(error))
            return reading
        return replace(reading, machine_name=identity.name, machine_address=identity.address)

    async def _ask_first(self, desk: Desk, readings: Sequence[Reading]) -> None:
        named = [it.instance for it in readings if it.family is Family.HEALTH]
        if not named:
            return
        try:
            async with asyncio.timeout(_ASK_EC2_WITHIN.total_seconds()):
                await self._poll.hear(desk, named)
        except TimeoutError:
            log.info("aws: EC2 takes long to answer; what it says is joined later")

    async def _launched(self, launch: Launch) -> bool:
        await self._identities.of(launch.instance)
        nodes = self._fleet.nodes(launch.instance)
        if not any(is_ready(it) for it in nodes):
            return False
        await self._lifecycles.complete(launch.instance, group=launch.group, hook=launch.hook, token=launch.token)
        self.taken += 1
        return True

    def _complain(self, trouble: str) -> None:
        self._comes_by = self._clock.monotonic() + 3 * self._hidden.total_seconds()
        self.trouble = f"aws: {trouble}"
        log.warning("%s", self.trouble)


def _receipt(message: Document) -> str:
    return str(message.get("ReceiptHandle", ""))
