"""Find the lifecycle hooks of terminations that only the agent of a node has reported.

The metadata service of an instance reports that Auto Scaling terminates it, but no hooks. So Auto Scaling is queried
for the group of the instance and the group's hooks. The result is processed like a message of the queue:
`lifecycle_actions` then sends heartbeats, and completes the hooks when the node is empty. If the queue reports the same
hook, it is matched with the same notice.

Without permission to query, nothing is completed, and Auto Scaling continues when the hook times out.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, MaintenanceNotice
from haulout.core.backoff import Backoff
from haulout.errors import CloudError, KubeError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.providers.aws.api import AutoScaling, explain_error
from haulout.providers.aws.correlation import has_event_type, is_finished
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
from haulout.providers.aws.node_index import NodeIndex
from haulout.providers.aws.notice_writer import AwsNoticeWriter
from haulout.providers.retry import Retrier

log = logging.getLogger(__name__)

_BACKOFF = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=1), jitter=0.3)


class TerminationHooks:
    """Reconciles the notices that agents write. Call `run` at most once."""

    def __init__(self, auto_scaling: AutoScaling, *, client: Client, retrier: Retrier, node_index: NodeIndex) -> None:
        self.problem = ""
        self._auto_scaling = auto_scaling
        self._client = client
        self._retrier = retrier
        self._node_index = node_index
        self._notices: Informer[MaintenanceNotice] = Informer(
            client, ListWatch(MAINTENANCE_NOTICES), transform=as_is, keep=_needs_hooks
        )
        self._without_hooks: set[str] = set()  # uids of notices for which Auto Scaling has no hook
        self._wake = asyncio.Event()

    async def run(self, writer: AwsNoticeWriter) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._notices.run())
            await self._notices.wait_synced()
            self._notices.subscribe(self._on_notice)
            self._wake.set()
            failures = 0
            while True:
                await self._wake.wait()
                self._wake.clear()
                failures = 0 if await self._reconcile(writer) else failures + 1
                if failures:
                    await self._client.clock.sleep(_BACKOFF.delay(failures, self._client.random))
                    self._wake.set()

    def _on_notice(self, _: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        if new is not None:
            self._wake.set()

    async def _reconcile(self, writer: AwsNoticeWriter) -> bool:
        """Reconcile all notices without hooks; return whether all succeeded."""
        waiting = tuple(self._notices.all())
        self._without_hooks &= {waiting_notice.uid for waiting_notice in waiting}
        problem = ""
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
                problem = f"aws: the lifecycle hooks of {instance} cannot be completed, retrying: {reason}"
                log.warning("%s", problem)
        self.problem = problem
        return not problem

    async def _hook_events(self, instance: str, notice: MaintenanceNotice) -> Sequence[InstanceEvent]:
        doing = f"asking Auto Scaling for the lifecycle hooks of {instance}"
        group, hooks = await self._retrier.call(lambda: self._auto_scaling.termination_hooks(instance), doing=doing)
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
