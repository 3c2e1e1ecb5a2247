"""Volumes of a pod, and references to its fields.

Follows `ValidateVolumes` in `pkg/apis/core/validation` of Kubernetes 1.36. Of the sources that few people use (clouds'
disks, old network file systems) only what they must say is looked at.
"""

from collections.abc import Callable, Iterable, Mapping

from haulout_sandbox.apiserver.fields import duplicate, forbidden, invalid, required, too_long
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata, rules
from haulout_sandbox.apiserver.validation.claims import claim_spec
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    by_rule,
    enumerated,
    not_negative_quantity,
    number_of,
    one_of,
    required_by_rule,
)

Volumes = Mapping[str, JsonObject]
"""The sound volumes of a pod, by name."""

_MOST_MODE = 0o777
_MODE_RULE = "must be a number between 0 and 0777 (octal), both inclusive"
_SHORTEST_TOKEN_SECONDS, _LONGEST_TOKEN_SECONDS = 600, 1 << 32
_LONGEST_DRIVER = 63
HOST_PATHS = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_RESOURCES = tuple(
    f"{part}.{name}" for part in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE = ("limits.hugepages-", "requests.hugepages-")
_DIVISORS = ("1", *(f"1{unit}" for unit in "kMGTPE"), *(f"1{unit}i" for unit in "KMGTPE"))
_POD_FIELDS = {  # what the downward API knows about a pod; the last two only for whole names
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
}


def of_pod(spec: JsonObject, path: str, pod_name: str = "") -> tuple[Volumes, Causes]:
    """Return the volumes that containers can mount, and what is wrong with the others."""
    causes: Causes = []
    sound: dict[str, JsonObject] = {}
    volumes = spec.get("volumes") or ()
    made = {f"{pod_name}-{it.get('name', '')}" for it in volumes if "ephemeral" in it} if pod_name else set()
    for where, volume in enumerated(volumes, path):
        name = volume.get("name", "")
        found = _source(volume, where, pod_name)
        found += required_by_rule(f"{where}.name", name, rules.dns_label)
        if name in sound:
            found.append(duplicate(f"{where}.name", name))
        if not found:
            sound[name] = volume
        causes += found
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        if claim in made:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            causes.append(invalid(f"{where}.persistentVolumeClaim.claimName", claim, detail))
    return sound, causes


def _source(volume: JsonObject, path: str, pod_name: str) -> Causes:
    causes: Causes = []
    given = [name for name in _SOURCES if volume.get(name) is not None]
    for at, name in enumerate(given):
        if at:
            said = _MISNAMED.get(name, name)
            causes.append(forbidden(f"{path}.{said}", "may not specify more than 1 volume type"))
        else:
            causes += _SOURCES[name](volume[name], f"{path}.{name}")
            if name == "ephemeral" and pod_name and volume.get("name"):
                causes += _claim_name(volume["name"], pod_name, path)
    return causes if given else [required(path, "must specify a volume type")]


def _claim_name(volume: str, pod_name: str, path: str) -> Causes:
    claim = f"{pod_name}-{volume}"
    return [invalid(f"{path}.name", volume, f'PVC name "{claim}": {it}') for it in rules.subdomain(claim)]


def _nothing(*_: object) -> Causes:
    return []


def _needs(*names: str) -> Callable[[JsonObject, str], Causes]:
    def check(source: JsonObject, path: str) -> Causes:
        return [required(f"{path}.{name}") for name in names if not source.get(name)]

    return check


def _empty(source: JsonObject, path: str) -> Causes:
    if "sizeLimit" in source and not_negative_quantity(path, source["sizeLimit"]):
        return [forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _host_path(source: JsonObject, path: str) -> Causes:
    if not source.get("path"):
        return [required(f"{path}.path")]
    causes = no_backsteps(source["path"], f"{path}.path")
    return causes + one_of(f"{path}.type", source.get("type", ""), HOST_PATHS)


def _nfs(source: JsonObject, path: str) -> Causes:
    causes = _needs("server", "path")(source, path)
    if not source.get("path", "").startswith("/"):
        causes.append(invalid(f"{path}.path", source.get("path", ""), "must be an absolute path"))
    return causes


def _files(name: str) -> Callable[[JsonObject, str], Causes]:
    def check(source: JsonObject, path: str) -> Causes:
        causes = _needs(name)(source, path) + _mode(source, "defaultMode", path)
        for where, item in enumerated(source.get("items"), f"{path}.items"):
            causes += _item(item, where)
        return causes

    return check


def _item(item: JsonObject, path: str) -> Causes:
    causes = _needs("key", "path")(item, path)
    causes += unreserved_path(item.get("path", ""), f"{path}.path")
    return causes + _mode(item, "mode", path)


def _mode(part: JsonObject, name: str, path: str) -> Causes:
    mode = part.get(name)
    return [invalid(f"{path}.{name}", mode, _MODE_RULE)] if mode is not None and not 0 <= mode <= _MOST_MODE else []


def _downward(source: JsonObject, path: str) -> Causes:
    causes = _mode(source, "defaultMode", path)
    for item in source.get("items") or ():
        causes += _downward_file(item, path)  # the real server does not say which of them it is
    return causes


def _downward_file(item: JsonObject, path: str) -> Causes:
    causes = _needs("path")(item, path) + unreserved_path(item.get("path", ""), f"{path}.path")
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        causes += field_reference(field, f"{path}.fieldRef", _FILE_FIELDS)
        if resource is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            causes.append(invalid(path, "resource", detail))
    elif resource is not None:
        causes += resource_reference(resource, f"{path}.resourceFieldRef", of_volume=True)
    else:
        causes.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return causes + _mode(item, "mode", path)


def _projected(source: JsonObject, path: str) -> Causes:
    causes = _mode(source, "defaultMode", path)
    taken: set[str] = set()

    def claim(target: str, shown: str) -> Causes:
        if target and target in taken:
            return [invalid(path, shown, "conflicting duplicate paths")]
        taken.add(target)
        return []

    for where, each in enumerated(source.get("sources"), f"{path}.sources"):
        for kind in ("secret", "configMap"):
            if kind in each:
                named = each[kind].get("name", "")
                causes += _needs("name")(each[kind], f"{where}.{kind}")
                for at, item in enumerated(each[kind].get("items"), f"{where}.{kind}.items"):
                    causes += _item(item, at) + claim(item.get("path", ""), named)
        for item in (each.get("downwardAPI") or {}).get("items") or ():
            target = item.get("path", "")
            causes += _downward_file(item, f"{where}.downwardAPI") + claim(target, target)
        if "serviceAccountToken" in each:
            causes += _token(each["serviceAccountToken"], f"{where}.serviceAccountToken", path)
        if len(each) > 1:
            causes.append(forbidden(where, "may not specify more than 1 volume type per source"))
    return causes


def _token(token: JsonObject, path: str, volume_path: str) -> Causes:
    causes: Causes = []
    seconds, field = token.get("expirationSeconds", 0), f"{path}.expirationSeconds"
    if seconds < _SHORTEST_TOKEN_SECONDS:
        causes.append(invalid(field, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > _LONGEST_TOKEN_SECONDS:
        causes.append(invalid(field, seconds, "may not specify a duration larger than 2^32 seconds"))
    if not token.get("path"):
        return [*causes, required(f"{volume_path}.path")]
    return causes + unreserved_path(token["path"], f"{volume_path}.path")


def _csi(source: JsonObject, path: str) -> Causes:
    causes = driver_name(source.get("driver", ""), f"{path}.driver")
    if "nodePublishSecretRef" in source:
        name = source["nodePublishSecretRef"].get("name", "")
        if not name:
            causes.append(required(f"{path}.nodePublishSecretRef.name"))
        causes += by_rule(f"{path}.name", name, rules.subdomain) if name else []
    return causes


def _ephemeral(source: JsonObject, path: str) -> Causes:
    claim, where = source.get("volumeClaimTemplate"), f"{path}.volumeClaimTemplate"
    if claim is None:
        return [required(where)]
    return metadata.template(claim.get("metadata") or {}, f"{where}.metadata") + claim_spec(
        claim.get("spec") or {}, f"{where}.spec"
    )


_SOURCES: dict[str, Callable[[JsonObject, str], Causes]] = {  # in the order in which the real server looks
    "emptyDir": _empty,
    "hostPath": _host_path,
    "gitRepo": _needs("repository"),
    "gcePersistentDisk": _needs("pdName"),
    "awsElasticBlockStore": _needs("volumeID"),
    "secret": _files("secretName"),
    "nfs": _nfs,
    "iscsi": _needs("targetPortal", "iqn"),
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _nothing,
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": _needs("volumeID"),
    "cephfs": _needs("monitors"),
    "quobyte": _needs("registry", "volume"),
    "downwardAPI": _downward,
    "fc": _nothing,
    "flexVolume": _needs("driver"),
    "configMap": _files("name"),
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _needs("diskName", "diskURI"),
    "storageos": _nothing,
    "projected": _projected,
    "scaleIO": _needs("gateway", "system"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _needs("reference"),
}
_MISNAMED = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}  # the real server's own slips


# Parts that others have, too


def no_backsteps(target: str, path: str) -> Causes:
    """Say that a path leads upwards."""
    return [invalid(path, target, "must not contain '..'")] if ".." in target.split("/") else []


def descending_path(target: str, path: str) -> Causes:
    """Return what is wrong with a path below something."""
    causes = [invalid(path, target, "must be a relative path")] if target.startswith("/") else []
    return causes + no_backsteps(target, path)


def unreserved_path(target: str, path: str) -> Causes:
    """Return what is wrong with a path below a volume."""
    causes = descending_path(target, path)
    if target.startswith("..") and not target.startswith("../"):
        causes.append(invalid(path, target, "must not start with '..'"))
    return causes


def driver_name(name: str, path: str) -> Causes:
    """Return what is wrong with the name of a CSI driver."""
    if not name:
        return [required(path)]
    causes = [too_long(path, _LONGEST_DRIVER)] if len(name) > _LONGEST_DRIVER else []
    return causes + [invalid(path, name, problem) for problem in rules.subdomain(name.lower())]


def field_reference(reference: JsonObject, path: str, known: Iterable[str]) -> Causes:
    """Return what is wrong with a reference to a field of the pod."""
    for name in ("apiVersion", "fieldPath"):
        if not reference.get(name):
            return [required(f"{path}.{name}")]
    field, version = reference["fieldPath"], reference["apiVersion"]
    base, bracket, rest = field.partition("['")
    subscripted = bool(bracket) and rest.endswith("']")
    wrong = _unconverted(version, field, base if subscripted else field, subscripted=subscripted)
    if wrong:
        return [invalid(f"{path}.fieldPath", field, f"error converting fieldPath: {wrong}")]
    if not subscripted:
        return one_of(f"{path}.fieldPath", field, tuple(known))
    key = rest.removesuffix("']")
    return by_rule(path, key.lower() if base == "metadata.annotations" else key, rules.qualified_name)


def _unconverted(version: str, field: str, base: str, *, subscripted: bool) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    if subscripted and base not in ("metadata.annotations", "metadata.labels"):
        return f"field label does not support subscript: {field}"
    return "" if base in _POD_FIELDS else f"field label not supported: {base}"


def resource_reference(reference: JsonObject, path: str, *, of_volume: bool) -> Causes:
    """Return what is wrong with a reference to a container's resource."""
    name, causes = reference.get("resource", ""), []
    if of_volume and not reference.get("containerName"):
        causes.append(required(f"{path}.containerName"))
    elif not name:
        causes.append(required(f"{path}.resource"))
    elif not name.startswith(_HUGE):
        causes += one_of(f"{path}.resource", name, _RESOURCES)
    return causes + _divisor(name, reference.get("divisor", "0"), f"{path}.divisor")


def _divisor(name: str, divisor: str, path: str) -> Causes:
    if not number_of(divisor):
        return []
    if name.endswith(".cpu"):
        allowed: tuple[str, ...] = ("1m", "1")
        listed, what = "1m and 1", "cpu"
    elif name in _RESOURCES or name.startswith(_HUGE):
        allowed, listed = _DIVISORS, ", ".join(_DIVISORS)
        kind = name.partition(".")[2]
        what = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(kind, "hugepages")
    else:
        return []
    if str(number_of(divisor)) in allowed:
        return []
    return [invalid(path, name, f"only divisor's values {listed} are supported with the {what} resource")]
