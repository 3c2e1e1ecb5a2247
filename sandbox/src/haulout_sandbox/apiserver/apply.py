"""Server-side apply: who set which field, and what an applied configuration makes of an object.

`metadata.managedFields` has an entry for each manager: what it applied, and what it wrote otherwise. An apply adds and
changes what it says, and removes what its manager applied before, does not say any more, and nobody else owns. To
change a field that another manager owns is a conflict, unless forced. Any other write takes the fields that it changes.

**What is tracked.** The real server tracks each object from its creation. That would be the dearest part of a write and
more than double the size of an object, for the few that are ever applied. Its field manager has a cheaper mode, the
default here: an object without managed fields is not tracked, and the first apply finds every field owned by
`before-first-apply`. The same applies conflict, since each field has an owner either way; only the owner's name in the
message differs. `track(…, always=True)` is the dear mode, exactly as the real server.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from haulout_sandbox.apiserver import fields as causes
from haulout_sandbox.apiserver.conforms import problems
from haulout_sandbox.apiserver.decoding import Misfit, fitted
from haulout_sandbox.apiserver.fields import as_json, quoted
from haulout_sandbox.apiserver.fieldsets import (
    Comparison,
    Fields,
    Path,
    compared,
    decoded,
    encoded,
    fields_of,
    in_order,
    merged,
    path_text,
    with_parents,
    without,
    without_prefixes,
)
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.shapes import Shape
from haulout_sandbox.apiserver.status import Refused, bad_request, failure, invalid

APPLY_PATCH = "application/apply-patch+yaml"

_BEFORE = "before-first-apply"
_ANCIENT = "ancient-changes"
_MOST_UPDATERS = 10
_LONGEST_MANAGER = 128
_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_ANNOTATIONS_BYTES = 256 * 1024

_NOBODYS: Fields = {("f:apiVersion",), ("f:kind",), ("f:metadata",)} | {
    ("f:metadata", f"f:{name}")
    for name in (
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    )
}
# What a write to /status does not change besides the spec (`GetResetFields` of the kinds' strategies).
_KEPT_BY_STATUS: dict[str, tuple[Path, ...]] = {
    "Pod": (("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")),
    "Deployment": (("f:metadata", "f:labels"),),
}


class ApplyConflict(Refused):
    """Others own fields that the applied configuration changes."""


class Manager(NamedTuple):
    """Who owns fields. An applier is the same in all versions; `version` is empty then."""

    name: str
    operation: str
    version: str
    subresource: str

    def __str__(self) -> str:
        text = quoted(self.name)
        if self.subresource:
            text += f" with subresource {quoted(self.subresource)}"
        return f"{text} using {self.version}" if self.operation == "Update" else text


@dataclass(frozen=True, slots=True)
class _Owned:
    fields: Fields
    version: str
    time: str | None


_Managers = dict[Manager, _Owned]


def apply(
    current: JsonObject | None,
    applied: JsonObject,
    *,
    kind: Kind,
    shape: Shape,
    manager: str,
    now: str,
    force: bool = False,
    subresource: str = "",
) -> JsonObject:
    """Return what `applied` makes of `current` (None: of nothing), managed fields included.

    A null in it is a field that is gone; `Kind.normal` drops it.
    """
    _check_applied(applied, kind, manager)
    said = problems(applied, shape)
    if said:
        raise Refused(failure(500, "", f"failed to create typed patch object ({_named(applied)}): {said}"))
    applying = _Applying(kind, shape, manager, now, subresource)
    try:
        result = applying.apply(current, applied, force=force)
    except ApplyConflict:
        allowed = _applied_by_kubectl(current, shape) if manager == _KUBECTL and current else set()
        if not allowed:
            raise
        applying.forgiven = allowed
        result = applying.apply(current, applied, force=False)
    if manager == _KUBECTL:
        _renew_last_applied(result, applied)
    _check_converts(result, applied, kind)
    return result


def track(
    old: JsonObject | None,
    new: JsonObject,
    *,
    kind: Kind,
    shape: Shape,
    manager: str,
    now: str,
    subresource: str = "",
    always: bool = False,
) -> JsonObject:
    """Return `new`, which a write other than an apply made of `old` (None: of nothing), with its managed fields."""
    managers = _managers_of_update(old, new, subresource)
    if not managers and (old is not None or not always):
        return _with_managers(new, {})
    applying = _Applying(kind, shape, manager, now, subresource)
    return _with_managers(new, applying.update(old, new, managers, manager or "unknown"))


def manager_of(field_manager: str, user_agent: str) -> str:
    """Return the manager of a request: who it says, else the program that sent it."""
    if field_manager:
        return field_manager
    printable = "".join(letter for letter in user_agent.partition("/")[0] if letter.isprintable())
    return printable.encode()[:_LONGEST_MANAGER].decode(errors="ignore")


@dataclass(slots=True)
class _Applying:
    """One write, and what it needs to know about the type."""

    kind: Kind
    shape: Shape
    manager: str
    now: str
    subresource: str
    forgiven: Fields | None = None

    def apply(self, current: JsonObject | None, applied: JsonObject, *, force: bool) -> JsonObject:
        live = current or {}
        managers = _decoded(live.get("metadata", {}).get("managedFields"))
        if not managers and current:
            managers = self.update(None, current, managers, _BEFORE)
        me = Manager(self.manager, "Apply", "", self.subresource)
        last = managers.get(me)
        own = without_prefixes(fields_of(applied, self.shape), self._resets())
        managers[me] = _Owned(own, self.kind.api_version, last.time if last else None)
        result = self._pruned(merged(live, applied, self.shape), last, managers)
        changes = self._compared(live, result)
        if not force:
            self._check_conflicts(changes, managers, me)
        changed = not current or result != live
        managers = {who: owned if who == me else _less(owned, changes) for who, owned in managers.items()}
        managers[me] = replace(managers[me], fields=own - _NOBODYS, time=self.now if changed else managers[me].time)
        return _with_managers(result, managers)

    def update(self, old: JsonObject | None, new: JsonObject, managers: _Managers, name: str) -> _Managers:
        """Give the fields that differ to `name`."""
        changes = self._compared(self.shape.zero() if old is None else old, new)
        taken = (changes.modified | changes.added) - _NOBODYS
        left = {who: _less(owned, changes) for who, owned in managers.items()}
        left = {who: owned for who, owned in left.items() if owned.fields}
        if taken:
            me = Manager(name, "Update", self.kind.api_version, self.subresource)
            before = left[me].fields if me in left else set()
            left[me] = _Owned(before | taken, me.version, self.now)
        return _capped(left)

    def _compared(self, old: JsonObject, new: JsonObject) -> Comparison:
        return compared(_bare(old), _bare(new), self.shape).without(self._resets())

    def _resets(self) -> tuple[Path, ...]:
        """Return what a write here does not change, whatever it says."""
        if self.subresource == "status":
            also = (("f:metadata",),) if self.kind.custom else _KEPT_BY_STATUS.get(self.kind.kind, ())
            return (("f:spec",), *also)
        return (("f:status",),) if self.kind.has_status and not self.subresource else ()

    def _pruned(self, obj: JsonObject, last: _Owned | None, managers: _Managers) -> JsonObject:
        """Return `obj` without what was applied last time and is nobody's now."""
        if not last or not last.fields:
            return obj
        shape = self.shape
        before, had = with_parents(last.fields, shape), with_parents(fields_of(obj, shape), shape)
        owned = with_parents(set().union(*(each.fields for each in managers.values())), shape)
        kept = with_parents(fields_of(without(obj, before, shape) or {}, shape), shape)
        kept = with_parents(fields_of(without(obj, had - (kept | owned), shape) or {}, shape), shape)
        result: JsonObject = without(obj, (had - kept) & before, shape) or {}
        return result

    def _check_conflicts(self, changes: Comparison, managers: _Managers, me: Manager) -> None:
        changed = (changes.modified | changes.added) - (self.forgiven or set())
        found = {who: in_order(owned.fields & changed) for who, owned in sorted(managers.items()) if who != me}
        conflicts = [(who, path_text(path)) for who, paths in found.items() for path in paths]
        if conflicts:
            listed = [
                {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path}
                for who, path in conflicts
            ]
            raise ApplyConflict(failure(409, "Conflict", _conflict_message(conflicts), {"causes": listed}))


def _less(owned: _Owned, changes: Comparison) -> _Owned:
    return replace(owned, fields=owned.fields - changes.modified - changes.added - changes.removed)


def _conflict_message(conflicts: list[tuple[Manager, str]]) -> str:
    if len(conflicts) == 1:
        ((who, path),) = conflicts
        return f"Apply failed with 1 conflict: conflict with {who}: {path}"
    lines: list[str] = []
    for who in dict.fromkeys(who for who, _ in conflicts):
        lines += [f"conflicts with {who}:", *(f"- {path}" for each, path in conflicts if each == who)]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _check_applied(applied: JsonObject, kind: Kind, manager: str) -> None:
    if not manager:
        cause = causes.required("fieldManager", "is required for apply patch")
        raise invalid("meta.k8s.io", "PatchOptions", "", [cause])
    if (applied.get("apiVersion"), applied.get("kind")) != (kind.api_version, kind.kind):
        raise bad_request(f"invalid object type: {_type_of(applied)}")
    meta = applied.get("metadata")
    if isinstance(meta, dict) and meta.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")


def _check_converts(result: JsonObject, applied: JsonObject, kind: Kind) -> None:
    try:
        fitted(kind, result)
    except Misfit as misfit:
        what = f"unable to convert unstructured object to {_type_of(applied)}"
        said = f"failed to convert new object ({_named(applied)}) to proper version: {what}: {misfit}"
        raise Refused(failure(500, "", said)) from None


def _named(obj: JsonObject) -> str:
    meta = obj["metadata"] if isinstance(obj.get("metadata"), dict) else {}
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}; {_type_of(obj)}"


def _type_of(obj: JsonObject) -> str:
    version = str(obj.get("apiVersion", ""))
    return f"{version if '/' in version else '/' + version}, Kind={obj.get('kind', '')}"


# Managed fields on the wire


def _with_managers(obj: JsonObject, managers: _Managers) -> JsonObject:
    meta = {name: value for name, value in obj.get("metadata", {}).items() if name != "managedFields"}
    entries = [_entry(who, owned) for who, owned in managers.items() if owned.fields]
    if entries:
        meta["managedFields"] = sorted(entries, key=entry_order)
    return obj | {"metadata": meta}


def _bare(obj: JsonObject) -> JsonObject:
    """Return `obj` without what says who owns it."""
    meta = obj.get("metadata")
    return _with_managers(obj, {}) if isinstance(meta, dict) and "managedFields" in meta else obj


def _entry(who: Manager, owned: _Owned) -> JsonObject:
    entry: JsonObject = {"manager": who.name, "operation": who.operation, "apiVersion": owned.version}
    if owned.time:
        entry["time"] = owned.time
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": encoded(owned.fields)}
    return entry | ({"subresource": who.subresource} if who.subresource else {})


def entry_order(entry: JsonObject) -> tuple[str, ...]:
    """Sort the entries of managedFields as the server does."""
    return tuple(entry.get(name, "") for name in ("operation", "time", "manager", "apiVersion", "subresource"))


def _decoded(entries: Any) -> _Managers:
    """Return what `managedFields` says; nothing if it cannot be understood."""
    try:
        return dict(_decoded_entries(entries or []))
    except (AttributeError, KeyError, TypeError, ValueError, msgspec.DecodeError):
        return {}


def _decoded_entries(entries: list[JsonObject]) -> Iterator[tuple[Manager, _Owned]]:
    for entry in entries:
        operation, version = entry["operation"], entry["apiVersion"]
        if operation not in ("Apply", "Update") or entry["fieldsType"] != "FieldsV1" or not version:
            raise ValueError(f"an entry of managedFields is {operation} {entry['fieldsType']}")
        at = version if operation == "Update" else ""
        who = Manager(entry.get("manager", ""), operation, at, entry.get("subresource", ""))
        yield who, _Owned(decoded(entry.get("fieldsV1", {})), version, entry.get("time"))


def _managers_of_update(old: JsonObject | None, new: JsonObject, subresource: str) -> _Managers:
    """Return who owned what: as the client says, who may correct it or clear it; else as it was."""
    was = (old or {}).get("metadata", {}).get("managedFields")
    said = new.get("metadata", {}).get("managedFields")
    if subresource or said is None:
        return _decoded(was)
    if said in ([], [{}]):
        return {}
    return _decoded(said) or _decoded(was)


def _capped(managers: _Managers) -> _Managers:
    """Join the oldest entries of a version until there are not more than allowed."""
    updaters = sorted(
        (who for who in managers if who.operation == "Update"), key=lambda who: (managers[who].time or "", who)
    )
    extra = len(updaters) - _MOST_UPDATERS
    first: dict[str, Manager] = {}
    for who in updaters:
        if extra <= 0:
            break
        if who.version not in first:
            first[who.version] = who
            continue
        ancient = Manager(_ANCIENT, "Update", who.version, "")
        if ancient not in managers:
            managers[ancient] = managers.pop(first[who.version])
        owned = managers.pop(who)
        managers[ancient] = replace(owned, fields=owned.fields | managers[ancient].fields)
        extra -= 1
    return managers


# From client-side apply


def _applied_by_kubectl(current: JsonObject, shape: Shape) -> Fields:
    """Return what `kubectl apply` without --server-side had set and is still so: kubectl may take it over."""
    text = current["metadata"].get("annotations", {}).get(_LAST_APPLIED)
    try:
        last = msgspec.json.decode(text or "")
    except msgspec.DecodeError:
        return set()
    if not isinstance(last, dict) or last.get("apiVersion") != current["apiVersion"] or problems(last, shape):
        return set()
    changes = compared(last, current, shape)
    return fields_of(last, shape) - changes.modified - changes.added - changes.removed


def _renew_last_applied(result: JsonObject, applied: JsonObject) -> None:
    """Keep the annotation of client-side apply up to date, so that one can go back to it."""
    annotations = result["metadata"].get("annotations") or {}
    if not annotations.get(_LAST_APPLIED):
        return
    said = copy.deepcopy(applied)
    said.get("metadata", {}).get("annotations", {}).pop(_LAST_APPLIED, None)
    renewed = annotations | {_LAST_APPLIED: as_json(said) + "\n"}
    if sum(len(name.encode()) + len(value.encode()) for name, value in renewed.items()) > _MOST_ANNOTATIONS_BYTES:
        del renewed[_LAST_APPLIED]
    result["metadata"]["annotations"] = renewed
