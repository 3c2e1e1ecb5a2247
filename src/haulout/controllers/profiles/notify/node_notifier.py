"""Sends the notifications that a decision requests, with the current node as data of their templates.

Templates may use every field of a node, but the cache keeps only some. So the node is read once for each message.
"""

import asyncio
import logging
from datetime import timedelta

import msgspec

from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.notify.delivery import Delivery, DeliveryQueue, DeliveryState
from haulout.controllers.profiles.observation import NotificationRequest
from haulout.controllers.profiles.plugin import (
    LOG_DETAILS_LABEL,
    ExternalClient,
    Message,
    Notification,
    ObservedNode,
    State,
)
from haulout.core.backoff import RECONNECT
from haulout.core.retry import Retry
from haulout.errors import KubeError, NotFound
from haulout.kube.client import Client

log = logging.getLogger(__name__)

_ATTEMPTS = 5


class NodeNotifier:
    """Sends notifications about nodes while `run` runs, and records those that cannot be sent as events."""

    def __init__(self, client: Client, external: ExternalClient, *, events: ProfileEvents) -> None:
        self._client = client
        self._events = events
        self._delivery = DeliveryQueue(external, clock=client.clock, random=client.random, on_update=self._report)
        self._group: asyncio.TaskGroup | None = None
        self._reading_nodes: set[asyncio.Task[None]] = set()  # reads of nodes for messages

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._delivery.run()
            finally:
                self._group = None

    def send(self, request: NotificationRequest, observed: ObservedNode, configuration: Configuration) -> None:
        """Queue a notification about a node; return at once."""
        notification = _notification(request, configuration)
        if notification is None:
            problem = "it was removed from the configuration meanwhile"
            self._events.record_unsent_notification(observed.node, request.instance, problem)
        elif self._group is None:
            self._events.record_unsent_notification(
                observed.node, request.instance, "the operator shut down before it was sent"
            )
        else:
            task = self._group.create_task(self._send(request, observed, notification))
            self._reading_nodes.add(task)
            task.add_done_callback(self._reading_nodes.discard)

    async def flush(self, timeout: timedelta) -> None:
        """Return when all notifications are sent, or after `timeout`: for a graceful shutdown."""
        started_at = self._client.clock.monotonic()
        if self._reading_nodes:
            await asyncio.wait(self._reading_nodes, timeout=timeout.total_seconds())
        remaining = timeout - timedelta(seconds=self._client.clock.monotonic() - started_at)
        await self._delivery.flush(max(remaining, timedelta()))

    async def _send(self, request: NotificationRequest, observed: ObservedNode, notification: Notification) -> None:
        try:
            raw = await read_node(self._client, observed.node.name)
        except KubeError as error:
            self._events.record_unsent_notification(
                observed.node, request.instance, f"its node cannot be read: {error}"
            )
            return
        self._delivery.enqueue(request.instance, notification, self._message(request, observed, raw))

    def _message(self, request: NotificationRequest, observed: ObservedNode, raw: RawObject) -> Message:
        status = observed.statuses.get(request.profile)
        transitions = {
            name: status_of_profile.transition
            for name, status_of_profile in observed.statuses.items()
            if status_of_profile.transition is not None
        }
        return Message(
            raw_node=raw,
            state=request.state,
            profile=request.profile,
            is_in_maintenance=any(
                status_of_profile.current == State.IN_MAINTENANCE for status_of_profile in observed.statuses.values()
            ),
            last_transition=None if status is None else status.transition,
            logs_details=observed.node.metadata.labels.get(LOG_DETAILS_LABEL) == "true",
            current_profile=request.profile,
            last_profile=max(transitions, key=lambda name: transitions[name], default=request.profile),
            now=self._client.clock.now(),
            client=self._client,
        )

    def _report(self, delivery: Delivery) -> None:
        """Record the first failure and the final one as events; log the attempts in between."""
        if delivery.state is DeliveryState.SENT:
            log.info("notification %s about node %s is sent", delivery.instance, delivery.node)
            return
        # A receiver that is down for half an hour would otherwise cause an event for every attempt.
        if delivery.state is DeliveryState.DELAYED and delivery.attempts > 1:
            log.debug("notification %s about node %s: %s", delivery.instance, delivery.node, delivery.problem)
            return
        outlook = "it will be retried" if delivery.state is DeliveryState.DELAYED else "it will not be sent"
        node = msgspec.convert(delivery.message.raw_node, Node)
        self._events.record_unsent_notification(node, delivery.instance, f"{delivery.problem}; {outlook}")


async def read_node(client: Client, name: str) -> RawObject:
    """Return a node with all its fields. Retry errors other than `NotFound` a few times."""
    retry = Retry(client.clock, client.random, RECONNECT, max_attempts=_ATTEMPTS)
    while True:
        try:
            return await client.get(NODES.with_model(RawObject), name)
        except NotFound:
            raise
        except KubeError as error:
            await retry.wait(error)


def _notification(request: NotificationRequest, configuration: Configuration) -> Notification | None:
    profile = configuration.profiles.get(request.profile)
    members = () if profile is None else profile.states[request.state].notify
    return next((member.plugin for member in members if member.name == request.instance), None)
