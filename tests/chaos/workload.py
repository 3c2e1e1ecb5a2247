"""What happens in a cluster while faults happen: nodes with pods, and people who order maintenances.

People speak to the API server directly and try again until it answers. There are no kubelets and no controllers: a
stand-in lets evicted pods go, and says how many pods a PodDisruptionBudget allows to leave.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import ParamSpec

import aiohttp
import yaml

from chaos.api import Api, Raw, Refused
from chaos.judge import STATE, is_out_of_service
from chaos.observer import Observer
from chaos.replicas import GROUP, HOME, MANIFESTS
from haulout.core.clock import RealClock

P = ParamSpec("P")

BUDGET = 2  # as in maintenance.yaml
ORDERED = ("n0", "n1", "n2", "n3")  # on which people order maintenances
PATCHED = "n4"  # that a profile takes
ANNOUNCED = "n5"  # that maintenance is announced for
CORDONED = "n6"  # that a person cordons, and that others order a maintenance of
PROBED = "n7"  # on which a maintenance is ordered when a fault ends
PROBED_BY_NOTICE = "n8"  # that maintenance is announced for when a fault ends
NODES = (*ORDERED, PATCHED, ANNOUNCED, CORDONED, PROBED, PROBED_BY_NOTICE)
SHOP = "shop"
PATCH_LABEL = "example.com/patch"
_FOREIGN_TAINT = {"key": "example.com/dedicated", "value": "shop", "effect": "PreferNoSchedule"}
_RUNNING = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
_ENDED = {"spec": {"stage": "Ended"}}
_NEEDED = ("CustomResourceDefinition", "Namespace", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_SUBJECT = {"kind": "Group", "name": GROUP, "apiGroup": "rbac.authorization.k8s.io"}
_TRY_AGAIN = timedelta(milliseconds=250)
_FOR_EVER = timedelta(hours=1)
_MOST_ORDERS = 4
_FINAL = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
_WRONG = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)  # a defect of the suite


def is_held(observer: Observer, name: str) -> bool:
    """Return whether the operator holds a node."""
    node = observer.objects["nodes"].get(name)
    return node is not None and is_out_of_service(node)


class Workload:
    """The cluster of a round, and those who use it."""

    def __init__(self, api: Api, observer: Observer, rng: random.Random, group: asyncio.TaskGroup) -> None:
        self.api = api
        self.observer = observer
        self.clock = RealClock()
        self._rng = rng
        self._group = group
        self._ordering = True
        self._numbers = iter(range(1_000_000))
        self._busy: set[str] = set()
        self._people: list[asyncio.Task[None]] = []
        self._daemons: list[asyncio.Task[None]] = []

    # The cluster

    async def install(self) -> None:
        """Create what the manifests have, for two replicas that are no pods, and the namespaces of the round."""
        for obj in await asyncio.to_thread(_manifests):
            body = obj | {"subjects": [_SUBJECT]} if _is_for_the_operator(obj) else obj
            await self.retry(self.api.create, _plural(obj), body, namespace=_namespace(obj))
        await self.retry(self.api.create, "namespaces", {"metadata": {"name": SHOP}})

    async def populate(self) -> None:
        """Create nodes with pods on them, and cordon one by hand."""
        for name in NODES:
            await self.add_node(name)
        await self.retry(self.api.create, "poddisruptionbudgets", _budget(), namespace=SHOP)
        await self.retry(self.api.patch, "nodes", CORDONED, {"spec": {"unschedulable": True}})

    async def add_node(self, name: str) -> None:
        """Create a node that is Ready, with what is not the operator's on it."""
        labels = {"kubernetes.io/hostname": name, "example.com/team": "shop"}
        if name == PATCHED:
            labels["cloud.sap/maintenance-profile"] = "os"
        metadata = {"name": name, "labels": labels, "annotations": {"example.com/rack": "r1"}}
        node = {"metadata": metadata, "spec": {"taints": [_FOREIGN_TAINT]}}
        await self.retry(self.api.create, "nodes", node)
        now = self.clock.now().isoformat(timespec="seconds").replace("+00:00", "Z")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now}
        status = {"status": {"conditions": [ready | {"lastHeartbeatTime": now, "message": ""}]}}
        await self.retry(self.api.patch, "nodes", name, status, subresource="status")
        await self.fill(name)

    async def fill(self, node: str) -> None:
        """Put pods onto a node."""
        for _ in range(2):
            name = f"web-{next(self._numbers)}"
            await self.retry(self.api.create, "pods", _pod(name, node), namespace=SHOP)
            await self.retry(self.api.patch, "pods", name, _RUNNING, namespace=SHOP, subresource="status")

    # Those who act by themselves

    def begin(self) -> None:
        """Have everybody begin."""
        self._daemons = [self._group.create_task(act()) for act in (self._let_pods_go, self._allow_evictions)]
        self._begin_ordering()

    def stop_ordering(self) -> None:
        """Have people order nothing new; they finish what they have begun."""
        self._ordering = False

    async def start_over(self) -> None:
        """Have people find out what there is after a restore: finish it, and order anew."""
        await self._end(self._people)
        self._people.clear()
        self._busy.clear()
        await self.retry(self.api.patch, "nodes", PATCHED, _labels({PATCH_LABEL: None}))
        for name in list(self.observer.objects["maintenancenotices"]):
            await self.retry(self.api.patch, "maintenancenotices", name, _ENDED)
        for name, order in list(self.observer.objects["nodemaintenances"].items()):
            self._busy.add(order["spec"]["nodeName"])
            self._people.append(self._group.create_task(self._finish_order(name, order["spec"]["nodeName"])))
        self._begin_ordering()

    @property
    def is_finished(self) -> bool:
        """Whether people have finished all that they began."""
        return all(task.done() for task in self._people)

    async def stop(self) -> None:
        """Have everybody stop."""
        self._ordering = False
        await self._end([*self._people, *self._daemons])

    async def probe(self, name: str) -> None:
        """Order a maintenance and announce another: the first writes about them show that the operator acts."""
        await self.retry(self.api.create, "nodemaintenances", _order(name, PROBED))
        self._people.append(self._group.create_task(self._finish_order(name)))
        self._people.append(self._group.create_task(self._announce_and_end(name, PROBED_BY_NOTICE)))

    async def retry(self, send: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Send a request until the server takes it; what exists already or is gone is fine."""
        while True:
            try:
                await send(*args, **kwargs)
            except Refused as refused:
                if refused.status in _FINAL:
                    return
                if refused.status in _WRONG:
                    raise
            except (aiohttp.ClientError, OSError, ValueError):
                pass
            else:
                return
            await self.clock.sleep(_TRY_AGAIN)

    async def pause(self, at_least: float, at_most: float) -> None:
        """Wait for some seconds."""
        await self.clock.sleep(timedelta(seconds=self._rng.uniform(at_least, at_most)))

    def _begin_ordering(self) -> None:
        acts = (self._order, self._patch, self._announce, self._cordon)
        self._people += [self._group.create_task(act()) for act in acts]

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _order(self) -> None:
        while self._ordering:
            free = [it for it in (*ORDERED, CORDONED) if it not in self._busy]
            if free and len(self._busy) < _MOST_ORDERS:
                node, name = self._rng.choice(free), f"m{next(self._numbers)}"
                self._busy.add(node)
                await self.fill(node)
                await self.retry(self.api.create, "nodemaintenances", _order(name, node))
                self._people.append(self._group.create_task(self._finish_order(name, node)))
            await self.pause(0.3, 1.5)

    async def _finish_order(self, name: str, node: str = "") -> None:
        await self.observer.until(lambda: self._phase(name) == "Succeeded", within=_FOR_EVER)
        await self.pause(0.2, 2)
        await self.retry(self.api.delete, "nodemaintenances", name)
        await self.observer.until(lambda: name not in self.observer.objects["nodemaintenances"], within=_FOR_EVER)
        self._busy.discard(node)

    def _phase(self, name: str) -> str:
        found = self.observer.objects["nodemaintenances"].get(name) or {}
        return str((found.get("status") or {}).get("phase", ""))

    async def _patch(self) -> None:
        while self._ordering:
            await self.pause(0.5, 3)
            await self.retry(self.api.patch, "nodes", PATCHED, _labels({PATCH_LABEL: "true"}))
            await self.observer.until(lambda: self._state(PATCHED) == "in-maintenance", within=_FOR_EVER)
            await self.pause(0.5, 2)
            await self.retry(self.api.patch, "nodes", PATCHED, _labels({PATCH_LABEL: None}))
            await self.observer.until(lambda: self._state(PATCHED) in ("", "operational"), within=_FOR_EVER)

    async def _announce(self) -> None:
        while self._ordering:
            await self.pause(1, 4)
            await self._announce_and_end(f"notice-{next(self._numbers)}", ANNOUNCED)

    async def _announce_and_end(self, name: str, node: str) -> None:
        notice = {
            "apiVersion": "haulout.dev/v1alpha1",
            "kind": "MaintenanceNotice",
            "metadata": {"name": name},
            "spec": {"nodeName": node, "source": "chaos", "kind": "Reboot", "stage": "Started"},
        }
        await self.retry(self.api.create, "maintenancenotices", notice)
        await self.observer.until(lambda: self._state(node) == "in-maintenance", within=_FOR_EVER)
        await self.pause(1, 3)
        await self.retry(self.api.patch, "maintenancenotices", name, _ENDED)
        await self.observer.until(lambda: self._state(node) in ("", "operational"), within=_FOR_EVER)

    def _state(self, name: str) -> str:
        node = self.observer.objects["nodes"].get(name) or {"metadata": {}}
        return str((node["metadata"].get("labels") or {}).get(STATE, ""))

    async def _cordon(self) -> None:
        """Cordon a node by hand now and then, and uncordon it."""
        node = ORDERED[-1]
        while self._ordering:
            await self.pause(2, 5)
            if is_held(self.observer, node):
                continue
            await self.retry(self.api.patch, "nodes", node, {"spec": {"unschedulable": True}})
            await self.pause(2, 8)
            await self.observer.until(lambda: not is_held(self.observer, node), within=_FOR_EVER)
            await self.retry(self.api.patch, "nodes", node, {"spec": {"unschedulable": None}})

    async def _let_pods_go(self) -> None:
        while True:
            for pod in list(self.observer.objects["pods"].values()):
                if pod["metadata"].get("deletionTimestamp"):
                    name = pod["metadata"]["name"]
                    await self.retry(self.api.delete, "pods", name, namespace=SHOP, now=True)
            await self.clock.sleep(_TRY_AGAIN)

    async def _allow_evictions(self) -> None:
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": 2,
            "currentHealthy": 16,
            "desiredHealthy": 14,
            "expectedPods": 16,
            "disruptedPods": None,
        }
        change = {"status": status}
        while True:
            await self.retry(
                self.api.patch, "poddisruptionbudgets", "web", change, namespace=SHOP, subresource="status"
            )
            await self.pause(0.5, 1)


def operator_bindings() -> list[tuple[str, str, str]]:
    """Return the bindings that give the operator its rights: the kind's plural, the name, the namespace."""
    return [(_plural(it), it["metadata"]["name"], _namespace(it)) for it in _manifests() if _is_for_the_operator(it)]


def _manifests() -> list[Raw]:
    return [it for it in yaml.safe_load_all(MANIFESTS.read_text()) if it["kind"] in _NEEDED]


def _is_for_the_operator(obj: Raw) -> bool:
    account = ("ServiceAccount", HOME, "haulout")
    subjects = obj.get("subjects") or []
    return any((it["kind"], it.get("namespace"), it["name"]) == account for it in subjects)


def _plural(obj: Raw) -> str:
    return f"{obj['kind'].lower()}s"


def _namespace(obj: Raw) -> str:
    return str(obj["metadata"].get("namespace", ""))


def _labels(labels: Raw) -> Raw:
    return {"metadata": {"labels": labels}}


def _order(name: str, node: str) -> Raw:
    return {
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
        "kind": "NodeMaintenance",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "reason": "a round of make chaos"},
    }


def _pod(name: str, node: str) -> Raw:
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "web", "image": "example.com/web"}],
        },
    }


def _budget() -> Raw:
    return {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
