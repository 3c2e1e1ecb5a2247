"""Compares the sandbox's API server with the real one: sample objects, and dry-run requests to the real server.

An object that the sandbox computed is sent to the real server as a dry run. That adds defaults and removes empty values
as for any object, so that the result can be compared with the object that the real server created itself.
"""

from typing import Any

from controlplane import ControlPlane, Response
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.patch.merge_schema import MergeSchema, merge_schema_of

MERGE_PATCH = "application/merge-patch+json"
CONFIG_MAP = Kind(group="", version="v1", plural="configmaps", kind="ConfigMap")
SERVICE = Kind(group="", version="v1", plural="services", kind="Service", has_status=True)
POD = Kind(group="", version="v1", plural="pods", kind="Pod", has_status=True)
NODE = Kind(group="", version="v1", plural="nodes", kind="Node", has_status=True, namespaced=False)
DEPLOYMENT = Kind(group="apps", version="v1", plural="deployments", kind="Deployment", has_status=True)
_SERVER_FIELDS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
_ALLOCATED = ("clusterIP", "clusterIPs")


class RealObject:
    """One object on the real server."""

    def __init__(self, cluster: ControlPlane, namespace: str, *, kind: Kind, name: str) -> None:
        self.kind = kind
        self._cluster = cluster
        self._path = kind.path(kind.key(namespace, name))

    def request(
        self, method: str, body: Any = None, *, sub: str = "", query: str = "", content: str = "application/json"
    ) -> Response:
        """Send one request about the object; a POST creates it."""
        path = self._path.rpartition("/")[0] if method == "POST" else self._path + (f"/{sub}" if sub else "")
        return self._cluster.request(method, f"{path}?{query}", body, content_type=content)

    def create(self, obj: JsonObject) -> JsonObject:
        """Create the object for good."""
        return succeeded(self.request("POST", obj, query="fieldManager=creator"))

    def dry_run(self, obj: JsonObject, *, sub: str = "", new: bool = False) -> JsonObject:
        """Return what the real server would store for `obj`."""
        return succeeded(self.request("POST" if new else "PUT", obj, sub=sub, query="dryRun=All"))


def succeeded(answer: Response) -> JsonObject:
    """Return the object of a response; fail if the request was refused."""
    assert answer.status in (200, 201), answer.body
    result: JsonObject = answer.json()
    return result


def content_of(obj: JsonObject) -> JsonObject:
    """Return `obj` without the fields that the server sets on each write or creation."""
    meta = {name: value for name, value in obj["metadata"].items() if name not in _SERVER_FIELDS}
    spec = {name: value for name, value in obj.get("spec", {}).items() if name not in _ALLOCATED}
    return obj | {"metadata": meta} | ({"spec": spec} if "spec" in obj else {})


def merge_shape(kind: Kind) -> MergeSchema:
    """Return the shape of a built-in kind."""
    found = merge_schema_of(kind.api_version, kind.kind)
    assert found
    return found


# Objects


def owner_reference(uid: str, **more: Any) -> JsonObject:
    """Return an owner reference."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": f"owner-{uid}", "uid": uid} | more


def container(name: str, **more: Any) -> JsonObject:
    """Return a container of that name."""
    return {"name": name, "image": f"registry.example/{name}:1"} | more


def a_config_map() -> JsonObject:
    """Return a ConfigMap with two values."""
    meta = {"name": "c", "labels": {"a": "1"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "1", "y": "2"}}


def a_node() -> JsonObject:
    """Return a Node with two taints."""
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute", "value": "1"}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "patched-node"}, "spec": {"taints": taints}}


def status_condition(kind: str, status: str = "True") -> JsonObject:
    """Return a condition of a status."""
    return {"type": kind, "status": status}
