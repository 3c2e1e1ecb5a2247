"""The page "A hub for several clusters", and the commands that the dashboard shows.

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
    """The API of the hub, and its commands, which run in a shell."""

    def __init__(self, shell: Shell, port: int) -> None:
        self._shell = shell
        self._address = f"http://127.0.0.1:{port}/api/v2/clusters"

    def cluster(self, key: str) -> Any:
        """Return the tile of a cluster."""
        command = f'curl -sS -H "Authorization: Bearer $HAULOUT_TOKEN" {self._address}'
        tiles = json.loads(self._shell.run(command))["clusters"]
        return next(tile for tile in tiles if tile["key"] == key)

    def active(self, key: str) -> Any:
        """Return the active Machines of a cluster."""
        return self.cluster(key).get("active", [])

    async def machine(self, key: str, *, approved: bool) -> Any:
        """Return the one Machine that is active in a cluster, once it is approved, or waits."""

        def active_machine() -> Any:
            return next((item for item in self.active(key) if item.get("isApproved", False) is approved), None)

        return await eventually(CLOCK, active_machine, within=timedelta(seconds=20), every=timedelta(milliseconds=200))

    def run_command(self, tile: Any, title: str) -> str:
        """Run the command with a title; return its output."""
        return self._shell.run(next(command["command"] for command in tile["commands"] if command["title"] == title))


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.real_time
async def test_page_steps_and_dashboard_commands_succeed(control_plane: ControlPlane, tmp_path: Path) -> None:
    port = a_free_port()
    shell = a_shell(tmp_path, control_plane)
    with Reader(shell).followed(page_text("docs/tutorials/hub.md").replace(PORT, str(port))):
        await maintain_machine(shell, Dashboard(shell, port))
        await delete_machine(shell, Dashboard(shell, port))


async def maintain_machine(shell: Shell, dashboard: Dashboard) -> None:
    """Maintain a Machine with the commands of the dashboard."""
    shell.run("kubectl -n team-a label $A runtime-extension-maintenance-controller.cloud.sap/maintenance=requested")
    dashboard.run_command(dashboard.cluster("team-a/prod"), "Get its kubeconfig and test it")
    shell.run(
        "kubectl --kubeconfig team-a-prod.kubeconfig label nodes --all "
        "runtime-extension-maintenance-controller.cloud.sap/approve-maintenance-"
    )
    waiting_machine = await dashboard.machine("team-a/prod", approved=False)
    assert "requests maintenance, and waits for label" in dashboard.run_command(
        waiting_machine, "Show what it waits for"
    )
    dashboard.run_command(waiting_machine, "Approve it by hand")
    approved_machine = await dashboard.machine("team-a/prod", approved=True)
    assert "approved" in dashboard.run_command(approved_machine, "Show the Machine and its conditions")
    dashboard.run_command(approved_machine, "End the maintenance")
    await eventually(CLOCK, lambda: not dashboard.active("team-a/prod"), every=timedelta(milliseconds=200))


async def delete_machine(shell: Shell, dashboard: Dashboard) -> None:
    """Delete a Machine without preparing its node."""
    shell.run("kubectl -n team-a delete $A --wait=false")
    waiting_machine = await dashboard.machine("team-a/prod", approved=False)
    assert waiting_machine["request"] == "deletion"
    assert shell.run("echo ${A#*/}").strip() in dashboard.run_command(
        dashboard.cluster("team-a/prod"), "List its Machines"
    )
    dashboard.run_command(waiting_machine, "Delete the Machine without preparing its node")
    reason = "-o jsonpath='{.status.conditions[?(@.type==\"Deleting\")].reason}'"
    await eventually(
        CLOCK,
        lambda: shell.run(f"kubectl -n team-a get $A {reason} --ignore-not-found") != "WaitingForPreDrainHook",
        every=timedelta(milliseconds=200),
    )
