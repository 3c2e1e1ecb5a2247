"""A management cluster and a workload cluster, both real, and what tests do to them.

Machines belong to the cluster `prod` in a namespace of the test, and `n-NAME` is the node of the Machine NAME. The test
acts as Cluster API, and as the maintenance profiles of the workload cluster.
"""

import base64
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from controlplane import ControlPlane
from haulout.api.clusterapi import ENABLED, MAINTENANCE, MAINTENANCE_STATE, PRE_DRAIN_HOOK
from haulout.api.objects import RawObject
from haulout.kube import rbac
from haulout.kube.rbac import Permission
from support.platforms.hub import FINALIZER, a_cluster_api_crd

MACHINES = "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines"
_MERGE = "application/merge-patch+json"
_PERMISSIONS = (  # that a hub needs in a workload cluster
    Permission(("get", "list", "watch", "patch"), "", "nodes", None, "request and watch preparation"),
    Permission(("create", "patch"), "events.k8s.io", "events", "default", "record events"),
)


@dataclass
class TwoControlPlanes:
    """A management cluster and a workload cluster."""

    management: ControlPlane
    workload: ControlPlane
    accounts: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def request(self, cluster: ControlPlane, method: str, path: str, body: Any = None) -> RawObject:
        """Send a request that succeeds."""
        kind = _MERGE if method == "PATCH" else "application/json"
        answer = cluster.request(method, path, body, content_type=kind)
        assert answer.status < 300, answer
        return answer.json() if answer.body else {}

    # Machines and nodes

    def add_machine(self, namespace: str, name: str, *, managed: str | None = "operational") -> None:
        """Make a Machine of the cluster `prod` that is enabled, and its node."""
        path = MACHINES.format(namespace)
        body = {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": {"name": name, "labels": {ENABLED: "true"}, "finalizers": [FINALIZER]},
            "spec": {"clusterName": "prod"},
        }
        self.request(self.management, "POST", path, body)
        labels = {} if managed is None else {MAINTENANCE_STATE: managed}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n-{name}", "labels": labels}}
        self.request(self.workload, "POST", "/api/v1/nodes", node)
        status = {"status": {"nodeRef": {"name": f"n-{name}"}}}
        self.request(self.management, "PATCH", f"{path}/{name}/status", status)

    def machine(self, namespace: str, name: str) -> RawObject:
        """Return a Machine."""
        return self.request(self.management, "GET", f"{MACHINES.format(namespace)}/{name}")

    def hook_annotation(self, namespace: str, name: str) -> str | None:
        """Return the value of our hook."""
        found: str | None = self.machine(namespace, name)["metadata"].get("annotations", {}).get(PRE_DRAIN_HOOK)
        return found

    def maintenance_label(self, namespace: str, name: str) -> str | None:
        """Return `requested` or `approved`."""
        found: str | None = self.machine(namespace, name)["metadata"].get("labels", {}).get(MAINTENANCE)
        return found

    def label_machine(self, namespace: str, name: str, **labels: str | None) -> None:
        """Set `enabled` or `maintenance`."""
        keys = {"enabled": ENABLED, "maintenance": MAINTENANCE}
        change = {"metadata": {"labels": {keys[candidate]: value for candidate, value in labels.items()}}}
        self.request(self.management, "PATCH", f"{MACHINES.format(namespace)}/{name}", change)

    def delete_machine(self, namespace: str, name: str) -> None:
        """Delete a Machine, which its finalizer keeps."""
        self.request(self.management, "DELETE", f"{MACHINES.format(namespace)}/{name}")

    def is_node_label_true(self, name: str, label: str) -> bool:
        """Tell whether a label of the node is true."""
        node = self.request(self.workload, "GET", f"/api/v1/nodes/n-{name}")
        return bool(node["metadata"].get("labels", {}).get(label) == "true")

    def label_node(self, name: str, label: str, value: str | None) -> None:
        """Set a label of the node, or remove it."""
        self.request(self.workload, "PATCH", f"/api/v1/nodes/n-{name}", {"metadata": {"labels": {label: value}}})

    # Credentials

    def new_token(self) -> str:
        """Return the token of a new service account with the permissions of a hub; earlier accounts are deleted."""
        name, home = f"hub-{next(self.numbers)}", "/api/v1/namespaces/default/serviceaccounts"
        self.request(self.workload, "POST", home, {"metadata": {"name": name}})
        subject = {"kind": "ServiceAccount", "namespace": "default", "name": name}
        self.workload.kubectl("apply", "-f", "-", input=as_yaml(rbac.roles(name, _PERMISSIONS, subject)))
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = str(self.request(self.workload, "POST", f"{home}/{name}/token", request)["status"]["token"])
        for old in self.accounts:
            self.request(self.workload, "DELETE", f"{home}/{old}")
        self.accounts = [name]
        return token

    def is_refused(self, token: str) -> bool:
        """Tell whether a token is not accepted any more."""
        flags = ("--server", self.workload.server, "--token", token, "--insecure-skip-tls-verify", "--kubeconfig=")
        return "logged in" in self.management.kubectl("get", "nodes", *flags, check=False).stderr

    def write_kubeconfig_secret(self, namespace: str, **user: str) -> None:
        """Put a kubeconfig into the Secret."""
        ca = base64.b64encode(self.workload.ca).decode()
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": self.workload.server, "certificate-authority-data": ca}}],
            "users": [{"name": "it", "user": user}],
        }
        secret: RawObject = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "cluster.x-k8s.io/secret",
            "metadata": {"name": "prod-kubeconfig", "namespace": namespace},
            "stringData": {"value": yaml.safe_dump(kubeconfig)},
        }
        self.management.kubectl("apply", "-f", "-", input=as_yaml([secret]))


def as_yaml(objects: list[RawObject]) -> str:
    """Return objects for kubectl."""
    return yaml.safe_dump_all(objects)


@contextmanager
def two_control_planes() -> Iterator[TwoControlPlanes]:
    """Yield both, with Cluster API defined."""
    with ControlPlane() as management, ControlPlane() as workload:
        definitions = [a_cluster_api_crd(kind, "v1beta2", "v1beta1") for kind in ("Machine", "Cluster")]
        management.kubectl("apply", "-f", "-", input=as_yaml(definitions))
        names = [f"crd/{crd['metadata']['name']}" for crd in definitions]
        management.kubectl("wait", "--for=condition=Established", *names)
        yield TwoControlPlanes(management, workload)
