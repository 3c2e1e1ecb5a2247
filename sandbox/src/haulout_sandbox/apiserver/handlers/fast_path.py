"""A fast path for frequent requests of the cluster's own components, which skips validation that cannot fail.

A request from an ordinary client may contain anything and is validated completely. Kubelets, scheduler and controllers
send the same few kinds of well-formed requests again and again, about objects that were validated when they were
created. For these the fast path checks only what depends on the state of the cluster: whether the object exists, and
whether its uid and resource version match. What it writes is byte for byte what the regular path writes; tests compare
the two.

`try_handle` returns None for every other request, and for every request that the server would refuse. The regular path
then answers it with the right error message. The same happens while webhooks or policies are in force, and for objects
with managed fields.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from haulout.kube.transport import Request, Response
from haulout_sandbox.apiserver.kinds.builtin import PRIORITY_CLASS
from haulout_sandbox.apiserver.kinds.kind import LEASE, NODE, POD, JsonObject, Kind
from haulout_sandbox.apiserver.kinds.rest_mapper import RestMapper
from haulout_sandbox.apiserver.patch.json_patch import JSON_PATCH, MERGE_PATCH, apply_merge_patch, equal_json
from haulout_sandbox.apiserver.registry.defaults import has_defaults
from haulout_sandbox.apiserver.registry.writer import Writer
from haulout_sandbox.apiserver.request_targets import Target
from haulout_sandbox.apiserver.serializer.decoder import decode_with_field_validation
from haulout_sandbox.apiserver.status import JSON, decoded_response
from haulout_sandbox.apiserver.storage.store import Store
from haulout_sandbox.apiserver.subresources.binding import bind

_PATH = re.compile(
    r"/api(?:s/([^/%]+))?/([^/%]+)"  # group, version
    r"(?:/namespaces/([^/%]+))?/([^/%]+)"  # namespace, resource
    r"(?:/([^/%]+)(?:/([^/%]+))?)?"  # name, subresource
)
_STATUS = "status"
_MAX_CONDITIONS = 64
# Maps a JSON patch operation to a condition's index: the patch tests the type, then replaces the condition.
_CONDITION_OPERATIONS = {("test", f"/status/conditions/{number}/type"): number for number in range(_MAX_CONDITIONS)} | {
    ("replace", f"/status/conditions/{number}"): number for number in range(_MAX_CONDITIONS)
}
_NEW_POD_METADATA = {"name", "namespace", "labels", "annotations", "ownerReferences", "finalizers"}
_PRECONDITIONS = ("uid", "resourceVersion")
_MAX_SAMPLES = 1_000


class _Resource(NamedTuple):
    kind: Kind
    namespace: str
    name: str
    subresource: str
    key: str

    def target(self, username: str, verb: str) -> Target:
        """Return the target as the writer takes it."""
        return Target(kind=self.kind, namespace=self.namespace, name=self.name, username=username, verb=verb)


class _NewPod(msgspec.Struct):
    """A pod as controllers send it. The part that replicas share stays undecoded bytes."""

    metadata: JsonObject
    spec: msgspec.Raw


class FastPath:
    """Answers the most frequent requests of the cluster's own components."""

    def __init__(self, store: Store, writer: Writer, rest_mapper: RestMapper) -> None:
        self._store = store
        self._writer = writer
        self._rest_mapper = rest_mapper
        self._samples: dict[bytes, JsonObject] = {}  # created pods by the spec that was sent
        self._samples_revision = store.revision
        self._handlers: dict[tuple[str, str], Callable[[_Resource, Request, str], Response | None]] = {
            ("PATCH", MERGE_PATCH): self._merge_patch,
            ("PATCH", JSON_PATCH): self._replace_conditions,
            ("POST", JSON): self._post,
            ("DELETE", JSON): self._delete,
        }

    def try_handle(self, request: Request, *, username: str) -> Response | None:
        """Return the response, or None if the request must take the regular path."""
        if request.method == "GET" or not _has_default_options(request) or self._writer.admission.has_webhooks:
            return None
        resource = self._parse_path(request.path)
        handle = None if resource is None else self._handlers.get((request.method, request.content_type))
        return None if resource is None or handle is None else handle(resource, request, username)

    def _parse_path(self, path: str) -> _Resource | None:
        """Return the parts of a path of a built-in kind."""
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        group, version, namespace, plural, name, subresource = match.groups(default="")
        kind = self._rest_mapper.kind_for_path(group, version, plural)
        if kind is None or kind.is_custom or kind.is_converted or kind.namespaced is not bool(namespace):
            return None
        return _Resource(kind, namespace, name, subresource, kind.key(namespace, name))

    def _merge_patch(self, resource: _Resource, request: Request, username: str) -> Response | None:
        """Merge into a status (most writes), renew a lease, or scale."""
        kind, section, current = resource.kind, _patchable_section(resource), self._modifiable(resource)
        if not section or current is None:
            return None
        change, meta = msgspec.json.decode(request.body or b"{}"), current["metadata"]
        if not _changes_only(change, section, meta):
            return None
        if annotations := change.get("metadata", {}).get("annotations"):
            if not all(annotations.values()):
                return None
            meta = meta | {"annotations": apply_merge_patch(meta.get("annotations"), annotations)}
        if kind.has_generation and section == "spec":
            if change["spec"].keys() != {"replicas"} or current["spec"].get("replicas") == change["spec"]["replicas"]:
                return None
            meta = meta | {"generation": meta.get("generation", 0) + 1}
        return self._write_section(
            resource, current, meta, section, apply_merge_patch(current.get(section), change[section]), username
        )

    def _replace_conditions(self, resource: _Resource, request: Request, username: str) -> Response | None:
        """Replace conditions of a node by index."""
        current = self._modifiable(resource) if resource.kind is NODE and resource.subresource == _STATUS else None
        if current is None:
            return None
        conditions = list(current[_STATUS].get("conditions", ()))
        for operation in msgspec.json.decode(request.body or b"[]"):
            op, path = operation["op"], operation["path"]
            index = _CONDITION_OPERATIONS.get((op, path), _MAX_CONDITIONS)
            if index >= len(conditions):
                return None
            if op == "replace":
                conditions[index] = operation["value"]
            elif conditions[index].get("type") != operation["value"]:
                return None
        status = current[_STATUS] | {"conditions": conditions}
        return self._write_section(resource, current, current["metadata"], _STATUS, status, username)

    def _modifiable(self, resource: _Resource) -> JsonObject | None:
        """Return the object, unless it has managed fields or the change could complete its deletion."""
        current = self._store.get(resource.kind, resource.key)
        meta = current["metadata"] if current else {"managedFields": ()}
        is_being_deleted = "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds")
        return None if is_being_deleted or "managedFields" in meta else current

    def _write_section(
        self,
        resource: _Resource,
        current: JsonObject,
        meta: JsonObject,
        section: str,
        content: JsonObject,
        username: str,
    ) -> Response:
        """Write new content of one section, and new metadata if given."""
        kind = resource.kind
        new = current | {"metadata": meta, section: kind.normalize_section(section, content)}
        if equal_json(new, current):
            return decoded_response(200, current)
        return decoded_response(200, self._store.write(kind, resource.key, new, username=username, verb="patch"))

    def _delete(self, resource: _Resource, request: Request, username: str) -> Response | None:
        if resource.kind is not POD or resource.subresource or not resource.name or not request.body:
            return None
        return decoded_response(
            200, self._writer.delete(resource.target(username, "delete"), msgspec.json.decode(request.body))
        )

    def _post(self, resource: _Resource, request: Request, username: str) -> Response | None:
        if resource.kind is not POD:
            return None
        if resource.subresource == "binding":
            target = resource.target(username, "bind")
            self._writer.check_namespace_active(target, {})
            return decoded_response(201, bind(self._writer, target, msgspec.json.decode(request.body or b"{}")))
        return None if resource.name else self._create(resource, request, username)

    def _create(self, resource: _Resource, request: Request, username: str) -> Response | None:
        """Create a pod. From the second pod of a template on, pods share their common parts with the first one."""
        body = request.body or b""
        sent = msgspec.json.decode(body, type=_NewPod)
        spec, meta, target = bytes(sent.spec), sent.metadata, resource.target(username, "create")
        if not meta.get("name") or not meta.keys() <= _NEW_POD_METADATA:
            return None
        sample = self._find_sample(spec)
        if sample is None:
            pod = decode_with_field_validation(POD, msgspec.json.decode(body), query={}, warnings=[])
            created = self._writer.create(target, pod)
            self._add_sample(spec, created)
            return decoded_response(201, created)
        self._writer.check_namespace_active(target, meta)
        key = POD.key(resource.namespace, meta["name"])
        if meta.get("namespace", resource.namespace) != resource.namespace or self._store.get(POD, key) is not None:
            return None
        sample_metadata = sample["metadata"]
        metadata = {
            name: sample_metadata[name] if value == sample_metadata.get(name) else value
            for name, value in meta.items()
            if value
        }
        metadata |= {"uid": self._writer.new_uid(), "creationTimestamp": self._writer.now(), "generation": 1}
        new = sample | {"metadata": metadata}
        return decoded_response(
            201, self._store.write(POD, key, new, username=username, verb="create", has_shared_parts=True)
        )

    def _find_sample(self, spec: bytes) -> JsonObject | None:
        """Return a pod created from the same spec, if defaulting would have the same result now."""
        if self._store.has_changed(PRIORITY_CLASS, since=self._samples_revision):
            self._samples.clear()
        self._samples_revision = self._store.revision
        return self._samples.get(spec)

    def _add_sample(self, spec: bytes, created: JsonObject) -> None:
        if "nodeName" in created["spec"] or "conditions" in created[_STATUS]:
            return  # its defaults depend on the node and on the time
        if len(self._samples) >= _MAX_SAMPLES:
            del self._samples[next(iter(self._samples))]
        self._samples[spec] = created


def _has_default_options(request: Request) -> bool:
    """Return whether the only option of a request is its field manager."""
    query = request.query
    return (
        (not query or (len(query) == 1 and query[0][0] == "fieldManager"))
        and request.accept == JSON
        and not request.headers
    )


def _patchable_section(resource: _Resource) -> str:
    """Return the one section that a merge patch may change here; empty if the patch has further effects."""
    kind = resource.kind
    if resource.subresource == _STATUS and kind.has_status and not has_defaults(kind, subresource=_STATUS):
        return _STATUS
    return "spec" if not resource.subresource and (kind is LEASE or kind.scale_paths is not None) else ""


def _changes_only(change: JsonObject, section: str, meta: JsonObject) -> bool:
    """Return whether a merge patch changes only one section and annotations of the object with this metadata."""
    changed_metadata = change.get("metadata", {})
    return (
        section in change
        and len(change) == 1 + ("metadata" in change)
        and all(
            name == "annotations" or (name in _PRECONDITIONS and meta[name] == value)
            for name, value in changed_metadata.items()
        )
    )
