"""Discovery of the sandbox's API server, made from the rows of `kinds`; the shapes are those of `api/discovery`.

There are two forms: the plain one, a document for each group and version, and the aggregated one, which says all of
`/api` or `/apis` at once to clients that ask for it.
"""

from collections.abc import Iterable, Sequence

from haulout_sandbox.apiserver.builtin_kinds import SERVICE_ACCOUNT
from haulout_sandbox.apiserver.crds import version_order
from haulout_sandbox.apiserver.kinds import NAMESPACE, POD, JsonObject, Kind

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CHANGES = ("get", "patch", "update")
_OF_PODS = {  # what they answer with, and what can be done
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
_CORE: JsonObject = {
    "kind": "APIVersions",
    "versions": ["v1"],
    "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}],
}


def discovery(kinds: Sequence[Kind], path: str, *, aggregated: bool) -> JsonObject | None:
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
        return _CORE
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(kinds, group) for group in groups]}


def _versions(kinds: Iterable[Kind], group: str) -> list[str]:
    return sorted({kind.version for kind in kinds if kind.group == group}, key=version_order)


def _group(kinds: Sequence[Kind], group: str) -> JsonObject:
    versions = [{"groupVersion": f"{group}/{it}", "version": it} for it in _versions(kinds, group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(kinds: Sequence[Kind], *, group: str, version: str) -> JsonObject | None:
    members = _members(kinds, group, version)
    if not members:
        return None
    head = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    resources = [entry for kind in members for entry in _resource_entries(kind)]
    return {**head, "groupVersion": members[0].api_version, "resources": resources}


def _members(kinds: Sequence[Kind], group: str, version: str) -> list[Kind]:
    return sorted((it for it in kinds if (it.group, it.version) == (group, version)), key=lambda it: it.plural)


def _resource_entries(kind: Kind) -> list[JsonObject]:
    own: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _verbs(kind),
    }
    own |= _names(kind)
    below = [
        {
            "name": f"{kind.plural}/{it['subresource']}",
            "singularName": "",
            "namespaced": kind.namespaced,
            **_other_type(it["responseKind"], kind),
            "verbs": it["verbs"],
        }
        for it in _subresources(kind)
    ]
    return [own, *below]


def _other_type(named: JsonObject, kind: Kind) -> JsonObject:
    """Return how the plain form names a kind: with group and version if they are not those around it."""
    if named["group"] == kind.group:
        return {"kind": named["kind"]}
    return {name: value for name, value in named.items() if value}


def _names(kind: Kind) -> JsonObject:
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {name: value for name, value in names.items() if value}


def _verbs(kind: Kind) -> list[str]:
    if kind.verbs:
        return list(kind.verbs)
    return [verb for verb in _VERBS if kind is not NAMESPACE or verb != "deletecollection"]


def _subresources(kind: Kind) -> list[JsonObject]:
    found: list[JsonObject] = []
    if kind is POD:
        found += [_subresource(name, *row) for name, row in _OF_PODS.items()]
    if kind is NAMESPACE:
        found.append(_subresource("finalize", kind.kind, "update"))
    if kind is SERVICE_ACCOUNT:
        found.append(_subresource("token", "authentication.k8s.io/v1/TokenRequest", "create"))
    if kind.scale:
        found.append(_subresource("scale", "autoscaling/v1/Scale", *_CHANGES))
    if kind.has_status:
        found.append({"subresource": "status", "responseKind": _response_kind(kind), "verbs": list(_CHANGES)})
    return found


def _subresource(name: str, kind: str, *verbs: str) -> JsonObject:
    group, version, kind = kind.split("/") if "/" in kind else ("", "", kind)
    return {
        "subresource": name,
        "responseKind": {"group": group, "version": version, "kind": kind},
        "verbs": list(verbs),
    }


def _response_kind(kind: Kind) -> JsonObject:
    """Return how the aggregated form names the kind: built-in ones leave out what the group and version say."""
    return (
        {"group": kind.group, "version": kind.version, "kind": kind.kind}
        if kind.rules
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
    found: JsonObject = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
    } | _names(kind)
    if below := _subresources(kind):
        found["subresources"] = below
    return found
