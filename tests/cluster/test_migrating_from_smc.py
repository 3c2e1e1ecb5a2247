"""What "Coming from the SAP maintenance-controller" says is done, word by word, on a real control plane.

The SAP maintenance-controller is imitated by what it would leave: its Deployment and file, nodes in mid-maintenance,
and a lease that it renews for as long as its Deployment wants replicas. An agent reboots nodes that may be rebooted.
"""

import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.api.objects import RawObject
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL
from haulout.core.clock import RealClock
from support.builders.objects import a_node, a_workload
from support.docs.page_commands import Reader, Shell

PAGE = Path(__file__).parents[2] / "docs" / "migrating" / "maintenance-controller.md"
NAMESPACE = "/api/v1/namespaces/kube-system"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/maintenance-controller-leader-election.cloud.sap"
HOLDER = "maintenance-controller-7d4b9c6f8-x2x5q_0b7e4c5e"
DEPLOYMENT = "/apis/apps/v1/namespaces/kube-system/deployments/maintenance-controller"
FLATCAR = "flatcar-linux-update.v1.flatcar-linux.net"
FILE = f"""\
intervals:
  requeue: 60s
  notify: 5h
instances:
  check:
  - {{type: hasAnnotation, name: reboot_needed, config: {{key: {FLATCAR}/reboot-needed, value: "true"}}}}
  - {{type: maxMaintenance, name: one, config: {{max: 1}}}}
  trigger:
  - {{type: eviction, name: drain, config: {{action: drain}}}}
  - {{type: eviction, name: uncordon, config: {{action: uncordon}}}}
  - {{type: alterAnnotation, name: reboot-ok, config: {{key: {FLATCAR}/reboot-ok, value: "true"}}}}
  - {{type: alterAnnotation, name: reboot-done, config: {{key: {FLATCAR}/reboot-ok, remove: true}}}}
profiles:
- name: flatcar
  operational:
    transitions:
    - {{check: reboot_needed, next: maintenance-required}}
  maintenance-required:
    transitions:
    - {{check: one, next: in-maintenance}}
  in-maintenance:
    enter: drain && reboot-ok
    transitions:
    - {{check: "!reboot_needed", next: operational, trigger: reboot-done && uncordon}}
"""


class Cluster:
    """The control plane, by its paths."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane

    def get(self, path: str) -> RawObject:
        """Return an object."""
        answer = self._control_plane.request("GET", path)
        return answer.json() if answer.status == 200 else {}

    def make(self, path: str, obj: RawObject) -> None:
        """Create an object."""
        answer = self._control_plane.request("POST", path, obj)
        assert answer.status == 201, answer.body

    def change(self, path: str, change: RawObject) -> None:
        """Merge something into an object."""
        answer = self._control_plane.request("PATCH", path, change, content_type="application/merge-patch+json")
        assert answer.status == 200, answer.body


@pytest.fixture
def cluster() -> Iterator[tuple[ControlPlane, Cluster]]:
    """Have a cluster for this test alone."""
    with ControlPlane() as control_plane:
        yield control_plane, Cluster(control_plane)


def a_node_with_state(node: str, state: str, *, previous: str, **more: Any) -> RawObject:
    """Return a node as the SAP maintenance-controller has left it."""
    entry = {"Transition": "2026-01-05T09:00:00.123456789Z", "Current": state, "Previous": previous}
    data = json.dumps({"Profiles": {"flatcar": entry}, "Notifications": {}}, separators=(",", ":"))
    made = a_node(node, labels={PROFILE_LABEL: "flatcar", STATE_LABEL: state}, **more)
    return made.annotated({DATA_ANNOTATION: data, f"{FLATCAR}/reboot-needed": "true"})


def leave_controller_state(cluster: Cluster) -> None:
    """Leave what the SAP maintenance-controller leaves."""
    draining = a_node_with_state("n1", "in-maintenance", previous="maintenance-required", unschedulable=True)
    cluster.make("/api/v1/nodes", draining)
    cluster.make("/api/v1/nodes", a_node_with_state("n2", "maintenance-required", previous="maintenance-required"))
    metadata = {"name": "maintenance-controller"}
    cluster.make(f"{NAMESPACE}/configmaps", {"metadata": metadata, "data": {"maintenance.yaml": FILE}})
    deployment = a_workload("Deployment", "maintenance-controller", replicas=2)
    cluster.make(DEPLOYMENT.rpartition("/")[0], deployment)


class PredecessorProcesses:
    """The SAP maintenance-controller, as far as others notice it, and the agent that reboots; both in a thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(0.3):
            if self._cluster.get(DEPLOYMENT)["spec"]["replicas"]:
                self._renew_lease()
            for node in ("n1", "n2"):
                self._reboot(node)

    def _renew_lease(self) -> None:
        """Take the lease if it is free, or renew it; it lasts three seconds instead of fifteen."""
        now, lease = RealClock().now(), self._cluster.get(LEASE)
        spec = {"holderIdentity": HOLDER, "leaseDurationSeconds": 3, "renewTime": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}"}
        if not lease:
            metadata = {"name": LEASE.rpartition("/")[2]}
            self._cluster.make(LEASE.rpartition("/")[0], {"metadata": metadata, "spec": spec})
        elif lease["spec"].get("holderIdentity") in ("", None, HOLDER) or _is_expired(lease["spec"], now):
            self._cluster.change(LEASE, {"metadata": {"resourceVersion": _version(lease)}, "spec": spec})

    def _reboot(self, name: str) -> None:
        node = self._cluster.get(f"/api/v1/nodes/{name}")
        annotations, rebooted = node["metadata"]["annotations"], {f"{FLATCAR}/reboot-needed": "false"}
        if annotations.get(f"{FLATCAR}/reboot-ok") == "true" and node["spec"].get("unschedulable"):
            self._cluster.change(f"/api/v1/nodes/{name}", {"metadata": {"annotations": rebooted}})


def _version(obj: RawObject) -> str:
    return str(obj["metadata"]["resourceVersion"])


def _is_expired(spec: RawObject, now: datetime) -> bool:
    renewed = datetime.fromisoformat(spec["renewTime"])
    return now > renewed + timedelta(seconds=spec["leaseDurationSeconds"])


def test_page_steps_succeed(cluster: tuple[ControlPlane, Cluster], tmp_path: Path) -> None:
    control_plane, objects = cluster
    leave_controller_state(objects)
    shell = Shell(tmp_path, kubeconfig=control_plane.kubeconfig(), kubectl=control_plane.assets.path("kubectl"))
    with PredecessorProcesses(objects):
        Reader(shell).follow(PAGE.read_text())
    for name in ("n1", "n2"):
        node = objects.get(f"/api/v1/nodes/{name}")
        data = json.loads(node["metadata"]["annotations"][DATA_ANNOTATION])
        assert (set(data), set(data["Profiles"]["flatcar"])) == (
            {"Profiles", "Notifications"},
            {"Transition", "Current", "Previous"},
        ), "the Go program refuses members that it does not know"
        assert (data["Profiles"]["flatcar"]["Current"], node["spec"].get("unschedulable")) == ("operational", None)
