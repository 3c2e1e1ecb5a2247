"""The commands, each in a process of its own, on a sandbox in another process."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.sandbox_process import SandboxProcess, running_sandbox

pytestmark = pytest.mark.real_time

PATIENCE_SECONDS = 60
SCENARIO = """
pools: [{name: a, count: 3}]
workloads:
- {kind: Deployment, name: web, namespace: shop, replicas: 3}
- {kind: StatefulSet, name: ledger, namespace: bank, replicas: 1, budget: {minAvailable: 1}}
manifests:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: notes, namespace: default}, data: {text: "password: hunter2"}}
"""
NODES = ["a-01", "a-02", "a-03"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    """Run a sandbox with a pod that its PodDisruptionBudget never allows to evict."""
    folder = tmp_path_factory.mktemp("sandbox")
    (folder / "scenario.yaml").write_text(SCENARIO)
    arguments = ["--scenario", str(folder / "scenario.yaml"), "--write-kubeconfig", str(folder / "kubeconfig")]
    with running_sandbox(folder, *arguments) as sandbox:
        yield sandbox


def command(running: SandboxProcess, *args: str) -> list[str]:
    return [sys.executable, "-m", "haulout", *args, "--kubeconfig", str(running.kubeconfig)]


def haulout(running: SandboxProcess, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(running, *args), capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )


def blocked_and_free(running: SandboxProcess) -> tuple[str, str]:
    """Return a node that cannot be drained, and one that can."""
    done = haulout(running, "drain", *NODES, "--dry-run=server", "-o", "json")
    assert done.returncode == 1
    would_drain = {it["node"]: it["wouldDrain"] for it in json.loads(done.stdout)["nodes"]}
    return next(node for node in NODES if not would_drain[node]), next(node for node in NODES if would_drain[node])


def test_drain_and_uncordon_take_a_node_out_of_service_and_back(running: SandboxProcess) -> None:
    _, free = blocked_and_free(running)
    drained = haulout(running, "drain", free, "-o", "json")
    assert drained.returncode == 0, drained.stderr
    document = json.loads(drained.stdout)
    assert (document["drained"], document["interrupted"], document["nodes"][0]["result"]) == (True, False, "Drained")
    status_output = haulout(running, "status")
    assert f"{free}   cordoned   a person or another tool" in status_output.stdout
    assert haulout(running, "uncordon", free).stdout == f"node/{free} uncordoned\n"
    assert haulout(running, "status").stdout == "All 3 nodes are in service.\n"


def test_ctrl_c_stops_the_drain_and_reports_the_state_of_the_node(running: SandboxProcess) -> None:
    blocked, _ = blocked_and_free(running)
    process = subprocess.Popen(
        command(running, "drain", blocked, "-o", "json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = next(line for line in process.stderr if line.startswith("error when evicting pods/"))
    assert "PodDisruptionBudget bank/ledger" in line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert f"node/{blocked}  cordoned, partly drained: " in err
    assert "1 pod still running (bank/ledger-0)" in err
    assert f"To undo:   {sys.executable} -m haulout uncordon" in err
    document = json.loads(out)
    assert (document["interrupted"], document["nodes"][0]["pods"][0]["blocker"]["kind"]) == (True, "DisruptionBudget")
    assert haulout(running, "uncordon", blocked).returncode == 0


def test_drain_on_a_terminal_shows_live_progress_and_restores_the_cursor(running: SandboxProcess) -> None:
    blocked, _ = blocked_and_free(running)
    master_fd, slave_fd = pty.openpty()
    process = subprocess.Popen(
        command(running, "drain", blocked),
        stdin=slave_fd,
        stdout=slave_fd,
        stderr=slave_fd,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "30"},
    )
    os.close(slave_fd)
    screen = read_until(master_fd, b"blocked ")
    process.send_signal(signal.SIGTERM)
    screen += read_until(master_fd, b"To undo:")
    assert process.wait(PATIENCE_SECONDS) == 143
    os.close(master_fd)
    text = screen.decode()
    assert f"node/{blocked} cordoned" in text
    assert "0 of 1 nodes drained" in text
    assert "run more replicas, or relax the PodDisruptionBudget" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor comes back
    assert haulout(running, "uncordon", blocked).returncode == 0


def read_until(file: int, end: bytes) -> bytes:
    """Read from a terminal until `end` was written to it."""
    received = b""
    while end not in received:
        assert select.select([file], [], [], PATIENCE_SECONDS)[0], received
        received += os.read(file, 65536)
    return received


def test_invalid_drain_policy_is_reported_before_any_node_is_changed(running: SandboxProcess, tmp_path: Path) -> None:
    (tmp_path / "night.yaml").write_text("timeuot: 3s\nforce: maybe\n")
    done = haulout(running, "drain", *NODES, "--policy", str(tmp_path / "night.yaml"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"haulout: {tmp_path}/night.yaml:1: timeuot: unknown, did you mean timeout?",
        f"haulout: {tmp_path}/night.yaml:2: force: found 'maybe', expected true or false",
    ]
    assert haulout(running, "status").stdout == "All 3 nodes are in service.\n"


def test_why_explains_a_node_from_a_configuration_file(running: SandboxProcess, tmp_path: Path) -> None:
    file = tmp_path / "maintenance.yaml"
    file.write_text(
        "intervals: {requeue: 30s}\n"
        "instances: {check: [{name: needed, type: hasLabel, config: {key: needed}}]}\n"
        "profiles:\n- name: default\n  operational: {transitions: [{check: needed, next: maintenance-required}]}\n"
    )
    done = haulout(running, "why", "node/a-01", "--config", str(file))
    assert done.returncode == 0, done.stderr
    assert "profile default: operational\n" in done.stdout
    assert "it would pass if needed passed" in done.stdout
    assert haulout(running, "why", "a-99", "--config", str(file)).stderr == 'haulout: nodes "a-99" not found\n'


def test_gather_writes_an_archive_and_reports_missing_parts(running: SandboxProcess, tmp_path: Path) -> None:
    file = tmp_path / "for-support.tar.gz"
    done = haulout(running, "gather", "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{file}: ")
    assert "missing: no pod has the label app.kubernetes.io/name=haulout in any namespace" in done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        names = {it.partition("/")[2] for it in archive.getnames()}
        nodes = archive.extractfile(next(it for it in archive.getnames() if it.endswith("/nodes.json")))
        assert nodes is not None
        found = json.load(nodes)["items"]
        assert {it["metadata"]["name"] for it in found} >= set(NODES)
        notes = archive.extractfile(next(it for it in archive.getnames() if it.endswith("/configmaps.json")))
        assert notes is not None
        [kept] = [it["data"] for it in json.load(notes)["items"] if it["metadata"]["name"] == "notes"]
        assert kept == {"text": "password: (hidden)"}
    assert {"README.txt", "version", "cluster-info.json", "nodemaintenances.json", "events.json"} <= names


def test_gather_writes_into_a_directory(running: SandboxProcess, tmp_path: Path) -> None:
    assert haulout(running, "gather", "--directory", str(tmp_path / "must-gather")).returncode == 0
    assert (tmp_path / "must-gather" / "version").read_text().startswith("haulout/haulout\n")
    refused = haulout(running, "gather", "--directory", "/proc/nowhere")
    assert (refused.returncode, refused.stderr.splitlines()[-1][:27]) == (2, "haulout: /proc/nowhere/READ")
