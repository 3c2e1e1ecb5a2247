"""The sandbox's nodes: kubelets that pretend, a scheduler, and who looks after nodes that fell silent.

Each of them talks to the cluster through `haulout.kube` alone, and so runs on a real API server too. They share a
`View`, a copy of all pods and nodes. Decisions are pure functions: `placement` says where a pod goes, `pods` what a
kubelet does next about a pod, `health` what becomes of a node that is not well, and of its pods.
"""

from haulout_sandbox.nodes.delays import Delays, Span
from haulout_sandbox.nodes.kubelet import Kubelets
from haulout_sandbox.nodes.lifecycle import NodeLifecycle
from haulout_sandbox.nodes.machines import Machine
from haulout_sandbox.nodes.scheduler import Scheduler
from haulout_sandbox.nodes.view import View

__all__ = ["Delays", "Kubelets", "Machine", "NodeLifecycle", "Scheduler", "Span", "View"]
