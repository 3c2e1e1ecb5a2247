"""EvictionRequests for tests, and a responder to Evictions with configurable behaviour."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.objects import RawObject
from haulout.api.resources import PODS
from haulout.errors import Conflict, NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout_sandbox.controllers import conditions
from support.evictionrequest.decision import EVICTIONS, Eviction, active_responder
from support.evictionrequest.imperative_evictor import update_responder

MOVER = "acme.io/mover"
_POLL_INTERVAL = timedelta(seconds=1)


def an_eviction_request(
    pod: RawObject, *, requester: str = "acme.io/boss", name: str = "", intent: str = "Eviction"
) -> RawObject:
    """Return a request that a pod may leave."""
    meta = pod["metadata"]
    return {
        "apiVersion": "lifecycle.k8s.io/v1alpha1",
        "kind": "EvictionRequest",
        "metadata": {"name": name or f"{meta['name']}-{requester.partition('/')[2]}", "namespace": meta["namespace"]},
        "spec": {
            "target": {"pod": {"name": meta["name"], "uid": meta["uid"]}},
            "requester": requester,
            "intent": intent,
        },
    }


def responders(**priorities: int) -> list[RawObject]:
    """Return `spec.evictionResponders`: `mover=10000` is `acme.io/mover`."""
    return [{"name": f"acme.io/{name}", "priority": priority} for name, priority in priorities.items()]


@dataclass
class Responder:
    """Moves the workload of a pod elsewhere, which takes `duration`, and then deletes the pod."""

    client: Client
    name: str = MOVER
    duration: timedelta = timedelta(minutes=1)
    heartbeat_interval: timedelta = timedelta(seconds=30)
    evicts: bool = True  # or it gives up when the time is over
    message: Callable[[float], str] = "moved {:.0%}".format  # of the share that is done

    async def run(self) -> None:
        """Work until cancelled."""
        clock = self.client.clock
        cache: Informer[Eviction] = Informer(self.client, ListWatch(EVICTIONS, labels=self.name), transform=as_is)
        started: dict[str, datetime] = {}
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            while True:
                for eviction in list(cache.all()):
                    if not eviction.is_finished and active_responder(eviction.status) == self.name:
                        await self._update_status(eviction, started.setdefault(eviction.uid, clock.now()))
                await clock.sleep(_POLL_INTERVAL)

    async def _update_status(self, eviction: Eviction, started: datetime) -> None:
        now = self.client.clock.now()
        responder_status = next(
            responder for responder in eviction.status["responders"] if responder["name"] == self.name
        )
        if "completionTime" in responder_status:
            return
        share = min((now - started) / self.duration, 1.0)
        last = responder_status.get("heartbeatTime")
        if share < 1 and last is not None and now < conditions.parse_time(last) + self.heartbeat_interval:
            return
        update: RawObject = {"heartbeatTime": conditions.format_time(now), "message": self.message(share)}
        if share < 1:
            update["expectedCompletionTime"] = conditions.format_time(started + self.duration)
        elif not self.evicts or await self._delete_pod(eviction):
            update["completionTime"] = conditions.format_time(now)
        with suppress(Conflict, NotFound):
            await update_responder(self.client, eviction, self.name, update)

    async def _delete_pod(self, eviction: Eviction) -> bool:
        """Delete the pod if it still exists."""
        pod = eviction.spec.target.pod
        try:
            await self.client.delete(PODS, pod.name, namespace=eviction.namespace, uid=pod.uid)
        except (Conflict, NotFound):
            return True
        return False
