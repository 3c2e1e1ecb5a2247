"""A running cluster, sandbox or real: how tests read and change it.

Reads (`pods_on`, `history`) are synchronous, from memory: that of the sandbox, or that of watches on the real cluster.
Changes of the cluster go through a client, as with kubectl; changes of machines go to their kubelets, which are the
sandbox's in both cases.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Protocol

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES
from haulout.api.maintenancefreeze import MAINTENANCE_FREEZES
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.api.resources import NAMESPACES, Resource
from haulout.controllers.profiles.executor import HYPERVISORS
from haulout.core.clock import Clock
from haulout.errors import AlreadyExists, KubeError, NotFound, ServerFailure, TooManyRequests, Unreachable
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import InProcessTransport, User, Write
from haulout_sandbox.apiserver.kinds.builtin import BUILTIN_KINDS
from haulout_sandbox.apiserver.kinds.kind import CORE_KINDS
from haulout_sandbox.apiserver.selectors import selection
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from haulout_sandbox.nodes import Kubelets
from haulout_sandbox.openshift.objects import CONTROL_PLANE_MACHINE_SETS, INFRASTRUCTURES, MACHINE_SETS, MACHINES
from support.builders.objects import a_namespace, metadata
from support.clusters.process import Process, Program
from support.expectations.eventually import eventually
from support.expectations.history_text import recent_writes
from support.expectations.invariant_checks import assert_invariants
from support.expectations.objects import condition_status, count_ready_pods, is_terminating, object_snapshots
from support.faults.named_faults import Fault, inject_fault
from support.invariants import Invariant
from support.invariants.pods import is_skipped_by_drains

_KINDS = {kind.plural: kind for kind in (*BUILTIN_KINDS, *CORE_KINDS)}
RESOURCES = {
    kind.plural: Resource(kind.group, kind.version, kind.plural, kind.kind, kind.namespaced, RawObject)
    for kind in _KINDS.values()
} | {
    it.plural: it.with_model(RawObject)
    for it in (
        NODE_MAINTENANCES,
        MAINTENANCE_RECORDS,
        HYPERVISORS,
        MAINTENANCE_NOTICES,
        MAINTENANCE_FREEZES,
        MACHINE_MAINTENANCES,
        MACHINES,
        MACHINE_SETS,
        CONTROL_PLANE_MACHINE_SETS,
        INFRASTRUCTURES,
    )
}
_BY_KIND = {(resource.api_version, resource.kind): resource for resource in RESOURCES.values()}
_RESTARTED = "kubectl.kubernetes.io/restartedAt"
_TROUBLE_TAINT_PREFIX = "node.kubernetes.io/"  # the prefix of taints that mark a node as faulty
_TIMEOUT = timedelta(minutes=5)
_MAX_RETRIES = 60  # attempts of a user, a second apart, while the server is unavailable


def key(obj: RawObject) -> str:
    """Return `namespace/name`, or the name."""
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


async def create_or_patch(client: Client, resource: Resource[RawObject], obj: RawObject) -> None:
    """Create an object, or make the one that is there the same."""
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace")
    try:
        await client.create(resource, obj, namespace=namespace)
    except AlreadyExists:
        await client.patch(resource, name, merge_patch(obj), namespace=namespace)


class RunningProgram(Protocol):
    """A program that runs in a cluster, can be killed at any instant, and started again."""

    def start(self) -> None:
        """Start a new process."""
        ...

    def kill(self) -> None:
        """Kill the process."""
        ...


class LiveCluster(ABC):
    """A cluster that runs."""

    settle_time = timedelta(seconds=1.5)  # in which happens what happens at once

    def __init__(self, clock: Clock, client: Client, kubelets: Kubelets) -> None:
        self.clock = clock
        self.admin = client  # a person who may do everything
        self.kubelets = kubelets
        self.created: list[tuple[Resource[RawObject], RawObject]] = []
        self._namespaces: set[str] = set()

    # Reads

    @property
    @abstractmethod
    def history(self) -> Sequence[Write]:
        """Every write so far, in order."""

    @abstractmethod
    def by_key(self, plural: str) -> Mapping[str, RawObject]:
        """Return the objects of a kind by their keys."""

    @abstractmethod
    def run(self, program: Program, *, name: str = "operator") -> RunningProgram:
        """Run a program in the cluster, with a client of its own."""

    @property
    def revision(self) -> int:
        """The latest revision seen."""
        return self.history[-1].revision if self.history else 0

    def objects(self, plural: str, *, namespace: str = "", labels: str = "") -> list[RawObject]:
        """Return the objects of a kind that are selected."""
        chosen = selection(_KINDS[plural], namespace, labels=labels)
        return [obj for obj in self.by_key(plural).values() if chosen.matches(obj)]

    def get(self, plural: str, name: str) -> RawObject:
        """Return an object by `namespace/name`, or its name; KeyError if there is none."""
        return self.by_key(plural)[name]

    def has(self, plural: str, name: str) -> bool:
        """Tell whether there is such an object."""
        return name in self.by_key(plural)

    def pods_on(self, node: str) -> list[str]:
        """Return the pods on a node that are not terminating."""
        pods = self.by_key("pods").items()
        return sorted(name for name, pod in pods if pod["spec"].get("nodeName") == node and not is_terminating(pod))

    def pods_of(self, workload: str) -> list[RawObject]:
        """Return the pods of a workload, terminating ones included."""
        return [pod for pod in self.by_key("pods").values() if belongs_to(workload)(pod)]

    def ready_pod_count(self, workload: str) -> int:
        """Count the ready pods of a workload."""
        return count_ready_pods(self.pods_of(workload))

    def node_is_ready(self, name: str) -> bool:
        """Tell whether a node is ready and takes pods."""
        node = self.get("nodes", name)
        in_trouble = any(taint["key"].startswith(_TROUBLE_TAINT_PREFIX) for taint in node["spec"].get("taints", ()))
        return condition_status(node, "Ready")[0] == "True" and not in_trouble

    def is_rolled_out(self, workload: str) -> bool:
        """Tell whether all pods of a Deployment or StatefulSet are there, ready and of its latest template."""
        plural = next(name for name in ("deployments", "statefulsets") if self.has(name, workload))
        return _is_rolled_out(self.get(plural, workload))

    def min_ready_pods(self, workload: str, *, since: int) -> int:
        """Return the least number of ready pods that a workload had at any revision after `since`."""
        return min(
            map(count_ready_pods, object_snapshots(self.history, "pods", since=since, predicate=belongs_to(workload)))
        )

    # Waiting

    async def eventually(
        self, probe: Callable[[], Any], *, within: timedelta = _TIMEOUT, becomes: Any = True, shown_writes: int = 12
    ) -> Any:
        """Wait until `probe` sees what it should; a failure shows the last writes."""
        options: dict[str, Any] = {} if becomes is True else {"becomes": becomes}
        every = timedelta(milliseconds=100)
        describe_recent: Callable[[], Sequence[str]] = lambda: recent_writes(self.history, shown_writes)  # noqa: E731 - a word for a sentence
        return await eventually(self.clock, probe, within=within, every=every, recent_events=describe_recent, **options)

    async def pass_time(self, **duration: float) -> None:
        """Let time pass: `pass_time(minutes=5)`."""
        await self.clock.sleep(timedelta(**duration))

    # Actions of a user

    async def create(self, *objects: RawObject) -> None:
        """Create objects, and the namespaces that they are in."""
        for obj in objects:
            resource, namespace = _BY_KIND[obj["apiVersion"], obj["kind"]], obj["metadata"].get("namespace")
            if namespace and namespace not in self._namespaces:
                with suppress(AlreadyExists):
                    await self.admin.create(NAMESPACES, a_namespace(namespace))
                self._namespaces.add(namespace)
            await self._retry(partial(self.admin.create, resource, obj, namespace=namespace), done=AlreadyExists)
            self.created.append((resource, obj))

    async def apply_rbac(self, *objects: RawObject) -> None:
        """Put up roles and bindings, or change those that are there."""
        for obj in objects:
            resource = _BY_KIND[obj["apiVersion"], obj["kind"]]
            self.created.append((resource, obj))
            await create_or_patch(self.admin, resource, obj)

    async def _retry(self, send: Callable[[], Awaitable[object]], *, done: type[KubeError] | None = None) -> None:
        """Retry while the server is unavailable; `done` is the error that means that the first attempt succeeded."""
        for attempt in range(_MAX_RETRIES):
            try:
                await send()
            except (Unreachable, ServerFailure):
                await self.pass_time(seconds=1)
            except KubeError as error:
                if attempt and done is not None and isinstance(error, done):
                    return
                raise
            else:
                return
        await send()

    async def patch(self, plural: str, name: str, **fields: Any) -> None:
        """Merge fields into an object."""
        meta = metadata(name)
        patch, namespace = merge_patch(fields), meta.get("namespace")
        await self._retry(partial(self.admin.patch, RESOURCES[plural], meta["name"], patch, namespace=namespace))

    async def delete(self, plural: str, name: str, **options: Any) -> None:
        """Delete an object."""
        meta = metadata(name)
        delete = partial(self.admin.delete, RESOURCES[plural], meta["name"], namespace=meta.get("namespace"), **options)
        await self._retry(delete, done=NotFound)

    async def scale(self, deployment: str, replicas: int) -> None:
        """Set the number of replicas."""
        await self.patch("deployments", deployment, spec={"replicas": replicas})

    async def restart_rollout(self, deployment: str) -> None:
        """Replace all pods of a Deployment, as `kubectl rollout restart` does."""
        now = self.clock.now().isoformat()
        template = {"metadata": {"annotations": {_RESTARTED: now}}}
        await self.patch("deployments", deployment, spec={"template": template})

    async def cordon(self, node: str) -> None:
        """Cordon a node."""
        await self.patch("nodes", node, spec={"unschedulable": True})

    async def uncordon(self, node: str) -> None:
        """Uncordon a node."""
        await self.patch("nodes", node, spec={"unschedulable": None})

    async def evict(self, pod: str) -> bool:
        """Evict a pod; return whether its budgets allow it."""
        namespace, name = pod.split("/")
        try:
            await self.admin.evict(name, namespace=namespace)
        except (TooManyRequests, NotFound, Unreachable):
            return False
        return True

    async def drain(self, node: str, *, within: timedelta = _TIMEOUT) -> None:
        """Cordon a node and evict its pods, again and again, until it has none that could leave."""
        await self.cordon(node)

        async def is_empty() -> bool:
            left = [pod for pod in self.by_key("pods").values() if pod["spec"].get("nodeName") == node]
            left = [pod for pod in left if not is_skipped_by_drains(pod)]
            for pod in left:
                if not is_terminating(pod):
                    await self.evict(key(pod))
            return not left

        await self.eventually(is_empty, within=within)

    # What happens to machines

    def stop_kubelet(self, node: str) -> None:
        """Stop a kubelet; its containers keep running."""
        self.kubelets.kill(node)

    def start_kubelet(self, node: str) -> None:
        """Start a kubelet again."""
        self.kubelets.revive(node)

    def reboot(self, node: str, *, duration: timedelta = timedelta(minutes=1)) -> None:
        """Reboot a machine."""
        self.kubelets.reboot(node, duration)

    # Invariants

    def assert_invariants(self, *invariants: Invariant) -> None:
        """Fail if any of these did not hold, up to now."""
        assert_invariants(self.history, *invariants, until=self.clock.now())

    async def wait_until_nodes_ready(self) -> None:
        """Wait until all machines take pods."""
        for name in self.kubelets.names:
            await self.eventually(partial(self.node_is_ready, name))

    async def wait_until_settled(self) -> None:
        """Wait until the workloads that were created are rolled out, and the status of budgets is computed."""
        for _, obj in self.created:
            await self.eventually(partial(self._is_settled, obj))

    def _is_settled(self, obj: RawObject) -> bool:
        now = self.get(_BY_KIND[obj["apiVersion"], obj["kind"]].plural, key(obj))
        status = now.get("status", {})
        match obj["kind"]:
            case "Deployment" | "StatefulSet":
                return _is_rolled_out(now)
            case "DaemonSet":
                wanted = status.get("desiredNumberScheduled", 0)
                return bool(wanted) and bool(wanted == status.get("numberAvailable", 0))
            case "PodDisruptionBudget":
                is_observed = status.get("observedGeneration") == now["metadata"].get("generation")
                return is_observed and bool(status.get("currentHealthy") == self.ready_pod_count(key(obj)))
            case "Pod":
                return condition_status(now, "Ready")[0] == "True"
            case _:
                return True


def belongs_to(workload: str) -> Callable[[RawObject], bool]:
    """Return whether a pod is of a workload, by its namespace and the label `app`."""
    meta = metadata(workload)

    def belongs(pod: RawObject) -> bool:
        own = pod["metadata"]
        return (own["namespace"], own.get("labels", {}).get("app")) == (meta["namespace"], meta["name"])

    return belongs


def _is_rolled_out(workload: RawObject) -> bool:
    status, wanted = workload.get("status", {}), workload["spec"].get("replicas", 1)
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    is_observed: bool = status.get("observedGeneration") == workload["metadata"]["generation"]
    return is_observed and counts == [wanted] * 3


class SandboxCluster(LiveCluster):
    """The sandbox, with what only it can do."""

    def __init__(self, cluster: Cluster, *, user: User | None = None) -> None:
        super().__init__(cluster.clock, cluster.client("me"), cluster.kubelets)
        self.cluster = cluster
        self._user = user  # the user of the programs that run in it
        self.api = cluster.api
        self.processes: dict[str, Process] = {}

    @property
    def history(self) -> Sequence[Write]:
        """Every write so far."""
        return self.api.history

    def by_key(self, plural: str) -> Mapping[str, RawObject]:
        """Return the objects of a kind by their keys."""
        return self.api.objects_by_key(plural)

    def run(self, program: Program, *, name: str = "operator") -> Process:
        """Run a program in the cluster, with a wall clock of its own."""
        clock = self.clock
        if isinstance(clock, VirtualClock):
            clock = VirtualClock(clock.now() - timedelta(seconds=clock.monotonic()))
        self.transport(name)
        process = self.processes[name] = Process(self.cluster, name, program, clock=clock)
        process.start()
        return process

    def transport(self, name: str = "operator") -> InProcessTransport:
        """Return the transport of a program; faults can be injected into it before the program runs."""
        return self.cluster.transport(name, user=self._user)

    async def inject_fault(self, fault: Fault, *, process: str = "operator", seed: int = 0) -> None:
        """Inject a fault into a process; return when it is over."""
        await inject_fault(self.processes[process], fault, random=Random(seed))

    def pause(self, *components: str) -> None:
        """Stop components of the cluster."""
        self.cluster.pause(*components)

    def resume(self, *components: str) -> None:
        """Resume components."""
        self.cluster.resume(*components)
