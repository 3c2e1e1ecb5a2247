"""The control plane of the tests works as documented."""

import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import controlplane
from controlplane import ControlPlane, ControlPlaneError
from controlplane.build import KUBERNETES


def test_server_has_the_tested_version(control_plane: ControlPlane) -> None:
    assert control_plane.request("GET", "/version").json()["gitVersion"] == KUBERNETES


def test_killed_server_restarts_at_its_address_with_its_data(control_plane: ControlPlane, namespace: str) -> None:
    kubeconfig = control_plane.kubeconfig()
    control_plane.kubectl("create", "configmap", "kept", "-n", namespace, "--from-literal=a=b")
    control_plane.kill_apiserver()
    with pytest.raises(ConnectionRefusedError):
        control_plane.request("GET", "/version")
    control_plane.start_apiserver()
    kept = control_plane.kubectl("get", "configmap", "kept", "-n", namespace, "-o", "jsonpath={.data.a}")
    assert kept.stdout == "b"
    assert control_plane.kubeconfig() == kubeconfig


def test_restarted_server_serves_requests(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.restart_apiserver()
    assert control_plane.request("GET", f"/api/v1/namespaces/{namespace}").status == 200


def test_paused_server_answers_only_after_it_is_resumed(control_plane: ControlPlane) -> None:
    control_plane.pause_apiserver()
    try:
        with pytest.raises(TimeoutError):
            control_plane.request("GET", "/version", within=timedelta(milliseconds=200))
    finally:
        control_plane.resume_apiserver()
    assert control_plane.request("GET", "/version").status == 200


def test_watch_from_an_expired_resource_version_is_answered_410(control_plane: ControlPlane, namespace: str) -> None:
    old_version = control_plane.request("GET", f"/api/v1/namespaces/{namespace}").json()["metadata"]["resourceVersion"]
    control_plane.compact()
    assert _watch_from(control_plane, old_version) == [], "compaction alone must not end a watch: the server remembers"
    control_plane.expire_history()
    (event,) = _watch_from(control_plane, old_version)
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == 410


def test_list_continued_after_expiry_is_answered_410(control_plane: ControlPlane, namespace: str) -> None:
    configmaps = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("a", "b"):
        control_plane.request("POST", configmaps, {"metadata": {"name": name}})
    page = control_plane.request("GET", f"{configmaps}?limit=1").json()
    assert page["metadata"]["continue"]
    control_plane.expire_history()
    assert control_plane.request("GET", f"{configmaps}?limit=1&continue={page['metadata']['continue']}").status == 410


def test_client_certificate_gives_user_name_and_groups(control_plane: ControlPlane) -> None:
    output = control_plane.kubectl("auth", "whoami", "-o", "json", user="erin", groups=("deck", "engine"))
    user_info = json.loads(output.stdout)["status"]["userInfo"]
    assert user_info["username"] == "erin"
    assert {"deck", "engine"} <= set(user_info["groups"])


def test_user_has_only_granted_permissions(control_plane: ControlPlane) -> None:
    refused = control_plane.kubectl("get", "nodes", user="stowaway", groups=(), check=False)
    assert "forbidden" in refused.stderr
    with pytest.raises(ControlPlaneError, match="forbidden"):
        control_plane.kubectl("get", "nodes", user="stowaway", groups=())


def test_token_gives_user_name_and_groups(control_plane: ControlPlane) -> None:
    with ControlPlane(control_plane.assets, users={"robin": ("deck", "engine")}) as other:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        user_info = other.request("POST", path, review, user="robin").json()["status"]["userInfo"]
    assert user_info["username"] == "robin"
    assert {"deck", "engine"} <= set(user_info["groups"])


def test_controllers_and_scheduler_run_a_deployment(control_plane: ControlPlane, namespace: str) -> None:
    node = _create_node(control_plane, name=namespace)
    control_plane.start_controllers(("*", "-node-lifecycle-controller"))
    try:
        control_plane.kubectl("create", "deployment", "web", "--image=web", "-n", namespace)
        wait = ("wait", "-n", namespace, "--timeout=60s")
        control_plane.kubectl(*wait, "deployment/web", "--for=jsonpath={.status.replicas}=1")
        control_plane.kubectl(*wait, "pod", "-l", "app=web", "--for=condition=PodScheduled")
        pods = control_plane.request("GET", f"/api/v1/namespaces/{namespace}/pods").json()["items"]
    finally:
        control_plane.stop_controllers()
        control_plane.request("DELETE", f"/api/v1/nodes/{node}")
    assert [pod["spec"]["nodeName"] for pod in pods] == [node]


def test_server_that_does_not_start_reports_its_last_log_lines(control_plane: ControlPlane) -> None:
    broken = ControlPlane(control_plane.assets, apiserver_flags=["--no-such-flag"])
    with pytest.raises(ControlPlaneError, match=r"kube-apiserver ended.*\n.*no-such-flag"):
        broken.start()
    with pytest.raises(ControlPlaneError, match="not started"):
        _ = broken.folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_control_plane_ends_with_the_process_that_started_it(
    control_plane: ControlPlane, number: signal.Signals
) -> None:
    """Reading to the end waits for all who hold the other end: the process, and the guardian that cleans up."""
    tests = Path(controlplane.__file__).parents[1]
    command = [sys.executable, "-m", "controlplane", "run"]
    with subprocess.Popen(command, cwd=tests, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        kubeconfig = Path(process.stdout.readline().strip())
        server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        process.send_signal(number)
        process.stdout.read()
    assert not kubeconfig.parents[1].exists()
    answer = control_plane.kubectl("version", f"--server={server}", check=False)
    assert "refused" in answer.stderr


def _watch_from(cluster: ControlPlane, resource_version: str) -> list[dict[str, Any]]:
    """Return the events that are available at once."""
    query = f"watch=1&resourceVersion={resource_version}&timeoutSeconds=1&fieldSelector=metadata.name=nobody"
    answer = cluster.request("GET", f"/api/v1/namespaces?{query}")
    return [json.loads(line) for line in answer.body.splitlines()]


def _create_node(cluster: ControlPlane, *, name: str) -> str:
    """Create a node that takes pods: admission taints a new one until somebody says that it is ready."""
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": {"allocatable": capacity}})
    untaint = {"spec": {"taints": None}}
    patched = cluster.request("PATCH", f"/api/v1/nodes/{name}", untaint, content_type="application/merge-patch+json")
    assert patched.status == 200, patched.body
    return name
