"""What claims ask for, in claims and in templates of them.

Follows `ValidatePersistentVolumeClaimSpec` in `pkg/apis/core/validation` of Kubernetes 1.36.
"""

from collections.abc import Iterable

from haulout_sandbox.apiserver.fields import forbidden, invalid, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import rules
from haulout_sandbox.apiserver.validation.common import Causes, by_rule, label_selector, number_of, one_of

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")


def access_modes(modes: Iterable[str], path: str) -> Causes:
    """Return what is wrong with how a volume is used."""
    causes = [cause for mode in modes for cause in one_of(path, mode, _ACCESS_MODES)]
    sole = [mode == "ReadWriteOncePod" for mode in modes if mode in _ACCESS_MODES]
    if any(sole) and not all(sole):
        causes.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return causes


def claim_spec(spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with what a claim asks for."""
    modes = spec.get("accessModes") or ()
    causes = [] if modes else [required(f"{path}.accessModes", "at least 1 access mode is required")]
    causes += label_selector(spec.get("selector"), f"{path}.selector")
    causes += access_modes(modes, f"{path}.accessModes")
    causes += _storage((spec.get("resources") or {}).get("requests") or {}, f"{path}.resources[storage]")
    if spec.get("storageClassName"):
        causes += by_rule(f"{path}.storageClassName", spec["storageClassName"], rules.subdomain)
    if "volumeMode" in spec:
        causes += one_of(f"{path}.volumeMode", spec["volumeMode"], _VOLUME_MODES)
    for name in ("dataSource", "dataSourceRef"):
        if name in spec:
            causes += _data_source(spec[name], f"{path}.{name}")
    if spec.get("volumeAttributesClassName"):
        causes += by_rule(f"{path}.volumeAttributesClassName", spec["volumeAttributesClassName"], rules.subdomain)
    return causes


def _storage(requests: JsonObject, path: str) -> Causes:
    if "storage" not in requests:
        return [required(path)]
    wanted = number_of(requests["storage"])
    return [] if wanted.nano > 0 else [invalid(path, str(wanted), "must be greater than zero")]


def _data_source(source: JsonObject, path: str) -> Causes:
    causes = [required(f"{path}.{name}") for name in ("name", "kind") if not source.get(name)]
    group, kind = source.get("apiGroup", ""), source.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        causes.append(invalid(path, kind, detail))
    causes += by_rule(f"{path}.apiGroup", group, rules.subdomain) if group else []
    namespace = source.get("namespace", "")
    return causes + (by_rule(f"{path}.namespace", namespace, rules.dns_label) if namespace else [])
