"""What the cookbook has to be applied to a cluster is what a cluster takes."""

from pathlib import Path

from controlplane import ControlPlane

AGENT = Path(__file__).parents[2] / "examples" / "cookbook" / "kernel-reboot-agent.yaml"


def test_the_agent_that_reboots_is_taken_without_a_warning(control_plane: ControlPlane) -> None:
    said = control_plane.kubectl("apply", "--dry-run=server", "-f", str(AGENT))
    assert (said.returncode, said.stderr) == (0, "")
    assert "daemonset.apps/reboot-agent created (server dry run)" in said.stdout
