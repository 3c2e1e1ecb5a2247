"""Who has a say before something is written: admission webhooks and policies.

The server answers at once and cannot wait for a webhook. So whoever reaches the admission point with an object that a
webhook wants to see raises `NeedsAdmission`; the transport has the webhook asked and runs the request again. The `Case`
of the request remembers the verdicts, each under the webhook and all that it was told. An object that changed meanwhile
is another question, and is asked again, as a real server does after a conflict. A case also remembers what a run drew
by chance or read off the clock, so that each run makes the same object.

Configurations and policies are in force as soon as they are written, and are not themselves subject to any.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace

from haulout_sandbox.apiserver.builtin_kinds import CUSTOM_RESOURCE_DEFINITION
from haulout_sandbox.apiserver.changes import Change
from haulout_sandbox.apiserver.creation import Others, carry_over, plug_in
from haulout_sandbox.apiserver.kinds import NAMESPACE, POD, JsonObject, Kind
from haulout_sandbox.apiserver.policies import Policies
from haulout_sandbox.apiserver.store import Store
from haulout_sandbox.apiserver.targets import Asks, Target
from haulout_sandbox.apiserver.webhook_dispatch import Hearing, Webhooks

_EXEMPT = "admissionregistration.k8s.io"
_NAME_LABEL = "kubernetes.io/metadata.name"
_NOT_OPTIONS = ("kind", "apiVersion", "metadata")


class Admission:
    """Asks those who have a say; `complete` writes defaults, and without `others` nothing else is added."""

    def __init__(
        self,
        store: Store,
        *,
        kinds: Callable[[], Iterable[Kind]],
        new_uid: Callable[[], str],
        complete: Callable[[Kind, JsonObject], None],
        others: Others | None,
    ) -> None:
        self._store = store
        self._complete = complete
        self._others = others
        self._webhooks = Webhooks(store, kinds, new_uid)
        self._policies = Policies(store, kinds)

    @property
    def in_force(self) -> bool:
        """Tell whether anybody has a say."""
        return self._webhooks.in_force or self._policies.in_force

    def mutated(self, target: Target, new: JsonObject, old: JsonObject | None) -> JsonObject:
        """Return an object that is created or updated as the mutating webhooks want it."""
        asks = self._asks(target)
        if asks is None or not self._webhooks.in_force:
            return new

        def default(obj: JsonObject) -> JsonObject:
            obj = copy.deepcopy(obj)
            self._complete(target.kind, obj)
            return target.kind.normal(obj)

        def complete(obj: JsonObject) -> JsonObject:
            obj = default(obj)
            if old is None and target.kind.has_status and not target.kind.custom:
                first = target.kind.initial_status or {}  # whose phase comes later
                obj["status"] = {name: it for name, it in first.items() if name != "phase"} | obj.get("status", {})
            if self._others is not None and old is None:
                plug_in(target.kind, obj, self._others)
            elif self._others is not None and old is not None and target.kind is POD and not target.subresource:
                carry_over(target.kind, obj, old)
            return obj

        change = _change(target, asks, "UPDATE" if old else "CREATE", complete(new), old)
        namespace = self._namespace(change)
        hearing = _hearing(target, asks)
        mutated = self._webhooks.mutated(change, namespace, hearing, default=default, complete=complete)
        return copy.deepcopy(mutated or new)

    def check(self, target: Target, new: JsonObject, old: JsonObject | None) -> None:
        """Refuse what is about to be written if somebody does."""
        if asks := self._asks(target):
            self._check(_change(target, asks, "UPDATE" if old else "CREATE", new, old), _hearing(target, asks))

    def check_deletion(self, target: Target, old: JsonObject, options: JsonObject) -> None:
        """Refuse that an object goes, or begins to, if somebody does."""
        asks = self._asks(target)
        if asks is None:
            return
        given: JsonObject = {"dryRun": ["All"]} if target.dry_run else {}
        given |= {name: value for name, value in options.items() if name not in _NOT_OPTIONS}
        if target.kind in (NAMESPACE, CUSTOM_RESOURCE_DEFINITION):  # their storages pin the object that they mean
            given["preconditions"] = {"uid": old["metadata"]["uid"]} | (given.get("preconditions") or {})
        change = replace(_change(target, asks, "DELETE", None, old), given=given)
        hearing = _hearing(target, asks)
        self._webhooks.mutated(change, self._namespace(change), hearing, default=_as_is, complete=_as_is)
        self._check(change, hearing)

    def admitted(
        self, target: Target, body: JsonObject, *, api_version: str, kind: str, old: JsonObject | None = None
    ) -> JsonObject:
        """Return what is sent to a subresource of another kind as the webhooks want it; refuse if somebody does."""
        asks = self._asks(target)
        if asks is None:
            return body
        meta = {name: value for name, value in body["metadata"].items() if value} | {"namespace": target.namespace}
        body = body | {"apiVersion": api_version, "kind": kind, "metadata": meta}
        change = _change(target, asks, "UPDATE" if old else "CREATE", body, old)
        namespace, hearing = self._namespace(change), _hearing(target, asks)
        mutated = self._webhooks.mutated(change, namespace, hearing, default=_as_is, complete=_as_is)
        self._check(replace(change, obj=mutated), hearing)
        return copy.deepcopy(mutated or body)

    def _asks(self, target: Target) -> Asks | None:
        """Return who asks, None if nobody has a say."""
        return target.asks if self.in_force and target.kind.group != _EXEMPT else None

    def _check(self, change: Change, hearing: Hearing) -> None:
        namespace = self._namespace(change)
        hearing.warnings.extend(self._policies.check(change, namespace))
        self._webhooks.check(change, namespace, hearing)

    def _namespace(self, change: Change) -> JsonObject | None:
        """Return the namespace that the change is in, or is about; here one need not exist."""
        if change.kind is NAMESPACE and not change.subresource and change.obj is not None:
            return change.obj
        if not change.namespace:
            return None
        bare = {"metadata": {"name": change.namespace, "labels": {_NAME_LABEL: change.namespace}}}
        return self._store.get(NAMESPACE, change.namespace) or bare


def _change(target: Target, asks: Asks, operation: str, new: JsonObject | None, old: JsonObject | None) -> Change:
    kind, shown = target.kind, new or old or {}
    name = target.name or shown["metadata"].get("name", "")
    return Change(
        operation=operation,
        kind=kind,
        api_version=shown.get("apiVersion", kind.api_version),
        object_kind=shown.get("kind", kind.kind),
        subresource=target.subresource,
        name=name if asks.names_objects else "",
        namespace=name if kind is NAMESPACE else target.namespace,
        user=asks.user,
        given=asks.options,
        dry_run=target.dry_run,
        obj=new,
        old=old,
    )


def _hearing(target: Target, asks: Asks) -> Hearing:
    return Hearing(asks.case.verdicts, target.warnings)


def _as_is(obj: JsonObject) -> JsonObject:
    return obj
