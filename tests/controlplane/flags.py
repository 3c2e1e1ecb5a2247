"""The command lines of the control plane's binaries.

Defaults are kept wherever a test could depend on them (limits, feature gates, admission): what passes here must pass on
a real cluster. The exceptions make it start fast, stay on loopback, and do nothing by itself.
"""

from collections.abc import Sequence
from pathlib import Path

from controlplane.ports import LOOPBACK


def etcd(*, folder: Path, port: int) -> list[str]:
    """Return the flags of etcd."""
    clients = f"http://{LOOPBACK}:{port}"
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls=http://{LOOPBACK}:0",
        "--unsafe-no-fsync",  # survives the death of any process here, which is all that a test can do to it
        "--quota-backend-bytes=8000000000",  # room for benchmarks
        "--log-level=warn",
    ]


def apiserver(*, folder: Path, port: int, etcd_port: int) -> list[str]:
    """Return the flags of kube-apiserver."""
    service_accounts_key = folder / "service-accounts-key.pem"
    return [
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        "--etcd-compaction-interval=0",  # history expires when a test says so
        *_serving(folder=folder, port=port),
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",  # loopback is no valid endpoint of the service "kubernetes"
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--client-ca-file={folder / 'client-ca.pem'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={service_accounts_key}",
        f"--service-account-signing-key-file={service_accounts_key}",
        "--disable-admission-plugins=ServiceAccount",  # pods without the account that only a controller makes
        "--allow-privileged",
        "--event-ttl=1h",
    ]


def controller_manager(*, folder: Path, port: int, kubeconfig: Path, controllers: Sequence[str]) -> list[str]:
    """Return the flags of kube-controller-manager."""
    return [
        *_client(kubeconfig),
        *_serving(folder=folder, port=port),
        f"--controllers={','.join(controllers)}",
        "--use-service-account-credentials",  # each controller with its own rights, as in a real cluster
        f"--service-account-private-key-file={folder / 'service-accounts-key.pem'}",
        f"--root-ca-file={folder / 'server-ca.pem'}",
        f"--flex-volume-plugin-dir={folder / 'volume-plugins'}",  # it makes that folder, elsewhere by default
    ]


def scheduler(*, folder: Path, port: int, kubeconfig: Path) -> list[str]:
    """Return the flags of kube-scheduler."""
    return [*_client(kubeconfig), *_serving(folder=folder, port=port)]


def _serving(*, folder: Path, port: int) -> list[str]:
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={folder / 'server.pem'}",
        f"--tls-private-key-file={folder / 'server-key.pem'}",
        "--profiling=false",
    ]


def _client(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        "--kube-api-qps=500",  # the default of 20 makes the first seconds a wait
        "--kube-api-burst=500",
        "--leader-elect=false",
    ]
