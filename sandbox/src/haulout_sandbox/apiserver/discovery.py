"""Discovery documents, generated from the registered kinds, in the shapes of `api/discovery`.

There are two forms. The unaggregated one has a document per group and version. The aggregated one returns all of `/api`
or `/apis` in one document, to clients that ask for it.
"""

from collections.abc import Iterable, Sequence

from haulout_sandbox.apiserver.apiextensions.crds import version_order
from haulout_sandbox.apiserver.kinds.builtin import SERVICE_ACCOUNT
from haulout_sandbox.apiserver.kinds.kind import NAMESPACE, POD, JsonObject, Kind

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_UPDATE_VERBS = ("get", "patch", "update")
_POD_SUBRESOURCES = {  # their response kinds and verbs
    "attach": ("PodAttachOptions", "create", "get"),
    "binding": ("Binding", "create"),
    "eviction": ("policy/v1/Eviction", "create"),
    "exec": ("PodExecOptions", "create", "get"),
    "log": ("Pod", "get"),
    "portforward": ("PodPortForwardOptions", "create", "get"),
}

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitTreeState": "clean",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_CORE_VERSIONS: JsonObject = {
    "kind": "APIVersions",
    "versions": ["v1"],
    "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}],
}


def discovery_document(kinds: Sequence[Kind], path: str, *, aggregated: bool) -> JsonObject | None:
    """Return the discovery document at `path`, or None if there is none."""
    match path.strip("/").split("/"):
        case ["api" | "apis" as root]:
            return _root(kinds, root, aggregated=aggregated)
        case ["apis", group] if _versions(kinds, group):
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(kinds, group)
        case ["api", version]:
            return _resources(kinds, group="", version=version)
        case ["apis", group, version]:
            return _resources(kinds, group=group, version=version)
    return None


def _root(kinds: Sequence[Kind], root: str, *, aggregated: bool) -> JsonObject:
    groups = sorted({kind.group for kind in kinds if bool(kind.group) is (root == "apis")})
    if aggregated:
        items = [_group_discovery(kinds, group) for group in groups]
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
    if root == "api":
        return _CORE_VERSIONS
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(kinds, group) for group in groups]}


def _versions(kinds: Iterable[Kind], group: str) -> list[str]:
    return sorted({kind.version for kind in kinds if kind.group == group}, key=version_order)


def _group(kinds: Sequence[Kind], group: str) -> JsonObject:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in _versions(kinds, group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(kinds: Sequence[Kind], *, group: str, version: str) -> JsonObject | None:
    members = _members(kinds, group, version)
    if not members:
        return None
    head = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    resources = [entry for kind in members for entry in _resource_entries(kind)]
    return {**head, "groupVersion": members[0].api_version, "resources": resources}


def _members(kinds: Sequence[Kind], group: str, version: str) -> list[Kind]:
    return sorted(
        (kind for kind in kinds if (kind.group, kind.version) == (group, version)), key=lambda kind: kind.plural
    )


def _resource_entries(kind: Kind) -> list[JsonObject]:
    resource: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _verbs(kind),
    }
    resource |= _names(kind)
    subresources = [
        {
            "name": f"{kind.plural}/{subresource['subresource']}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **_response_type(subresource["responseKind"], kind),
            "verbs": subresource["verbs"],
        }
        for subresource in _subresources(kind)
    ]
    return [resource, *subresources]


def _response_type(response_kind: JsonObject, kind: Kind) -> JsonObject:
    """Return a kind for the unaggregated form, with group and version if they differ from those of the document."""
    if response_kind["group"] == kind.group:
        return {"kind": response_kind["kind"]}
    return {name: value for name, value in response_kind.items() if value}


def _names(kind: Kind) -> JsonObject:
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {name: value for name, value in names.items() if value}


def _verbs(kind: Kind) -> list[str]:
    if kind.verbs:
        return list(kind.verbs)
    return [verb for verb in _VERBS if kind is not NAMESPACE or verb != "deletecollection"]


def _subresources(kind: Kind) -> list[JsonObject]:
    subresources: list[JsonObject] = []
    if kind is POD:
        subresources += [_subresource(name, *row) for name, row in _POD_SUBRESOURCES.items()]
    if kind is NAMESPACE:
        subresources.append(_subresource("finalize", kind.kind, "update"))
    if kind is SERVICE_ACCOUNT:
        subresources.append(_subresource("token", "authentication.k8s.io/v1/TokenRequest", "create"))
    if kind.scale_paths:
        subresources.append(_subresource("scale", "autoscaling/v1/Scale", *_UPDATE_VERBS))
    if kind.has_status:
        subresources.append(
            {"subresource": "status", "responseKind": _response_kind(kind), "verbs": list(_UPDATE_VERBS)}
        )
    return subresources


def _subresource(name: str, kind: str, *verbs: str) -> JsonObject:
    group, version, kind = kind.split("/") if "/" in kind else ("", "", kind)
    return {
        "subresource": name,
        "responseKind": {"group": group, "version": version, "kind": kind},
        "verbs": list(verbs),
    }


def _response_kind(kind: Kind) -> JsonObject:
    """Return a kind for the aggregated form; built-in kinds omit group and version that the document already has."""
    return (
        {"group": kind.group, "version": kind.version, "kind": kind.kind}
        if kind.custom_resource
        else {"group": "", "version": "", "kind": kind.kind}
    )


def _group_discovery(kinds: Sequence[Kind], group: str) -> JsonObject:
    versions = [
        {
            "version": version,
            "resources": [_resource_discovery(kind) for kind in _members(kinds, group, version)],
            "freshness": "Current",
        }
        for version in _versions(kinds, group)
    ]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _resource_discovery(kind: Kind) -> JsonObject:
    resource: JsonObject = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
    } | _names(kind)
    if subresources := _subresources(kind):
        resource["subresources"] = subresources
    return resource
