"""A running real cluster: a Kubernetes control plane with the sandbox's kubelets.

Watches record a history like that of the sandbox. It contains every write to every object, but not who wrote.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from haulout.api.objects import Bookmark, RawObject, UndecodableObject
from haulout.core.clock import Clock
from haulout.errors import NotFound, TooManyRequests
from haulout.kube.client import Client
from haulout_sandbox.apiserver import Write
from haulout_sandbox.nodes import Kubelets
from support.builders.write_history import kind_of
from support.clusters.live_cluster import RESOURCES, LiveCluster, key
from support.clusters.process import Program

_WATCHED = (
    "namespaces",
    "nodes",
    "pods",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "jobs",
    "poddisruptionbudgets",
    "leases",
    "events",
    "customresourcedefinitions",
)
_VERBS = {"ADDED": "create", "MODIFIED": "update", "DELETED": "delete"}


class RealCluster(LiveCluster):
    """A real cluster."""

    settle_time = timedelta(seconds=15)  # on a machine that has more to do

    def __init__(
        self,
        clock: Clock,
        client: Client,
        kubelets: Kubelets,
        program_host: "ProgramHost",
        *,
        custom: Collection[str] = (),
    ) -> None:
        super().__init__(clock, client, kubelets)
        self._writes: list[Write] = []
        self._watched = (*_WATCHED, *custom)
        self._custom = custom
        self._objects: dict[str, dict[str, RawObject]] = {plural: {} for plural in self._watched}
        self._synced = {plural: asyncio.Event() for plural in self._watched}
        self._program_host = program_host
        self._programs: list[RealProgram] = []

    @property
    def history(self) -> Sequence[Write]:
        """Every write that the watches have shown, in order."""
        self._writes.sort(key=lambda write: write.revision)
        return self._writes

    def by_key(self, plural: str) -> Mapping[str, RawObject]:
        """Return the objects of a kind by their keys."""
        return self._objects[plural]

    def watchers(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """Return the watches that record the history."""
        return [partial(self._watch_forever, plural) for plural in self._watched]

    def run(self, program: Program, *, name: str = "operator") -> "RealProgram":
        """Run a program beside the cluster."""
        running = RealProgram(self._program_host, program, name)
        running.start()
        self._programs.append(running)
        return running

    def stop_programs(self) -> None:
        """End the programs that run beside it."""
        for program in self._programs:
            program.kill()

    async def wait_synced(self) -> None:
        """Return when all watches are synced."""
        for synced in self._synced.values():
            await synced.wait()

    async def clean_up(self, *, has_failed: bool = False) -> None:
        """Leave nothing behind but empty namespaces, whose end takes long and which the next test can use.

        After a failure no operator may be left that removes finalizers, so they are removed here.
        """
        for name in self.kubelets.names:
            self.kubelets.revive(name)  # or its pods would stay for ever
        for resource, obj in reversed(self.created):
            with suppress(NotFound):
                await self.admin.delete(resource, obj["metadata"]["name"], namespace=obj["metadata"].get("namespace"))
        await self.eventually(lambda: sorted(self.by_key("pods")), becomes=[])
        for plural in self._custom:  # those of them that wait for their finalizers, while the operator still runs
            for name, obj in list(self.by_key(plural).items()):  # the operator makes some by itself
                namespace = obj["metadata"].get("namespace")
                with suppress(NotFound):
                    await self.admin.delete(RESOURCES[plural], obj["metadata"]["name"], namespace=namespace)
                    if has_failed:
                        await self.patch(plural, name, metadata={"finalizers": None})
            await self.eventually(partial(self._are_gone, plural))
        for name in self.kubelets.names:
            await self.kubelets.remove(name)

    def _are_gone(self, plural: str) -> bool:
        return not self.by_key(plural)

    async def _watch_forever(self, plural: str) -> None:
        await self._watch(plural)
        while plural in self._custom:  # another definition ends the watches
            with suppress(NotFound, TooManyRequests):
                await self._watch(plural)
            await self.pass_time(seconds=0.2)
        raise AssertionError(f"the watch of {plural} ended, and the history with it")

    async def _watch(self, plural: str) -> None:
        duration = timedelta(hours=1)
        missing = dict(self._objects[plural])  # until a watch shows them again
        async with self.admin.watch(RESOURCES[plural], initial_list=True, watch_timeout=duration) as events:
            async for event in events:
                if isinstance(event, Bookmark):
                    if event.ends_initial_list:
                        for obj in missing.values():
                            self._record(plural, "DELETED", obj)
                        self._synced[plural].set()
                elif not isinstance(event.object, UndecodableObject):
                    if plural == "events" and not self._synced[plural].is_set():
                        continue  # recorded in another test, perhaps for an object of the same name
                    missing.pop(key(event.object), None)
                    self._record(plural, event.type, event.object)

    def _record(self, plural: str, verb: str, obj: RawObject) -> None:
        current, name = self._objects[plural], key(obj)
        if verb == "ADDED" and current.get(name) == obj:
            return
        before = current.pop(name, None)
        if verb != "DELETED":
            current[name] = obj
        self._writes.append(
            Write(
                revision=int(obj["metadata"]["resourceVersion"]),
                written_at=self.clock.now(),
                username="",
                verb=_VERBS[verb],
                kind=kind_of(obj),
                key=name,
                before=before,
                after=current.get(name),
            )
        )


@dataclass(frozen=True, slots=True)
class ProgramHost:
    """Runs programs beside a real cluster, each with a client of its own."""

    group: asyncio.TaskGroup
    make_client: Callable[[], Coroutine[Any, Any, Client]]


class RealProgram:
    """A program that runs beside a real cluster."""

    def __init__(self, host: ProgramHost, program: Program, name: str) -> None:
        self._host = host
        self._program = program
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start a new process."""
        self._task = self._host.group.create_task(self._run(), name=self._name)

    def kill(self) -> None:
        """Kill the process."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        await self._program(await self._host.make_client())
