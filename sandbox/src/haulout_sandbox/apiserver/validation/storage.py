"""Volumes, claims and classes of storage, as far as people write them.

Follows `pkg/apis/core/validation` and `pkg/apis/storage/validation` of Kubernetes 1.36. Of a volume's source only that
there is one, and what the common ones must say.
"""

from haulout.core.quantity import Quantity
from haulout_sandbox.apiserver.fields import forbidden, invalid, not_supported, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata, placement, rules
from haulout_sandbox.apiserver.validation.claims import access_modes, claim_spec
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    by_rule,
    number_of,
    one_of,
    required_by_rule,
    same,
    unchanged,
)
from haulout_sandbox.apiserver.validation.internal import difference
from haulout_sandbox.apiserver.validation.volumes import HOST_PATHS, driver_name, no_backsteps

_RECLAIM = ("Delete", "Recycle", "Retain")
_CLASS_RECLAIM = ("Delete", "Retain")
_BINDING = ("Immediate", "WaitForFirstConsumer")
_VOLUME_MODES = ("Block", "Filesystem")
_SOURCES = (
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
)
_CLAIM_FIXED = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def claim(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a PersistentVolumeClaim."""
    causes = metadata.of_update(new["metadata"], old["metadata"]) if old else []
    causes += metadata.of_new(new["metadata"], namespaced=True, name_rule=rules.subdomain)
    causes += claim_spec(new["spec"], "spec")
    return causes + (_kept_claim(new, old) if old else [])


def claim_status(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with the status of a PersistentVolumeClaim."""
    causes = metadata.of_update(new["metadata"], old["metadata"])
    for name, value in (new["status"].get("capacity") or {}).items():
        size = number_of(value).value
        if size < 0:
            causes.append(invalid(f"status.capacity[{name}]", size, "must be a valid resource quantity"))
    return causes


def _kept_claim(new: JsonObject, old: JsonObject) -> Causes:
    spec, before = dict(new["spec"]), dict(old["spec"])
    bound = new["status"].get("phase") == "Bound"
    if not before.get("volumeName") and "volumeName" in spec:
        before["volumeName"] = spec["volumeName"]
    if "storageClassName" not in before and "storageClassName" in spec:
        spec.pop("storageClassName")
    old_size, new_size = (_size(it["spec"]) for it in (old, new))
    if bound and (spec.get("resources") or {}).get("requests"):
        requests = spec["resources"]["requests"] | {"storage": str(old_size)}
        spec["resources"] = spec["resources"] | {"requests": requests}
    causes: Causes = []
    if not same(spec, before):
        change = difference(before, spec, "core.PersistentVolumeClaimSpec")
        causes.append(forbidden("spec", f"{_CLAIM_FIXED}\n{change}"))
    have = number_of((old["status"].get("capacity") or {}).get("storage", "0"))
    if new_size < old_size and new_size <= have:
        causes.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
    return causes + unchanged("volumeMode", new["spec"].get("volumeMode"), old["spec"].get("volumeMode"))


def _size(spec: JsonObject) -> Quantity:
    return number_of(((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"))


def volume(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a PersistentVolume."""
    causes = _volume(new)
    if old is None:
        return causes
    causes += _volume(new)  # the real server looks twice
    spec, before = new["spec"], old["spec"]
    now, was = ({name: it[name] for name in _SOURCES if name in it} for it in (spec, before))
    if not same(now, was):
        change = difference(was, now, "core.PersistentVolumeSource")
        detail = f"spec.persistentvolumesource is immutable after creation\n{change}"
        causes.append(forbidden("spec.persistentvolumesource", detail))
    return causes + unchanged("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))


def _volume(new: JsonObject) -> Causes:
    spec = new["spec"]
    causes = metadata.of_new(new["metadata"], namespaced=False, name_rule=rules.subdomain)
    modes, capacity = spec.get("accessModes") or [], spec.get("capacity") or {}
    causes += [] if modes else [required("spec.accessModes")]
    causes += access_modes(modes, "spec.accessModes")
    causes += [] if capacity else [required("spec.capacity")]
    if set(capacity) != {"storage"}:
        causes.append(not_supported("spec.capacity", spec.get("capacity"), ("storage",)))
    for name, value in capacity.items():
        size, path = number_of(value), f"spec.capacity[{name}]"
        if size.value < 0:
            causes.append(invalid(path, size.value, "must be a valid resource quantity"))
        if size.nano <= 0:
            causes.append(invalid(path, str(size), "must be greater than zero"))
    if spec.get("persistentVolumeReclaimPolicy"):
        policy = spec["persistentVolumeReclaimPolicy"]
        causes += one_of("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM)
    required_nodes = (spec.get("nodeAffinity") or {}).get("required")
    if "nodeAffinity" in spec:
        path = "spec.nodeAffinity.required"
        if required_nodes is None:
            causes.append(required(path, "must specify required node constraints"))
        else:
            causes += placement.node_selector(required_nodes, path)
    causes += _source(spec, bound_to_nodes=bool(required_nodes))
    if spec.get("storageClassName"):
        causes += by_rule("spec.storageClassName", spec["storageClassName"], rules.subdomain)
    return causes + (one_of("spec.volumeMode", spec["volumeMode"], _VOLUME_MODES) if "volumeMode" in spec else [])


def _source(spec: JsonObject, *, bound_to_nodes: bool) -> Causes:
    given = [name for name in _SOURCES if name in spec]
    if not given:
        return [required("spec", "must specify a volume type")]
    first, path = spec[given[0]], f"spec.{given[0]}"
    causes: Causes = []
    if given[0] in ("hostPath", "local"):
        target = first.get("path", "")
        causes += no_backsteps(target, f"{path}.path") if target else [required(f"{path}.path")]
        causes += one_of(f"{path}.type", first.get("type", ""), HOST_PATHS) if target else []
        if given[0] == "local" and not bound_to_nodes:
            causes.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    elif given[0] == "csi":
        causes += driver_name(first.get("driver", ""), f"{path}.driver")
        causes += [] if first.get("volumeHandle") else [required(f"{path}.volumeHandle")]
    detail = "may not specify more than 1 volume type"
    return causes + [forbidden(f"spec.{name}", detail) for name in given[1:]]


def storage_class(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a StorageClass."""
    causes = metadata.of_new(new["metadata"], namespaced=False, name_rule=rules.subdomain)
    provisioner = new.get("provisioner", "")
    causes += required_by_rule("provisioner", provisioner.lower(), rules.qualified_name)
    if any(not key for key in new.get("parameters") or ()):
        causes.append(invalid("parameters", "", "field can not be empty."))
    if new.get("reclaimPolicy"):
        causes += one_of("reclaimPolicy", new["reclaimPolicy"], _CLASS_RECLAIM)
    causes += one_of("volumeBindingMode", new.get("volumeBindingMode", ""), _BINDING)
    if old is not None:
        causes += metadata.of_update(new["metadata"], old["metadata"])
        for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
            causes += unchanged(
                name, new.get(name), old.get(name), shown=new.get(name, "") if name == "provisioner" else None
            )
    return causes
