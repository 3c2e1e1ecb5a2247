"""`haulout cluster-info` on a real cluster: what it says is missing is, and what it grants is enough."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from controlplane import ControlPlane
from controlplane.build import KUBERNETES


def cluster_info(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "haulout", "cluster-info", "--kubeconfig", str(kubeconfig), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONIOENCODING": "utf-8"}
    )


def as_service_account(control_plane: ControlPlane, namespace: str, folder: Path) -> Path:
    """Return a kubeconfig with the token of a new service account."""
    control_plane.kubectl("create", "serviceaccount", "operator", "-n", namespace)
    token = control_plane.kubectl("create", "token", "operator", "-n", namespace).stdout.strip()
    config = yaml.safe_load(control_plane.kubeconfig(namespace=namespace).read_text())
    config["users"][0]["user"] = {"token": token}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    return folder / "kubeconfig"


def as_user(control_plane: ControlPlane, namespace: str, _: Path) -> Path:
    """Return a kubeconfig with the certificate of a user whom nobody granted anything."""
    return control_plane.kubeconfig(f"alice@{namespace}", groups=["ops"], namespace=namespace)


def test_admin_has_all_permissions(control_plane: ControlPlane) -> None:
    done = cluster_info(control_plane.kubeconfig())

    assert (done.returncode, done.stderr) == (0, "")
    assert KUBERNETES in done.stdout
    assert "✗" not in done.stdout


@pytest.mark.parametrize("identity", [as_user, as_service_account])
def test_printed_grant_gives_the_missing_permissions(
    control_plane: ControlPlane,
    namespace: str,
    tmp_path: Path,
    identity: Callable[[ControlPlane, str, Path], Path],
) -> None:
    kubeconfig = identity(control_plane, namespace, tmp_path)
    before = cluster_info(kubeconfig)
    assert before.returncode == 1
    assert "✓ watch nodes" not in before.stdout

    manifest = cluster_info(kubeconfig, "--grant")
    assert (manifest.returncode, manifest.stderr) == (0, "")
    control_plane.kubectl("apply", "-f", "-", input=manifest.stdout)

    after = cluster_info(kubeconfig)
    assert (after.returncode, after.stderr) == (0, "")
    assert "✗" not in after.stdout
