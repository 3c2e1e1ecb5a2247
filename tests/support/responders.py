"""EvictionRequests for tests, and a responder to Evictions that does what a test wants of it.

cluster.host(Responder(client, "acme.io/mover", takes=timedelta(minutes=5)).run(), name="mover")
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.errors import Conflict, NotFound
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import RawObject
from haulout.kube.resources import PODS
from haulout_sandbox.controllers import conditions
from haulout_sandbox.controllers.evictions import EVICTIONS, Eviction, active_of
from haulout_sandbox.controllers.evictor import say

MOVER = "acme.io/mover"
_LOOK_EVERY = timedelta(seconds=1)


def a_request(
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
    """Moves what is in a pod elsewhere, which `takes` a while, and then has the pod go."""

    client: Client
    name: str = MOVER
    takes: timedelta = timedelta(minutes=1)
    beats: timedelta = timedelta(seconds=30)
    evicts: bool = True  # or it gives up when the time is over
    message: Callable[[float], str] = "moved {:.0%}".format  # of the share that is done

    async def run(self) -> None:
        """Work until cancelled."""
        clock = self.client.clock
        cache: Cache[Eviction] = Cache(self.client, Selection(EVICTIONS, labels=self.name), row=as_is)
        began: dict[str, datetime] = {}
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            while True:
                for eviction in list(cache.all()):
                    if not eviction.is_over and active_of(eviction.status) == self.name:
                        await self._act(eviction, began.setdefault(eviction.uid, clock.now()))
                await clock.sleep(_LOOK_EVERY)

    async def _act(self, eviction: Eviction, began: datetime) -> None:
        now = self.client.clock.now()
        said = next(it for it in eviction.status["responders"] if it["name"] == self.name)
        if "completionTime" in said:
            return
        share = min((now - began) / self.takes, 1.0)
        last = said.get("heartbeatTime")
        if share < 1 and last is not None and now < conditions.instant(last) + self.beats:
            return
        told: RawObject = {"heartbeatTime": conditions.stamp(now), "message": self.message(share)}
        if share < 1:
            told["expectedCompletionTime"] = conditions.stamp(began + self.takes)
        elif not self.evicts or await self._is_gone(eviction):
            told["completionTime"] = conditions.stamp(now)
        with suppress(Conflict, NotFound):
            await say(self.client, eviction, self.name, told)

    async def _is_gone(self, eviction: Eviction) -> bool:
        """Have the pod go, if it has not yet."""
        pod = eviction.spec.target.pod
        try:
            await self.client.delete(PODS, pod.name, namespace=eviction.namespace, uid=pod.uid)
        except (Conflict, NotFound):
            return True
        return False
