"""Finds the lifecycle hooks of terminations that only the agent of a node has told of.

The metadata service of an instance says that Auto Scaling terminates it, and nothing about hooks. So Auto Scaling is
asked for the group of the instance and for the hooks of that group. What is found is taken like a message of the queue:
`lifecycles` then asks Auto Scaling to wait, and completes the hooks when the node is empty. If the queue tells of the
same hook, it meets the same notice.

Without the right to ask, nothing is completed, and Auto Scaling goes on when the hook times out.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

from haulout.core.backoff import Backoff
from haulout.errors import CloudError, KubeError
from haulout.kinds.notice import MAINTENANCE_NOTICES, Kind, MaintenanceNotice
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.notices.sources.aws.cloud import AutoScaling, explained
from haulout.notices.sources.aws.desk import Desk
from haulout.notices.sources.aws.fleet import Fleet
from haulout.notices.sources.aws.joining import is_of, is_over
from haulout.notices.sources.aws.readings import BY_HOOK, GROUP, HOOK, SOURCE, Family, Reading, instance_of, plan_of
from haulout.notices.sources.calls import Patient

log = logging.getLogger(__name__)

_PAUSE = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=1), jitter=0.3)


class TerminationHooks:
    """Looks at the notices that agents write; `run` may be called once."""

    def __init__(self, groups: AutoScaling, *, client: Client, patient: Patient, fleet: Fleet) -> None:
        self.trouble = ""
        self._groups = groups
        self._client = client
        self._patient = patient
        self._fleet = fleet
        self._notices: Cache[MaintenanceNotice] = Cache(
            client, Selection(MAINTENANCE_NOTICES), row=as_is, keeps=_lacks_a_hook
        )
        self._without: set[str] = set()  # by uid of the notice: Auto Scaling has no hook for it
        self._wake = asyncio.Event()

    async def run(self, desk: Desk) -> None:
        """Find hooks until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._notices.run())
            await self._notices.wait_synced()
            self._notices.subscribe(self._note)
            self._wake.set()
            failures = 0
            while True:
                await self._wake.wait()
                self._wake.clear()
                failures = 0 if await self._look(desk) else failures + 1
                if failures:
                    await self._client.clock.sleep(_PAUSE.delay(failures, self._client.random))
                    self._wake.set()

    def _note(self, _: MaintenanceNotice | None, new: MaintenanceNotice | None) -> None:
        if new is not None:
            self._wake.set()

    async def _look(self, desk: Desk) -> bool:
        """Return whether all went well."""
        waiting = tuple(self._notices.all())
        self._without &= {it.uid for it in waiting}
        trouble = ""
        for notice in waiting:
            instance = instance_of(notice.spec.provider_id)
            # A notice is believed about the instance of its own node only.
            if instance is None or notice.uid in self._without or self._fleet.node_of(instance) != notice.node:
                continue
            try:
                desk.put(notice)
                await desk.take(await self._found(instance, notice))
            except (CloudError, KubeError) as error:
                said = explained(error) if isinstance(error, CloudError) else str(error)
                trouble = f"aws: nobody completes the lifecycle hooks of {instance}, which is tried again: {said}"
                log.warning("%s", trouble)
        self.trouble = trouble
        return not trouble

    async def _found(self, instance: str, notice: MaintenanceNotice) -> Sequence[Reading]:
        doing = f"asking Auto Scaling for the lifecycle hooks of {instance}"
        group, hooks = await self._patient.ask(lambda: self._groups.termination_hooks(instance), doing=doing)
        if not hooks:
            self._without.add(notice.uid)
            log.info("aws: no lifecycle hook waits for %s", instance)
        plan = plan_of(
            Kind.TERMINATE, reason="autoscaling", description=f"Auto Scaling group {group} terminates the instance"
        )
        return [
            Reading(
                family=Family.LIFECYCLE,
                called=f"{BY_HOOK}{group}/{hook}",
                instance=instance,
                at=self._client.clock.now(),
                plan=plan,
                notes={GROUP: group, HOOK: hook},
            )
            for hook in hooks
        ]


def _lacks_a_hook(notice: MaintenanceNotice) -> bool:
    is_ours = notice.spec.source == SOURCE and is_of(notice, Family.TARGET)
    return is_ours and not is_of(notice, Family.LIFECYCLE) and not is_over(notice)
