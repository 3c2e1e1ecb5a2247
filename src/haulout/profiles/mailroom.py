"""From what a step says is to be sent to what is sent: the message about a node, with the node as it is now.

Templates may use every field of a node, and caches keep few. So the node is asked for, once for each message.
"""

import asyncio
import logging
from datetime import timedelta

import msgspec

from haulout.core.backoff import Backoff
from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client
from haulout.kube.objects import Node, RawObject
from haulout.kube.resources import NODES
from haulout.profiles.model import Configuration
from haulout.profiles.plugin import LOG_DETAILS_LABEL, Message, NodeSight, Notification, Outside, State
from haulout.profiles.posting import Fate, Posted, Poster
from haulout.profiles.steps import Sending
from haulout.profiles.telling import Teller

log = logging.getLogger(__name__)

_TRIES = 5
_PAUSE = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.3)


class Mailroom:
    """Sends messages about nodes for as long as `run` runs; what cannot be sent is told."""

    def __init__(self, client: Client, outside: Outside, *, teller: Teller) -> None:
        self._client = client
        self._teller = teller
        self._poster = Poster(outside, clock=client.clock, random=client.random, tell=self._tell)
        self._group: asyncio.TaskGroup | None = None
        self._asking: set[asyncio.Task[None]] = set()  # for the nodes that messages are about

    async def run(self) -> None:
        """Send what is posted, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._poster.run()
            finally:
                self._group = None

    def post(self, sending: Sending, sight: NodeSight, configuration: Configuration) -> None:
        """Have a message sent about a node; return at once."""
        notification = _notification(sending, configuration)
        if notification is None:
            problem = "the configuration was edited meanwhile, and does not have it any more"
            self._teller.not_sent(sight.node, sending.instance, problem)
        elif self._group is None:
            self._teller.not_sent(sight.node, sending.instance, "this process ends before it could be sent")
        else:
            task = self._group.create_task(self._send(sending, sight, notification))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def settle(self, within: timedelta) -> None:
        """Return when nothing waits to be sent, or after `within`: for a last moment before the end."""
        began = self._client.clock.monotonic()
        if self._asking:
            await asyncio.wait(self._asking, timeout=within.total_seconds())
        left = within - timedelta(seconds=self._client.clock.monotonic() - began)
        await self._poster.settle(max(left, timedelta()))

    async def _send(self, sending: Sending, sight: NodeSight, notification: Notification) -> None:
        try:
            raw = await read_node(self._client, sight.node.name)
        except KubeError as error:
            self._teller.not_sent(sight.node, sending.instance, f"its node cannot be read: {error}")
            return
        self._poster.post(sending.instance, notification, self._message(sending, sight, raw))

    def _message(self, sending: Sending, sight: NodeSight, raw: RawObject) -> Message:
        entry = sight.entries.get(sending.profile)
        moved = {name: it.transition for name, it in sight.entries.items() if it.transition is not None}
        return Message(
            raw=raw,
            state=sending.state,
            profile=sending.profile,
            is_in_maintenance=any(it.current == State.IN_MAINTENANCE for it in sight.entries.values()),
            last_transition=None if entry is None else entry.transition,
            logs_details=sight.node.metadata.labels.get(LOG_DETAILS_LABEL) == "true",
            current=sending.profile,
            last=max(moved, key=lambda name: moved[name], default=sending.profile),
            now=self._client.clock.now(),
            client=self._client,
        )

    def _tell(self, posted: Posted) -> None:
        """Tell of trouble when it begins and when it has ended badly; the attempts in between are for the log."""
        if posted.fate is Fate.SENT:
            log.info("notification %s about node %s is sent", posted.instance, posted.node)
            return
        if posted.fate is Fate.DELAYED and posted.attempts > 1:
            log.debug("notification %s about node %s: %s", posted.instance, posted.node, posted.problem)
            return
        outlook = "it is tried again" if posted.fate is Fate.DELAYED else "it will not be sent"
        node = msgspec.convert(posted.message.raw, Node)
        self._teller.not_sent(node, posted.instance, f"{posted.problem}; {outlook}")


async def read_node(client: Client, name: str) -> RawObject:
    """Return a node with all its fields."""
    attempt = 1
    while True:
        try:
            return await client.get(NODES.of(RawObject), name)
        except NotFound:
            raise
        except KubeError:
            if attempt >= _TRIES:
                raise
            await client.clock.sleep(_PAUSE.delay(attempt, client.random))
            attempt += 1


def _notification(sending: Sending, configuration: Configuration) -> Notification | None:
    profile = configuration.profiles.get(sending.profile)
    members = () if profile is None else profile.states[sending.state].notify
    return next((it.plugin for it in members if it.name == sending.instance), None)
