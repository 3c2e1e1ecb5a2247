"""Strategic merge patches: the sandbox produces the same objects as the real server, apart from the order."""

import copy
import json
from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest

from controlplane import ControlPlane
from controlplane.merge_schemas import merge_schemas, to_json
from haulout_sandbox.apiserver import patch as patch_package
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.patch.strategic_merge import STRATEGIC_MERGE_PATCH, strategic_merge
from support.apiserver.conformance import (
    CONFIG_MAP,
    DEPLOYMENT,
    NODE,
    POD,
    SERVICE,
    RealObject,
    a_config_map,
    a_node,
    container,
    content_of,
    merge_shape,
    owner_reference,
    status_condition,
    succeeded,
)


def a_deployment() -> JsonObject:
    pod = {
        "containers": [
            container(
                "web",
                ports=[{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}],
                env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}],
                args=["-v", "-x"],
                volumeMounts=[{"name": "data", "mountPath": "/data"}],
                resources={"requests": {"cpu": "100m", "memory": "1Gi"}},
            ),
            container("sidecar"),
            container("proxy"),
        ],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "c"}}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "nodeSelector": {"disk": "ssd", "zone": "a"},
        "imagePullSecrets": [{"name": "s"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "d",
            "labels": {"app": "d", "tier": "front"},
            "annotations": {"note": "x"},
            "finalizers": ["example.com/a", "example.com/b", "example.com/c"],
            "ownerReferences": [owner_reference("1"), owner_reference("2")],
        },
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "d"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": pod},
        },
    }


def a_service() -> JsonObject:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 443}, {"name": "c", "port": 443, "protocol": "UDP"}]
    spec = {"selector": {"app": "d"}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec}


def a_pod() -> JsonObject:
    spec = {"containers": [container("web")], "tolerations": [{"key": "a", "operator": "Exists"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def in_pod(**spec: Any) -> JsonObject:
    return {"spec": {"template": {"spec": spec}}}


def in_web(**more: Any) -> JsonObject:
    return in_pod(containers=[{"name": "web"} | more])


CHANGES: dict[str, tuple[Kind, Callable[[], JsonObject], list[JsonObject]]] = {
    "deployment": (
        DEPLOYMENT,
        a_deployment,
        [
            {"spec": {"replicas": 5}},
            {"spec": {"replicas": None}},
            {"metadata": {"labels": {"tier": None, "new": "1"}, "annotations": None}},
            {"metadata": {"labels": {"$patch": "replace", "only": "this"}}},
            {"metadata": {"labels": {"$patch": "delete"}}},
            in_web(image="registry.example/web:2"),
            in_pod(containers=[container("new")]),
            in_pod(containers=[container("new", env=[{"name": "N", "value": None}]), {"name": "proxy", "tty": True}]),
            in_pod(containers=[{"name": "sidecar", "$patch": "delete"}]),
            in_pod(containers=[{"$patch": "replace"}, container("only")]),
            in_pod(containers=[container("sidecar"), container("web")]),
            {"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "proxy"}, {"name": "web"}]}}}},
            {
                "spec": {
                    "template": {
                        "spec": {
                            "$setElementOrder/containers": [{"name": "proxy"}, {"name": "new"}, {"name": "web"}],
                            "containers": [container("new"), {"name": "sidecar", "$patch": "delete"}],
                        }
                    }
                }
            },
            in_web(env=[{"name": "B", "value": "9"}, {"name": "D", "value": "4"}]),
            in_web(env=[{"name": "B", "$patch": "delete"}]),
            in_web(env=None),
            in_web(
                **{"$setElementOrder/env": [{"name": "C"}, {"name": "A"}], "env": [{"name": "B", "$patch": "delete"}]}
            ),
            in_web(ports=[{"containerPort": 53, "name": "dns"}]),
            in_web(ports=[{"containerPort": 8080}]),
            in_web(args=["-q"]),
            in_web(resources={"requests": {"cpu": 1, "memory": None}, "limits": {"cpu": "2"}}),
            in_web(volumeMounts=[{"mountPath": "/more", "name": "conf"}]),
            in_web(securityContext={"$patch": "delete"}, livenessProbe={"$patch": "delete"}),
            in_web(livenessProbe={"httpGet": {"port": "http", "path": "/"}, "periodSeconds": None}),
            in_pod(volumes=[{"name": "data", "$retainKeys": ["name", "configMap"], "configMap": {"name": "z"}}]),
            in_pod(volumes=[{"name": "more", "emptyDir": {}}, {"name": "conf", "configMap": {"optional": True}}]),
            in_pod(tolerations=[{"key": "b", "operator": "Exists"}]),
            in_pod(nodeSelector={"zone": "b"}),
            in_pod(imagePullSecrets=[{"name": "t"}]),
            in_pod(affinity={"nodeAffinity": {"$patch": "delete"}}),
            {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
            {"spec": {"strategy": {"rollingUpdate": {"maxSurge": "50%"}}}},
            {"metadata": {"finalizers": ["example.com/d", "example.com/a"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/b", "example.com/z"]}},
            {
                "metadata": {
                    "$deleteFromPrimitiveList/finalizers": ["example.com/a"],
                    "$setElementOrder/finalizers": ["example.com/c", "example.com/e", "example.com/b"],
                    "finalizers": ["example.com/e"],
                }
            },
            {"metadata": {"finalizers": None}},
            {"metadata": {"finalizers": []}},
            {"metadata": {"ownerReferences": [owner_reference("2", controller=True), owner_reference("3")]}},
            {"metadata": {"ownerReferences": [{"uid": "1", "$patch": "delete"}]}},
            {"metadata": {"ownerReferences": [{"$patch": "replace"}]}},
        ],
    ),
    "service": (
        SERVICE,
        a_service,
        [
            {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}},
            {"spec": {"ports": [{"port": 8080, "name": "d"}]}},
            {"spec": {"ports": [{"port": 443, "targetPort": 1}]}},
            {"spec": {"ports": [{"port": 443, "$patch": "delete"}]}},
            {"spec": {"$setElementOrder/ports": [{"port": 443}, {"port": 80}], "ports": [{"port": 80, "name": "z"}]}},
            {"spec": {"selector": {"app": None, "b": "c"}}},
        ],
    ),
    "config map": (
        CONFIG_MAP,
        a_config_map,
        [
            {"data": {"x": None, "z": "3"}},
            {"data": None},
            {"data": {"$patch": "replace", "q": "9"}},
            {"binaryData": {"b": "AAEC"}, "immutable": True},
            {"unknown": {"a": [1]}},
        ],
    ),
    "pod": (
        POD,
        a_pod,
        [
            {"metadata": {"labels": {"a": "b"}}},
            {"spec": {"activeDeadlineSeconds": 60, "containers": [{"name": "web", "image": "registry.example/w:2"}]}},
            {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}},
        ],
    ),
    "node": (
        NODE,
        a_node,
        [
            {"spec": {"unschedulable": True}},
            {"spec": {"taints": [{"key": "c", "effect": "NoSchedule"}]}},
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule", "value": "v"}]}},
            {"spec": {"taints": None}},
            {"spec": {"podCIDRs": ["10.0.0.0/24"], "podCIDR": "10.0.0.0/24"}},
        ],
    ),
}


STATUS_CHANGES: list[JsonObject] = [
    {"status": {"conditions": [status_condition("Ready"), status_condition("DiskPressure", "False")]}},
    {"status": {"conditions": [status_condition("Ready", "Unknown")]}},
    {"status": {"conditions": [status_condition("Drained"), status_condition("Ready")]}},
    {"status": {"conditions": [{"type": "DiskPressure", "$patch": "delete"}]}},
    {"status": {"$setElementOrder/conditions": [{"type": "Drained"}, {"type": "Ready"}]}},
    {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}]}},
    {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}},
    {"status": {"capacity": {"cpu": 4, "memory": "8Gi"}, "volumesInUse": ["a", "b"]}},
    {"status": {"capacity": {"cpu": None}, "volumesInUse": ["c"], "nodeInfo": {"kubeletVersion": "v1.36.3"}}},
]


def test_shipped_merge_schemas_match_the_server(control_plane: ControlPlane) -> None:
    shipped = resources.files(patch_package).joinpath("shapes.json").read_text()
    assert shipped == to_json(merge_schemas(control_plane))


@pytest.mark.parametrize("name", CHANGES)
def test_strategic_merge_patch_matches_the_server(control_plane: ControlPlane, namespace: str, name: str) -> None:
    kind, make, patches = CHANGES[name]
    real = RealObject(control_plane, namespace, kind=kind, name=make()["metadata"]["name"])
    live = real.create(make())
    for patch in patches:
        wanted = succeeded(real.request("PATCH", patch, query="dryRun=All", content=STRATEGIC_MERGE_PATCH))
        merged = strategic_merge(copy.deepcopy(live), copy.deepcopy(patch), merge_shape(kind))
        assert _sorted(content_of(real.dry_run(merged))) == _sorted(content_of(wanted)), patch
    real.request("DELETE")


def test_strategic_merge_patch_of_a_status_matches_the_server(control_plane: ControlPlane, namespace: str) -> None:
    real = RealObject(control_plane, namespace, kind=NODE, name="patched-node")
    live = real.create(a_node())
    for patch in STATUS_CHANGES:
        merged = strategic_merge(copy.deepcopy(live), copy.deepcopy(patch), merge_shape(NODE))
        expected = real.dry_run(merged, sub="status")
        live = succeeded(real.request("PATCH", patch, sub="status", content=STRATEGIC_MERGE_PATCH))
        assert _sorted(content_of(expected)) == _sorted(content_of(live)), patch
    real.request("DELETE")


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(item) for name, item in value.items()}
    return sorted(map(_sorted, value), key=json.dumps) if isinstance(value, list) else value
