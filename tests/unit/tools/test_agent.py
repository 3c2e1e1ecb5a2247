"""Packaging of agents: off by default, the same in all packages, and with few permissions."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from haulout.api.objects import RawObject
from haulout.app.manifests import agent_manifests, workload
from haulout.cli.entry import haulout
from haulout.providers.agent import health
from support.packaging.helm import CHART, NAMESPACE, RELEASE, helm, only_object, values_file
from tools.packages import kustomize
from tools.packages.helm import chart

KINDS = {
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "DaemonSet",
}


def rendered(folder: Path, values: Mapping[str, Any]) -> list[RawObject]:
    """Return the agent objects of the chart, as generated now."""
    shutil.copytree(CHART, folder / "chart")
    for path, text in chart.files("0.1.0").items():
        (folder / "chart" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "chart" / path).write_text(text)
    with values_file(values) as file:
        text = helm("template", RELEASE, str(folder / "chart"), "--namespace", NAMESPACE, "--values", str(file))
    return agent_objects(list(yaml.safe_load_all(text)))


def agent_objects(objects: list[RawObject]) -> list[RawObject]:
    return [obj for obj in objects if obj and obj["metadata"]["name"] == agent_manifests.NAME]


@pytest.mark.real_time
def test_chart_has_no_agent_by_default(tmp_path: Path) -> None:
    assert rendered(tmp_path, {}) == []


@pytest.mark.real_time
def test_chart_renders_the_same_agent_as_the_plain_manifests(tmp_path: Path) -> None:
    image = {"image": {"repository": "haulout", "tag": "1"}}
    found = rendered(tmp_path, {"agent": {"enabled": True}, **image})
    plain = agent_manifests.agent_objects("haulout:1", NAMESPACE)
    assert {obj["kind"] for obj in found} == KINDS
    for kind in KINDS - {"DaemonSet", "ServiceAccount"}:
        mine, theirs = only_object(kind, found), only_object(kind, plain)
        assert {key: obj for key, obj in mine.items() if key != "metadata"} == {
            key: obj for key, obj in theirs.items() if key != "metadata"
        }
    (mine,), (theirs,) = (_pod(obj)["containers"] for obj in (found, plain))
    assert mine == {**theirs, "imagePullPolicy": "IfNotPresent"}
    assert {**_pod(found), "containers": []} == {**_pod(plain), "containers": []}


@pytest.mark.real_time
def test_chart_values_are_applied_to_the_agents(tmp_path: Path) -> None:
    wanted = {"enabled": True, "cloud": "azure", "nodeSelector": {"pool": "a"}, "resources": {}, "tolerations": []}
    pod = _pod(rendered(tmp_path, {"agent": wanted}))
    assert "--cloud=azure" in pod["containers"][0]["args"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "a"}
    assert "tolerations" not in pod


def _pod(objects: list[RawObject]) -> RawObject:
    return dict(only_object("DaemonSet", objects)["spec"]["template"]["spec"])


def test_manifests_command_prints_agents_only_with_the_agent_flag() -> None:
    args = ["manifests", "--image", "haulout:1", "--namespace", "ops"]
    without = list(yaml.safe_load_all(CliRunner().invoke(haulout, args).stdout))
    with_agents = list(yaml.safe_load_all(CliRunner().invoke(haulout, [*args, "--agent"]).stdout))
    assert agent_objects(without) == []
    assert agent_objects(with_agents) == agent_manifests.agent_objects("haulout:1", "ops")
    others = [item for item in with_agents if item not in agent_objects(with_agents)]
    assert [item for item in others if item["kind"] != "Namespace"] == [
        item for item in without if item["kind"] != "Namespace"
    ]


def test_kustomize_has_agents_as_a_component() -> None:
    files = kustomize.files("haulout:1", alerts=None)
    assert list(yaml.safe_load_all(files["components/agent/agent.yaml"])) == agent_manifests.agent_objects(
        "haulout:1", "haulout"
    )
    assert "agent.yaml" in files["components/agent/kustomization.yaml"]


def test_an_agent_may_write_notices_and_nothing_else() -> None:
    (rule,) = agent_manifests.cluster_role()["rules"]
    assert rule["resources"] == ["maintenancenotices"]
    assert not {"delete", "update", "*"} & set(rule["verbs"])


def test_agent_probes_use_the_health_port_and_labels_differ_from_the_operator() -> None:
    daemon_set = agent_manifests.daemon_set(image="x", namespace="ops")
    pod = daemon_set["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    for probe in ("livenessProbe", "readinessProbe"):
        http_get = container[probe]["httpGet"]
        assert (http_get["host"], http_get["port"]) == (health.HOST, health.PORT)
        assert f"--health-port={http_get['port']}" in container["args"]
    assert daemon_set["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert not workload.SELECTOR.items() <= pod["metadata"]["labels"].items()
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
