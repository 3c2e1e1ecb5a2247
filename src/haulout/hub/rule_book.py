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

from haulout.core.backoff import Backoff
from haulout.errors import KubeError
from haulout.hub.drain_rules import held_for
from haulout.kinds import clusterapi
from haulout.kinds.clusterapi import Cluster, Machine, MachineDrainRule
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.discovery import serves
from haulout.kube.events import EventRecorder, reference
from haulout.kube.follow import Selection
from haulout.kube.resources import Resource

log = logging.getLogger(__name__)

_BY_NAMESPACE = "namespace"
_ASKED = Backoff(first=timedelta(seconds=30), limit=timedelta(minutes=5), jitter=0.2)  # whether there are any by now
_GATHERED_FOR = timedelta(seconds=1)  # who applies a folder of rules changes many at once


class RuleBook:
    """Knows the rules; `changed` is called when they may be others than before. `run` may be called once."""

    def __init__(self, client: Client, *, events: EventRecorder, changed: Callable[[], object]) -> None:
        self._client = client
        self._clock = client.clock
        self._events = events
        self._changed = changed
        self._rules: Cache[MachineDrainRule] | None = None  # once they are known
        self._has_none = False  # the cluster does not know such objects
        self._bell = asyncio.Event()
        self._told: dict[str, str] = {}  # by Machine: what was told of rules that cannot be read

    async def run(self, version: str) -> None:
        """Follow the rules, in the version in which Machines are followed, until cancelled."""
        resource = clusterapi.drain_rules(version)
        await self._installed(resource)
        rules: Cache[MachineDrainRule] = Cache(
            self._client, Selection(resource), row=as_is, indexes={_BY_NAMESPACE: lambda it: [it.namespace]}
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(rules.run())
            await rules.wait_synced()
            self._rules, self._has_none = rules, False
            rules.subscribe(lambda *_: self._bell.set())
            self._bell.set()
            while True:
                await self._bell.wait()
                self._bell.clear()
                self._changed()
                await self._clock.sleep(_GATHERED_FOR)

    def annotation(self, machine: Machine, cluster: Cluster | None) -> str | None:
        """Return what the node of a Machine is to say; empty: nothing, None: what it says now."""
        if self._has_none:
            return ""
        if self._rules is None or any(key.startswith(f"{machine.namespace}/") for key in self._rules.misfits):
            return None
        rules = self._rules.by(_BY_NAMESPACE, machine.namespace)
        labels = None if cluster is None else cluster.metadata.labels
        held = held_for(rules, cluster=labels, machine=machine.metadata.labels)
        self._tell(machine, held.problem, self._rules.resource.version)
        return held.text or ""

    async def _installed(self, resource: Resource[MachineDrainRule]) -> None:
        failures = 0
        while True:
            try:
                if await serves(self._client, resource):
                    return
                if not self._has_none:
                    self._has_none = True
                    self._changed()
            except KubeError as error:
                log.warning("whether there are MachineDrainRules cannot be told: %s; asking again", error)
            failures += 1
            await self._clock.sleep(_ASKED.delay(failures, self._client.random))

    def _tell(self, machine: Machine, problem: str, version: str) -> None:
        """Tell once why pods of a Machine will wait."""
        if not problem:
            self._told.pop(machine.key, None)
        elif self._told.get(machine.key) != problem:
            self._told[machine.key] = problem
            note = f"pods on its node wait when it is drained: {problem}"
            about = reference(clusterapi.machines(version), machine)
            self._events.record(about, reason="DrainRuleUnreadable", note=note, action="Drain", type="Warning")
