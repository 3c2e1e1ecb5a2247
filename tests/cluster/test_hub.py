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
from haulout.app.hub_manifests import needed
from haulout.core.clock import RealClock
from haulout.kinds.clusterapi import (
    APPROVE_DELETION,
    APPROVE_MAINTENANCE,
    HOOK_OWNER,
    MACHINE_DELETED,
    MACHINE_MAINTENANCE,
    MANAGED,
)
from haulout.kube import access
from support.eventually import eventually
from support.two_planes import Both, as_yaml, two_control_planes

CLOCK = RealClock()

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    """Yield both control planes, and a user who may do what a hub needs."""
    with two_control_planes() as found:
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "hub"}
        roles = access.roles("hub", needed("default"), subject)
        found.management.kubectl("apply", "-f", "-", input=as_yaml(roles))
        yield found


@pytest.fixture
def home(both: Both, request: pytest.FixtureRequest) -> str:
    """Return a namespace for one test."""
    name = str(request.node.name).partition("[")[0].replace("_", "-")[:50].rstrip("-")
    both.management.kubectl("create", "namespace", name)
    return name


@pytest.fixture
def hub(both: Both, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Return how to start a hub, by its command line; it ends with the test."""
    started: list[subprocess.Popen[bytes]] = []
    kubeconfig = both.management.kubeconfig("hub", groups=())

    def start(*flags: str) -> Path:
        command = [sys.executable, "-m", "haulout", "runtime-extension-maintenance-controller"]
        ports = [f"-metrics-addr=127.0.0.1:{free_port()}", f"-health-addr=127.0.0.1:{free_port()}"]
        where = [f"-kubeconfig={kubeconfig}", *ports]
        with (tmp_path / "hub.log").open("ab") as log:
            started.append(subprocess.Popen([*command, *where, *flags], stderr=log))
        return tmp_path / "hub.log"

    yield start
    for process in started:
        process.terminate()
        assert process.wait(60) == 0, (tmp_path / "hub.log").read_text()
        assert "Traceback" not in (tmp_path / "hub.log").read_text()


async def until(look: Callable[[], bool]) -> None:
    await eventually(CLOCK, look, within=timedelta(minutes=1), every=timedelta(milliseconds=50))


async def stays(look: Callable[[], bool], *, seconds: float = 1) -> None:
    for _ in range(10):
        assert look()
        await CLOCK.sleep(timedelta(seconds=seconds / 10))


async def test_deletion_and_maintenance_from_end_to_end(both: Both, hub: Callable[..., Path], home: str) -> None:
    """Cases 1 to 12, 17, 18, 21 and 31."""
    both.give(home, token=both.token())
    log = hub("-leader-elect=false")
    both.add(home, "a1", managed=None)
    both.add(home, "a2")
    await until(lambda: both.hook(home, "a2") == HOOK_OWNER)
    await stays(lambda: both.hook(home, "a1") is None)
    both.mark("a1", MANAGED, "whatever")
    await until(lambda: both.hook(home, "a1") == HOOK_OWNER)

    both.label(home, "a1", maintenance="requested")
    await until(lambda: both.says("a1", MACHINE_MAINTENANCE))
    assert both.wish(home, "a1") == "requested"
    both.mark("a1", APPROVE_MAINTENANCE, "true")
    await until(lambda: both.wish(home, "a1") == "approved")
    both.label(home, "a1", maintenance=None)
    await until(lambda: not both.says("a1", MACHINE_MAINTENANCE))
    both.label(home, "a1", maintenance="requested")
    await stays(lambda: not both.says("a1", MACHINE_MAINTENANCE))  # the approval of the one before is still there
    both.mark("a1", APPROVE_MAINTENANCE, None)
    await until(lambda: both.says("a1", MACHINE_MAINTENANCE))

    both.delete(home, "a2")
    await until(lambda: both.says("a2", MACHINE_DELETED))
    await stays(lambda: both.hook(home, "a2") == HOOK_OWNER)
    both.mark("a2", APPROVE_DELETION, "true")
    await until(lambda: both.hook(home, "a2") is None)
    await until(lambda: "DeletionApproved" in _reasons(both.management, home, "a2"))
    await until(lambda: "DeletionRequested" in _reasons(both.workload, "default", "n-a2"))

    both.label(home, "a1", enabled="True")
    await until(lambda: both.hook(home, "a1") is None)
    assert not both.says("a1", MACHINE_MAINTENANCE)
    assert "forbidden" not in log.read_text().lower()


def _reasons(cluster: ControlPlane, namespace: str, name: str) -> list[str]:
    found = cluster.request("GET", f"/api/v1/namespaces/{namespace}/events").json()["items"]
    return [it["reason"] for it in found if it["involvedObject"]["name"] == name]


async def test_as_the_controller_before_us_an_approval_counts_whenever_it_was_given(
    both: Both, hub: Callable[..., Path], home: str
) -> None:
    """Cases 5, 8, 11 and 23, as they are in the suites of the runtime-extension-maintenance-controller."""
    both.give(home, token=both.token())
    hub("-leader-elect=false", "-old-approvals=honour")
    both.add(home, "b1")
    await until(lambda: both.hook(home, "b1") == HOOK_OWNER)
    both.mark("b1", APPROVE_DELETION, "true")
    await until(lambda: both.hook(home, "b1") is None)
    both.mark("b1", APPROVE_DELETION, None)
    await until(lambda: both.hook(home, "b1") == HOOK_OWNER)
    both.mark("b1", APPROVE_MAINTENANCE, "true")
    for _ in range(2):
        both.label(home, "b1", maintenance="requested")
        await until(lambda: both.wish(home, "b1") == "approved")


async def test_a_rotated_secret_is_taken_up(both: Both, hub: Callable[..., Path], home: str) -> None:
    """Case 13: a token that is not accepted any more, and a certificate in its place."""
    token = both.token()
    both.give(home, token=token)
    log = hub("-namespace=default")  # with a lease
    both.add(home, "c1")
    await until(lambda: both.hook(home, "c1") == HOOK_OWNER)
    identity = both.workload.client_certificate("somebody", ("system:masters",))
    certificate = {
        "client-certificate-data": base64.b64encode(identity.certificate).decode(),
        "client-key-data": base64.b64encode(identity.key).decode(),
    }
    both.give(home, **certificate)
    both.token()
    await until(lambda: both.is_refused(token))  # the server remembers for some seconds who it was
    assert "its kubeconfig has changed" not in log.read_text()
    both.delete(home, "c1")
    await until(lambda: both.says("c1", MACHINE_DELETED))
    assert f"cluster {home}/prod: its kubeconfig has changed" in log.read_text()


async def test_an_api_server_that_is_away_is_waited_for(both: Both, hub: Callable[..., Path], home: str) -> None:
    both.give(home, token=both.token())
    hub("-leader-elect=false")
    both.add(home, "d1")
    await until(lambda: both.hook(home, "d1") == HOOK_OWNER)
    both.workload.kill_apiserver()
    both.delete(home, "d1")
    await stays(lambda: both.hook(home, "d1") == HOOK_OWNER, seconds=3)
    both.workload.start_apiserver()
    await until(lambda: both.says("d1", MACHINE_DELETED))
