"""`haulout hold`, `release` and `approve` on a real cluster, by a person who may change nodes and nothing else."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from controlplane import ControlPlane
from haulout.api import hold
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL
from haulout.core.clock import RealClock

NODE = "held-n1"
FILE = """
intervals: {requeue: 30s}
instances:
  check:
  - {name: needed, type: hasLabel, config: {key: example.com/needed}}
  - {name: approved, type: hasAnnotation, config: {key: example.com/approved-by}}
profiles:
- name: os
  operational:
    transitions: [{check: needed, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: approved, next: in-maintenance}]
"""


class Person:
    """A user of the command line."""

    def __init__(self, control_plane: ControlPlane, namespace: str, folder: Path) -> None:
        self.name = f"ada@{namespace}"
        self._control_plane = control_plane
        self._folder = folder
        self._kubeconfig = control_plane.kubeconfig(self.name, groups=["ops"], namespace=namespace)

    def haulout(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a haulout command."""
        command_line = [sys.executable, "-m", "haulout", command, "--kubeconfig", str(self._kubeconfig), *arguments]
        env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
        return subprocess.run(command_line, capture_output=True, text=True, check=False, env=env, cwd=self._folder)

    def annotations(self) -> dict[str, str]:
        """Return the annotations of the node."""
        found = json.loads(self._control_plane.kubectl("get", "node", NODE, "-o", "json").stdout)
        return dict(found["metadata"].get("annotations", {}))


@pytest.fixture
def ada(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Person]:
    person = Person(control_plane, namespace, tmp_path)
    role = f"changes-nodes-{namespace}"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {PROFILE_LABEL: "os"}}}
    control_plane.kubectl("create", "-f", "-", input=json.dumps(node))
    control_plane.kubectl("create", "clusterrole", role, "--verb=get,list,patch", "--resource=nodes")
    control_plane.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", f"--user={person.name}")
    yield person
    control_plane.kubectl("delete", "node", NODE)
    control_plane.kubectl("delete", "clusterrole,clusterrolebinding", role)


def test_hold_is_set_shown_and_released(ada: Person) -> None:
    dry = ada.haulout("hold", NODE, "--dry-run=server")
    assert (dry.returncode, dry.stdout) == (0, f"node/{NODE} held (server dry run)\n")
    assert hold.ANNOTATION not in ada.annotations()

    done = ada.haulout("hold", NODE, "--for", "4h", "--reason", "database migration")
    assert (done.returncode, done.stdout) == (0, f"node/{NODE} held\n")
    found = hold.parse(ada.annotations()[hold.ANNOTATION])
    assert (found.by, found.reason, found.problem) == (ada.name, "database migration", "")
    assert found.until is not None
    assert abs(found.until - RealClock().now() - timedelta(hours=4)) < timedelta(minutes=2)

    status_output = ada.haulout("status", NODE)
    assert f"{found}; to end that: haulout release {NODE}" in status_output.stdout

    released = ada.haulout("release", NODE)
    assert (released.returncode, released.stdout) == (0, f"node/{NODE} released\n")
    assert released.stderr == f"node/{NODE}: was {found}\n"
    assert hold.ANNOTATION not in ada.annotations()


def test_approval_has_the_name_of_the_user(ada: Person, control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "maintenance.yaml").write_text(FILE)
    state = {
        "Transition": "2026-01-01T00:00:00Z",
        "Current": "maintenance-required",
        "Previous": "maintenance-required",
    }
    data = json.dumps({"Profiles": {"os": state}, "Notifications": {}})
    control_plane.kubectl("annotate", "node", NODE, f"{DATA_ANNOTATION}={data}")
    control_plane.kubectl("label", "node", NODE, "example.com/needed=true")

    done = ada.haulout("approve", NODE, "--config", "maintenance.yaml")
    assert (done.returncode, done.stdout) == (0, f"node/{NODE} approved\n")
    assert f"kubectl annotate node {NODE} example.com/approved-by={ada.name}" in done.stderr
    assert ada.annotations()["example.com/approved-by"] == ada.name

    again = ada.haulout("approve", NODE, "--config", "maintenance.yaml")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith("haulout: no profile is waiting for an approval")
