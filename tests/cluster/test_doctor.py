"""`haulout doctor` on a real cluster with leftovers made by kubectl, by users with more and fewer permissions."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.drain.cordon import CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION

NODE = "doctored-n1"
TAINT = "medik8s.io/drain=:NoSchedule"
ORPHANED_CORDON = json.dumps({"owners": {"NodeMaintenance/torn-away": {"since": "2026-01-05T09:00:00Z"}}})


def run_doctor(kubeconfig: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "haulout", "doctor", "--kubeconfig", str(kubeconfig), *arguments]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=env, cwd=folder, stdin=subprocess.DEVNULL
    )


def node(control_plane: ControlPlane) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(control_plane.kubectl("get", "node", NODE, "-o", "json").stdout)
    return found


def findings_about_node(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """Return the findings about our node: others work in the same cluster."""
    return [finding for finding in json.loads(done.stdout)["findings"] if finding["object"] == f"node {NODE}"]


@pytest.fixture(autouse=True)
def orphaned_node(control_plane: ControlPlane) -> Iterator[None]:
    """Create a node that is held for a deleted owner."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    control_plane.kubectl("create", "-f", "-", input=json.dumps(body))
    control_plane.kubectl("cordon", NODE)
    control_plane.kubectl("taint", "node", NODE, TAINT)
    control_plane.kubectl("annotate", "node", NODE, f"{CORDON_ANNOTATION}={ORPHANED_CORDON}")
    try:
        yield
    finally:
        control_plane.kubectl("delete", "node", NODE)


@pytest.mark.parametrize("mark", ["held", "removed", "{", "{}"])
def test_orphaned_node_is_found_and_repaired(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, mark: str
) -> None:
    if mark != "held":
        text = f"{CORDON_ANNOTATION}-" if mark == "removed" else f"{CORDON_ANNOTATION}={mark}"
        control_plane.kubectl("annotate", "--overwrite", "node", NODE, text)
    admin = control_plane.kubeconfig(f"root@{namespace}", groups=["system:masters"], namespace=namespace)
    result = run_doctor(admin, tmp_path, "-o", "json")
    assert result.returncode == 1
    found = findings_about_node(result)
    assert found
    assert all(taint["repaired"] is None and taint["remedy"] for taint in found)
    assert node(control_plane)["spec"]["unschedulable"], "nobody asked for a repair"
    repaired = run_doctor(admin, tmp_path, "--repair", "--yes", "-o", "json")
    assert all(taint["repaired"] for taint in findings_about_node(repaired)), repaired.stdout
    now = node(control_plane)
    assert not {CORDON_ANNOTATION, CORDON_BACKUP_ANNOTATION} & now["metadata"].get("annotations", {}).keys()
    assert all(taint["key"] != "medik8s.io/drain" for taint in now["spec"].get("taints", ()))
    assert not now["spec"].get("unschedulable")
    assert findings_about_node(run_doctor(admin, tmp_path, "-o", "json")) == []


def test_repair_without_a_terminal_or_yes_changes_nothing(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    admin = control_plane.kubeconfig(f"root@{namespace}", groups=["system:masters"], namespace=namespace)
    done = run_doctor(admin, tmp_path, "--repair")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    assert node(control_plane)["spec"]["unschedulable"]


def test_user_with_read_access_to_nodes_gets_a_list_of_unchecked_parts_and_may_not_repair(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    name, role = f"eve@{namespace}", f"sees-nodes-{namespace}"
    control_plane.kubectl("create", "clusterrole", role, "--verb=get,list", "--resource=nodes")
    control_plane.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", f"--user={name}")
    control_plane.kubectl("annotate", "--overwrite", "node", NODE, f"{CORDON_ANNOTATION}={{}}")
    eve = control_plane.kubeconfig(name, groups=["ops"], namespace=namespace)
    try:
        done = run_doctor(eve, tmp_path, "--repair", "--yes", "-o", "json")
    finally:
        control_plane.kubectl("delete", "clusterrolebinding,clusterrole", role)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert any("slots" in item for item in document["notChecked"])
    found = findings_about_node(done)
    assert [item["problem"] for item in found] == [f"{CORDON_ANNOTATION} without an owner"], (
        "who orders is not known, so the taint stays"
    )
    assert "forbidden" in found[0]["error"]
