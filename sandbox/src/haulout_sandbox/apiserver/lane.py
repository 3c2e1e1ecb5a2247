"""The lane of the cluster's own components: what they write every second, without what cannot be wrong with it.

A request from a client may be anything, and is looked at from all sides. Kubelets, scheduler and controllers send the
same few kinds of requests again and again, well-formed ones, about objects that were checked when they were made. Of
these the lane asks only what depends on the state of the cluster: whether the object is there, whether it is the one
that is meant, and in the state that was seen. What it writes is to the byte what the usual way writes; tests compare
the two.

`answered` returns None for all that is not such a request, and for such ones as would be refused: then the request goes
the usual way, which has the words for it. So also while webhooks or policies have a say, and where fields are managed.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from haulout.kube.transport import Request, Response
from haulout_sandbox.apiserver.binding import bind
from haulout_sandbox.apiserver.builtin_kinds import PRIORITY_CLASS
from haulout_sandbox.apiserver.catalogue import Catalogue
from haulout_sandbox.apiserver.decoding import Gate, received
from haulout_sandbox.apiserver.defaults import has_defaults
from haulout_sandbox.apiserver.kinds import LEASE, NODE, POD, JsonObject, Kind
from haulout_sandbox.apiserver.patches import JSON_PATCH, MERGE_PATCH, merged, same_json
from haulout_sandbox.apiserver.status import JSON, told
from haulout_sandbox.apiserver.store import Store
from haulout_sandbox.apiserver.targets import Target
from haulout_sandbox.apiserver.writes import Writer

_PATH = re.compile(
    r"/api(?:s/([^/%]+))?/([^/%]+)"  # group, version
    r"(?:/namespaces/([^/%]+))?/([^/%]+)"  # namespace, resource
    r"(?:/([^/%]+)(?:/([^/%]+))?)?"  # name, subresource
)
_STATUS = "status"
_MOST_CONDITIONS = 64
# What is done to which condition: its type is tested, then it is replaced.
_BEATS = {("test", f"/status/conditions/{number}/type"): number for number in range(_MOST_CONDITIONS)} | {
    ("replace", f"/status/conditions/{number}"): number for number in range(_MOST_CONDITIONS)
}
_NEW_POD_METADATA = {"name", "namespace", "labels", "annotations", "ownerReferences", "finalizers"}
_STATE = ("uid", "resourceVersion")
_MOST_SAMPLES = 1_000


class _Place(NamedTuple):
    """What a path names."""

    kind: Kind
    namespace: str
    name: str
    subresource: str
    key: str

    def target(self, who: str, verb: str) -> Target:
        """Return how the writer names it."""
        return Target(kind=self.kind, namespace=self.namespace, name=self.name, who=who, verb=verb)


class _NewPod(msgspec.Struct):
    """A pod as controllers send it: what replicas have in common stays bytes."""

    metadata: JsonObject
    spec: msgspec.Raw


class Lane:
    """Answers what the cluster's own components ask for most."""

    def __init__(self, store: Store, writer: Writer, kinds: Catalogue, *, gate: Gate) -> None:
        self._gate = gate
        self._store = store
        self._writer = writer
        self._kinds = kinds
        self._samples: dict[bytes, JsonObject] = {}  # pods as they were made, by the spec that was sent
        self._sampled_at = store.revision
        self._answers: dict[tuple[str, str], Callable[[_Place, Request, str], Response | None]] = {
            ("PATCH", MERGE_PATCH): self._merge,
            ("PATCH", JSON_PATCH): self._beat,
            ("POST", JSON): self._make,
            ("DELETE", JSON): self._delete,
        }

    def answered(self, request: Request, *, who: str) -> Response | None:
        """Return the answer; None if the request must go the usual way."""
        if request.method == "GET" or not _is_plain(request) or self._writer.admission.in_force:
            return None
        place = self._place(request.path)
        answers = None if place is None else self._answers.get((request.method, request.content_type))
        return None if place is None or answers is None else answers(place, request, who)

    def _place(self, path: str) -> _Place | None:
        """Return what a path of a built-in kind names."""
        found = _PATH.fullmatch(path)
        if found is None:
            return None
        group, version, namespace, plural, name, subresource = found.groups(default="")
        kind = self._kinds.find(group, version, plural)
        if kind is None or kind.custom or kind.is_converted or kind.namespaced is not bool(namespace):
            return None
        return _Place(kind, namespace, name, subresource, kind.key(namespace, name))

    def _merge(self, place: _Place, request: Request, who: str) -> Response | None:
        """Merge into a status, which is most of all writes; renew a lease, or scale."""
        kind, section, current = place.kind, _section(place), self._settled(place)
        if not section or current is None:
            return None
        change, meta = msgspec.json.decode(request.body or b"{}"), current["metadata"]
        if not _is_about(change, section, meta):
            return None
        if marks := change.get("metadata", {}).get("annotations"):
            if not all(marks.values()):
                return None
            meta = meta | {"annotations": merged(meta.get("annotations"), marks)}
        if kind.counts_generations and section == "spec":
            if change["spec"].keys() != {"replicas"} or current["spec"].get("replicas") == change["spec"]["replicas"]:
                return None
            meta = meta | {"generation": meta.get("generation", 0) + 1}
        return self._written(place, current, meta, section, merged(current.get(section), change[section]), who)

    def _beat(self, place: _Place, request: Request, who: str) -> Response | None:
        """Replace conditions of a node, each in its place."""
        current = self._settled(place) if place.kind is NODE and place.subresource == _STATUS else None
        if current is None:
            return None
        conditions = list(current[_STATUS].get("conditions", ()))
        for operation in msgspec.json.decode(request.body or b"[]"):
            op, path = operation["op"], operation["path"]
            number = _BEATS.get((op, path), _MOST_CONDITIONS)
            if number >= len(conditions):
                return None
            if op == "replace":
                conditions[number] = operation["value"]
            elif conditions[number].get("type") != operation["value"]:
                return None
        status = current[_STATUS] | {"conditions": conditions}
        return self._written(place, current, current["metadata"], _STATUS, status, who)

    def _settled(self, place: _Place) -> JsonObject | None:
        """Return the object, unless its fields are managed, or it may go because it is changed."""
        current = self._store.get(place.kind, place.key)
        meta = current["metadata"] if current else {"managedFields": ()}
        goes = "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds")
        return None if goes or "managedFields" in meta else current

    def _written(
        self, place: _Place, current: JsonObject, meta: JsonObject, section: str, content: JsonObject, who: str
    ) -> Response:
        """Write another content of a section, and perhaps other metadata."""
        kind = place.kind
        new = current | {"metadata": meta, section: kind.normal_section(section, content)}
        if same_json(new, current):
            return told(200, current)
        return told(200, self._store.write(kind, place.key, new, who=who, verb="patch"))

    def _delete(self, place: _Place, request: Request, who: str) -> Response | None:
        if place.kind is not POD or place.subresource or not place.name or not request.body:
            return None
        return told(200, self._writer.delete(place.target(who, "delete"), msgspec.json.decode(request.body)))

    def _make(self, place: _Place, request: Request, who: str) -> Response | None:
        if place.kind is not POD:
            return None
        if place.subresource == "binding":
            target = place.target(who, "bind")
            self._writer.check_open(target, {})
            return told(201, bind(self._writer, target, msgspec.json.decode(request.body or b"{}")))
        return None if place.name else self._create(place, request, who)

    def _create(self, place: _Place, request: Request, who: str) -> Response | None:
        """Create a pod; from the second on, those of one template share with the first all that they have in common."""
        body = request.body or b""
        sent = msgspec.json.decode(body, type=_NewPod)
        spec, meta, target = bytes(sent.spec), sent.metadata, place.target(who, "create")
        if not meta.get("name") or not meta.keys() <= _NEW_POD_METADATA:
            return None
        sample = self._sample(spec)
        if sample is None:
            pod = received(POD, msgspec.json.decode(body), query={}, warnings=[], gate=self._gate)
            made = self._writer.create(target, pod)
            self._take_as_sample(spec, made)
            return told(201, made)
        self._writer.check_open(target, meta)
        key = POD.key(place.namespace, meta["name"])
        if meta.get("namespace", place.namespace) != place.namespace or self._store.get(POD, key) is not None:
            return None
        known = sample["metadata"]
        shared = {name: known[name] if value == known.get(name) else value for name, value in meta.items() if value}
        shared |= {"uid": self._writer.new_uid(), "creationTimestamp": self._writer.now(), "generation": 1}
        new = sample | {"metadata": shared}
        return told(201, self._store.write(POD, key, new, who=who, verb="create", is_shared=True))

    def _sample(self, spec: bytes) -> JsonObject | None:
        """Return a pod that was made of such a spec, if it would be made the same way now."""
        if self._store.has_changed(PRIORITY_CLASS, since=self._sampled_at):
            self._samples.clear()
        self._sampled_at = self._store.revision
        return self._samples.get(spec)

    def _take_as_sample(self, spec: bytes, made: JsonObject) -> None:
        if "nodeName" in made["spec"] or "conditions" in made[_STATUS]:
            return  # what becomes of such a one depends on the node, and on the time
        if len(self._samples) >= _MOST_SAMPLES:
            del self._samples[next(iter(self._samples))]
        self._samples[spec] = made


def _is_plain(request: Request) -> bool:
    """Tell whether a request says nothing beside its path and its body but who sends it."""
    query = request.query
    return (
        (not query or (len(query) == 1 and query[0][0] == "fieldManager"))
        and request.accept == JSON
        and not request.headers
    )


def _section(place: _Place) -> str:
    """Return the one section that a merge may change there; none if more than the merge follows from it."""
    kind = place.kind
    if place.subresource == _STATUS and kind.has_status and not has_defaults(kind, subresource=_STATUS):
        return _STATUS
    return "spec" if not place.subresource and (kind is LEASE or kind.scale is not None) else ""


def _is_about(change: JsonObject, section: str, meta: JsonObject) -> bool:
    """Tell whether a merge patch changes one section and annotations, of the object with this metadata, as it is."""
    wanted = change.get("metadata", {})
    return (
        section in change
        and len(change) == 1 + ("metadata" in change)
        and all(name == "annotations" or (name in _STATE and meta[name] == value) for name, value in wanted.items())
    )
