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
from support.docs.page_commands import Reader, Shell
from support.docs.repository_clone import a_shell, page_text
from support.expectations.eventually import eventually

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
        return next(tile for tile in tiles if tile["key"] == key)

    def active(self, key: str) -> Any:
        """Return the Machines of a cluster about which something goes on."""
        return self.cluster(key).get("active", [])

    async def machine(self, key: str, *, approved: bool) -> Any:
        """Return the one Machine that is active in a cluster, once it is approved, or waits."""

        def active_machine() -> Any:
            return next((item for item in self.active(key) if item.get("isApproved", False) is approved), None)

        return await eventually(CLOCK, active_machine, within=timedelta(seconds=20), every=timedelta(milliseconds=200))

    def run_command(self, tile: Any, title: str) -> str:
        """Type what is offered under a title; return what that says."""
        return self._shell.run(next(command["command"] for command in tile["commands"] if command["title"] == title))


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
    with Reader(shell).followed(page_text("docs/tutorials/hub.md").replace(PORT, str(port))):
        await maintain_machine(shell, Dashboard(shell, port))
        await delete_machine(shell, Dashboard(shell, port))


async def maintain_machine(shell: Shell, dashboard: Dashboard) -> None:
    """Have a Machine be maintained."""
    shell.run("kubectl -n team-a label $A runtime-extension-maintenance-controller.cloud.sap/maintenance=requested")
    dashboard.run_command(dashboard.cluster("team-a/prod"), "Get its kubeconfig and test it")
    shell.run(
        "kubectl --kubeconfig team-a-prod.kubeconfig label nodes --all "
        "runtime-extension-maintenance-controller.cloud.sap/approve-maintenance-"
    )
    waits = await dashboard.machine("team-a/prod", approved=False)
    assert "requests maintenance, and waits for label" in dashboard.run_command(waits, "Why it waits")
    dashboard.run_command(waits, "Approve it by hand")
    ready = await dashboard.machine("team-a/prod", approved=True)
    assert "approved" in dashboard.run_command(ready, "Show the Machine and its conditions")
    dashboard.run_command(ready, "End the maintenance")
    await eventually(CLOCK, lambda: not dashboard.active("team-a/prod"), every=timedelta(milliseconds=200))


async def delete_machine(shell: Shell, dashboard: Dashboard) -> None:
    """Have a Machine be deleted, and nobody prepare its node."""
    shell.run("kubectl -n team-a delete $A --wait=false")
    waits = await dashboard.machine("team-a/prod", approved=False)
    assert waits["request"] == "deletion"
    assert shell.run("echo ${A#*/}").strip() in dashboard.run_command(
        dashboard.cluster("team-a/prod"), "List its Machines"
    )
    dashboard.run_command(waits, "Delete the Machine without preparing its node")
    reason = "-o jsonpath='{.status.conditions[?(@.type==\"Deleting\")].reason}'"
    await eventually(
        CLOCK,
        lambda: shell.run(f"kubectl -n team-a get $A {reason} --ignore-not-found") != "WaitingForPreDrainHook",
        every=timedelta(milliseconds=200),
    )
