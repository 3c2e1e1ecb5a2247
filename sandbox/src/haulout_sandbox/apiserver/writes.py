"""How the sandbox's API server changes objects: create, update, delete, with the real server's rules.

Follows `apiserver/pkg/registry/generic/registry/store.go` and `…/rest/{create,update,delete}.go` of Kubernetes 1.36.
Everything happens at once: between reading an object and writing it nothing else runs, as etcd's transactions ensure.
"""

import copy
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from random import Random

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import crds, namespaces, registrations, status, validation
from haulout_sandbox.apiserver.admission import Admission
from haulout_sandbox.apiserver.apply import track
from haulout_sandbox.apiserver.builtin_kinds import CUSTOM_RESOURCE_DEFINITION, PRIORITY_CLASS, SERVICE
from haulout_sandbox.apiserver.creation import carry_over, prepare
from haulout_sandbox.apiserver.custom_versions import shape_for
from haulout_sandbox.apiserver.defaults import has_defaults, set_defaults
from haulout_sandbox.apiserver.deletion import finalizers_after
from haulout_sandbox.apiserver.kinds import NAMESPACE, NODE, JsonObject, Kind
from haulout_sandbox.apiserver.patches import same_json
from haulout_sandbox.apiserver.store import Store
from haulout_sandbox.apiserver.targets import Target
from haulout_sandbox.apiserver.values import Stored

__all__ = ["Change", "Target", "Writer", "check_preconditions", "instant", "timestamp"]

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_NAME_ATTEMPTS = 8
_USUAL_GRACE_SECONDS = 30  # what defaulting writes into a pod that names none


Change = Callable[[JsonObject], JsonObject]
"""Makes an object another, and may change the one it is given."""


class Writer:
    """Changes objects in a store; without `defaulting` it stores what it is given and adds nothing."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        random: Random,
        *,
        kinds: Callable[[], Iterable[Kind]] = lambda: (),
        defaulting: bool = True,
    ) -> None:
        self.store = store
        others = self._others if defaulting else None
        self.admission = Admission(store, kinds=kinds, new_uid=self.new_uid, complete=self.complete, others=others)
        self._defaulting = defaulting
        self._clock = clock
        self._random = random

    def now(self) -> str:
        """Return the time as objects show it."""
        return timestamp(self._clock.now())

    def new_uid(self) -> str:
        """Return a uid nobody has."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def complete(self, kind: Kind, obj: JsonObject, *, subresource: str = "") -> None:
        """Write the defaults into `obj`, if this server has any."""
        if self._defaulting and kind.rules is None:
            set_defaults(kind, obj, subresource=subresource)
        elif self._defaulting and kind.rules is not None:
            obj.update(kind.rules.completed(obj))

    def read(self, target: Target) -> JsonObject:
        """Return the object, or refuse with 404."""
        found = self.store.get(target.kind, target.key)
        if found is None:
            raise status.not_found(target.kind, target.name)
        return found

    def create(self, target: Target, body: JsonObject) -> JsonObject:
        """Create what `body` describes; its name may be generated."""
        kind, meta = target.kind, body["metadata"]
        _check_namespace(target, meta)
        self.check_open(target, meta)
        for name in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            meta.pop(name, None)
        body = self.admission.mutated(target, body, None)
        meta = body["metadata"]
        generated = bool(meta.get("generateName")) and not meta.get("name")
        if generated:
            meta["name"] = self._generated_name(target, meta["generateName"])
        meta |= {"uid": target.once("uid", self.new_uid), "creationTimestamp": target.once("created", self.now)}
        if kind.counts_generations:
            meta["generation"] = 1
        if kind.initial_status is not None:
            body["status"] = copy.deepcopy(kind.initial_status)
        _check_types(kind, body)
        self.complete(kind, body)
        if self._defaulting:
            prepare(kind, body, self._others)
        if kind.rules is not None and kind.has_status:
            body.pop("status", None)
        self._check(target, body, None)
        new = kind.normal(body)
        self._check_content(target, new, None)
        self.admission.check(target, new, None)
        if not target.dry_run:
            _check_is_new(new["metadata"])
        key = kind.key_of(new)
        taken = self.store.get(kind, key)
        if taken:
            terminating = "deletionTimestamp" in taken["metadata"]
            raise status.already_exists(kind, meta["name"], generated=generated, terminating=terminating)
        return new if target.dry_run else self.store.write(kind, key, new, who=target.who, verb=target.verb)

    def check_open(self, target: Target, meta: JsonObject) -> None:
        """Refuse to create something where nothing may be created."""
        if target.kind.namespaced:
            name = target.name or meta.get("name") or meta.get("generateName", "")
            namespaces.check_open(self.store.get, target.kind, target.namespace, name)

    def put(
        self, target: Target, body: JsonObject, *, manager: str | None = "", change: Change | None = None
    ) -> tuple[JsonObject, bool]:
        """Replace the object; return the result and whether it was created (some kinds allow that).

        `change` is what the body means, where it is not the object itself.
        """
        kind, meta = target.kind, body["metadata"]
        _check_namespace(target, meta)
        _check_url(target, meta)
        current = self.store.get(kind, target.key)
        creates = current is None and kind.put_creates and not target.subresource
        if current is None and not creates:
            raise status.not_found(kind, target.name)
        found = current["metadata"]["uid"] if current else ""
        if meta.get("uid") and meta["uid"] != found:
            raise status.uid_conflict(kind, target.name, wanted=meta["uid"], found=found)
        if creates:
            _sent_version(meta)
            meta.pop("resourceVersion", None)
            return self.create(target, body), True
        return self.update(target, change or (lambda _: body), manager=manager), False

    def update(
        self, target: Target, change: Change, *, manager: str | None = None, in_place: bool = True
    ) -> JsonObject:
        """Store what `change` makes of the object, if the rules allow it; what changes nothing is not a write.

        `manager` takes over the fields that it changes, where those are tracked; None if `change` saw to that. Unless
        `change` works `in_place`, what it returns may share parts with what it was given: so does what is stored then.
        """
        current = self.read(target)
        new = change(copy.deepcopy(current)) if in_place else self._own(target, change(current))
        _check_types(target.kind, new)
        _check_namespace(target, new["metadata"])
        _check_url(target, new["metadata"])
        new = self.admission.mutated(target, new, current)
        self.complete(target.kind, new, subresource=target.subresource)
        if self._defaulting and not target.subresource:
            carry_over(target.kind, new, current)
        meta, old = new["metadata"], current["metadata"]
        _check_url(target, meta)
        _check_version(target, meta, old)
        _keep_the_servers_part(target, new, current)
        self._check(target, new, current)
        if manager is not None:
            new = self.tracked(target, current, new, manager)
        new = target.kind.normal(new, known=current)
        self._check_content(target, new, current)
        self.admission.check(target, new, current)
        if _is_let_go(target.kind, new, old):
            if not target.dry_run:
                self.store.write(target.kind, target.key, None, who=target.who, verb=target.verb)
            return new
        if target.dry_run or self.store.holds(target.kind, target.key, new):
            return new
        return self.store.write(target.kind, target.key, new, who=target.who, verb=target.verb)

    def _check(self, target: Target, new: JsonObject, old: JsonObject | None) -> None:
        """Refuse what is wrong with a custom resource or its definition, or with a change of it."""
        kind = target.kind
        if kind.rules is not None:
            target.warnings.extend(kind.rules.check(new, old, subresource=target.subresource))
        elif kind is CUSTOM_RESOURCE_DEFINITION:
            causes = self._causes(target, new, old)
            causes += crds.status_problems(new) if target.subresource else crds.problems(new, old)
            if causes:
                raise validation.refused(kind, new["metadata"].get("name", ""), causes)
            target.warnings.extend([] if target.subresource else crds.warnings(new, old))
        else:
            registrations.check(kind, new)

    def _own(self, target: Target, obj: JsonObject) -> JsonObject:
        """Return `obj` as something that may be changed on its way into the store.

        What is written to a status, which is most of all writes, is not completed: there the parts may stay shared.
        """
        if target.subresource == "status" and not has_defaults(target.kind, subresource=target.subresource):
            return obj | {"metadata": dict(obj["metadata"])}
        return copy.deepcopy(Stored(obj))

    def _check_content(self, target: Target, new: JsonObject, old: JsonObject | None) -> None:
        """Refuse what is wrong with an object of a built-in kind, or with a change of it, as it would be stored."""
        if target.kind.rules is not None or target.kind is CUSTOM_RESOURCE_DEFINITION:
            return
        if causes := self._causes(target, new, old):
            raise validation.refused(target.kind, new["metadata"].get("name", ""), causes)

    def _causes(self, target: Target, new: JsonObject, old: JsonObject | None) -> validation.Causes:
        if not self._defaulting:
            return validation.of_name(target.kind, new) if old is None else validation.of_metadata_update(new, old)
        if old is None:
            return validation.of_new(target.kind, new)
        return validation.of_update(target.kind, new, old, subresource=target.subresource)

    def _others(self, plural: str) -> Iterable[JsonObject]:
        kind = {it.plural: it for it in (PRIORITY_CLASS, SERVICE, NODE)}[plural]
        return self.store.at(kind, self.store.revision).values()

    def tracked(self, target: Target, current: JsonObject, new: JsonObject, manager: str) -> JsonObject:
        """Return `new` with the fields that differ from `current` in the manager's hands, where that is tracked."""
        kind = target.kind
        shape = shape_for(kind)
        if shape is None or not ({"managedFields"} & (set(current["metadata"]) | set(new["metadata"]))):
            return new
        return track(
            current,
            new,
            kind=kind,
            shape=shape,
            manager=manager,
            now=self.now(),
            subresource=target.subresource,
        )

    def delete(self, target: Target, options: JsonObject) -> JsonObject:
        """Delete, or begin to; return what the server answers."""
        kind, current = target.kind, self.read(target)
        if kind is NAMESPACE:
            namespaces.check_deletion(current, options)
        check_preconditions(kind, current, options)
        gone, stays = self._begun(target, current, options)
        if stays:
            return gone
        if not target.dry_run:
            gone = self.store.write(kind, target.key, None, who=target.who, verb=target.verb)
        if kind.delete_answers_object:
            return gone
        details = {"name": target.name, "group": kind.group, "kind": kind.plural, "uid": gone["metadata"]["uid"]}
        return status.success(details=details)

    def _begun(self, target: Target, current: JsonObject, options: JsonObject) -> tuple[JsonObject, bool]:
        """Return an object whose deletion has begun, and whether it stays for now."""
        kind = target.kind
        if going := self._marked_by_kind(kind, current, options):
            if going is not current:
                self.admission.check_deletion(target, current, options)
            return self._mark(target, going), True
        held = finalizers_after(kind, current["metadata"].get("finalizers", []), options)
        if kind.graceful and not _at_its_end(current):
            return self._begun_gracefully(target, current, options, held)
        self.admission.check_deletion(target, current, options)
        if not held:
            return current, False
        return self._mark(target, _held_by(self._marked_now(current), held)), True

    def _begun_gracefully(
        self, target: Target, current: JsonObject, options: JsonObject, held: list[str]
    ) -> tuple[JsonObject, bool]:
        marked = self._marked_graceful(current, options.get("gracePeriodSeconds"), self._clock.now())
        if marked is None:
            return current, True
        options = options | {"gracePeriodSeconds": marked["metadata"]["deletionGracePeriodSeconds"]}
        self.admission.check_deletion(target, current, options)
        stays = bool(held or options["gracePeriodSeconds"])
        if not (stays or target.dry_run):
            # The real server asks again about the object as it is marked, right before it goes.
            now = target.once(f"deleted {target.key}", self._clock.now)
            marked = self._marked_graceful(current, 0, now) or marked
            self.admission.check_deletion(target, _held_by(marked, held), options)
        return self._mark(target, _held_by(marked, held)), stays

    def _marked_by_kind(self, kind: Kind, obj: JsonObject, options: JsonObject) -> JsonObject | None:
        """Return `obj` as its deletion begins, or waits, if its kind has its own way for that."""
        if kind is NAMESPACE:
            return namespaces.terminating(obj, options, now=self.now())
        if kind is CUSTOM_RESOURCE_DEFINITION and "deletionTimestamp" not in obj["metadata"]:
            return crds.marked(obj, now=self.now())
        return None

    def _mark(self, target: Target, marked: JsonObject) -> JsonObject:
        if target.dry_run or same_json(marked, self.read(target)):
            return marked
        return self.store.write(target.kind, target.key, marked, who=target.who, verb=target.verb)

    def _marked_graceful(self, pod: JsonObject, wanted: int | None, now: datetime) -> JsonObject | None:
        """Return `pod` with its time to terminate, or None if one that is not longer is already running."""
        meta = pod["metadata"]
        if "deletionTimestamp" not in meta:
            period = _grace_seconds(pod, wanted)
            return _marked(pod, now + timedelta(seconds=period), period)
        running = meta["deletionGracePeriodSeconds"]
        period = running if wanted is None else _not_negative(wanted)
        if period >= running:
            return None
        at = instant(meta["deletionTimestamp"]) + timedelta(seconds=period - running)
        if at < now:
            at, period = now, min(period, 1)
        return _marked(pod, at, period)

    def _marked_now(self, obj: JsonObject) -> JsonObject:
        at, now = obj["metadata"].get("deletionTimestamp"), self._clock.now()
        return _marked(obj, min(instant(at), now) if at else now, 0)

    def _generated_name(self, target: Target, base: str) -> str:
        name = ""
        for attempt in range(_NAME_ATTEMPTS):
            name = base[:58] + target.once(f"name {attempt}", self._suffix)
            if not self.store.get(target.kind, target.kind.key(target.namespace, name)):
                break
        return name

    def _suffix(self) -> str:
        return "".join(self._random.choice(_SUFFIX_LETTERS) for _ in range(5))


@lru_cache(maxsize=256)  # much is written at one and the same instant
def timestamp(at: datetime) -> str:
    """Return an instant as Kubernetes writes it: RFC 3339, whole seconds."""
    return f"{at.isoformat()[:19]}Z"


def instant(text: str) -> datetime:
    """Return the instant that `timestamp` wrote."""
    return datetime.fromisoformat(text)


def check_preconditions(kind: Kind, obj: JsonObject, options: JsonObject) -> None:
    """Refuse unless `obj` is the one that the DeleteOptions mean."""
    meta, wanted = obj["metadata"], options.get("preconditions") or {}
    for name, word in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(name) is not None and wanted[name] != meta[name]:
            why = f"the {word} in the precondition ({wanted[name]}) does not match the {word} in record ({meta[name]})"
            raise status.conflict(kind, meta["name"], why)


def _check_types(kind: Kind, obj: JsonObject) -> None:
    if kind is CUSTOM_RESOURCE_DEFINITION:
        crds.check_types(obj)


def _check_namespace(target: Target, meta: JsonObject) -> None:
    if not target.kind.namespaced:
        meta.pop("namespace", None)
    elif meta.setdefault("namespace", target.namespace) != target.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _check_url(target: Target, meta: JsonObject) -> None:
    if target.kind.rules is not None and not meta.get("name"):
        said = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        raise status.bad_request(said)
    if meta.get("name", "") != target.name:
        said = f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({target.name})"
        raise status.bad_request(said)


def _check_is_new(meta: JsonObject) -> None:
    """Refuse what says that it was stored before; what is no revision says nothing."""
    said = meta.get("resourceVersion", "")
    if said.isdecimal() and int(said):
        raise status.Refused(status.failure(500, "", "resourceVersion should not be set on objects to be created"))


def _sent_version(meta: JsonObject) -> str:
    """Return the revision that an object says it is of; refuses what is none."""
    sent: str = meta.get("resourceVersion") or "0"
    if not sent.isdecimal():
        said = f'strconv.ParseUint: parsing "{sent}": invalid syntax'
        raise status.Refused(status.failure(500, "", said))
    return sent


def _check_version(target: Target, meta: JsonObject, old: JsonObject) -> None:
    kind, sent = target.kind, _sent_version(meta)
    if sent == "0" and kind.put_needs_version:
        message = "Invalid value: 0: must be specified for an update"
        cause = status.field_error("FieldValueInvalid", "metadata.resourceVersion", message)
        raise status.invalid(kind.group, kind.plural, target.name, [cause])
    if sent not in ("0", old["resourceVersion"]):
        raise status.conflict(kind, target.name, status.MODIFIED_MEANWHILE)


def _keep_the_servers_part(target: Target, new: JsonObject, current: JsonObject) -> None:
    """Put back what this request may not change. As in the real server, /status also takes labels and annotations.

    Not so that of a custom resource: it changes nothing but the status.
    """
    kind, meta, old = target.kind, new["metadata"], current["metadata"]
    if kind.rules is not None and target.subresource == "status":
        managers = {name: meta[name] for name in ("managedFields",) if name in meta}
        meta.clear()
        meta |= old | managers
    meta.setdefault("uid", old["uid"])
    for name in ("resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        _keep(name, meta, old)
    if kind.has_status:
        for section in dict.fromkeys((*new, *current)):  # not a set: its order would show
            if section != "metadata" and (section == "status") is (target.subresource != "status"):
                _keep(section, new, current)
    _keep("generation", meta, old)
    if kind is CUSTOM_RESOURCE_DEFINITION and not target.subresource:
        new["status"] = crds.defaulted(new)["status"]
    if target.subresource == "status":
        for name in kind.status_keeps:
            _keep(name, meta, old)
    elif kind.counts_generations and not same_json(_content(kind, new), _content(kind, current)):
        meta["generation"] = old.get("generation", 0) + 1


def _content(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return what a generation counts the changes of: the spec, or what a kind without one has instead.

    Of a custom resource without a status subresource, the status is like any other part of it.
    """
    left_out = {"apiVersion", "kind", "metadata", "status"}
    if kind.rules is not None and not kind.has_status:
        left_out.remove("status")
    content = {name: value for name, value in obj.items() if name not in left_out}
    return content | {f"metadata.{name}": obj["metadata"].get(name) or {} for name in kind.generation_counts}


def _keep(name: str, new: JsonObject, old: JsonObject) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def _is_let_go(kind: Kind, new: JsonObject, old: JsonObject) -> bool:
    """Tell whether an update took away the last thing that an object, which is being deleted, had to wait for."""
    if "deletionTimestamp" not in old or old.get("deletionGracePeriodSeconds") or new["metadata"].get("finalizers"):
        return False
    return kind is not NAMESPACE or not namespaces.is_held(new)


def _held_by(obj: JsonObject, finalizers: list[str]) -> JsonObject:
    meta = {name: value for name, value in obj["metadata"].items() if name != "finalizers"}
    return obj | {"metadata": meta | ({"finalizers": finalizers} if finalizers else {})}


def _at_its_end(obj: JsonObject) -> bool:
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds")


def _grace_seconds(pod: JsonObject, wanted: int | None) -> int:
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Failed", "Succeeded"):
        return 0
    if wanted is None:
        wanted = int(pod["spec"].get("terminationGracePeriodSeconds", _USUAL_GRACE_SECONDS))
    return _not_negative(wanted)


def _not_negative(grace_seconds: int) -> int:
    return 1 if grace_seconds < 0 else grace_seconds  # the server reads a negative period as one second


def _marked(obj: JsonObject, at: datetime, grace_seconds: int) -> JsonObject:
    meta = obj["metadata"]
    deletion = {"deletionTimestamp": timestamp(at), "deletionGracePeriodSeconds": grace_seconds}
    if "deletionTimestamp" not in meta and meta.get("generation"):
        deletion["generation"] = meta["generation"] + 1
    return obj | {"metadata": meta | deletion}
