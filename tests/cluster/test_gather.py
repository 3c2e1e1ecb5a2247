"""`haulout gather` on a real cluster in which people have put secrets wherever they can."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

from controlplane import ControlPlane
from haulout.api.objects import RawObject

SECRET = "hunter2-xyzzy"
CONFIGURATION = f"""
instances:
  notify:
  - name: slack
    type: slack
    config: {{hook: "https://hooks.slack.com/services/{SECRET}", channel: "#ops", message: hi}}
"""


def gather(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "haulout", "gather", "--kubeconfig", str(kubeconfig), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def an_operator_with_secrets(namespace: str) -> str:
    """Return an operator that has secrets everywhere."""
    labels = {"app.kubernetes.io/name": "haulout"}
    metadata = {"name": "gathered", "namespace": namespace, "labels": labels}
    env = [{"name": "SLACK_TOKEN", "value": SECRET}, {"name": "NODE_NAME", "value": "n1"}]
    container = {"name": "haulout", "image": "haulout", "args": ["run", f"--password={SECRET}"], "env": env}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    objects = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": SECRET}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"maintenance.yaml": CONFIGURATION}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"selector": {"matchLabels": labels}, "template": template, "replicas": 0},
        },
    ]
    return yaml.safe_dump_all(objects)


def test_archive_has_no_secrets_and_everything_else(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    control_plane.kubectl("apply", "-f", "-", input=an_operator_with_secrets(namespace))
    done = gather(control_plane.kubeconfig(), "--directory", str(tmp_path / "found"), "-n", namespace)
    assert done.returncode == 0, done.stderr
    files = [item for item in (tmp_path / "found").rglob("*") if item.is_file()]
    assert not [str(item) for item in files if SECRET in item.read_text()]
    operator = tmp_path / "found" / "operator"
    [config] = [
        item for item in items(operator / namespace / "configmaps.json") if item["metadata"]["name"] == "gathered"
    ]
    assert 'channel: "#ops"' in config["data"]["maintenance.yaml"]
    [deployment] = items(operator / namespace / "deployments.json")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "SLACK_TOKEN", "value": "(hidden)"}, {"name": "NODE_NAME", "value": "n1"}]
    assert [item["metadata"]["name"] for item in items(operator / "pods.json")] == ["gathered"]
    assert "missing: asking gathered for metrics" in done.stderr, "no kubelet runs it, which is told"


def test_user_with_few_permissions_gets_a_partial_archive_with_reasons(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = control_plane.kubeconfig(f"eve@{namespace}", groups=["nobody"])
    done = gather(kubeconfig, "--directory", str(tmp_path / "found"))
    assert done.returncode == 0, done.stderr
    readme = (tmp_path / "found" / "README.txt").read_text()
    assert "nodes is forbidden" in readme
    assert "nodes is forbidden" in done.stderr
    assert items(tmp_path / "found" / "nodes.json") == []


def items(file: Path) -> list[RawObject]:
    found: list[RawObject] = json.loads(file.read_text())["items"]
    return found
