"""Writes of the API server: create, update, delete.

Follows `apiserver/pkg/registry/generic/registry/store.go` and `…/rest/{create,update,delete}.go` of Kubernetes 1.36.
Each write is atomic: nothing else runs between reading an object and writing it, as etcd's transactions ensure.
"""

import copy
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from random import Random

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import status, validation
from haulout_sandbox.apiserver.admission import webhook
from haulout_sandbox.apiserver.admission.webhook_admission import WebhookAdmission
from haulout_sandbox.apiserver.apiextensions import crds
from haulout_sandbox.apiserver.kinds.builtin import (
    CUSTOM_RESOURCE_DEFINITION,
    PRIORITY_CLASS,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from haulout_sandbox.apiserver.kinds.kind import NAMESPACE, NODE, JsonObject, Kind
from haulout_sandbox.apiserver.patch.json_patch import equal_json
from haulout_sandbox.apiserver.registry import namespaces
from haulout_sandbox.apiserver.registry.defaults import has_defaults, set_defaults
from haulout_sandbox.apiserver.registry.deletion import finalizers_after
from haulout_sandbox.apiserver.registry.strategy import prepare_for_create, prepare_for_update
from haulout_sandbox.apiserver.request_targets import Target
from haulout_sandbox.apiserver.storage.store import Store
from haulout_sandbox.apiserver.storage.stored_object import StoredObject

__all__ = ["Change", "Target", "Writer", "check_preconditions", "format_timestamp", "parse_timestamp"]

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_NAME_ATTEMPTS = 8
_DEFAULT_GRACE_SECONDS = 30  # the default of a pod's terminationGracePeriodSeconds


Change = Callable[[JsonObject], JsonObject]
"""Makes an object another, and may change the one it is given."""


class Writer:
    """Changes objects in a store; without `defaulting` it stores objects as they are sent."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        random: Random,
        *,
        defaulting: bool = True,
    ) -> None:
        self.store = store
        self.admission = WebhookAdmission(store, new_uid=self.new_uid)
        self._defaulting = defaulting
        self._clock = clock
        self._random = random

    def now(self) -> str:
        """Return the current time as an RFC 3339 timestamp."""
        return format_timestamp(self._clock.now())

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def apply_defaults(self, kind: Kind, obj: JsonObject, *, subresource: str = "") -> None:
        """Set the defaults in place, unless this server has no defaulting."""
        if self._defaulting and kind.custom_resource is None:
            set_defaults(kind, obj, subresource=subresource)
        elif self._defaulting and kind.custom_resource is not None:
            obj.update(kind.custom_resource.with_defaults(obj))

    def read(self, target: Target) -> JsonObject:
        """Return the object, or refuse with 404."""
        obj = self.store.get(target.kind, target.key)
        if obj is None:
            raise status.not_found(target.kind, target.name)
        return obj

    def create(self, target: Target, body: JsonObject) -> JsonObject:
        """Create the object in `body`; its name may be generated."""
        kind, meta = target.kind, body["metadata"]
        _check_namespace(target, meta)
        self.check_namespace_active(target, meta)
        for name in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            meta.pop(name, None)
        is_generated = bool(meta.get("generateName")) and not meta.get("name")
        if is_generated:
            meta["name"] = self._generate_name(target, meta["generateName"])
        meta |= {"uid": target.memoize("uid", self.new_uid), "creationTimestamp": target.memoize("created", self.now)}
        if kind.has_generation:
            meta["generation"] = 1
        if kind.initial_status is not None:
            body["status"] = copy.deepcopy(kind.initial_status)
        _validate_types(kind, body)
        self.apply_defaults(kind, body)
        if self._defaulting:
            prepare_for_create(kind, body, self._list_objects)
        if kind.custom_resource is not None and kind.has_status:
            body.pop("status", None)
        self._validate_custom(target, body, None)
        new = kind.normalize(body)
        self._validate_builtin(target, new, None)
        self.admission.admit(target, new, None)
        if not target.dry_run:
            _check_is_new(new["metadata"])
        key = kind.key_of(new)
        existing = self.store.get(kind, key)
        if existing:
            is_terminating = "deletionTimestamp" in existing["metadata"]
            raise status.already_exists(kind, meta["name"], generated=is_generated, terminating=is_terminating)
        return new if target.dry_run else self.store.write(kind, key, new, username=target.username, verb=target.verb)

    def check_namespace_active(self, target: Target, meta: JsonObject) -> None:
        """Refuse to create an object in a namespace that does not exist or is terminating."""
        if target.kind.namespaced:
            name = target.name or meta.get("name") or meta.get("generateName", "")
            namespaces.check_active(self.store.get, target.kind, target.namespace, name)

    def put(self, target: Target, body: JsonObject, *, change: Change | None = None) -> tuple[JsonObject, bool]:
        """Replace the object; return the result and whether it was created (some kinds allow that).

        `change` is the change that the body means, where the body is not the object itself.
        """
        kind, meta = target.kind, body["metadata"]
        _check_namespace(target, meta)
        _check_url(target, meta)
        current = self.store.get(kind, target.key)
        is_create = current is None and kind.allows_create_on_update and not target.subresource
        if current is None and not is_create:
            raise status.not_found(kind, target.name)
        current_uid = current["metadata"]["uid"] if current else ""
        if meta.get("uid") and meta["uid"] != current_uid:
            raise status.uid_conflict(kind, target.name, expected=meta["uid"], actual=current_uid)
        if is_create:
            _sent_version(meta)
            meta.pop("resourceVersion", None)
            return self.create(target, body), True
        return self.update(target, change or (lambda _: body)), False

    def update(self, target: Target, change: Change, *, in_place: bool = True) -> JsonObject:
        """Store the result of `change` if it is valid; a change without effect is not a write.

        Unless `change` works `in_place`, its result may share parts with its argument, and the stored object then does
        too.
        """
        current = self.read(target)
        new = change(copy.deepcopy(current)) if in_place else self._copy_for_write(target, change(current))
        _validate_types(target.kind, new)
        _check_namespace(target, new["metadata"])
        _check_url(target, new["metadata"])
        self.apply_defaults(target.kind, new, subresource=target.subresource)
        if self._defaulting and not target.subresource:
            prepare_for_update(target.kind, new, current)
        meta, old = new["metadata"], current["metadata"]
        _check_url(target, meta)
        _check_version(target, meta, old)
        _restore_server_fields(target, new, current)
        self._validate_custom(target, new, current)
        new = target.kind.normalize(new, previous=current)
        self._validate_builtin(target, new, current)
        self.admission.admit(target, new, current)
        if _is_last_finalizer_removed(target.kind, new, old):
            if not target.dry_run:
                self.store.write(target.kind, target.key, None, username=target.username, verb=target.verb)
            return new
        if target.dry_run or self.store.is_unchanged(target.kind, target.key, new):
            return new
        return self.store.write(target.kind, target.key, new, username=target.username, verb=target.verb)

    def _validate_custom(self, target: Target, new: JsonObject, old: JsonObject | None) -> None:
        """Refuse an invalid custom resource, or an invalid change of one."""
        if target.kind.custom_resource is not None:
            target.kind.custom_resource.validate(new, old, subresource=target.subresource)

    def _copy_for_write(self, target: Target, obj: JsonObject) -> JsonObject:
        """Return a copy of `obj` that may be changed before it is stored.

        Writes to the status subresource, the most frequent ones, get no defaults: their parts may stay shared.
        """
        if target.subresource == "status" and not has_defaults(target.kind, subresource=target.subresource):
            return obj | {"metadata": dict(obj["metadata"])}
        return copy.deepcopy(StoredObject(obj))

    def _validate_builtin(self, target: Target, new: JsonObject, old: JsonObject | None) -> None:
        """Refuse an invalid object of a built-in kind, or an invalid change of one, as it would be stored."""
        if target.kind.custom_resource is not None:
            return
        if causes := self._validation_causes(target, new, old):
            raise validation.invalid_object(target.kind, new["metadata"].get("name", ""), causes)

    def _validation_causes(self, target: Target, new: JsonObject, old: JsonObject | None) -> validation.Causes:
        if not self._defaulting:
            return (
                validation.validate_name(target.kind, new)
                if old is None
                else validation.validate_metadata_update(new, old)
            )
        if old is None:
            return validation.validate_create(target.kind, new)
        return validation.validate_update(target.kind, new, old, subresource=target.subresource)

    def _list_objects(self, plural: str) -> Iterable[JsonObject]:
        kind = {candidate.plural: candidate for candidate in (PRIORITY_CLASS, NODE)}[plural]
        return self.store.objects_at(kind, self.store.revision).values()

    def delete(self, target: Target, options: JsonObject) -> JsonObject:
        """Delete the object, or start its deletion; return the response body."""
        kind, current = target.kind, self.read(target)
        check_preconditions(kind, current, options)
        if kind is NAMESPACE:
            namespaces.check_deletion(current)
        deleted, is_pending = self._begin_deletion(target, current, options)
        if is_pending:
            return deleted
        if not target.dry_run:
            deleted = self.store.write(kind, target.key, None, username=target.username, verb=target.verb)
        if kind.delete_returns_object:
            return deleted
        details = {"name": target.name, "group": kind.group, "kind": kind.plural, "uid": deleted["metadata"]["uid"]}
        return status.success_status(details=details)

    def _begin_deletion(self, target: Target, current: JsonObject, options: JsonObject) -> tuple[JsonObject, bool]:
        """Return the object with its deletion started, and whether it stays for now."""
        kind = target.kind
        if terminating := self._begin_deletion_of_kind(kind, current, options):
            if terminating is not current:
                self.admission.admit_deletion(target, current, options)
            return self._write_terminating(target, terminating), True
        finalizers = finalizers_after(kind, current["metadata"].get("finalizers", []), options)
        if kind.has_graceful_deletion and not _is_grace_period_over(current):
            return self._begin_graceful_deletion(target, current, options, finalizers)
        self.admission.admit_deletion(target, current, options)
        if not finalizers:
            return current, False
        return self._write_terminating(target, _with_finalizers(self._with_deletion_now(current), finalizers)), True

    def _begin_graceful_deletion(
        self, target: Target, current: JsonObject, options: JsonObject, finalizers: list[str]
    ) -> tuple[JsonObject, bool]:
        terminating = self._with_grace_period(current, options.get("gracePeriodSeconds"), self._clock.now())
        if terminating is None:
            return current, True
        options = options | {"gracePeriodSeconds": terminating["metadata"]["deletionGracePeriodSeconds"]}
        self.admission.admit_deletion(target, current, options)
        is_pending = bool(finalizers or options["gracePeriodSeconds"])
        if not (is_pending or target.dry_run):
            # The real server runs admission again for the marked object right before it deletes it.
            now = target.memoize(f"deleted {target.key}", self._clock.now)
            terminating = self._with_grace_period(current, 0, now) or terminating
            self.admission.admit_deletion(target, _with_finalizers(terminating, finalizers), options)
        return self._write_terminating(target, _with_finalizers(terminating, finalizers)), is_pending

    def _begin_deletion_of_kind(self, kind: Kind, obj: JsonObject, options: JsonObject) -> JsonObject | None:
        """Return `obj` with its deletion started or pending, if its kind has its own rules for that."""
        if kind is NAMESPACE:
            return namespaces.begin_deletion(obj, options, now=self.now())
        if kind is CUSTOM_RESOURCE_DEFINITION and "deletionTimestamp" not in obj["metadata"]:
            return crds.begin_deletion(obj, now=self.now())
        return None

    def _write_terminating(self, target: Target, terminating: JsonObject) -> JsonObject:
        if target.dry_run or equal_json(terminating, self.read(target)):
            return terminating
        return self.store.write(target.kind, target.key, terminating, username=target.username, verb=target.verb)

    def _with_grace_period(self, pod: JsonObject, requested: int | None, now: datetime) -> JsonObject | None:
        """Return `pod` with its grace period, or None if one that is not longer is already running."""
        meta = pod["metadata"]
        if "deletionTimestamp" not in meta:
            period = _grace_seconds(pod, requested)
            return _with_deletion_timestamp(pod, now + timedelta(seconds=period), period)
        current_period = meta["deletionGracePeriodSeconds"]
        period = current_period if requested is None else _non_negative_seconds(requested)
        if period >= current_period:
            return None
        deletion_time = parse_timestamp(meta["deletionTimestamp"]) + timedelta(seconds=period - current_period)
        if deletion_time < now:
            deletion_time, period = now, min(period, 1)
        return _with_deletion_timestamp(pod, deletion_time, period)

    def _with_deletion_now(self, obj: JsonObject) -> JsonObject:
        deletion_time, now = obj["metadata"].get("deletionTimestamp"), self._clock.now()
        return _with_deletion_timestamp(obj, min(parse_timestamp(deletion_time), now) if deletion_time else now, 0)

    def _generate_name(self, target: Target, prefix: str) -> str:
        name = ""
        for attempt in range(_NAME_ATTEMPTS):
            name = prefix[:58] + target.memoize(f"name {attempt}", self._suffix)
            if not self.store.get(target.kind, target.kind.key(target.namespace, name)):
                break
        return name

    def _suffix(self) -> str:
        return "".join(self._random.choice(_SUFFIX_LETTERS) for _ in range(5))


@lru_cache(maxsize=256)  # many writes have the same timestamp
def format_timestamp(time: datetime) -> str:
    """Return an instant as Kubernetes writes it: RFC 3339, whole seconds."""
    return f"{time.isoformat()[:19]}Z"


def parse_timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text)


def check_preconditions(kind: Kind, obj: JsonObject, options: JsonObject) -> None:
    """Refuse if the preconditions of the DeleteOptions do not match `obj`."""
    meta, preconditions = obj["metadata"], options.get("preconditions") or {}
    for name, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if preconditions.get(name) is not None and preconditions[name] != meta[name]:
            detail = (
                f"the {label} in the precondition ({preconditions[name]}) "
                f"does not match the {label} in record ({meta[name]})"
            )
            raise status.conflict(kind, meta["name"], detail)


def _validate_types(kind: Kind, obj: JsonObject) -> None:
    if kind is CUSTOM_RESOURCE_DEFINITION:
        crds.validate(obj)
    elif kind is VALIDATING_WEBHOOK_CONFIGURATION:
        webhook.validate(obj)


def _check_namespace(target: Target, meta: JsonObject) -> None:
    if not target.kind.namespaced:
        meta.pop("namespace", None)
    elif meta.setdefault("namespace", target.namespace) != target.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _check_url(target: Target, meta: JsonObject) -> None:
    if target.kind.custom_resource is not None and not meta.get("name"):
        message = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        raise status.bad_request(message)
    if meta.get("name", "") != target.name:
        message = f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({target.name})"
        raise status.bad_request(message)


def _check_is_new(meta: JsonObject) -> None:
    """Refuse a new object with a resourceVersion; an invalid one is ignored."""
    resource_version = meta.get("resourceVersion", "")
    if resource_version.isdecimal() and int(resource_version):
        raise status.StatusError(
            status.failure_status(500, "", "resourceVersion should not be set on objects to be created")
        )


def _sent_version(meta: JsonObject) -> str:
    """Return the resourceVersion that was sent; refuse an invalid one."""
    sent: str = meta.get("resourceVersion") or "0"
    if not sent.isdecimal():
        message = f'strconv.ParseUint: parsing "{sent}": invalid syntax'
        raise status.StatusError(status.failure_status(500, "", message))
    return sent


def _check_version(target: Target, meta: JsonObject, old: JsonObject) -> None:
    kind, sent = target.kind, _sent_version(meta)
    if sent == "0" and kind.requires_version_on_update:
        message = "Invalid value: 0: must be specified for an update"
        cause = status.status_cause("FieldValueInvalid", "metadata.resourceVersion", message)
        raise status.invalid(kind.group, kind.plural, target.name, [cause])
    if sent not in ("0", old["resourceVersion"]):
        raise status.conflict(kind, target.name, status.OBJECT_MODIFIED)


def _restore_server_fields(target: Target, new: JsonObject, current: JsonObject) -> None:
    """Restore fields that this request may not change.

    As in the real server, a write to /status may also change labels and annotations, except for custom resources, where
    it changes only the status.
    """
    kind, meta, old = target.kind, new["metadata"], current["metadata"]
    if kind.custom_resource is not None and target.subresource == "status":
        managed_fields = {name: meta[name] for name in ("managedFields",) if name in meta}
        meta.clear()
        meta |= old | managed_fields
    meta.setdefault("uid", old["uid"])
    _restore_managed_fields(meta, old)
    for name in ("resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        _restore(name, meta, old)
    if kind.has_status:
        for section in dict.fromkeys((*new, *current)):  # not a set: the order of the sections is visible
            if section != "metadata" and (section == "status") is (target.subresource != "status"):
                _restore(section, new, current)
    _restore("generation", meta, old)
    if kind is CUSTOM_RESOURCE_DEFINITION and not target.subresource:
        new["status"] = crds.with_defaults(new)["status"]
    if (
        target.subresource != "status"
        and kind.has_generation
        and not equal_json(_generation_content(kind, new), _generation_content(kind, current))
    ):
        meta["generation"] = old.get("generation", 0) + 1


def _restore_managed_fields(meta: JsonObject, old: JsonObject) -> None:
    """Keep the managed fields, unless the client sent others or cleared them."""
    if "managedFields" in old or "managedFields" in meta:
        meta["managedFields"] = [entry for entry in meta.get("managedFields", old.get("managedFields")) or () if entry]


def _generation_content(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return the part of an object whose changes increase its generation: the spec, or what the kind has instead.

    Without a status subresource, the status of a custom resource counts, too.
    """
    excluded = {"apiVersion", "kind", "metadata", "status"}
    if kind.custom_resource is not None and not kind.has_status:
        excluded.remove("status")
    return {name: value for name, value in obj.items() if name not in excluded}


def _restore(name: str, new: JsonObject, old: JsonObject) -> None:
    if name in old:
        new[name] = old[name]
    else:
        new.pop(name, None)


def _is_last_finalizer_removed(kind: Kind, new: JsonObject, old: JsonObject) -> bool:
    """Return whether an update removed the last finalizer of an object that is being deleted."""
    if "deletionTimestamp" not in old or old.get("deletionGracePeriodSeconds") or new["metadata"].get("finalizers"):
        return False
    return kind is not NAMESPACE or not namespaces.has_spec_finalizers(new)


def _with_finalizers(obj: JsonObject, finalizers: list[str]) -> JsonObject:
    meta = {name: value for name, value in obj["metadata"].items() if name != "finalizers"}
    return obj | {"metadata": meta | ({"finalizers": finalizers} if finalizers else {})}


def _is_grace_period_over(obj: JsonObject) -> bool:
    meta = obj["metadata"]
    return "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds")


def _grace_seconds(pod: JsonObject, requested: int | None) -> int:
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Failed", "Succeeded"):
        return 0
    if requested is None:
        requested = int(pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS))
    return _non_negative_seconds(requested)


def _non_negative_seconds(grace_seconds: int) -> int:
    return 1 if grace_seconds < 0 else grace_seconds  # the server reads a negative period as one second


def _with_deletion_timestamp(obj: JsonObject, deletion_time: datetime, grace_seconds: int) -> JsonObject:
    meta = obj["metadata"]
    deletion = {"deletionTimestamp": format_timestamp(deletion_time), "deletionGracePeriodSeconds": grace_seconds}
    if "deletionTimestamp" not in meta and meta.get("generation"):
        deletion["generation"] = meta["generation"] + 1
    return obj | {"metadata": meta | deletion}
