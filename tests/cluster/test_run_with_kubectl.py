"""The real kubectl on `haulout run --sandbox`, as its first lines advise."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane import ControlPlane
from support.servers.sandbox_process import SandboxProcess, a_scenario_without_timeline, running_sandbox

PATIENCE_SECONDS = 60
_CORDONED = ("Ready,SchedulingDisabled", "NotReady,SchedulingDisabled")


class Kubectl:
    """Runs kubectl with the kubeconfig of a sandbox."""

    def __init__(self, binary: Path, running: SandboxProcess) -> None:
        self.running = running
        self._binary = binary
        self._environment = {**os.environ, "KUBECONFIG": str(running.kubeconfig), "HOME": str(running.home)}

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [str(self._binary), *args],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def rows(self, *args: str) -> list[list[str]]:
        """Return the cells of a table, without its header."""
        done = self(*args)
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()[1:]]

    def age_in_minutes(self, node: str) -> int:
        """Return the printed age of a node."""
        age = self.rows("get", "node", node)[0][3]
        hours, _, minutes_part = age.rpartition("h")
        return 60 * int(hours or "0") + int(minutes_part.partition("m")[0] or "0")

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start a command that does not end by itself."""
        return subprocess.Popen([str(self._binary), *args], env=self._environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def kubectl(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Kubectl]:
    """Run a sandbox whose clock is so fast that a watch timed by it would last only seconds; yield kubectl on it."""
    args = ["--nodes", "3", "--pods-per-node", "3", "--speed", "1200", "--write-kubeconfig", str(tmp_path / "kc")]
    with running_sandbox(tmp_path, *args, "--scenario", a_scenario_without_timeline(tmp_path)) as running:
        yield Kubectl(control_plane.assets.path("kubectl"), running)


def test_printed_commands_work(kubectl: Kubectl) -> None:
    assert {row[1] for row in kubectl.rows("get", "nodes")} == {"Ready"}
    pods = kubectl.rows("get", "pods", "-A", "-o", "wide")
    assert {row[3] for row in pods} <= {"Running", "Completed"}
    advised = next(line.split("'")[1] for line in kubectl.running.output_lines if "kubectl apply" in line)
    name, node = json.loads(advised)["metadata"]["name"], json.loads(advised)["spec"]["nodeName"]
    order = kubectl.running.home / "order.json"
    order.write_text(advised)
    assert kubectl("apply", "-f", str(order)).returncode == 0
    order.unlink()
    waits_for = ("get", "nm", name, "-o", "jsonpath={.status.phase} {.status.blockers[*].object}")
    while kubectl(*waits_for).stdout != "Running PodDisruptionBudget bank/ledger":
        assert kubectl.running.process.poll() is None
    left = [row[1] for row in kubectl.rows("get", "pods", "-A", f"--field-selector=spec.nodeName={node}")]
    assert any(name.startswith("ledger-") for name in left)
    assert "Unschedulable:      true\n" in kubectl("describe", "node", node).stdout
    assert kubectl("delete", "nodemaintenance", name).returncode == 0
    assert "Unschedulable:      false\n" in kubectl("describe", "node", node).stdout


def test_watch_stays_open_while_hours_pass(kubectl: Kubectl) -> None:
    with kubectl.start("get", "nodes", "-w") as watching:
        try:
            lines = watching.stdout
            assert lines is not None
            assert all(lines.readline() for _ in range(1 + 3))
            while kubectl.age_in_minutes("general-01") < 70:
                assert watching.poll() is None
            assert kubectl("cordon", "general-02").returncode == 0
            line = ""
            while "SchedulingDisabled" not in line:
                line = lines.readline()
                assert line, "the watch has ended"
            assert line.startswith("general-02")
        finally:
            watching.terminate()


def test_hub_and_its_workload_clusters_are_reachable(control_plane: ControlPlane, tmp_path: Path) -> None:
    args = ["--scenario", "hub", "--speed", "60", "--write-kubeconfig", str(tmp_path / "kc")]
    with running_sandbox(tmp_path, *args) as running:
        kubectl = Kubectl(control_plane.assets.path("kubectl"), running)
        contexts = [line.split()[2] for line in running.output_lines if "kubectl --context" in line]
        assert contexts == ["sandbox-team-a-prod", "sandbox-team-b-prod", "sandbox-datacentre-metal"]
        assert len(kubectl.rows("get", "clusters", "-A")) == 3
        for context in contexts:
            assert {row[1] for row in kubectl.rows("--context", context, "get", "nodes")} <= {"Ready", *_CORDONED}
        assert {row[2] for row in kubectl.rows("get", "bmh", "-A")} <= {"provisioned", "available"}
        advised = (
            next(line for line in running.output_lines if "kubectl delete machine" in line).partition("#")[0].split()
        )
        assert kubectl(*advised[1:]).returncode == 0
        running.wait_for_line("is gone")
        found = kubectl("get", "secret", "-n", "team-b", "prod-kubeconfig", "-o", "jsonpath={.data.value}")
        (tmp_path / "secret").write_bytes(base64.b64decode(found.stdout))
        nodes = kubectl.rows("--kubeconfig", str(tmp_path / "secret"), "get", "nodes")
        (tmp_path / "secret").unlink()
        assert len(nodes) >= 3
