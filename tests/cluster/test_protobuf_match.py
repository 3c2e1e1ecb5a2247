"""Protobuf means to the sandbox what it means to the real server: the same JSON, the same refusals."""

import base64
import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from controlplane import ControlPlane
from haulout_sandbox.apiserver.bodies import from_request
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.protobuf import MAGIC, MEDIA_TYPE, decode
from haulout_sandbox.apiserver.status import Refused

JSON = "application/json"
RECORDED = json.loads((Path(__file__).parents[1] / "unit" / "data" / "protobuf_bodies.json").read_text())
Ask = Callable[..., tuple[int, bytes]]
POD: JsonObject = {
    "metadata": {"name": "rich", "labels": {"a": "b"}, "annotations": {"empty": ""}, "finalizers": ["example.com/f"]},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "priority": 0,
        "nodeSelector": {"zone": "a"},
        "securityContext": {
            "supplementalGroups": [1, 2],
            "runAsNonRoot": False,
            "sysctls": [{"name": "x.y", "value": ""}],
        },
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
        "volumes": [
            {"name": "empty", "emptyDir": {"sizeLimit": "1500Mi"}},
            {"name": "config", "configMap": {"name": "c", "optional": False, "items": [{"key": "k", "path": "p"}]}},
            {"name": "both", "projected": {"sources": [{"secret": {"name": "s"}}, {"downwardAPI": {}}]}},
        ],
        "containers": [
            {
                "name": "main",
                "image": "image",
                "env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "Z"}],
                "envFrom": [{"prefix": "p", "configMapRef": {"name": "c"}}],
                "ports": [{"containerPort": 80, "name": "web"}],
                "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1"}},
                "readinessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5},
                "livenessProbe": {"tcpSocket": {"port": 80}},
                "lifecycle": {"preStop": {"sleep": {"seconds": 0}}},
            }
        ],
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "In", "values": [""]}]}}
                ]
            }
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
    },
}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "number": {"type": "number", "minimum": 0.5, "maximum": 5, "default": 1.5},
        "list": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "string"}}},
        "any": {"x-kubernetes-preserve-unknown-fields": True, "default": {"deep": [1, None, "x"]}},
        "choice": {"type": "string", "enum": ["a", ""], "nullable": True},
    },
    "x-kubernetes-validations": [{"rule": "has(self.list)", "message": "needs a list"}],
}
CREATED: dict[str, JsonObject] = {
    "/api/v1/namespaces/SPACE/serviceaccounts": {"metadata": {"name": "default"}},
    "/api/v1/namespaces/SPACE/pods": POD,
    "/api/v1/namespaces/SPACE/configmaps": {"metadata": {"name": "c"}, "binaryData": {"b": "AAEC"}, "immutable": False},
    "/api/v1/namespaces/SPACE/services": {
        "metadata": {"name": "s"},
        "spec": {"type": "ExternalName", "externalName": "example.com", "ports": [{"port": 80, "targetPort": "web"}]},
    },
    "/apis/coordination.k8s.io/v1/namespaces/SPACE/leases": {
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me", "leaseTransitions": 0, "renewTime": "2026-01-02T03:04:05.678901Z"},
    },
    "/apis/policy/v1/namespaces/SPACE/poddisruptionbudgets": {
        "metadata": {"name": "b"},
        "spec": {"maxUnavailable": 0, "selector": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}},
    },
    "/apis/events.k8s.io/v1/namespaces/SPACE/events": {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "action": "Act",
        "reason": "Reason",
        "type": "Normal",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "SPACE"},
        "series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000001Z"},
    },
    "/apis/apps/v1/namespaces/SPACE/controllerrevisions": {
        "metadata": {"name": "r"},
        "revision": 0,
        "data": {"spec": {"template": {"x": [1.5, None]}}},
    },
    "/apis/batch/v1/namespaces/SPACE/cronjobs": {
        "metadata": {"name": "j"},
        "spec": {
            "schedule": "@daily",
            "suspend": False,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 0,
                    "template": {
                        "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]},
                    },
                }
            },
        },
    },
    "/apis/autoscaling/v2/namespaces/SPACE/horizontalpodautoscalers": {
        "metadata": {"name": "h"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}},
                }
            ],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    },
    "/apis/networking.k8s.io/v1/namespaces/SPACE/networkpolicies": {
        "metadata": {"name": "n"},
        "spec": {
            "podSelector": {},
            "ingress": [{"ports": [{"port": "web"}, {"port": 8}], "from": [{"podSelector": {}}]}],
        },
    },
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "metadata": {"name": "things.SPACE.example.com"},
        "spec": {
            "group": "SPACE.example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}},
                {"name": "v2", "served": False, "storage": False, "schema": {"openAPIV3Schema": {"type": "object"}}},
            ],
        },
    },
}
EXISTING = (
    "/api/v1/namespaces",
    "/api/v1/namespaces/default/services",
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)


@pytest.fixture
def ask(control_plane: ControlPlane) -> Iterator[Ask]:
    """Ask the real server in any media type."""
    tls = ssl.create_default_context(cadata=control_plane.ca.decode())
    connection = http.client.HTTPSConnection(urlsplit(control_plane.server).netloc, context=tls)

    def ask(method: str, path: str, body: bytes = b"", *, sends: str = JSON, accept: str = JSON) -> tuple[int, bytes]:
        token = control_plane.token()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": sends, "Accept": accept}
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        return response.status, response.read()

    yield ask
    connection.close()


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(below) for name, below in value.items() if below is not None}
    return [without_nulls(below) for below in value] if isinstance(value, list) else value


def settled(obj: JsonObject) -> JsonObject:
    """Return an object without nulls and without what controllers change meanwhile."""
    meta = {name: it for name, it in obj["metadata"].items() if name not in ("resourceVersion", "managedFields")}
    result: JsonObject = without_nulls(obj | {"metadata": meta})
    return result


def without_chance(obj: JsonObject) -> JsonObject:
    """Return an object without what the server draws or takes from the clock."""
    result = settled(json.loads(json.dumps(obj).replace(obj["metadata"]["uid"], "UID")))
    del result["metadata"]["creationTimestamp"]
    for name in ("clusterIP", "clusterIPs"):
        result.get("spec", {}).pop(name, None)
    return result


def test_every_kind_is_read_as_the_real_server_shows_it(control_plane: ControlPlane, ask: Ask, namespace: str) -> None:
    paths = []
    for collection, described in CREATED.items():
        path, obj = (json.loads(json.dumps(it).replace("SPACE", namespace)) for it in (collection, described))
        made = control_plane.request("POST", path, obj)
        assert made.status in (201, 409), (path, made.body)
        paths.append(f"{path}/{obj['metadata']['name']}")
    for collection in EXISTING:
        items = control_plane.request("GET", collection).json()["items"]
        paths += [f"{collection}/{item['metadata']['name']}" for item in items[:10]]
    for path in paths:
        status, body = ask("GET", path, accept=MEDIA_TYPE)
        assert (status, body[: len(MAGIC)]) == (200, MAGIC), path
        shown, read = json.loads(ask("GET", path)[1]), decode(body, api_version="", kind="")
        assert read["metadata"].get("managedFields") == shown["metadata"].get("managedFields"), path
        assert settled(read) == settled(shown), path
    control_plane.request("DELETE", next(path for path in paths if "customresourcedefinitions" in path))


@pytest.mark.parametrize("plural", ["configmaps", "secrets", "deployments", "jobs", "poddisruptionbudgets", "services"])
def test_what_kubectl_sends_is_stored_as_its_json_would_be(ask: Ask, namespace: str, plural: str) -> None:
    body = base64.b64decode(RECORDED[plural])
    read = decode(body, api_version="", kind="")
    root = f"/apis/{read['apiVersion']}" if "/" in read["apiVersion"] else f"/api/{read['apiVersion']}"
    path = f"{root}/namespaces/{namespace}/{plural}?dryRun=All"
    status, typed = ask("POST", path, body, sends=MEDIA_TYPE)
    assert status == 201, typed
    status, plain = ask("POST", path, json.dumps(read).encode())
    assert status == 201, plain
    ours, theirs = (without_chance(json.loads(it)) for it in (plain, typed))
    assert ours == theirs


GOOD = base64.b64decode(RECORDED["configmaps"])


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (MEDIA_TYPE, b"{}"),
        (MEDIA_TYPE, MAGIC),
        (MEDIA_TYPE, MAGIC + b"\xff\xff\xff"),
        (MEDIA_TYPE, GOOD[:-5]),
        (MEDIA_TYPE, GOOD.replace(b"ConfigMap", b"ConfigMup")),
        (MEDIA_TYPE, GOOD.replace(b"\x02v1", b"\x02v2")),
        (MEDIA_TYPE, GOOD.replace(b"\x0a\x18", b"\x0a\x7f")),
        (MEDIA_TYPE, GOOD.replace(b"\x0a\x18", b"\x08\x18")),
        (MEDIA_TYPE, GOOD.replace(b"\x0a\x18", b"\x00\x18")),
        (MEDIA_TYPE, GOOD.replace(b"\x0a\x18", b"\x0c\x18")),
        (MEDIA_TYPE, GOOD.replace(b"\x0a\x18", b"\x5e\x18")),
        ("text/plain", b"{}"),
        ("application/cbor", b"{}"),
    ],
)
def test_what_is_malformed_is_refused_alike(ask: Ask, namespace: str, content_type: str, body: bytes) -> None:
    status, said = ask("POST", f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All", body, sends=content_type)
    assert status in (400, 415)
    with pytest.raises(Refused) as refused:
        from_request(body, content_type, api_version="v1", kind="ConfigMap")
    assert refused.value.status == json.loads(said)
