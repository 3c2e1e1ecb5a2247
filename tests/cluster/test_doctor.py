"""`haulout doctor` on a real cluster, where kubectl made the mess, by people with more and fewer permissions."""

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
    """Have a node that is held for nobody."""
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
def test_a_node_that_nobody_holds_is_found_and_repaired(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, mark: str
) -> None:
    if mark != "held":
        text = f"{CORDON_ANNOTATION}-" if mark == "removed" else f"{CORDON_ANNOTATION}={mark}"
        control_plane.kubectl("annotate", "--overwrite", "node", NODE, text)
    admin = control_plane.kubeconfig(f"root@{namespace}", groups=["system:masters"], namespace=namespace)
    shown = run_doctor(admin, tmp_path, "-o", "json")
    assert shown.returncode == 1
    found = findings_about_node(shown)
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


def test_nothing_is_changed_without_a_terminal_or_yes(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    admin = control_plane.kubeconfig(f"root@{namespace}", groups=["system:masters"], namespace=namespace)
    done = run_doctor(admin, tmp_path, "--repair")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    assert node(control_plane)["spec"]["unschedulable"]


def test_who_may_only_see_nodes_is_told_what_was_not_checked_and_may_not_repair(
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
    told = json.loads(done.stdout)
    assert any("slots" in item for item in told["notChecked"])
    found = findings_about_node(done)
    assert [item["problem"] for item in found] == [f"{CORDON_ANNOTATION} without an owner"], (
        "who orders is not known, so the taint stays"
    )
    assert "forbidden" in found[0]["error"]
