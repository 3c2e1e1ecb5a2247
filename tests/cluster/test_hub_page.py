"""What "A hub for several clusters" says is done, and after that what the dashboard tells people to type.

Cluster API is the stand-in of the sandbox, as the page has it.
"""

import json
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from support.clone import a_shell, page
from support.eventually import eventually
from support.pages import Reader, Shell

PORT = "8080"  # of the page
CLOCK = RealClock()


class Dashboard:
    """What the hub shows of a cluster, to somebody who types what it says."""

    def __init__(self, shell: Shell, port: int) -> None:
        self._shell = shell
        self._address = f"http://127.0.0.1:{port}/api/v2/clusters"

    def cluster(self, key: str) -> Any:
        """Return what is told of a cluster."""
        command = f'curl -sS -H "Authorization: Bearer $HAULOUT_TOKEN" {self._address}'
        tiles = json.loads(self._shell.run(command))["clusters"]
        return next(it for it in tiles if it["key"] == key)

    def active(self, key: str) -> Any:
        """Return the Machines of a cluster about which something goes on."""
        return self.cluster(key).get("active", [])

    async def machine(self, key: str, *, approved: bool) -> Any:
        """Return the one Machine that is active in a cluster, once it is approved, or waits."""

        def look() -> Any:
            return next((it for it in self.active(key) if it.get("isApproved", False) is approved), None)

        return await eventually(CLOCK, look, within=timedelta(seconds=20), every=timedelta(milliseconds=200))

    def type(self, about: Any, title: str) -> str:
        """Type what is offered under a title; return what that says."""
        return self._shell.run(next(it["command"] for it in about["commands"] if it["title"] == title))


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.real_time
async def test_each_step_of_the_page_and_each_command_of_the_dashboard_does_what_it_says(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    port = a_free_port()
    shell = a_shell(tmp_path, control_plane)
    with Reader(shell).following(page("docs/how-to/hub.md").replace(PORT, str(port))):
        await maintain(shell, Dashboard(shell, port))
        await delete(shell, Dashboard(shell, port))


async def maintain(shell: Shell, dashboard: Dashboard) -> None:
    """Have a Machine be maintained."""
    shell.run("kubectl -n team-a label $A runtime-extension-maintenance-controller.cloud.sap/maintenance=requested")
    dashboard.type(dashboard.cluster("team-a/prod"), "Get its kubeconfig, and try it")
    shell.run(
        "kubectl --kubeconfig team-a-prod.kubeconfig label nodes --all "
        "runtime-extension-maintenance-controller.cloud.sap/approve-maintenance-"
    )
    waits = await dashboard.machine("team-a/prod", approved=False)
    assert "asks for maintenance, and waits for label" in dashboard.type(waits, "Why it waits")
    dashboard.type(waits, "Approve it by hand")
    ready = await dashboard.machine("team-a/prod", approved=True)
    assert "approved" in dashboard.type(ready, "What Cluster API says")
    dashboard.type(ready, "Say that it is done")
    await eventually(CLOCK, lambda: not dashboard.active("team-a/prod"), every=timedelta(milliseconds=200))


async def delete(shell: Shell, dashboard: Dashboard) -> None:
    """Have a Machine be deleted, and nobody prepare its node."""
    shell.run("kubectl -n team-a delete $A --wait=false")
    waits = await dashboard.machine("team-a/prod", approved=False)
    assert waits["why"] == "deletion"
    assert shell.run("echo ${A#*/}").strip() in dashboard.type(dashboard.cluster("team-a/prod"), "See its Machines")
    dashboard.type(waits, "Do not wait for its node")
    reason = "-o jsonpath='{.status.conditions[?(@.type==\"Deleting\")].reason}'"
    await eventually(
        CLOCK,
        lambda: shell.run(f"kubectl -n team-a get $A {reason} --ignore-not-found") != "WaitingForPreDrainHook",
        every=timedelta(milliseconds=200),
    )
