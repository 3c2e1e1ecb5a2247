"""The commands as a person meets them, in processes of their own, on a sandbox in another."""

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
    """Have a sandbox with a pod that a budget never lets go."""
    folder = tmp_path_factory.mktemp("sandbox")
    (folder / "scenario.yaml").write_text(SCENARIO)
    arguments = ["--scenario", str(folder / "scenario.yaml"), "--write-kubeconfig", str(folder / "kubeconfig")]
    with running_sandbox(folder, *arguments) as there:
        yield there


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
    would = {it["node"]: it["wouldDrain"] for it in json.loads(done.stdout)["nodes"]}
    return next(node for node in NODES if not would[node]), next(node for node in NODES if would[node])


def test_a_node_goes_out_of_service_and_comes_back(running: SandboxProcess) -> None:
    _, free = blocked_and_free(running)
    drained = haulout(running, "drain", free, "-o", "json")
    assert drained.returncode == 0, drained.stderr
    told = json.loads(drained.stdout)
    assert (told["drained"], told["interrupted"], told["nodes"][0]["result"]) == (True, False, "Drained")
    shown = haulout(running, "status")
    assert f"{free}   cordoned   a person or another tool" in shown.stdout
    assert haulout(running, "uncordon", free).stdout == f"node/{free} uncordoned\n"
    assert haulout(running, "status").stdout == "All 3 nodes are in service.\n"


def test_ctrl_c_stops_and_says_what_is_left(running: SandboxProcess) -> None:
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
    told = json.loads(out)
    assert (told["interrupted"], told["nodes"][0]["pods"][0]["blocker"]["kind"]) == (True, "DisruptionBudget")
    assert haulout(running, "uncordon", blocked).returncode == 0


def test_on_a_terminal_there_is_a_view_that_leaves_when_it_ends(running: SandboxProcess) -> None:
    blocked, _ = blocked_and_free(running)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(running, "drain", blocked),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "30"},
    )
    os.close(theirs)
    seen = read_until(ours, b"blocked ")
    process.send_signal(signal.SIGTERM)
    seen += read_until(ours, b"To undo:")
    assert process.wait(PATIENCE_SECONDS) == 143
    os.close(ours)
    text = seen.decode()
    assert f"node/{blocked} cordoned" in text
    assert "0 of 1 nodes drained" in text
    assert "run more replicas, or relax the PodDisruptionBudget" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor comes back
    assert haulout(running, "uncordon", blocked).returncode == 0


def read_until(file: int, end: bytes) -> bytes:
    """Read from a terminal until something was written to it."""
    seen = b""
    while end not in seen:
        assert select.select([file], [], [], PATIENCE_SECONDS)[0], seen
        seen += os.read(file, 65536)
    return seen


def test_a_policy_is_read_and_complained_about_before_anything_is_done(running: SandboxProcess, tmp_path: Path) -> None:
    (tmp_path / "night.yaml").write_text("timeuot: 3s\nforce: maybe\n")
    done = haulout(running, "drain", *NODES, "--policy", str(tmp_path / "night.yaml"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"haulout: {tmp_path}/night.yaml:1: timeuot: unknown, did you mean timeout?",
        f"haulout: {tmp_path}/night.yaml:2: force: found 'maybe', expected true or false",
    ]
    assert haulout(running, "status").stdout == "All 3 nodes are in service.\n"


def test_why_judges_a_node_by_a_file_and_changes_nothing(running: SandboxProcess, tmp_path: Path) -> None:
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


def test_what_support_needs_is_gathered_and_what_is_not_to_be_had_is_told(
    running: SandboxProcess, tmp_path: Path
) -> None:
    file = tmp_path / "for-support.tar.gz"
    done = haulout(running, "gather", "--file", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{file}: ")
    assert "missing: no pods with the label app.kubernetes.io/name=haulout anywhere" in done.stderr
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


def test_gathered_files_go_into_a_folder_for_those_who_carry_it_away_themselves(
    running: SandboxProcess, tmp_path: Path
) -> None:
    assert haulout(running, "gather", "--directory", str(tmp_path / "must-gather")).returncode == 0
    assert (tmp_path / "must-gather" / "version").read_text().startswith("haulout/haulout\n")
    refused = haulout(running, "gather", "--directory", "/proc/nowhere")
    assert (refused.returncode, refused.stderr.splitlines()[-1][:27]) == (2, "haulout: /proc/nowhere/READ")
