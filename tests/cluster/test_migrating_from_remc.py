"""What "Coming from the runtime-extension-maintenance-controller" says is done, on two real control planes.

That controller is imitated by what it would leave: its Deployment, hooks and labels, a Machine in mid-deletion, and a
lease that it renews for as long as its Deployment wants replicas. A profile approves what it is asked for.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from haulout.api.clusterapi import (
    APPROVE_DELETION,
    EXTENSION_LEASE,
    MACHINE_DELETED,
    PRE_DRAIN_HOOK,
    PRE_DRAIN_HOOK_OWNER,
)
from haulout.api.objects import RawObject
from haulout.core.clock import RealClock
from support.builders.objects import a_workload
from support.docs.page_commands import Reader, Shell
from support.platforms.two_control_planes import MACHINES, TwoControlPlanes, two_control_planes

PAGE = Path(__file__).parents[2] / "docs" / "migrating" / "runtime-extension-maintenance-controller.md"
NAMESPACE = "maintenance"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
HOLDER = f"{EXTENSION_LEASE}-6b9f8_0b7e4c5e"


def leave_controller_state(both: TwoControlPlanes) -> None:
    """Leave what the controller leaves: two Machines are held, of which one is being deleted."""
    for namespace in (NAMESPACE, "team-a"):
        both.management.kubectl("create", "namespace", namespace)
    both.write_kubeconfig_secret("team-a", token=both.new_token())
    both.request(both.management, "POST", DEPLOYMENTS, a_workload("Deployment", EXTENSION_LEASE, replicas=1))
    for name in ("m1", "m2"):
        both.add_machine("team-a", name)
        path = f"{MACHINES.format('team-a')}/{name}"
        both.request(
            both.management, "PATCH", path, {"metadata": {"annotations": {PRE_DRAIN_HOOK: PRE_DRAIN_HOOK_OWNER}}}
        )
    both.delete_machine("team-a", "m2")
    both.label_node("m2", MACHINE_DELETED, "true")


@contextmanager
def controller_at_work(both: TwoControlPlanes) -> Iterator[None]:
    """Have the controller lead for as long as its Deployment wants it, and a profile approve once it does not."""
    ends = threading.Event()

    def work() -> None:
        while not ends.wait(0.3):
            deployment = both.request(both.management, "GET", f"{DEPLOYMENTS}/{EXTENSION_LEASE}")
            if deployment["spec"]["replicas"]:
                renew_lease(both)
            else:
                both.label_node("m2", APPROVE_DELETION, "true")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def renew_lease(both: TwoControlPlanes) -> None:
    """Take the lease if it is free, or renew it; it lasts three seconds instead of fifteen."""
    now = RealClock().now()
    spec = {"holderIdentity": HOLDER, "leaseDurationSeconds": 3, "renewTime": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}"}
    found = both.management.request("GET", f"{LEASES}/{EXTENSION_LEASE}")
    if found.status == 404:
        both.request(both.management, "POST", LEASES, {"metadata": {"name": EXTENSION_LEASE}, "spec": spec})
        return
    lease: RawObject = found.json()
    renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
    is_over = now > renewed + timedelta(seconds=lease["spec"]["leaseDurationSeconds"])
    if lease["spec"].get("holderIdentity") in ("", None, HOLDER) or is_over:
        version = lease["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": version}, "spec": spec}
        both.management.request(
            "PATCH", f"{LEASES}/{EXTENSION_LEASE}", change, content_type="application/merge-patch+json"
        )


@pytest.mark.real_time
def test_page_steps_succeed(tmp_path: Path) -> None:
    with two_control_planes() as both:
        leave_controller_state(both)
        management = both.management
        shell = Shell(tmp_path, kubeconfig=management.kubeconfig(), kubectl=management.assets.path("kubectl"))
        with controller_at_work(both):
            Reader(shell).follow(PAGE.read_text())
        assert both.hook_annotation("team-a", "m1") == PRE_DRAIN_HOOK_OWNER
        assert both.hook_annotation("team-a", "m2") is None
        deployment = both.request(management, "GET", f"{DEPLOYMENTS}/{EXTENSION_LEASE}")
        pod = deployment["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == "haulout-hub"
        assert pod["containers"][0]["command"] == ["haulout", EXTENSION_LEASE]
