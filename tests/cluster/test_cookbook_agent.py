"""The manifests of the cookbook are accepted by a cluster."""

from pathlib import Path

from controlplane import ControlPlane

AGENT = Path(__file__).parents[2] / "examples" / "cookbook" / "kernel-reboot-agent.yaml"


def test_reboot_agent_manifest_is_accepted_without_warnings(control_plane: ControlPlane) -> None:
    output = control_plane.kubectl("apply", "--dry-run=server", "-f", str(AGENT))
    assert (output.returncode, output.stderr) == (0, "")
    assert "daemonset.apps/reboot-agent created (server dry run)" in output.stdout
