"""The sandbox's nodes: simulated kubelets, a scheduler, and the node lifecycle controller.

Each of them accesses the cluster only through `haulout.kube`, and so runs against a real API server too. They share a
`NodeInformers`, a cache of all pods and nodes. Decisions are pure functions: `scheduler.framework` chooses the node of
a pod, `kubelet.pod_lifecycle` the next step of a kubelet for a pod, `nodelifecycle.decision` what happens to an
unhealthy node and its pods.
"""

from haulout_sandbox.nodes.informers import NodeInformers
from haulout_sandbox.nodes.kubelet.delays import DelayDistribution, Delays
from haulout_sandbox.nodes.kubelet.kubelet import Kubelets
from haulout_sandbox.nodes.kubelet.node_status import Machine
from haulout_sandbox.nodes.nodelifecycle.controller import NodeLifecycleController
from haulout_sandbox.nodes.scheduler.scheduler import Scheduler

__all__ = [
    "DelayDistribution",
    "Delays",
    "Kubelets",
    "Machine",
    "NodeInformers",
    "NodeLifecycleController",
    "Scheduler",
]
