"""The hub between two real control planes, by its own command line: over HTTPS, with rights that are asked for.

It has in the management cluster what `haulout manifests --mode management` grants and, by the kubeconfigs in Secrets,
what it says that it needs in workload clusters.
"""

import base64
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from controlplane import ControlPlane, free_port
from haulout.api.clusterapi import (
    APPROVE_DELETION,
    APPROVE_MAINTENANCE,
    MACHINE_DELETED,
    MACHINE_MAINTENANCE,
    MAINTENANCE_STATE,
    PRE_DRAIN_HOOK_OWNER,
)
from haulout.app.manifests.hub_manifests import hub_permissions
from haulout.core.clock import RealClock
from haulout.kube import rbac
from support.expectations.eventually import eventually
from support.platforms.two_control_planes import TwoControlPlanes, as_yaml, two_control_planes

CLOCK = RealClock()

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def both() -> Iterator[TwoControlPlanes]:
    """Yield both control planes, and a user who may do what a hub needs."""
    with two_control_planes() as found:
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "hub"}
        roles = rbac.roles("hub", hub_permissions("default"), subject)
        found.management.kubectl("apply", "-f", "-", input=as_yaml(roles))
        yield found


@pytest.fixture
def home(both: TwoControlPlanes, request: pytest.FixtureRequest) -> str:
    """Return a namespace for one test."""
    name = str(request.node.name).partition("[")[0].replace("_", "-")[:50].rstrip("-")
    both.management.kubectl("create", "namespace", name)
    return name


@pytest.fixture
def hub(both: TwoControlPlanes, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Return a function that starts a hub process, which is stopped with the test."""
    started: list[subprocess.Popen[bytes]] = []
    kubeconfig = both.management.kubeconfig("hub", groups=())

    def start(*flags: str) -> Path:
        command = [sys.executable, "-m", "haulout", "runtime-extension-maintenance-controller"]
        ports = [f"-metrics-addr=127.0.0.1:{free_port()}", f"-health-addr=127.0.0.1:{free_port()}"]
        options = [f"-kubeconfig={kubeconfig}", *ports]
        with (tmp_path / "hub.log").open("ab") as log:
            started.append(subprocess.Popen([*command, *options, *flags], stderr=log))
        return tmp_path / "hub.log"

    yield start
    for process in started:
        process.terminate()
        assert process.wait(60) == 0, (tmp_path / "hub.log").read_text()
        assert "Traceback" not in (tmp_path / "hub.log").read_text()


async def wait_until(probe: Callable[[], bool]) -> None:
    await eventually(CLOCK, probe, within=timedelta(minutes=1), every=timedelta(milliseconds=50))


async def assert_stays(probe: Callable[[], bool], *, seconds: float = 1) -> None:
    for _ in range(10):
        assert probe()
        await CLOCK.sleep(timedelta(seconds=seconds / 10))


async def test_deletion_and_maintenance_are_approved_end_to_end(
    both: TwoControlPlanes, hub: Callable[..., Path], home: str
) -> None:
    """Cases 1 to 12, 17, 18, 21 and 31."""
    both.write_kubeconfig_secret(home, token=both.new_token())
    log = hub("-leader-elect=false")
    both.add_machine(home, "a1", managed=None)
    both.add_machine(home, "a2")
    await wait_until(lambda: both.hook_annotation(home, "a2") == PRE_DRAIN_HOOK_OWNER)
    await assert_stays(lambda: both.hook_annotation(home, "a1") is None)
    both.label_node("a1", MAINTENANCE_STATE, "whatever")
    await wait_until(lambda: both.hook_annotation(home, "a1") == PRE_DRAIN_HOOK_OWNER)

    both.label_machine(home, "a1", maintenance="requested")
    await wait_until(lambda: both.is_node_label_true("a1", MACHINE_MAINTENANCE))
    assert both.maintenance_label(home, "a1") == "requested"
    both.label_node("a1", APPROVE_MAINTENANCE, "true")
    await wait_until(lambda: both.maintenance_label(home, "a1") == "approved")
    both.label_machine(home, "a1", maintenance=None)
    await wait_until(lambda: not both.is_node_label_true("a1", MACHINE_MAINTENANCE))
    both.label_machine(home, "a1", maintenance="requested")
    await assert_stays(
        lambda: not both.is_node_label_true("a1", MACHINE_MAINTENANCE)
    )  # the approval of the one before is still there
    both.label_node("a1", APPROVE_MAINTENANCE, None)
    await wait_until(lambda: both.is_node_label_true("a1", MACHINE_MAINTENANCE))

    both.delete_machine(home, "a2")
    await wait_until(lambda: both.is_node_label_true("a2", MACHINE_DELETED))
    await assert_stays(lambda: both.hook_annotation(home, "a2") == PRE_DRAIN_HOOK_OWNER)
    both.label_node("a2", APPROVE_DELETION, "true")
    await wait_until(lambda: both.hook_annotation(home, "a2") is None)
    await wait_until(lambda: "DeletionApproved" in _reasons(both.management, home, "a2"))
    await wait_until(lambda: "DeletionRequested" in _reasons(both.workload, "default", "n-a2"))

    both.label_machine(home, "a1", enabled="True")
    await wait_until(lambda: both.hook_annotation(home, "a1") is None)
    assert not both.is_node_label_true("a1", MACHINE_MAINTENANCE)
    assert "forbidden" not in log.read_text().lower()


def _reasons(cluster: ControlPlane, namespace: str, name: str) -> list[str]:
    found = cluster.request("GET", f"/api/v1/namespaces/{namespace}/events").json()["items"]
    return [item["reason"] for item in found if item["involvedObject"]["name"] == name]


async def test_old_approvals_are_honoured_when_configured(
    both: TwoControlPlanes, hub: Callable[..., Path], home: str
) -> None:
    """Cases 5, 8, 11 and 23, as they are in the suites of the runtime-extension-maintenance-controller."""
    both.write_kubeconfig_secret(home, token=both.new_token())
    hub("-leader-elect=false", "-old-approvals=honour")
    both.add_machine(home, "b1")
    await wait_until(lambda: both.hook_annotation(home, "b1") == PRE_DRAIN_HOOK_OWNER)
    both.label_node("b1", APPROVE_DELETION, "true")
    await wait_until(lambda: both.hook_annotation(home, "b1") is None)
    both.label_node("b1", APPROVE_DELETION, None)
    await wait_until(lambda: both.hook_annotation(home, "b1") == PRE_DRAIN_HOOK_OWNER)
    both.label_node("b1", APPROVE_MAINTENANCE, "true")
    for _ in range(2):
        both.label_machine(home, "b1", maintenance="requested")
        await wait_until(lambda: both.maintenance_label(home, "b1") == "approved")


async def test_rotated_kubeconfig_secret_is_reloaded(
    both: TwoControlPlanes, hub: Callable[..., Path], home: str
) -> None:
    """Case 13: a token that is not accepted any more, and a certificate in its place."""
    token = both.new_token()
    both.write_kubeconfig_secret(home, token=token)
    log = hub("-namespace=default")  # with a lease
    both.add_machine(home, "c1")
    await wait_until(lambda: both.hook_annotation(home, "c1") == PRE_DRAIN_HOOK_OWNER)
    identity = both.workload.client_certificate("somebody", ("system:masters",))
    certificate = {
        "client-certificate-data": base64.b64encode(identity.certificate).decode(),
        "client-key-data": base64.b64encode(identity.key).decode(),
    }
    both.write_kubeconfig_secret(home, **certificate)
    both.new_token()
    await wait_until(lambda: both.is_refused(token))  # the server caches the authentication for some seconds
    assert "its kubeconfig has changed" not in log.read_text()
    both.delete_machine(home, "c1")
    await wait_until(lambda: both.is_node_label_true("c1", MACHINE_DELETED))
    assert f"cluster {home}/prod: its kubeconfig has changed" in log.read_text()


async def test_unavailable_workload_api_server_is_retried(
    both: TwoControlPlanes, hub: Callable[..., Path], home: str
) -> None:
    both.write_kubeconfig_secret(home, token=both.new_token())
    hub("-leader-elect=false")
    both.add_machine(home, "d1")
    await wait_until(lambda: both.hook_annotation(home, "d1") == PRE_DRAIN_HOOK_OWNER)
    both.workload.kill_apiserver()
    both.delete_machine(home, "d1")
    await assert_stays(lambda: both.hook_annotation(home, "d1") == PRE_DRAIN_HOOK_OWNER, seconds=3)
    both.workload.start_apiserver()
    await wait_until(lambda: both.is_node_label_true("d1", MACHINE_DELETED))
