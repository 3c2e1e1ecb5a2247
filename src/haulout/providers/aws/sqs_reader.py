"""Read the queue: messages become notices, and only then are they deleted.

A message stays hidden from other consumers while it is processed, however long that takes. After a failure it stays in
the queue and is received again; receiving a message twice is harmless for any reason.

AWS Health and EC2 use different IDs for the same maintenance. So EC2 is queried for the instances in a Health event
before that is written: EC2's notice exists then, and the Health event is matched with it.

A message that cannot be parsed stays in the queue, so that its dead-letter policy applies. It is hidden for longer, so
that valid messages are received however many invalid ones there are.

A launch is not maintenance. Its action is completed when the instance's node is ready; until then the message stays in
the queue as the only record of it.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta

from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.core.timeouts import await_with_timeout
from haulout.errors import CloudError, KubeError, LeadershipLost
from haulout.kube.client import Client
from haulout.providers.aws.api import MAX_MESSAGES, Document, Sqs, explain_error, is_retryable
from haulout.providers.aws.instance_events import EventType, InstanceEvent, UnreadableEvent
from haulout.providers.aws.instance_status_poller import InstanceStatusPoller
from haulout.providers.aws.lifecycle_actions import LifecycleActions
from haulout.providers.aws.node_index import InstanceTags, NetworkIdentities, NodeIndex
from haulout.providers.aws.notice_writer import AwsNoticeWriter
from haulout.providers.aws.sqs_messages import Launch, parse_message
from haulout.providers.cloud_calls import LastAnswer
from haulout.providers.problems import Problems
from haulout.providers.quarantine import Quarantine

log = logging.getLogger(__name__)

_TOPIC = "queue"
# The maximum of SQS for long polling.
_WAIT = timedelta(seconds=20)
_EC2_TIMEOUT = timedelta(seconds=5)
_LAUNCH_RETRY_AFTER = timedelta(seconds=20)
_UNREADABLE_RETRY_AFTER = timedelta(minutes=1)
_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(minutes=1), jitter=0.5)


class SqsReader:
    """Reads one queue. A message is deleted only when its notices exist, so a crash loses none."""

    def __init__(  # noqa: PLR0913 - dependencies, each passed by keyword
        self,
        sqs: Sqs,
        *,
        client: Client,
        node_index: NodeIndex,
        status_poller: InstanceStatusPoller,
        lifecycle_actions: LifecycleActions,
        tags: InstanceTags,
        identities: NetworkIdentities,
        quarantine: Quarantine,
        problems: Problems,
        last_answer: LastAnswer,
        visibility_timeout: timedelta,
    ) -> None:
        self.messages_processed = 0  # messages whose notices exist
        self.ignored = 0  # irrelevant messages
        self._sqs = sqs
        self._problems = problems
        self._last_answer = last_answer
        self._clock = client.clock
        self._random = client.random
        self._node_index = node_index
        self._status_poller = status_poller
        self._lifecycle_actions = lifecycle_actions
        self._tags = tags
        self._identities = identities
        self._quarantine = quarantine
        self._visibility_timeout = visibility_timeout
        self._failed_message_returns_by = (
            0.0  # monotonic time by which a failed message is received again; if it is not, its deletion succeeded
        )

    async def run(self, writer: AwsNoticeWriter) -> None:
        retry = Retry(self._clock, self._random, _BACKOFF)
        while True:
            try:
                messages = await self._receive()
            except CloudError as error:
                self._report_problem(f"the SQS queue cannot be read, retrying: {explain_error(error)}")
                await retry.wait(error)
                continue
            self._last_answer.record()
            was_deleted = not messages and self._clock.monotonic() > self._failed_message_returns_by
            if retry.failures or was_deleted:
                self._problems.set(_TOPIC)
            retry.reset()
            await self._process_batch(writer, messages)

    async def _receive(self) -> Sequence[Document]:
        # Long polling: SQS answers as soon as there is a message, and charges per request.
        waiting = self._sqs.receive(max_messages=MAX_MESSAGES, wait=_WAIT, visibility_timeout=self._visibility_timeout)
        return await await_with_timeout(waiting, doing="reading the queue", within=3 * _WAIT)

    async def _process_batch(self, writer: AwsNoticeWriter, messages: Sequence[Document]) -> None:
        """Process messages, and keep those hidden that are not finished."""
        held = {_receipt(held_message) for held_message in messages}
        async with asyncio.TaskGroup() as heartbeat_group:
            heartbeat = heartbeat_group.create_task(self._extend_visibility(held))
            try:
                async with asyncio.TaskGroup() as group:
                    for message in messages:
                        group.create_task(self._process(writer, message, held))
            finally:
                heartbeat.cancel()

    async def _extend_visibility(self, held: Collection[str]) -> None:
        while True:
            await self._clock.sleep(self._visibility_timeout / 2)
            for receipt in tuple(held):
                try:
                    await await_with_timeout(
                        self._sqs.change_visibility(receipt, visibility_timeout=self._visibility_timeout),
                        doing="extending the visibility timeout of a message",
                    )
                except CloudError as error:
                    log.info("aws: a message may be delivered twice: %s", error)

    async def _process(self, writer: AwsNoticeWriter, message: Document, held: set[str]) -> None:
        """Process one message; no failure of it may affect the others."""
        receipt, message_id = _receipt(message), str(message.get("MessageId", ""))
        try:
            is_done = await self._write(writer, str(message.get("Body", "")), message_id)
            held.discard(receipt)
            if is_done is None:
                await self._postpone_unreadable(receipt)
            elif is_done:
                await await_with_timeout(self._sqs.delete(receipt), doing="deleting a message")
                self._problems.set(_TOPIC)
            else:
                await await_with_timeout(
                    self._sqs.change_visibility(receipt, visibility_timeout=_LAUNCH_RETRY_AFTER),
                    doing="postponing a message",
                )
        except CloudError as error:
            self._report_problem(f"message {message_id} will be delivered again: {explain_error(error)}")
        except KubeError as error:
            self._report_problem(
                f"message {message_id} will be delivered again, because its MaintenanceNotice "
                f"cannot be written: {error}"
            )
        except LeadershipLost:
            raise  # another process reads the queue now
        except Exception as error:  # the boundary of a task: a message that causes a bug must not stop the others
            log.exception("aws: message %s", message_id)
            self._quarantine.add(where=f"message {message_id}", why=f"{type(error).__name__}: {error}", what=message)
        finally:
            held.discard(receipt)

    # The content of a message

    async def _postpone_unreadable(self, receipt: str) -> None:
        """Leave a message that cannot be parsed in the queue, hidden for longer."""
        try:
            await await_with_timeout(
                self._sqs.change_visibility(receipt, visibility_timeout=_UNREADABLE_RETRY_AFTER),
                doing="postponing a message that cannot be read",
            )
        except CloudError as error:
            log.debug("aws: a message that cannot be read will be delivered again sooner: %s", error)

    async def _write(self, writer: AwsNoticeWriter, body: str, message_id: str) -> bool | None:
        """Write the notices of a message; return whether it may be deleted, None if it cannot be parsed."""
        try:
            parsed = parse_message(body, now=self._clock.now(), message_id=message_id)
        except UnreadableEvent as problem:
            self._quarantine.add(where=f"message {message_id}", why=str(problem), what=body)
            return None
        if parsed.launch is not None:
            return await self._complete_launch(parsed.launch)
        events = await self._managed_events(parsed.events)
        if not events:
            self.ignored += 1
            log.debug(
                "aws: message %s is ignored: %s",
                message_id,
                parsed.ignored_reason or "none of its instances is managed",
            )
            return True
        await self._poll_ec2_first(writer, events)
        await writer.write(events)
        self.messages_processed += 1
        return True

    async def _managed_events(self, events: Sequence[InstanceEvent]) -> list[InstanceEvent]:
        """Return the events about managed instances; state changes only for instances that are nodes."""
        managed = await self._tags.filter_managed({event.instance for event in events})
        own_events = [await self._with_identity(event) for event in events if event.instance in managed]
        return [
            event
            for event in own_events
            if event.event_type is not EventType.STATE_CHANGE or self._node_index.nodes(event.instance)
        ]

    async def _with_identity(self, event: InstanceEvent) -> InstanceEvent:
        """Return the event with the instance's network identity, if a node may be found only by that."""
        try:
            identity = await self._identities.resolve(event.instance)
        except CloudError as error:
            if is_retryable(error):
                raise
            log.warning("aws: nodes without a providerID cannot be found: %s", explain_error(error))
            return event
        return replace(event, machine_name=identity.name, machine_address=identity.address)

    async def _poll_ec2_first(self, writer: AwsNoticeWriter, events: Sequence[InstanceEvent]) -> None:
        instances = [event.instance for event in events if event.event_type is EventType.HEALTH]
        if not instances:
            return
        try:
            async with asyncio.timeout(_EC2_TIMEOUT.total_seconds()):
                await self._status_poller.write_events(writer, instances)
        except TimeoutError:
            log.info("aws: EC2 is slow to answer; its data is added to the notice later")

    async def _complete_launch(self, launch: Launch) -> bool:
        await self._identities.resolve(launch.instance)
        nodes = self._node_index.nodes(launch.instance)
        if not any(node.is_ready for node in nodes):
            return False
        await self._lifecycle_actions.complete(
            launch.instance, group=launch.group, hook=launch.hook, token=launch.token
        )
        self.messages_processed += 1
        return True

    def _report_problem(self, problem: str) -> None:
        self._failed_message_returns_by = self._clock.monotonic() + 3 * self._visibility_timeout.total_seconds()
        self._problems.set(_TOPIC, problem)


def _receipt(message: Document) -> str:
    return str(message.get("ReceiptHandle", ""))
