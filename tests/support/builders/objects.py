"""Builders for Kubernetes objects: `a_pod("shop/cart-0").on("n1").owned_by(deployment)`.

All objects are valid on a real API server and contain only what is required. A name may include a namespace
(`shop/cart`); without one, the object belongs to the namespace in which it is created. A `KubernetesObject` is the
plain JSON object, so clients and servers accept it directly. Its methods return a changed copy, so tests may share
objects.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Self

from haulout.api.objects import RawObject

SHOP = "shop"
_BEHAVIOUR_PREFIX = "sandbox.haulout.dev/"  # annotations that tell the sandbox's kubelets how a pod behaves


class KubernetesObject(dict[str, Any]):
    """An object of any kind."""

    def labelled(self, labels: Mapping[str, str]) -> Self:
        """Add labels."""
        return self._with_metadata(labels={**self["metadata"].get("labels", {}), **labels})

    def annotated(self, annotations: Mapping[str, str]) -> Self:
        """Add annotations."""
        return self._with_metadata(annotations={**self["metadata"].get("annotations", {}), **annotations})

    def in_namespace(self, namespace: str) -> Self:
        """Put it into a namespace."""
        return self._with_metadata(namespace=namespace)

    def owned_by(self, owner: Mapping[str, Any]) -> Self:
        """Let it belong to `owner`, which need not be in any cluster."""
        meta = owner["metadata"]
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": meta["name"],
            "uid": meta.get("uid", f"uid-of-{meta['name']}"),
            "controller": True,
        }
        return self._with_metadata(ownerReferences=[*self["metadata"].get("ownerReferences", ()), reference])

    def with_finalizers(self, *finalizers: str) -> Self:
        """Let it be deleted only when these finalizers are gone."""
        return self._with_metadata(finalizers=[*self["metadata"].get("finalizers", ()), *finalizers])

    def with_spec(self, **fields: Any) -> Self:
        """Set fields of its spec."""
        return self._with("spec", fields)

    def with_status(self, **fields: Any) -> Self:
        """Set fields of its status, which a server takes from its controller only."""
        return self._with("status", fields)

    def _with_metadata(self, **fields: Any) -> Self:
        return self._with("metadata", fields)

    def _with(self, section: str, fields: Mapping[str, Any]) -> Self:
        changed = deepcopy(self)
        changed[section] = {**changed.get(section, {}), **fields}
        return changed


class PodObject(KubernetesObject):
    """A pod."""

    def on(self, node: str) -> Self:
        """Bind it to a node."""
        return self.with_spec(nodeName=node)

    def requesting(self, *, cpu: str = "", memory: str = "") -> Self:
        """Let its container request resources."""
        requests = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value}
        (container,) = self["spec"]["containers"]
        return self.with_spec(containers=[{**container, "resources": {"requests": requests}}])

    def with_kubelet_behaviour(self, behaviour: Mapping[str, str]) -> Self:
        """Tell its kubelet how it behaves: `{"stop-seconds": "4"}`; see `haulout_sandbox.nodes.kubelet.delays`."""
        return self.annotated({f"{_BEHAVIOUR_PREFIX}{name}": value for name, value in behaviour.items()})

    def running(self, *, ready: bool = True) -> Self:
        """Let it run already, for a server that takes a status (`ApiServer.put`)."""
        return self.with_status(phase="Running", conditions=[{"type": "Ready", "status": str(ready)}])


class NodeObject(KubernetesObject):
    """A node."""

    def cordoned(self) -> Self:
        """Take no more pods."""
        return self.with_spec(unschedulable=True)

    def tainted(self, key: str, effect: str = "NoSchedule", value: str = "") -> Self:
        """Add a taint."""
        taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
        return self.with_spec(taints=[*self["spec"].get("taints", ()), taint])

    def ready(self, status: str = "True") -> Self:
        """Set the Ready condition."""
        others = [
            condition for condition in self.get("status", {}).get("conditions", ()) if condition["type"] != "Ready"
        ]
        return self.with_status(conditions=[*others, {"type": "Ready", "status": status}])


def metadata(name: str, labels: Mapping[str, str] | None = None) -> RawObject:
    """Return the metadata of an object that is named `name` or `namespace/name`."""
    namespace, _, object_name = name.rpartition("/")
    namespace_field = {"namespace": namespace} if namespace else {}
    return {"name": object_name, **namespace_field} | ({"labels": dict(labels)} if labels else {})


def a_namespace(name: str = SHOP) -> KubernetesObject:
    """Return a namespace."""
    return KubernetesObject(apiVersion="v1", kind="Namespace", metadata=metadata(name))


def a_node(name: str = "n1", *, labels: Mapping[str, str] | None = None, **spec: Any) -> NodeObject:
    """Return a node."""
    return NodeObject(apiVersion="v1", kind="Node", metadata=metadata(name, labels), spec=spec)


def a_pod(
    name: str = "cart-0",
    *,
    on: str = "",
    cpu: str = "",
    memory: str = "",
    labels: Mapping[str, str] | None = None,
    owner: str = "",
    grace: int = 30,
    behaviour: Mapping[str, str] | None = None,
    **spec: Any,
) -> PodObject:
    """Return a pod; the most used settings are keyword arguments, `owner` as `ReplicaSet/cart`."""
    pod = PodObject(
        apiVersion="v1",
        kind="Pod",
        metadata=metadata(name, labels),
        spec={"containers": [_container()], "terminationGracePeriodSeconds": grace, "restartPolicy": "Always", **spec},
        status={"phase": "Pending"},
    )
    pod = pod.on(on) if on else pod
    pod = pod.requesting(cpu=cpu, memory=memory) if cpu or memory else pod
    pod = pod.with_kubelet_behaviour(behaviour) if behaviour else pod
    return pod.owned_by(_owner(owner)) if owner else pod


def a_config_map(name: str = "settings", *, labels: Mapping[str, str] | None = None, **data: str) -> KubernetesObject:
    """Return a config map."""
    return KubernetesObject(apiVersion="v1", kind="ConfigMap", metadata=metadata(name, labels), data=data)


def a_lease(name: str = "lock", *, holder: str = "a") -> KubernetesObject:
    """Return a lease that somebody holds."""
    spec = {"holderIdentity": holder}
    return KubernetesObject(apiVersion="coordination.k8s.io/v1", kind="Lease", metadata=metadata(name), spec=spec)


def a_template(labels: Mapping[str, str], *, image: str = "example/main:1", **spec: Any) -> RawObject:
    """Return a pod template."""
    return {
        "metadata": {"labels": dict(labels)},
        "spec": {"containers": [_container(image)], "terminationGracePeriodSeconds": 30, **spec},
    }


def a_workload(kind: str, name: str = "cart", *, template: RawObject | None = None, **spec: Any) -> KubernetesObject:
    """Return a workload of `apps/v1` whose pods have the label `app` with its name."""
    labels = {"app": name.rpartition("/")[2]}
    spec = {"selector": {"matchLabels": labels}, "template": template or a_template(labels), **spec}
    return KubernetesObject(apiVersion="apps/v1", kind=kind, metadata=metadata(name), spec=spec)


def a_deployment(name: str = "cart", **spec: Any) -> KubernetesObject:
    """Return a Deployment."""
    return a_workload("Deployment", name, **spec)


def a_job(name: str = "report", *, template: RawObject | None = None, **spec: Any) -> KubernetesObject:
    """Return a job."""
    spec = {"template": template or a_template({}, restartPolicy="Never"), **spec}
    return KubernetesObject(apiVersion="batch/v1", kind="Job", metadata=metadata(name), spec=spec)


def a_pdb(name: str = "cart", *, app: str = "", **spec: Any) -> KubernetesObject:
    """Return a disruption budget for the pods with the label `app`, by default the budget's own name."""
    spec = {"selector": {"matchLabels": {"app": app or name.rpartition("/")[2]}}, **spec}
    return KubernetesObject(apiVersion="policy/v1", kind="PodDisruptionBudget", metadata=metadata(name), spec=spec)


def _container(image: str = "example/main") -> RawObject:
    return {"name": "main", "image": image}


def _owner(reference: str) -> RawObject:
    kind, _, name = reference.partition("/")
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
