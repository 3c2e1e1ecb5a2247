"""Keep instances that Auto Scaling terminates until their nodes are empty, then complete the lifecycle action.

A node is empty if it has the condition `Drained`, or if it is cordoned and no pods remain that a drain would evict,
whoever drained it. The annotations of the notice have everything that is needed: group, hook and token. So a new leader
can continue. The stage `Started` means that the action was completed. After a crash between the call and the write the
action is completed again, and Auto Scaling answers that it does not exist any more.

`TerminationHooks` finds the lifecycle hooks of terminations that only the agent of a node has reported. The metadata
service of an instance reports that Auto Scaling terminates it, but no hooks. So Auto Scaling is queried for the group
of the instance and the group's hooks. The result is processed like a message of the queue: `LifecycleActions` then
sends heartbeats, and completes the hooks when the node is empty. If the queue reports the same hook, it is matched with
the same notice. Without permission to query, nothing is completed, and Auto Scaling continues when the hook times out.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceKind,
    MaintenanceNotice,
    NoticeStage,
    is_finished,
)
from haulout.api.notice_reports import NoticeReport
from haulout.api.objects import Node
from haulout.controllers.notices.remaining_pods import drained_at
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.core.timeouts import await_with_timeout
from haulout.errors import CloudError, KubeError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.providers.aws.api import AutoScaling, explain_error
from haulout.providers.aws.correlation import has_event_type
from haulout.providers.aws.instance_events import (
    HOOK_TOKEN_PREFIX,
    LIFECYCLE_GROUP,
    LIFECYCLE_HOOK,
    SOURCE,
    EventType,
    InstanceEvent,
    new_plan,
    parse_instance_id,
)
from haulout.providers.aws.node_index import NetworkIdentities, NodeIndex, is_empty
from haulout.providers.aws.notice_writer import AwsNoticeWriter
from haulout.providers.cloud_calls import CloudCaller
from haulout.providers.poller import Poller
from haulout.providers.problems import Problems

log = logging.getLogger(__name__)

_RETRY_AFTER = timedelta(seconds=5)
_DRAIN_CHECK_INTERVAL = timedelta(seconds=5)
_DEFAULT_HEARTBEAT_TIMEOUT = timedelta(minutes=2)
# Auto Scaling has no other code for an action that was completed or has timed out.
_UNKNOWN_ACTION = "ValidationError"

_BACKOFF = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=1), jitter=0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleTimings:
    """The heartbeat interval, its limit, and the delay between the end of the drain and the completion."""

    heartbeat: timedelta | None = None  # None: derived from the hook's heartbeat timeout
    heartbeat_until: timedelta = timedelta(hours=48)
    complete_after: timedelta = timedelta()


class LifecycleActions:
    """Reconciles the lifecycle actions of all open notices."""

    def __init__(
        self,
        auto_scaling: AutoScaling,
        *,
        client: Client,
        caller: CloudCaller,
        node_index: NodeIndex,
        identities: NetworkIdentities,
        timings: LifecycleTimings,
        problems: Problems,
    ) -> None:
        self._problems = problems
        self._auto_scaling = auto_scaling
        self._client = client
        self._clock = client.clock
        self._caller = caller
        self._node_index = node_index
        self._identities = identities
        self._timings = timings
        self._wake = asyncio.Event()
        self._instances: set[str] = set()  # instances with a waiting action
        self._heartbeat_at: dict[str, datetime] = {}  # by name of the notice: when to send the next heartbeat
        self._empty_since: dict[str, datetime] = {}  # by uid of the node
        self._heartbeat_timeouts: dict[tuple[str, str], timedelta] = {}

    def wake(self) -> None:
        """Reconcile soon, for example because of a new notice."""
        self._wake.set()

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Reconcile if the event may be about a node of a waiting instance."""
        if any(node is not None and self._may_be_waited_for(node) for node in (old, new)):
            self._wake.set()

    def _may_be_waited_for(self, node: Node) -> bool:
        return bool(self._instances) and (
            not node.spec.provider_id or parse_instance_id(node.spec.provider_id) in self._instances
        )

    async def run(self, writer: AwsNoticeWriter) -> None:
        while True:
            self._wake.clear()
            requeue_at = await self._reconcile_all(writer)
            alarm = requeue_at and self._clock.call_at(requeue_at, self._wake.set, on_set_back=self._wake.set)
            await self._wake.wait()
            if alarm:
                alarm.cancel()

    async def complete(self, instance: str, *, group: str, hook: str, token: str) -> None:
        """Complete a lifecycle action; succeed if it does not exist any more."""
        try:
            await self._caller.call(
                lambda: self._auto_scaling.complete(instance, group=group, hook=hook, token=token),
                doing=f"completing the lifecycle action for {instance}",
            )
        except CloudError as error:
            if error.code != _UNKNOWN_ACTION:
                raise
            log.info("aws: the lifecycle action for %s has already ended: %s", instance, error)

    async def _reconcile_all(self, writer: AwsNoticeWriter) -> datetime | None:
        """Reconcile all waiting actions; return when to do so again, None: after the next event."""
        waiting = [(instance, item) for instance, item in writer.open_notices() if _is_waiting(item)]
        self._instances = {instance for instance, _ in waiting}
        self._heartbeat_at = {
            item.name: self._heartbeat_at[item.name] for _, item in waiting if item.name in self._heartbeat_at
        }
        requeue_times: list[datetime | None] = []
        problems = []
        for instance, notice in waiting:
            try:
                requeue_times.append(await self._reconcile(writer, instance, notice))
            except (CloudError, KubeError) as error:
                reason = explain_error(error) if isinstance(error, CloudError) else str(error)
                group = notice.metadata.annotations[LIFECYCLE_GROUP]
                problems.append(f"Auto Scaling group {group} does not answer, retrying: {reason}")
                requeue_times.append(self._clock.now() + _RETRY_AFTER)
        self._problems.set("lifecycle actions", *problems)
        return min((item for item in requeue_times if item is not None), default=None)

    async def _reconcile(self, writer: AwsNoticeWriter, instance: str, notice: MaintenanceNotice) -> datetime | None:
        """Reconcile one action; return when to do so again, None if it is completed."""
        now = self._clock.now()
        await self._identities.resolve(instance, notice)  # first: without a node an instance is completed at once
        nodes = tuple(self._node_index.nodes(instance))
        complete_at = await self._complete_at(nodes, now)
        if complete_at is not None and complete_at <= now:
            await self.complete(instance, **_action(notice))
        elif await self._is_still_waiting(instance, notice):
            is_draining = any(item.spec.unschedulable for item in nodes)
            requeue_times = (
                self._heartbeat_at[notice.name],
                complete_at,
                now + _DRAIN_CHECK_INTERVAL if is_draining else None,
            )
            return min(item for item in requeue_times if item is not None)
        await writer.write_report(_started_report(instance, notice, at=self._clock.now()))
        return None

    async def _complete_at(self, nodes: Collection[Node], now: datetime) -> datetime | None:
        """Return when the action may be completed; None: not yet.

        That is when all nodes of the instance are empty, or at once if there is none.
        """
        emptied_times = [await self._emptied_at(item, now) for item in nodes]
        known = [item for item in emptied_times if item is not None]
        if len(known) < len(emptied_times):
            return None
        return max((item + self._timings.complete_after for item in known), default=now)

    async def _emptied_at(self, node: Node, now: datetime) -> datetime | None:
        drained_since = drained_at(node)
        if drained_since is not None:
            return drained_since
        if await is_empty(self._client, node):
            return self._empty_since.setdefault(node.uid, now)
        self._empty_since.pop(node.uid, None)
        return None

    async def _is_still_waiting(self, instance: str, notice: MaintenanceNotice) -> bool:
        """Send a heartbeat if it is due; return whether the action still exists."""
        now = self._clock.now()
        if now < self._heartbeat_at.get(notice.name, now):
            return True
        action = _action(notice)
        self._heartbeat_at[notice.name] = now + await self._heartbeat_interval(action["group"], action["hook"])
        received = notice.metadata.creation_timestamp or now  # a message may have been queued for hours
        if now >= received + self._timings.heartbeat_until:
            return True
        doing = f"sending a lifecycle heartbeat for {instance}"
        try:
            await await_with_timeout(self._auto_scaling.heartbeat(instance, **action), doing=doing)
        except CloudError as error:
            if error.code == _UNKNOWN_ACTION:
                log.warning("aws: %s: the lifecycle action has ended: %s", doing, error)
                return False
            del self._heartbeat_at[notice.name]
            raise
        return True

    async def _heartbeat_interval(self, group: str, hook: str) -> timedelta:
        if self._timings.heartbeat is not None:
            return self._timings.heartbeat
        if (group, hook) not in self._heartbeat_timeouts:
            doing = f"asking for the heartbeat timeout of Auto Scaling group {group}"
            try:
                timeout = await await_with_timeout(
                    self._auto_scaling.heartbeat_timeout(group=group, hook=hook), doing=doing
                )
            except CloudError as error:
                log.info("aws: %s: %s", doing, error)
                # Not cached, so that the permission can be granted later.
                return _DEFAULT_HEARTBEAT_TIMEOUT / 2
            self._heartbeat_timeouts[group, hook] = timeout or _DEFAULT_HEARTBEAT_TIMEOUT
        return self._heartbeat_timeouts[group, hook] / 2


def _action(notice: MaintenanceNotice) -> dict[str, str]:
    annotations = notice.metadata.annotations
    token = annotations[EventType.LIFECYCLE]
    return {
        "group": annotations[LIFECYCLE_GROUP],
        "hook": annotations[LIFECYCLE_HOOK],
        "token": "" if token.startswith(HOOK_TOKEN_PREFIX) else token,
    }


def _started_report(instance: str, notice: MaintenanceNotice, *, at: datetime) -> NoticeReport:
    return NoticeReport(
        source=SOURCE, notice_id=notice.spec.notice_id, at=at, provider_id=instance, stage=NoticeStage.STARTED
    )


def _is_waiting(notice: MaintenanceNotice) -> bool:
    annotations = notice.metadata.annotations
    return notice.spec.stage == NoticeStage.SCHEDULED and all(
        key in annotations for key in (EventType.LIFECYCLE, LIFECYCLE_GROUP, LIFECYCLE_HOOK)
    )


class TerminationHooks:
    """Reconciles the notices that agents write. Call `run` at most once."""

    def __init__(
        self,
        auto_scaling: AutoScaling,
        *,
        client: Client,
        caller: CloudCaller,
        node_index: NodeIndex,
        problems: Problems,
    ) -> None:
        self._auto_scaling = auto_scaling
        self._client = client
        self._caller = caller
        self._node_index = node_index
        self._notices: Informer[MaintenanceNotice] = Informer(
            client, ListWatch(MAINTENANCE_NOTICES), transform=as_is, keep=_needs_hooks
        )
        self._without_hooks: set[str] = set()  # uids of notices for which Auto Scaling has no hook
        self._poller = Poller(
            Retry(client.clock, client.random, _BACKOFF),
            problems,
            topic="termination hooks",
            failure="Auto Scaling does not answer",
            interval=lambda: None,
        )

    async def run(self, writer: AwsNoticeWriter) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._notices.run())
            await self._notices.wait_synced()
            self._notices.subscribe(self._on_notice)
            await self._poller.run(lambda: self._reconcile(writer))

    def _on_notice(self, _: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        if new is not None:
            self._poller.wake()

    async def _reconcile(self, writer: AwsNoticeWriter) -> Sequence[str]:
        """Reconcile all notices without hooks; return the problems."""
        waiting = tuple(self._notices.all())
        self._without_hooks &= {waiting_notice.uid for waiting_notice in waiting}
        problems = []
        for notice in waiting:
            instance = parse_instance_id(notice.spec.provider_id)
            # Agents are not trusted beyond their node: the notice must be about the instance of its own node.
            if (
                instance is None
                or notice.uid in self._without_hooks
                or self._node_index.node_of(instance) != notice.node
            ):
                continue
            try:
                writer.remember(notice)
                await writer.write(await self._hook_events(instance, notice))
            except (CloudError, KubeError) as error:
                reason = explain_error(error) if isinstance(error, CloudError) else str(error)
                problems.append(f"the lifecycle hooks of {instance} cannot be completed, retrying: {reason}")
        return problems

    async def _hook_events(self, instance: str, notice: MaintenanceNotice) -> Sequence[InstanceEvent]:
        doing = f"asking Auto Scaling for the lifecycle hooks of {instance}"
        group, hooks = await self._caller.call(lambda: self._auto_scaling.termination_hooks(instance), doing=doing)
        if not hooks:
            self._without_hooks.add(notice.uid)
            log.info("aws: %s has no termination lifecycle hook", instance)
        plan = new_plan(
            MaintenanceKind.TERMINATE,
            reason="autoscaling",
            description=f"Auto Scaling group {group} terminates the instance",
        )
        return [
            InstanceEvent(
                event_type=EventType.LIFECYCLE,
                event_id=f"{HOOK_TOKEN_PREFIX}{group}/{hook}",
                instance=instance,
                at=self._client.clock.now(),
                plan=plan,
                annotations={LIFECYCLE_GROUP: group, LIFECYCLE_HOOK: hook},
            )
            for hook in hooks
        ]


def _needs_hooks(notice: MaintenanceNotice) -> bool:
    is_from_agent = notice.spec.source == SOURCE and has_event_type(notice, EventType.TARGET_LIFECYCLE_STATE)
    return is_from_agent and not has_event_type(notice, EventType.LIFECYCLE) and not is_finished(notice)
