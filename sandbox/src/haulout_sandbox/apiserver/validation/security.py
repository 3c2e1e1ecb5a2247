"""What a pod and its containers may do on their node: users, profiles, privileges.

Follows `ValidateSecurityContext` and its kin in `pkg/apis/core/validation` of Kubernetes 1.36; Windows is left out.
"""

import re

from haulout_sandbox.apiserver.fields import duplicate, invalid, not_supported, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import rules
from haulout_sandbox.apiserver.validation.common import Causes, enumerated, one_of
from haulout_sandbox.apiserver.validation.internal import shown
from haulout_sandbox.apiserver.validation.volumes import descending_path

_MOST_ID = 2**31 - 1
_LONGEST_SYSCTL = 253
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_PROC_MOUNTS = ("Default", "Unmasked")
_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"({_SEGMENT}[\./])*{_SEGMENT}"


def of_pod(context: JsonObject, spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with the security context of a pod."""
    if not context and not spec.get("shareProcessNamespace"):
        return []
    causes = _ids(context, path, "fsGroup", "runAsUser", "runAsGroup")
    for at, group in enumerate(context.get("supplementalGroups") or ()):
        causes += _id(group, f"{path}.supplementalGroups[{at}]")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        causes.append(invalid(f"{path}.shareProcessNamespace", True, detail))
    causes += _sysctls(context.get("sysctls") or [], f"{path}.sysctls")
    for name, allowed in (("fsGroupChangePolicy", ("Always", "OnRootMismatch")),):
        causes += one_of(f"{path}.{name}", context[name], allowed) if name in context else []
    causes += _seccomp(context.get("seccompProfile"), f"{path}.seccompProfile")
    causes += _app_armor(context.get("appArmorProfile"), f"{path}.appArmorProfile")
    for name, allowed in (
        ("supplementalGroupsPolicy", ("Merge", "Strict")),
        ("seLinuxChangePolicy", ("MountOption", "Recursive")),
    ):
        causes += one_of(f"{path}.{name}", context[name], allowed) if name in context else []
    return causes


def of_container(context: JsonObject | None, path: str, *, host_users: bool) -> Causes:
    """Return what is wrong with the security context of a container."""
    if not context:
        return []
    causes = _ids(context, path, "runAsUser", "runAsGroup")
    if "procMount" in context:
        causes += one_of(f"{path}.procMount", context["procMount"], _PROC_MOUNTS)
        if host_users and context["procMount"] == "Unmasked":
            causes.append(invalid(f"{path}.procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`"))
    causes += _seccomp(context.get("seccompProfile"), f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        refused = "cannot set `allowPrivilegeEscalation` to false and"
        if context.get("privileged"):
            causes.append(invalid(path, shown(context, "core.SecurityContext"), f"{refused} `privileged` to true"))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            detail = f"{refused} `capabilities.Add` CAP_SYS_ADMIN"
            causes.append(invalid(path, shown(context, "core.SecurityContext"), detail))
    return causes + _app_armor(context.get("appArmorProfile"), f"{path}.appArmorProfile")


def _ids(context: JsonObject, path: str, *names: str) -> Causes:
    return [cause for name in names if name in context for cause in _id(context[name], f"{path}.{name}")]


def _id(number: int, path: str) -> Causes:
    return [] if 0 <= number <= _MOST_ID else [invalid(path, number, rules.between(0, _MOST_ID))]


def _sysctls(found: list[JsonObject], path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for where, each in enumerated(found, path):
        name = each.get("name", "")
        if not name:
            causes.append(required(f"{where}.name"))
        elif len(name) > _LONGEST_SYSCTL or not re.fullmatch(_SYSCTL, name):
            detail = f"must have at most {_LONGEST_SYSCTL} characters and match regex ^{_SYSCTL}$"
            causes.append(invalid(f"{where}.name", name, detail))
        elif name in seen:
            causes.append(duplicate(f"{where}.name", name))
        seen.add(name)
    return causes


def _seccomp(profile: JsonObject | None, path: str) -> Causes:
    if profile is None:
        return []
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    causes = _profile_type(kind, path, "seccompProfile")
    if kind == "Localhost":
        if local is None:
            causes.append(required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost"))
        else:
            causes += descending_path(local, f"{path}.localhostProfile")
    elif local is not None:
        detail = "can only be set when seccomp type is Localhost"
        causes.append(invalid(f"{path}.localhostProfile", shown(profile, "core.SeccompProfile"), detail))
    return causes


def _app_armor(profile: JsonObject | None, path: str) -> Causes:
    if profile is None:
        return []
    kind, local, field = profile.get("type", ""), profile.get("localhostProfile"), f"{path}.localhostProfile"
    if kind != "Localhost":
        causes = _profile_type(kind, path, "appArmorProfile")
        if not causes and local is not None:
            causes.append(invalid(field, local, "can only be set when AppArmor type is Localhost"))
        return causes
    if local is None or not local:
        return [required(field, "must be set when AppArmor type is Localhost")]
    return [invalid(field, local, "must not be padded with whitespace")] if local != local.strip() else []


def _profile_type(kind: str, path: str, what: str) -> Causes:
    if kind in _PROFILES:
        return []
    if not kind:
        return [required(f"{path}.type", f"type is required when {what} is set")]
    return [not_supported(f"{path}.type", kind, _PROFILES)]
