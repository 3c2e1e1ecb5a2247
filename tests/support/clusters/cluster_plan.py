"""Declares a cluster in one expression, for the sandbox or a real control plane.

    shop = a_cluster(clock).with_nodes(6, zones=3).with_deployment("shop/cart", replicas=4, budget="75%")
    async with shop.running() as cluster:
        await cluster.drain("n1")
        await cluster.eventually(lambda: cluster.pods_on("n1"), becomes=[])

Behaviour tests use the fixture `a_cluster`, which selects the backend, and call it without arguments. On a real control
plane, API server, controllers and scheduler are those of Kubernetes; the kubelets are the sandbox's on both.

When the cluster ends, invariants are checked on its whole history: PodDisruptionBudgets always, and those added by
`with_invariants`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from controlplane import ControlPlane
from haulout.api.objects import RawObject, Taint
from haulout.api.resources import NAMESPACES
from haulout.core.clock import Clock
from haulout.errors import AlreadyExists, NotFound, TooManyRequests
from haulout.kube.client import Client
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.apiserver import ApiServer, User
from haulout_sandbox.apiserver.auth.rbac import service_account_user
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes import DelayDistribution, Delays, Kubelets, Machine, NodeInformers
from support.builders.objects import a_namespace, a_pdb, a_template, a_workload
from support.clusters.live_cluster import RESOURCES, LiveCluster, SandboxCluster, create_or_patch
from support.clusters.real_cluster import ProgramHost, RealCluster
from support.expectations.eventually import eventually
from support.invariants import Invariant, PodDisruptionBudgetsRespected

_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_SHORT_DELAYS = Delays(
    start=DelayDistribution(0.2, 0.6),
    ready=DelayDistribution(0.1, 0.3),
    stop=DelayDistribution(0.3, 1),
    boot=DelayDistribution(0, 0),
    ignores_sigterm=0,
)
SERVICE_ACCOUNT = ("haulout", "haulout")  # a namespace, and a name in it
_REAL_HEARTBEAT = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The plan of a cluster: each method returns another plan."""

    clock: Clock
    control_plane: ControlPlane | None = None  # a real one; None: the sandbox
    crds: tuple[RawObject, ...] = ()
    machines: tuple[Machine, ...] = ()
    objects: tuple[RawObject, ...] = ()
    invariants: tuple[Invariant, ...] = (PodDisruptionBudgetsRespected(),)
    seed: int = 0
    delays: Delays | None = None
    rbac_objects: tuple[RawObject, ...] = ()

    def with_nodes(self, count: int, *, zones: int = 1, named: str = "n", **machine: Any) -> "ClusterPlan":
        """Add machines `n1`, `n2`, … that are spread over zones; `machine` has further fields of the machines."""
        first = 1 + sum(candidate.name.removeprefix(named).isdecimal() for candidate in self.machines)
        added = (
            Machine(name=f"{named}{number}", zone=f"z{number % zones + 1}", **machine)
            for number in range(first, first + count)
        )
        return replace(self, machines=(*self.machines, *added))

    def with_control_plane(self, count: int = 3) -> "ClusterPlan":
        """Add machines `cp1`, `cp2`, … that are of the control plane."""
        taint = Taint(key=_CONTROL_PLANE, effect="NoSchedule")
        return self.with_nodes(count, named="cp", labels={_CONTROL_PLANE: ""}, taints=(taint,))

    def with_deployment(self, name: str, **spec: Any) -> "ClusterPlan":
        """Add a Deployment; see `_with_workload` for its parameters."""
        return self._with_workload("Deployment", name, **spec)

    def with_stateful_set(self, name: str, **spec: Any) -> "ClusterPlan":
        """Add a StatefulSet."""
        return self._with_workload("StatefulSet", name, serviceName=name.rpartition("/")[2], **spec)

    def with_daemon_set(self, name: str, **spec: Any) -> "ClusterPlan":
        """Add a DaemonSet."""
        return self._with_workload("DaemonSet", name, **spec)

    def with_crd(self, definition: RawObject) -> "ClusterPlan":
        """Add the definition of a custom resource; on a real cluster it stays when the test is over."""
        return replace(self, crds=(*self.crds, definition))

    def with_rbac(self, *objects: RawObject) -> "ClusterPlan":
        """Let programs that run in it be a service account, `SERVICE_ACCOUNT`, which may do what these roles say."""
        return replace(self, rbac_objects=(*self.rbac_objects, *objects))

    def with_objects(self, *objects: RawObject) -> "ClusterPlan":
        """Add any objects."""
        return replace(self, objects=(*self.objects, *objects))

    def with_delays(self, delays: Delays) -> "ClusterPlan":
        """Set how long things on machines take."""
        return replace(self, delays=delays)

    def with_seed(self, seed: int) -> "ClusterPlan":
        """Set the seed of random choices; on the sandbox only."""
        return replace(self, seed=seed)

    def with_invariants(self, *invariants: Invariant) -> "ClusterPlan":
        """Check more invariants at the end."""
        return replace(self, invariants=(*self.invariants, *invariants))

    def _with_workload(
        self,
        kind: str,
        name: str,
        *,
        budget: int | str | None = None,
        tolerates_lost_node_for: timedelta | None = None,
        pods: RawObject | None = None,
        **spec: Any,
    ) -> "ClusterPlan":
        """Add a workload and, with `budget`, a PodDisruptionBudget: so many pods, or such a share, stay available.

        Its pods leave a node that is lost after `tolerates_lost_node_for`; `pods` is more of their spec.
        """
        template = {**(pods or {})}
        if tolerates_lost_node_for is not None:
            template["tolerations"] = _tolerations(tolerates_lost_node_for)
        labels = {"app": name.rpartition("/")[2]}
        created: list[RawObject] = [a_workload(kind, name, template=a_template(labels, **template), **spec)]
        if budget is not None:
            created.append(a_pdb(name, minAvailable=budget))
        return self.with_objects(*created)

    @asynccontextmanager
    async def running(self, *, settled: bool = True) -> AsyncIterator[LiveCluster]:
        """Run it; it begins when all nodes are ready and all workloads are up, unless it need not be settled."""
        if self.control_plane is None:
            async with self.on_the_sandbox(settled=settled) as sandbox:
                yield sandbox
        else:
            async with self._on_a_real_cluster(self.control_plane, settled=settled) as real:
                yield real

    @asynccontextmanager
    async def on_the_sandbox(self, *, settled: bool = True) -> AsyncIterator[SandboxCluster]:
        """Run it on the sandbox, for faults that a real cluster does not support."""
        api_with_rbac = (
            ApiServer(self.clock, random=Random(f"{self.seed} server"), rbac=True) if self.rbac_objects else None
        )
        cluster = Cluster(self.clock, seed=self.seed, delays=self.delays, api=api_with_rbac)
        for machine in self.machines:
            cluster.kubelets.add(machine)
        for obj in (*self.crds, *self.rbac_objects):
            cluster.api.put(obj)
        async with cluster.running():
            live = SandboxCluster(cluster, user=service_account_user(*SERVICE_ACCOUNT) if self.rbac_objects else None)
            await self._create_objects(live, settled=settled)
            yield live
            live.assert_invariants(*self.invariants)

    @asynccontextmanager
    async def _on_a_real_cluster(self, control_plane: ControlPlane, *, settled: bool) -> AsyncIterator[RealCluster]:
        async with AsyncExitStack() as cleanup:
            make_client = partial(_client, control_plane, self.clock, cleanup)
            make_program_client = (
                partial(make_client, user=service_account_user(*SERVICE_ACCOUNT)) if self.rbac_objects else make_client
            )
            clients = [await make_client() for _ in range(2)]
            view = NodeInformers(clients[0])
            kubelets = Kubelets(clients[0], view, delays=self.delays or _SHORT_DELAYS, heartbeat=_REAL_HEARTBEAT)
            for machine in self.machines:
                kubelets.add(machine)
            custom = [await _install_crd(clients[1], item) for item in self.crds]
            await apply_rbac(clients[1], self.rbac_objects)
            failure: Exception | None = None
            async with asyncio.TaskGroup() as group:
                live = RealCluster(
                    self.clock, clients[1], kubelets, ProgramHost(group, make_program_client), custom=custom
                )
                running = [group.create_task(run()) for run in (view.run, kubelets.run, *live.watchers())]
                try:
                    await live.wait_synced()
                    await self._create_objects(live, settled=settled)
                    yield live
                    live.assert_invariants(*(item for item in self.invariants if not item.needs_writer))
                except Exception as error:  # noqa: BLE001 - raised below, not as part of the group's errors
                    failure = error
                finally:
                    await live.clean_up(has_failed=failure is not None)
                    live.stop_programs()
                    await _delete_rbac(clients[1], self.rbac_objects)
                    for task in running:
                        task.cancel()
            if failure is not None:
                raise failure

    async def _create_objects(self, live: LiveCluster, *, settled: bool) -> None:
        if settled:
            await live.wait_until_nodes_ready()
        await live.create(*self.objects)
        if settled:
            await live.wait_until_settled()


PlanFactory = Callable[[], ClusterPlan]


def a_cluster(clock: Clock, *, control_plane: ControlPlane | None = None) -> ClusterPlan:
    """Return the plan of an empty cluster."""
    return ClusterPlan(clock, control_plane)


def _tolerations(toleration_time: timedelta) -> list[RawObject]:
    seconds = round(toleration_time.total_seconds())
    return [
        {
            "key": f"node.kubernetes.io/{taint}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for taint in ("not-ready", "unreachable")
    ]


async def _install_crd(client: Client, definition: RawObject) -> str:
    """Serve a custom resource; return its plural."""
    with suppress(AlreadyExists):
        await client.create(RESOURCES["customresourcedefinitions"], definition)
    plural = str(definition["spec"]["names"]["plural"])

    async def is_served() -> bool:
        try:
            async with client.watch(RESOURCES[plural], initial_list=True):
                return True
        except (NotFound, TooManyRequests):
            return False

    await eventually(client.clock, is_served)
    return plural


async def apply_rbac(client: Client, rbac_objects: Sequence[RawObject]) -> None:
    """Create roles and bindings, and their namespaces, which stay after the test."""
    for obj in rbac_objects:
        resource, namespace = RESOURCES[f"{obj['kind'].lower()}s"], obj["metadata"].get("namespace")
        if namespace:
            with suppress(AlreadyExists):
                await client.create(NAMESPACES, a_namespace(namespace))
        await create_or_patch(client, resource, obj)


async def _delete_rbac(client: Client, rbac_objects: Sequence[RawObject]) -> None:
    """Delete roles and bindings, so that the next test has only its own."""
    for obj in rbac_objects:
        resource, namespace = RESOURCES[f"{obj['kind'].lower()}s"], obj["metadata"].get("namespace")
        with suppress(NotFound):
            await client.delete(resource, obj["metadata"]["name"], namespace=namespace)


async def _client(
    control_plane: ControlPlane, clock: Clock, cleanup: AsyncExitStack, *, user: User | None = None
) -> Client:
    path = control_plane.kubeconfig() if user is None else control_plane.kubeconfig(user.name, groups=user.groups)
    connection = config.load(kubeconfig=str(path), clock=clock)
    client = Client(HttpTransport(connection, clock=clock), clock=clock, random=Random())
    cleanup.push_async_callback(client.close)
    return client
