"""Defaults of pods and pod templates.

Follows `SetDefaults_*` in `pkg/apis/core/v1/{defaults,zz_generated.defaults}.go` of Kubernetes 1.36. All functions
change their argument in place and skip parts of the wrong type, which validation refuses.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from haulout.core import quantity
from haulout_sandbox.apiserver.kinds.kind import JsonObject

_READABLE_BY_ALL = 0o644
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_VOLUME_DEFAULTS: tuple[tuple[str, JsonObject], ...] = (
    ("secret", {"defaultMode": _READABLE_BY_ALL}),
    ("configMap", {"defaultMode": _READABLE_BY_ALL}),
    ("downwardAPI", {"defaultMode": _READABLE_BY_ALL}),
    ("projected", {"defaultMode": _READABLE_BY_ALL}),
    ("hostPath", {"type": ""}),
)


def fill(part: JsonObject, **values: Any) -> None:
    """Set those fields of `part` that are absent or empty."""
    for name, value in values.items():
        if part.get(name) in (None, ""):
            part[name] = value


def fill_absent(part: JsonObject, **values: Any) -> None:
    """Set those fields of `part` that are absent: in Go these are pointers, where empty differs from absent."""
    for name, value in values.items():
        if part.get(name) is None:
            part[name] = value


def ensure_section(part: JsonObject, name: str) -> JsonObject:
    """Return a section, created if absent; one of the wrong type is left alone."""
    if part.get(name) is None:
        part[name] = {}
    return found if isinstance(found := part[name], dict) else {}


def section_at(part: JsonObject, *path: str) -> JsonObject:
    """Return the section at `path`, or an empty one that is not part of the object."""
    for name in path:
        inner = part.get(name)
        if not isinstance(inner, dict):
            return {}
        part = inner
    return part


def existing_section(part: JsonObject, *path: str) -> Iterator[JsonObject]:
    """Yield the section at `path` if it exists, even if empty."""
    parent = section_at(part, *path[:-1])
    if isinstance(section := parent.get(path[-1]), dict):
        yield section


def objects_in(part: JsonObject, name: str) -> Iterator[JsonObject]:
    """Return the objects in a list, without items of other types."""
    items = part.get(name)
    return (item for item in (items if isinstance(items, list) else ()) if isinstance(item, dict))


def canonicalize_quantities(quantities: JsonObject) -> None:
    """Write quantities in canonical form: `1000m` becomes `1`, and so does the number 1."""
    for name, value in quantities.items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            quantities[name] = _canonical_quantity(str(value))


@lru_cache(maxsize=4096)
def _canonical_quantity(text: str) -> str:
    try:
        return str(quantity.parse(text))
    except ValueError:
        return text


def set_pod_defaults(pod: JsonObject) -> None:
    spec = ensure_section(pod, "spec")
    set_pod_spec_defaults(spec)
    fill(spec, enableServiceLinks=True)
    for container in (*objects_in(spec, "containers"), *objects_in(spec, "initContainers")):
        resources = section_at(container, "resources")
        if limits := section_at(resources, "limits"):
            resources["requests"] = limits | section_at(resources, "requests")
        for port in objects_in(container, "ports") if spec.get("hostNetwork") is True else ():
            if not port.get("hostPort") and "containerPort" in port:
                port["hostPort"] = port["containerPort"]


def set_template_defaults(owner: JsonObject, name: str = "template") -> None:
    template = ensure_section(owner, name)
    ensure_section(template, "metadata")
    set_pod_spec_defaults(ensure_section(template, "spec"))


def set_pod_spec_defaults(spec: JsonObject) -> None:
    """Set the defaults that a pod and a pod template share."""
    fill(
        spec,
        dnsPolicy="ClusterFirst",
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        schedulerName="default-scheduler",
    )
    ensure_section(spec, "securityContext")
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account  # the latter is the deprecated name
    for section_name in _CONTAINERS:
        for container in objects_in(spec, section_name):
            _set_container_defaults(
                container, has_resources=section_name != "ephemeralContainers" or "resources" in container
            )
    for volume in objects_in(spec, "volumes"):
        _set_volume_defaults(volume)
    _canonicalize_resources(section_at(spec, "resources"))
    canonicalize_quantities(section_at(spec, "overhead"))


def set_claim_spec_defaults(spec: JsonObject) -> None:
    fill_absent(spec, volumeMode="Filesystem")
    _canonicalize_resources(ensure_section(spec, "resources"))


def pull_policy(image: str) -> str:
    """Return the default pull policy: Always if the tag is `latest`, otherwise IfNotPresent."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def _set_container_defaults(container: JsonObject, *, has_resources: bool) -> None:
    image = container.get("image")
    # An invalid image reference has no tag in Go, hence not `latest`.
    policy = pull_policy(image) if isinstance(image, str) and image else "IfNotPresent"
    fill(
        container,
        imagePullPolicy=policy,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    if has_resources:
        _canonicalize_resources(ensure_section(container, "resources"))
    for port in objects_in(container, "ports"):
        fill(port, protocol="TCP")
    for probe in (existing for name in _PROBES for existing in existing_section(container, name)):
        _set_probe_defaults(probe)
    for hook in ("postStart", "preStop"):
        _set_http_get_defaults(section_at(container, "lifecycle", hook))


def _canonicalize_resources(resources: JsonObject) -> None:
    canonicalize_quantities(section_at(resources, "limits"))
    canonicalize_quantities(section_at(resources, "requests"))


def _set_probe_defaults(probe: JsonObject) -> None:
    for name, value in {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}.items():
        probe[name] = probe.get(name) or value
    _set_http_get_defaults(probe)


def _set_http_get_defaults(handler: JsonObject) -> None:
    for action in existing_section(handler, "httpGet"):
        fill(action, path="/", scheme="HTTP")


def _set_volume_defaults(volume: JsonObject) -> None:
    if not any(isinstance(value, dict) for value in volume.values()):
        volume["emptyDir"] = {}
    for name, values in _VOLUME_DEFAULTS:
        if isinstance(volume_source := volume.get(name), dict):
            fill(volume_source, **values)
