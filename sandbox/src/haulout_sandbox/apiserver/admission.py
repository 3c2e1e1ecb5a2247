"""Admission: webhooks have a say before something is written.

The server answers at once and cannot wait for a webhook. So whoever reaches the admission point with an object that a
webhook wants to see raises `NeedsAdmission`; the transport has the webhook asked and runs the request again. The `Case`
of the request remembers the verdicts, each under the webhook and all that it was told. An object that changed meanwhile
is another question, and is asked again, as a real server does after a conflict. A case also remembers what a run drew
by chance or read off the clock, so that each run makes the same object.

Configurations are in force as soon as they are written, and are not themselves subject to any.
"""

from collections.abc import Callable, Iterator

import msgspec

from haulout_sandbox.apiserver.builtin_kinds import VALIDATING_WEBHOOKS
from haulout_sandbox.apiserver.kinds import NAMESPACE, JsonObject
from haulout_sandbox.apiserver.status import Refused
from haulout_sandbox.apiserver.store import Store
from haulout_sandbox.apiserver.targets import Asks, Target
from haulout_sandbox.apiserver.webhooks import NeedsAdmission, Webhook, parsed

_EXEMPT = VALIDATING_WEBHOOKS.group
_NAME_LABEL = "kubernetes.io/metadata.name"
_NOT_OPTIONS = ("kind", "apiVersion", "metadata")


class Admission:
    """Asks the webhooks of the configurations in a store; `new_uid` names a question."""

    def __init__(self, store: Store, *, new_uid: Callable[[], str]) -> None:
        self._store = store
        self._new_uid = new_uid

    @property
    def in_force(self) -> bool:
        """Tell whether anybody has a say."""
        return bool(self._store.current(VALIDATING_WEBHOOKS))

    def check(self, target: Target, new: JsonObject, old: JsonObject | None) -> None:
        """Refuse what is about to be written if somebody does."""
        if asks := self._asks(target):
            self._check(target, asks, "UPDATE" if old else "CREATE", new, old)

    def check_deletion(self, target: Target, old: JsonObject, options: JsonObject) -> None:
        """Refuse that an object goes, or begins to, if somebody does."""
        if asks := self._asks(target):
            given: JsonObject = {"dryRun": ["All"]} if target.dry_run else {}
            given |= {name: value for name, value in options.items() if name not in _NOT_OPTIONS}
            self._check(target, asks, "DELETE", None, old, given=given)

    def admitted(
        self, target: Target, body: JsonObject, *, api_version: str, kind: str, old: JsonObject | None = None
    ) -> JsonObject:
        """Return what is sent to a subresource of another kind; refuse if somebody does."""
        if asks := self._asks(target):
            meta = {name: value for name, value in body["metadata"].items() if value} | {"namespace": target.namespace}
            body = body | {"apiVersion": api_version, "kind": kind, "metadata": meta}
            self._check(target, asks, "UPDATE" if old else "CREATE", body, old)
        return body

    def _asks(self, target: Target) -> Asks | None:
        """Return who asks, None if nobody has a say."""
        return target.asks if self.in_force and target.kind.group != _EXEMPT else None

    def _check(
        self,
        target: Target,
        asks: Asks,
        operation: str,
        new: JsonObject | None,
        old: JsonObject | None,
        *,
        given: JsonObject | None = None,
    ) -> None:
        request = _request(target, asks, operation, new, old) | {"options": given or asks.options}
        namespace = self._namespace(target, new, old)
        asked = [(key, webhook) for key, webhook in self._webhooks() if webhook.wants(request, namespace)]
        told = msgspec.json.encode(request, order="sorted").decode() if asked else ""
        verdicts = asks.case.verdicts
        unknown = [
            webhook.question(f"{key} {told}", request, uid=self._new_uid())
            for key, webhook in asked
            if f"{key} {told}" not in verdicts
        ]
        if unknown:
            raise NeedsAdmission(unknown)
        refusals: list[Refused] = []
        for key, webhook in asked:
            try:
                webhook.respect(verdicts[f"{key} {told}"], target.warnings)
            except Refused as refused:
                refusals.append(refused)
        if refusals:
            raise refusals[0]

    def _webhooks(self) -> Iterator[tuple[str, Webhook]]:
        """Yield the webhooks, each with what it is known by, in the order of their configurations."""
        for name, configuration in sorted(self._store.current(VALIDATING_WEBHOOKS).items()):
            yield from ((f"{name}/{index}", webhook) for index, webhook in enumerate(parsed(configuration)))

    def _namespace(self, target: Target, new: JsonObject | None, old: JsonObject | None) -> JsonObject | None:
        """Return the namespace that an object is in, or is; here one need not exist."""
        if target.kind is NAMESPACE:
            return new or old
        if not target.namespace:
            return None
        bare = {"metadata": {"name": target.namespace, "labels": {_NAME_LABEL: target.namespace}}}
        return self._store.get(NAMESPACE, target.namespace) or bare


def _request(target: Target, asks: Asks, operation: str, new: JsonObject | None, old: JsonObject | None) -> JsonObject:
    """Return the AdmissionRequest, without its uid and its options."""
    kind, user, shown = target.kind, asks.user, new or old or {}
    name = (target.name or shown["metadata"].get("name", "")) if asks.names_objects else ""
    group, _, version = shown.get("apiVersion", kind.api_version).rpartition("/")
    who = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": dict(user.extra)}
    of_object = {"group": group, "version": version, "kind": shown.get("kind", kind.kind)}
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    return {
        "kind": of_object,
        "resource": resource,
        "subResource": target.subresource,
        "requestKind": of_object,
        "requestResource": resource,
        "requestSubResource": target.subresource,
        "name": name,
        "namespace": name if kind is NAMESPACE else target.namespace,
        "operation": operation,
        "userInfo": {name: value for name, value in who.items() if value},
        "object": new,
        "oldObject": old,
        "dryRun": target.dry_run,
    }
