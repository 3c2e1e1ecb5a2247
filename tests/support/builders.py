"""Objects for tests, made by sentences: `a_pod("cart-0", on="n1", labels={"app": "cart"})`."""

from collections.abc import Mapping
from typing import Any

from haulout.kube.objects import RawObject


def a_node(name: str, *, labels: Mapping[str, str] | None = None, **spec: Any) -> RawObject:
    """Return a node."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec}


def a_pod(name: str, *, on: str = "", labels: Mapping[str, str] | None = None) -> RawObject:
    """Return a pod, bound to a node or not."""
    spec: RawObject = {"containers": [{"name": "main", "image": "example/main"}]}
    if on:
        spec["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec}


def a_config_map(name: str, *, labels: Mapping[str, str] | None = None, **data: str) -> RawObject:
    """Return a config map."""
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def a_budget(name: str, *, min_available: int, labels: Mapping[str, str]) -> RawObject:
    """Return a disruption budget for the pods with these labels."""
    spec = {"minAvailable": min_available, "selector": {"matchLabels": dict(labels)}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
