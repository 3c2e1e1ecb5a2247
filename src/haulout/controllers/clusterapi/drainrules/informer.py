"""The MachineDrainRules of a management cluster, followed, and what a Machine's node is to say of them.

    book = RuleBook(client, events=events, changed=hub.look_at_all)
    Hub(…, drain_rules=book.annotation)
    await book.run((await hub.wait_found()).resource.version)

Where nobody knows MachineDrainRules, for Cluster API is too old, none hold. While they are not known, for nobody has
told yet, we may not see them or one of them cannot be read at all, nodes keep what they have.
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
)  # whether there are any by now
_DEBOUNCE = timedelta(seconds=1)  # who applies a folder of rules changes many at once


class MachineDrainRuleInformer:
    """Knows the rules; `on_change` is called when they may be others than before. `run` may be called once."""

    def __init__(self, client: Client, *, events: EventRecorder, on_change: Callable[[], object]) -> None:
        self._client = client
        self._clock = client.clock
        self._events = events
        self._on_change = on_change
        self._rules: Informer[MachineDrainRule] | None = None  # once they are known
        self._is_unsupported = False  # the cluster does not know such objects
        self._has_changed = asyncio.Event()
        self._reported: dict[str, str] = {}  # by Machine: what was told of rules that cannot be read

    async def run(self, version: str) -> None:
        """Follow the rules, in the version in which Machines are followed, until cancelled."""
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
        """Return what the node of a Machine is to say; empty: nothing, None: what it says now."""
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
                log.warning("whether there are MachineDrainRules cannot be told: %s; asking again", error)
            failures += 1
            await self._clock.sleep(_DISCOVERY_BACKOFF.delay(failures, self._client.random))

    def _report_problem(self, machine: Machine, problem: str, version: str) -> None:
        """Tell once why pods of a Machine will wait."""
        if not problem:
            self._reported.pop(machine.key, None)
        elif self._reported.get(machine.key) != problem:
            self._reported[machine.key] = problem
            note = f"pods on its node wait when it is drained: {problem}"
            regarding = object_reference(clusterapi.machine_resource(version), machine)
            self._events.event(regarding, reason="DrainRuleUnreadable", note=note, action="Drain", type="Warning")
