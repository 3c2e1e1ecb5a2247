"""Watch the MachineDrainRules of a management cluster, and provide the annotation of each Machine's node.

    drain_rules = MachineDrainRuleInformer(client, events=events, on_change=controller.enqueue_all)
    ClusterApiController(…, drain_rules=drain_rules.annotation_for)
    await drain_rules.run((await controller.wait_for_machines()).resource.version)

If the cluster does not serve MachineDrainRules, since its Cluster API is too old, no rules apply. While the rules are
unknown (not listed yet, forbidden, or one of them cannot be decoded), nodes keep their annotation.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from haulout.api import clusterapi
from haulout.api.clusterapi import Cluster, Machine, MachineDrainRule
from haulout.api.resources import Resource
from haulout.controllers.clusterapi.drainrules.annotation import build_annotation
from haulout.core.backoff import Backoff
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.informer import Informer, as_is
from haulout.kube.recorder import EventRecorder, object_reference
from haulout.kube.reflector import ListWatch

log = logging.getLogger(__name__)

_BY_NAMESPACE = "namespace"
_DISCOVERY_BACKOFF = Backoff(
    first=timedelta(seconds=30), limit=timedelta(minutes=5), jitter=0.2
)  # while MachineDrainRules are not served
_DEBOUNCE = timedelta(seconds=1)  # applying a folder of rules changes many at once


class MachineDrainRuleInformer:
    """Watches the rules; `on_change` is called when they may have changed. Call `run` at most once."""

    def __init__(self, client: Client, *, events: EventRecorder, on_change: Callable[[], object]) -> None:
        self._client = client
        self._clock = client.clock
        self._events = events
        self._on_change = on_change
        self._rules: Informer[MachineDrainRule] | None = None  # None until the informer has synced
        self._is_unsupported = False  # the cluster does not serve the resource
        self._has_changed = asyncio.Event()
        self._reported: dict[str, str] = {}  # by Machine: the problem that was reported last

    async def run(self, version: str) -> None:
        """Watch the rules until cancelled, in the API version of the Machines."""
        resource = clusterapi.machine_drain_rule_resource(version)
        await self._wait_until_served(resource)
        rules: Informer[MachineDrainRule] = Informer(
            self._client, ListWatch(resource), transform=as_is, indexes={_BY_NAMESPACE: lambda rule: [rule.namespace]}
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(rules.run())
            await rules.wait_synced()
            self._rules, self._is_unsupported = rules, False
            rules.subscribe(lambda *_: self._has_changed.set())
            self._has_changed.set()
            while True:
                await self._has_changed.wait()
                self._has_changed.clear()
                self._on_change()
                await self._clock.sleep(_DEBOUNCE)

    def annotation_for(self, machine: Machine, cluster: Cluster | None) -> str | None:
        """Return the annotation of a Machine's node. "": remove it. None: keep what is there."""
        if self._is_unsupported:
            return ""
        if self._rules is None or any(key.startswith(f"{machine.namespace}/") for key in self._rules.undecodable):
            return None
        rules = self._rules.by_index(_BY_NAMESPACE, machine.namespace)
        labels = None if cluster is None else cluster.metadata.labels
        selected = build_annotation(rules, cluster=labels, machine=machine.metadata.labels)
        self._report_problem(machine, selected.problem, self._rules.resource.version)
        return selected.text or ""

    async def _wait_until_served(self, resource: Resource[MachineDrainRule]) -> None:
        failures = 0
        while True:
            try:
                if await serves(self._client, resource):
                    return
                if not self._is_unsupported:
                    self._is_unsupported = True
                    self._on_change()
            except KubeError as error:
                log.warning("cannot check whether MachineDrainRules are served: %s; retrying", error)
            failures += 1
            await self._clock.sleep(_DISCOVERY_BACKOFF.delay(failures, self._client.random))

    def _report_problem(self, machine: Machine, problem: str, version: str) -> None:
        """Record one event that says why pods of a Machine will wait."""
        if not problem:
            self._reported.pop(machine.key, None)
        elif self._reported.get(machine.key) != problem:
            self._reported[machine.key] = problem
            note = f"a drain of its node cannot evict all pods: {problem}"
            regarding = object_reference(clusterapi.machine_resource(version), machine)
            self._events.event(regarding, reason="DrainRuleUnreadable", note=note, action="Drain", type="Warning")
