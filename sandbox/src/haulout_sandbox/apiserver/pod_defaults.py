"""What the server writes into a pod, or into the template of one, where its author said nothing.

Follows `SetDefaults_*` in `pkg/apis/core/v1/{defaults,zz_generated.defaults}.go` of Kubernetes 1.36. All functions
change what they are given, and pass over parts that are not of the right type: refusing those is not their task.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from haulout.core import quantity
from haulout_sandbox.apiserver.kinds import JsonObject

_READABLE_BY_ALL = 0o644
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_PLAIN_VOLUMES: tuple[tuple[str, JsonObject], ...] = (
    ("secret", {"defaultMode": _READABLE_BY_ALL}),
    ("configMap", {"defaultMode": _READABLE_BY_ALL}),
    ("downwardAPI", {"defaultMode": _READABLE_BY_ALL}),
    ("projected", {"defaultMode": _READABLE_BY_ALL}),
    ("hostPath", {"type": ""}),
    ("iscsi", {"iscsiInterface": "default"}),
    ("rbd", {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}),
)


def fill(part: JsonObject, **values: Any) -> None:
    """Set the fields of `part` that say nothing."""
    for name, value in values.items():
        if part.get(name) in (None, ""):
            part[name] = value


def fill_absent(part: JsonObject, **values: Any) -> None:
    """Set the fields of `part` that are not there: those that are pointers in Go, where empty is not the same."""
    for name, value in values.items():
        if part.get(name) is None:
            part[name] = value


def section(part: JsonObject, name: str) -> JsonObject:
    """Return a section that is there from now on; one of another type is left alone."""
    if part.get(name) is None:
        part[name] = {}
    return found if isinstance(found := part[name], dict) else {}


def inside(part: JsonObject, *path: str) -> JsonObject:
    """Return the section at `path`, or an empty one that belongs to nothing."""
    for name in path:
        found = part.get(name)
        if not isinstance(found, dict):
            return {}
        part = found
    return part


def present(part: JsonObject, *path: str) -> Iterator[JsonObject]:
    """Yield the section at `path` if it is there, however empty."""
    holder = inside(part, *path[:-1])
    if isinstance(found := holder.get(path[-1]), dict):
        yield found


def each(part: JsonObject, name: str) -> Iterator[JsonObject]:
    """Return the objects in a list, as far as they are objects."""
    found = part.get(name)
    return (it for it in (found if isinstance(found, list) else ()) if isinstance(it, dict))


def canonical(quantities: JsonObject) -> None:
    """Write quantities as the server does: `1000m` is `1`, and so is the number 1."""
    for name, value in quantities.items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            quantities[name] = _canonical(str(value))


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    try:
        return str(quantity.parse(text))
    except ValueError:
        return text


def set_pod(pod: JsonObject) -> None:
    """Complete a pod."""
    spec = section(pod, "spec")
    set_pod_spec(spec)
    fill(spec, enableServiceLinks=True)
    for container in (*each(spec, "containers"), *each(spec, "initContainers")):
        resources = inside(container, "resources")
        if limits := inside(resources, "limits"):
            resources["requests"] = limits | inside(resources, "requests")
        for port in each(container, "ports") if spec.get("hostNetwork") is True else ():
            if not port.get("hostPort") and "containerPort" in port:
                port["hostPort"] = port["containerPort"]


def set_template(owner: JsonObject, name: str = "template") -> None:
    """Complete the pod template that `owner` carries."""
    template = section(owner, name)
    section(template, "metadata")
    set_pod_spec(section(template, "spec"))


def set_pod_spec(spec: JsonObject) -> None:
    """Complete what a pod and its template have in common."""
    fill(
        spec,
        dnsPolicy="ClusterFirst",
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        schedulerName="default-scheduler",
    )
    section(spec, "securityContext")
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account  # the latter is its old name
    for kind in _CONTAINERS:
        for container in each(spec, kind):
            _set_container(container, resources=kind != "ephemeralContainers" or "resources" in container)
    for volume in each(spec, "volumes"):
        _set_volume(volume)
    _set_resources(inside(spec, "resources"))
    canonical(inside(spec, "overhead"))


def set_claim_spec(spec: JsonObject) -> None:
    """Complete what a claim asks for."""
    fill_absent(spec, volumeMode="Filesystem")
    _set_resources(section(spec, "resources"))


def pull_policy(image: str) -> str:
    """Return when to pull `image`: always, if its tag may be moved at any time."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _set_container(container: JsonObject, *, resources: bool) -> None:
    image = container.get("image")
    # What cannot be read as the name of an image has no tag in Go, hence none that moves.
    policy = pull_policy(image) if isinstance(image, str) and image else "IfNotPresent"
    fill(
        container,
        imagePullPolicy=policy,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    if resources:
        _set_resources(section(container, "resources"))
    for port in each(container, "ports"):
        fill(port, protocol="TCP")
    for variable in each(container, "env"):
        _set_references(inside(variable, "valueFrom"))
    for probe in (it for name in _PROBES for it in present(container, name)):
        _set_probe(probe)
    for hook in ("postStart", "preStop"):
        _set_http(inside(container, "lifecycle", hook))


def _set_resources(resources: JsonObject) -> None:
    canonical(inside(resources, "limits"))
    canonical(inside(resources, "requests"))


def _set_probe(probe: JsonObject) -> None:
    for name, value in {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}.items():
        probe[name] = probe.get(name) or value
    _set_http(probe)
    for grpc in present(probe, "grpc"):
        fill(grpc, service="")


def _set_http(handler: JsonObject) -> None:
    for action in present(handler, "httpGet"):
        fill(action, path="/", scheme="HTTP")


def _set_references(source: JsonObject) -> None:
    for reference in present(source, "fieldRef"):
        fill(reference, apiVersion="v1")
    for reference in present(source, "resourceFieldRef"):
        fill(reference, divisor="0")
        reference["divisor"] = _canonical(str(reference["divisor"]))


def _set_volume(volume: JsonObject) -> None:
    if not any(isinstance(value, dict) for value in volume.values()):
        volume["emptyDir"] = {}
    for name, values in _PLAIN_VOLUMES:
        if isinstance(found := volume.get(name), dict):
            fill(found, **values)
    if image := inside(volume, "image"):
        fill(image, pullPolicy=pull_policy(str(image.get("reference") or "")))
    empty = inside(volume, "emptyDir")
    if empty.get("sizeLimit") is not None:
        empty["sizeLimit"] = _canonical(str(empty["sizeLimit"]))
    for claim in present(volume, "ephemeral", "volumeClaimTemplate"):
        section(claim, "metadata")
        set_claim_spec(section(claim, "spec"))
    for source in (volume, *each(inside(volume, "projected"), "sources")):
        for item in each(inside(source, "downwardAPI"), "items"):
            _set_references(item)
        if isinstance(token := source.get("serviceAccountToken"), dict):
            fill(token, expirationSeconds=3600)
