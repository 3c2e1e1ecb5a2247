"""A real Kubernetes control plane for tests and benchmarks: etcd, kube-apiserver and, on demand, the controllers.

    with ControlPlane() as cluster:
        cluster.kubectl("create", "namespace", "shop")

`assets` finds the binaries or has them built (`build`, `go_toolchain`); `control_plane` runs them. By hand:

    python -m controlplane assets       find or build the binaries, print their paths
    python -m controlplane run          run a control plane until Ctrl-C
"""

from controlplane.assets import Assets, AssetsMissing, find
from controlplane.control_plane import ControlPlane, Response
from controlplane.ports import free_port
from controlplane.server_process import ControlPlaneError

__all__ = ["Assets", "AssetsMissing", "ControlPlane", "ControlPlaneError", "Response", "find", "free_port"]
