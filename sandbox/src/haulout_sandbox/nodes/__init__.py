"""The sandbox's nodes: kubelets that pretend, a scheduler, and who looks after nodes that fell silent.

Each of them talks to the cluster through `haulout.kube` alone, and so runs on a real API server too. They share a
`NodeInformers`, a copy of all pods and nodes. Decisions are pure functions: `framework` says where a pod goes,
`pod_lifecycle` what a kubelet does next about a pod, `decision` what becomes of a node that is not well, and of its
pods.
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
