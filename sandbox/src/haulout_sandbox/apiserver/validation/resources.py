"""What containers ask for and may use: names of resources, and amounts.

Follows `validateResourceRequirements` in `pkg/apis/core/validation` of Kubernetes 1.36.
"""

from collections.abc import Callable, Collection

from haulout.core.quantity import Quantity
from haulout_sandbox.apiserver.fields import duplicate, forbidden, invalid, not_found, not_supported, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import rules
from haulout_sandbox.apiserver.validation.common import Causes, by_rule, not_negative_quantity, number_of

_HUGE = "hugepages-"
_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})
_QUOTA_ONLY = frozenset(
    {
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "persistentvolumeclaims",
        "configmaps",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_REQUESTED = frozenset(
    f"{part}.{name}" for part in ("requests", "limits") for name in ("cpu", "memory", "ephemeral-storage")
)
_STANDARD = _CONTAINER | _QUOTA_ONLY | _REQUESTED | {"storage", "requests.storage"}
_POD_LEVEL = ("cpu", "memory")


def of_container(requirements: JsonObject, path: str, claims: Collection[str] = ()) -> Causes:
    """Return what is wrong with the resources of a container."""
    return _requirements(requirements, path, container_name, claims) if requirements else []


def of_pod(spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with the resources of a pod as a whole."""
    requirements = spec.get("resources")
    if requirements is None:
        return []
    causes = []
    if requirements.get("claims"):
        causes.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    return causes + _requirements(requirements, path, _pod_name, ())


def quantity(name: str, value: object, path: str) -> Causes:
    """Return what is wrong with an amount of the resource of that name."""
    causes = not_negative_quantity(path, value)
    if is_counted(name) and number_of(value).milli % 1000:
        causes.append(invalid(path, str(number_of(value)), "must be an integer"))
    return causes


def is_counted(name: str) -> bool:
    """Tell whether there are only whole ones."""
    return name in _QUOTA_ONLY or _is_extended(name)


def resource_name(name: str, path: str) -> Causes:
    """Return what is wrong with the name of a resource."""
    causes = by_rule(path, name, rules.qualified_name)
    if not causes and "/" not in name and not _is_standard(name):
        causes.append(invalid(path, name, "must be a standard resource type or fully qualified"))
    return causes


def container_name(name: str, path: str) -> Causes:
    """Return what is wrong with the name of a resource that a container has."""
    if name in _CONTAINER:
        return []
    causes = resource_name(name, path)
    if "/" not in name:
        if not name.startswith(_HUGE):
            causes.append(invalid(path, name, "must be a standard resource for containers"))
    elif not _is_native(name) and not _is_extended(name):
        causes.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return causes


def quota_name(name: str, path: str) -> Causes:
    """Return what is wrong with the name of a resource that a quota limits."""
    causes = resource_name(name, path)
    if "/" not in name and name not in _STANDARD and not name.startswith((_HUGE, f"requests.{_HUGE}")):
        causes.append(invalid(path, name, "must be a standard resource for quota"))
    return causes


def _pod_name(name: str, path: str) -> Causes:
    causes = resource_name(name, path)
    if causes or name in _POD_LEVEL or name.startswith(_HUGE):
        return causes
    return [not_supported(path, name, _POD_LEVEL)]


def _requirements(
    requirements: JsonObject, path: str, name_rule: Callable[[str, str], Causes], claims: Collection[str]
) -> Causes:
    causes: Causes = []
    limits, requests = requirements.get("limits") or {}, requirements.get("requests") or {}
    for name, value in limits.items():
        where = f"{path}.limits[{name}]"
        causes += name_rule(name, where) + quantity(name, value, where) + _pages(name, value, where)
    for name, value in requests.items():
        where = f"{path}.requests[{name}]"
        causes += name_rule(name, where) + quantity(name, value, where)
        causes += _request(name, number_of(value), limits.get(name), path)
        causes += _pages(name, value, where)
    given = limits.keys() | requests.keys()
    if any(name.startswith(_HUGE) for name in given) and not given & {"cpu", "memory"}:
        causes.append(forbidden(path, "HugePages require cpu or memory"))
    return causes + _claims(requirements.get("claims") or [], f"{path}.claims", claims)


def _request(name: str, wanted: Quantity, limit: object, path: str) -> Causes:
    overcommitted = _is_native(name) and not name.startswith(_HUGE)
    if limit is None:
        detail = "Limit must be set for non overcommitable resources"
        return [] if overcommitted else [required(f"{path}.limits", detail)]
    most = number_of(limit)
    if wanted != most and not overcommitted:
        return [invalid(f"{path}.requests", str(wanted), f"must be equal to {name} limit of {most}")]
    if most < wanted:
        return [invalid(f"{path}.requests", str(wanted), f"must be less than or equal to {name} limit of {most}")]
    return []


def _pages(name: str, value: object, path: str) -> Causes:
    if not name.startswith(_HUGE):
        return []
    try:
        size = number_of(name.removeprefix(_HUGE))
    except ValueError:
        size = Quantity.of(0)
    amount = number_of(value)
    if size and not amount.nano % size.nano:
        return []
    return [invalid(path, str(amount), f"{amount} is not positive integer multiple of {name}")]


def _claims(found: list[JsonObject], path: str, known: Collection[str]) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for at, claim in enumerate(found):
        name = claim.get("name", "")
        if not name:
            causes.append(required(f"{path}[{at}]"))
            continue
        if name in seen:
            causes.append(duplicate(f"{path}[{at}]", name))
        seen.add(name)
        if name not in known:
            listed = f": {', '.join(sorted(known))}" if known else " which is empty"
            cause = not_found(f"{path}[{at}]", name)
            detail = f"must be one of the names in pod.spec.resourceClaims{listed}"
            causes.append(cause | {"message": f"{cause['message']}: {detail}"})
    return causes


def _is_standard(name: str) -> bool:
    return name in _STANDARD or name.startswith((_HUGE, f"requests.{_HUGE}"))


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_extended(name: str) -> bool:
    if _is_native(name) or name.startswith("requests."):
        return False
    return not rules.qualified_name(f"requests.{name}")
