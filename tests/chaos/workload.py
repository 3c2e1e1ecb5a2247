"""The workload of a round: nodes with pods, and users who create maintenances.

Users access the API server directly and retry until it answers. There are no kubelets and no controllers: this module
deletes evicted pods, and writes the disruptionsAllowed of PodDisruptionBudgets.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import ParamSpec

import aiohttp
import yaml

from chaos.api_client import ApiClient, ApiError, Raw
from chaos.invariants import STATE_LABEL, is_out_of_service
from chaos.observer import Observer
from chaos.replicas import GROUP, MANIFESTS, NAMESPACE
from haulout.core.clock import RealClock

P = ParamSpec("P")

BUDGET = 2  # as in maintenance.yaml
MAINTAINED_NODES = ("n0", "n1", "n2", "n3")  # on which people order maintenances
PROFILE_NODE = "n4"  # that a profile takes
NOTICE_NODE = "n5"  # that maintenance is announced for
CORDONED_NODE = "n6"  # that a person cordons, and that others order a maintenance of
PROBE_NODE = "n7"  # on which a maintenance is ordered when a fault ends
PROBE_NOTICE_NODE = "n8"  # that maintenance is announced for when a fault ends
NODES = (*MAINTAINED_NODES, PROFILE_NODE, NOTICE_NODE, CORDONED_NODE, PROBE_NODE, PROBE_NOTICE_NODE)
SHOP = "shop"
PATCH_LABEL = "example.com/patch"
_FOREIGN_TAINT = {"key": "example.com/dedicated", "value": "shop", "effect": "PreferNoSchedule"}
_RUNNING = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
_ENDED = {"spec": {"stage": "Ended"}}
_INSTALLED_KINDS = ("CustomResourceDefinition", "Namespace", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_SUBJECT = {"kind": "Group", "name": GROUP, "apiGroup": "rbac.authorization.k8s.io"}
_RETRY_DELAY = timedelta(milliseconds=250)
_NO_TIMEOUT = timedelta(hours=1)
_MAX_MAINTENANCES = 4
_ACCEPTED_ERRORS = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
_SUITE_ERRORS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)  # a defect of the suite


def is_held(observer: Observer, name: str) -> bool:
    """Return whether the operator holds a node."""
    node = observer.objects["nodes"].get(name)
    return node is not None and is_out_of_service(node)


class Workload:
    """The cluster of a round, and its simulated users."""

    def __init__(self, api: ApiClient, observer: Observer, rng: random.Random, group: asyncio.TaskGroup) -> None:
        self.api = api
        self.observer = observer
        self.clock = RealClock()
        self._rng = rng
        self._group = group
        self._is_creating = True
        self._numbers = iter(range(1_000_000))
        self._busy: set[str] = set()
        self._user_tasks: list[asyncio.Task[None]] = []
        self._controller_tasks: list[asyncio.Task[None]] = []

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
        await self.retry(self.api.create, "poddisruptionbudgets", _pdb(), namespace=SHOP)
        await self.retry(self.api.patch, "nodes", CORDONED_NODE, {"spec": {"unschedulable": True}})

    async def add_node(self, name: str) -> None:
        """Create a node that is Ready, with what is not the operator's on it."""
        labels = {"kubernetes.io/hostname": name, "example.com/team": "shop"}
        if name == PROFILE_NODE:
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
        """Create pods on a node."""
        for _ in range(2):
            name = f"web-{next(self._numbers)}"
            await self.retry(self.api.create, "pods", _pod(name, node), namespace=SHOP)
            await self.retry(self.api.patch, "pods", name, _RUNNING, namespace=SHOP, subresource="status")

    # Background activity

    def start(self) -> None:
        """Start all simulated users."""
        self._controller_tasks = [
            self._group.create_task(act()) for act in (self._delete_terminating_pods, self._report_pdb_status)
        ]
        self._start_users()

    def stop_creating(self) -> None:
        """Stop creating maintenances; users finish those that they have created."""
        self._is_creating = False

    async def restart_after_restore(self) -> None:
        """Let users list what exists after a restore, finish it, and create new maintenances."""
        await self._cancel(self._user_tasks)
        self._user_tasks.clear()
        self._busy.clear()
        await self.retry(self.api.patch, "nodes", PROFILE_NODE, _labels({PATCH_LABEL: None}))
        for name in list(self.observer.objects["maintenancenotices"]):
            await self.retry(self.api.patch, "maintenancenotices", name, _ENDED)
        for name, order in list(self.observer.objects["nodemaintenances"].items()):
            self._busy.add(order["spec"]["nodeName"])
            self._user_tasks.append(self._group.create_task(self._finish_maintenance(name, order["spec"]["nodeName"])))
        self._start_users()

    @property
    def is_finished(self) -> bool:
        """Whether users have finished all that they created."""
        return all(task.done() for task in self._user_tasks)

    async def stop(self) -> None:
        """Stop all simulated users."""
        self._is_creating = False
        await self._cancel([*self._user_tasks, *self._controller_tasks])

    async def probe(self, name: str) -> None:
        """Create a NodeMaintenance and announce another maintenance: their first writes show an active operator."""
        await self.retry(self.api.create, "nodemaintenances", _maintenance(name, PROBE_NODE))
        self._user_tasks.append(self._group.create_task(self._finish_maintenance(name)))
        self._user_tasks.append(self._group.create_task(self._run_notice(name, PROBE_NOTICE_NODE)))

    async def retry(self, send: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
        """Send a request until the server takes it; what exists already or is gone is fine."""
        while True:
            try:
                await send(*args, **kwargs)
            except ApiError as refused:
                if refused.status in _ACCEPTED_ERRORS:
                    return
                if refused.status in _SUITE_ERRORS:
                    raise
            except (aiohttp.ClientError, OSError, ValueError):
                pass
            else:
                return
            await self.clock.sleep(_RETRY_DELAY)

    async def pause(self, at_least: float, at_most: float) -> None:
        """Wait for some seconds."""
        await self.clock.sleep(timedelta(seconds=self._rng.uniform(at_least, at_most)))

    def _start_users(self) -> None:
        acts = (self._create_maintenances, self._patch_node, self._announce_notices, self._cordon_by_hand)
        self._user_tasks += [self._group.create_task(act()) for act in acts]

    async def _cancel(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _create_maintenances(self) -> None:
        while self._is_creating:
            free = [candidate for candidate in (*MAINTAINED_NODES, CORDONED_NODE) if candidate not in self._busy]
            if free and len(self._busy) < _MAX_MAINTENANCES:
                node, name = self._rng.choice(free), f"m{next(self._numbers)}"
                self._busy.add(node)
                await self.fill(node)
                await self.retry(self.api.create, "nodemaintenances", _maintenance(name, node))
                self._user_tasks.append(self._group.create_task(self._finish_maintenance(name, node)))
            await self.pause(0.3, 1.5)

    async def _finish_maintenance(self, name: str, node: str = "") -> None:
        await self.observer.wait_until(lambda: self._phase(name) == "Succeeded", within=_NO_TIMEOUT)
        await self.pause(0.2, 2)
        await self.retry(self.api.delete, "nodemaintenances", name)
        await self.observer.wait_until(
            lambda: name not in self.observer.objects["nodemaintenances"], within=_NO_TIMEOUT
        )
        self._busy.discard(node)

    def _phase(self, name: str) -> str:
        found = self.observer.objects["nodemaintenances"].get(name) or {}
        return str((found.get("status") or {}).get("phase", ""))

    async def _patch_node(self) -> None:
        while self._is_creating:
            await self.pause(0.5, 3)
            await self.retry(self.api.patch, "nodes", PROFILE_NODE, _labels({PATCH_LABEL: "true"}))
            await self.observer.wait_until(lambda: self._state(PROFILE_NODE) == "in-maintenance", within=_NO_TIMEOUT)
            await self.pause(0.5, 2)
            await self.retry(self.api.patch, "nodes", PROFILE_NODE, _labels({PATCH_LABEL: None}))
            await self.observer.wait_until(lambda: self._state(PROFILE_NODE) in ("", "operational"), within=_NO_TIMEOUT)

    async def _announce_notices(self) -> None:
        while self._is_creating:
            await self.pause(1, 4)
            await self._run_notice(f"notice-{next(self._numbers)}", NOTICE_NODE)

    async def _run_notice(self, name: str, node: str) -> None:
        notice = {
            "apiVersion": "haulout.dev/v1alpha1",
            "kind": "MaintenanceNotice",
            "metadata": {"name": name},
            "spec": {"nodeName": node, "source": "chaos", "kind": "Reboot", "stage": "Started"},
        }
        await self.retry(self.api.create, "maintenancenotices", notice)
        await self.observer.wait_until(lambda: self._state(node) == "in-maintenance", within=_NO_TIMEOUT)
        await self.pause(1, 3)
        await self.retry(self.api.patch, "maintenancenotices", name, _ENDED)
        await self.observer.wait_until(lambda: self._state(node) in ("", "operational"), within=_NO_TIMEOUT)

    def _state(self, name: str) -> str:
        node = self.observer.objects["nodes"].get(name) or {"metadata": {}}
        return str((node["metadata"].get("labels") or {}).get(STATE_LABEL, ""))

    async def _cordon_by_hand(self) -> None:
        """Cordon a node by hand now and then, and uncordon it."""
        node = MAINTAINED_NODES[-1]
        while self._is_creating:
            await self.pause(2, 5)
            if is_held(self.observer, node):
                continue
            await self.retry(self.api.patch, "nodes", node, {"spec": {"unschedulable": True}})
            await self.pause(2, 8)
            await self.observer.wait_until(lambda: not is_held(self.observer, node), within=_NO_TIMEOUT)
            await self.retry(self.api.patch, "nodes", node, {"spec": {"unschedulable": None}})

    async def _delete_terminating_pods(self) -> None:
        while True:
            for pod in list(self.observer.objects["pods"].values()):
                if pod["metadata"].get("deletionTimestamp"):
                    name = pod["metadata"]["name"]
                    await self.retry(self.api.delete, "pods", name, namespace=SHOP, now=True)
            await self.clock.sleep(_RETRY_DELAY)

    async def _report_pdb_status(self) -> None:
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
    return [
        (_plural(manifest), manifest["metadata"]["name"], _namespace(manifest))
        for manifest in _manifests()
        if _is_for_the_operator(manifest)
    ]


def _manifests() -> list[Raw]:
    return [obj for obj in yaml.safe_load_all(MANIFESTS.read_text()) if obj["kind"] in _INSTALLED_KINDS]


def _is_for_the_operator(obj: Raw) -> bool:
    account = ("ServiceAccount", NAMESPACE, "haulout")
    subjects = obj.get("subjects") or []
    return any(
        (subject_ref["kind"], subject_ref.get("namespace"), subject_ref["name"]) == account for subject_ref in subjects
    )


def _plural(obj: Raw) -> str:
    return f"{obj['kind'].lower()}s"


def _namespace(obj: Raw) -> str:
    return str(obj["metadata"].get("namespace", ""))


def _labels(labels: Raw) -> Raw:
    return {"metadata": {"labels": labels}}


def _maintenance(name: str, node: str) -> Raw:
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


def _pdb() -> Raw:
    return {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
