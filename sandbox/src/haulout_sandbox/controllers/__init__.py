"""The controllers of the sandbox: what kube-controller-manager is to a real cluster.

    controllers = Controllers(client, random=Random(seed), kinds=ALL)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(controllers.run())

They know the cluster only through `haulout.kube`, so they run on a real kube-apiserver as well as on the sandbox's, and
on simulated time as well as on the machine's. Each is one module: the controller on top, below it the pure functions by
which it decides. They name the Kubernetes source whose behaviour they follow.
"""

from haulout_sandbox.controllers.accounts import ServiceAccounts
from haulout_sandbox.controllers.base import Controller, Controllers
from haulout_sandbox.controllers.caches import Caches
from haulout_sandbox.controllers.daemonsets import DaemonSets
from haulout_sandbox.controllers.deployments import Deployments
from haulout_sandbox.controllers.disruption import Disruption
from haulout_sandbox.controllers.evictionrequests import EvictionRequests
from haulout_sandbox.controllers.evictor import ImperativeEvictor
from haulout_sandbox.controllers.garbage import Garbage
from haulout_sandbox.controllers.jobs import Jobs
from haulout_sandbox.controllers.namespaces import Namespaces
from haulout_sandbox.controllers.podgc import PodCollector
from haulout_sandbox.controllers.replicasets import ReplicaSets
from haulout_sandbox.controllers.statefulsets import StatefulSets

ALL = (
    Deployments,
    ReplicaSets,
    StatefulSets,
    DaemonSets,
    Jobs,
    Disruption,
    Garbage,
    Namespaces,
    PodCollector,
    ServiceAccounts,
)

EVICTION_COORDINATION = (EvictionRequests, ImperativeEvictor)  # where the API server has EvictionRequests

__all__ = [
    "ALL",
    "EVICTION_COORDINATION",
    "Caches",
    "Controller",
    "Controllers",
    "DaemonSets",
    "Deployments",
    "Disruption",
    "EvictionRequests",
    "Garbage",
    "ImperativeEvictor",
    "Jobs",
    "Namespaces",
    "PodCollector",
    "ReplicaSets",
    "ServiceAccounts",
    "StatefulSets",
]
