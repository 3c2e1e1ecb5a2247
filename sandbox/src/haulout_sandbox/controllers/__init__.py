"""The controllers of the sandbox: its kube-controller-manager.

    controllers = ControllerManager(client, random=Random(seed), factories=ALL_CONTROLLERS)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(controllers.run())

Controllers access the cluster only through `haulout.kube`, so they run against a real kube-apiserver as well as the
sandbox's, and on simulated as well as real time. Each controller is one module: the controller on top, below it the
pure functions with which it decides. Module docstrings name the Kubernetes source whose behaviour they follow.
"""

from haulout_sandbox.controllers.daemonset.controller import DaemonSetController
from haulout_sandbox.controllers.deployment.controller import DeploymentController
from haulout_sandbox.controllers.disruption import DisruptionController
from haulout_sandbox.controllers.garbagecollector.controller import GarbageCollector
from haulout_sandbox.controllers.job import JobController
from haulout_sandbox.controllers.namespace import NamespaceController
from haulout_sandbox.controllers.podgc import PodGCController
from haulout_sandbox.controllers.replicaset import ReplicaSetController
from haulout_sandbox.controllers.serviceaccount import ServiceAccountController
from haulout_sandbox.controllers.statefulset import StatefulSetController

ALL_CONTROLLERS = (
    DeploymentController,
    ReplicaSetController,
    StatefulSetController,
    DaemonSetController,
    JobController,
    DisruptionController,
    GarbageCollector,
    NamespaceController,
    PodGCController,
    ServiceAccountController,
)
