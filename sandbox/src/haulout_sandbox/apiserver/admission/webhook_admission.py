"""Admission of writes by validating webhooks.

The request handler answers at once and cannot wait for a webhook. When an object that a webhook must review reaches
admission, this module raises `WebhookCallsNeeded`. The transport calls the webhooks and runs the request again. The
`AdmissionState` of the request keeps the results, each under the webhook and the complete request that it received. If
the object has changed meanwhile, the webhook is called again, as a real server does after a conflict. The state also
keeps random values and timestamps of the first run, so that each run creates the same object.

Configurations take effect as soon as they are written, and are not themselves subject to webhooks.
"""

from collections.abc import Callable, Iterator

import msgspec

from haulout_sandbox.apiserver.admission.webhook import Webhook, WebhookCallsNeeded, parse_webhooks
from haulout_sandbox.apiserver.kinds.builtin import VALIDATING_WEBHOOK_CONFIGURATION
from haulout_sandbox.apiserver.kinds.kind import NAMESPACE, JsonObject
from haulout_sandbox.apiserver.request_targets import AdmissionContext, Target
from haulout_sandbox.apiserver.status import StatusError
from haulout_sandbox.apiserver.storage.store import Store

_EXEMPT_GROUP = VALIDATING_WEBHOOK_CONFIGURATION.group
_NAME_LABEL = "kubernetes.io/metadata.name"
_NON_OPTION_FIELDS = ("kind", "apiVersion", "metadata")


class WebhookAdmission:
    """Runs admission with the webhook configurations in a store; `new_uid` creates the uid of a call."""

    def __init__(self, store: Store, *, new_uid: Callable[[], str]) -> None:
        self._store = store
        self._new_uid = new_uid

    @property
    def has_webhooks(self) -> bool:
        return bool(self._store.current_objects(VALIDATING_WEBHOOK_CONFIGURATION))

    def admit(self, target: Target, new: JsonObject, old: JsonObject | None) -> None:
        """Refuse a write that a webhook denies."""
        if context := self._context(target):
            self._call_webhooks(target, context, "UPDATE" if old else "CREATE", new, old)

    def admit_deletion(self, target: Target, old: JsonObject, options: JsonObject) -> None:
        """Refuse a deletion that a webhook denies, also one that only sets the deletionTimestamp."""
        if context := self._context(target):
            delete_options: JsonObject = {"dryRun": ["All"]} if target.dry_run else {}
            delete_options |= {name: value for name, value in options.items() if name not in _NON_OPTION_FIELDS}
            self._call_webhooks(target, context, "DELETE", None, old, options=delete_options)

    def admit_subresource(
        self, target: Target, body: JsonObject, *, api_version: str, kind: str, old: JsonObject | None = None
    ) -> JsonObject:
        """Return the body sent to a subresource of another kind; refuse it if a webhook denies it."""
        if context := self._context(target):
            meta = {name: value for name, value in body["metadata"].items() if value} | {"namespace": target.namespace}
            body = body | {"apiVersion": api_version, "kind": kind, "metadata": meta}
            self._call_webhooks(target, context, "UPDATE" if old else "CREATE", body, old)
        return body

    def _context(self, target: Target) -> AdmissionContext | None:
        """Return the context of the write, or None if no webhook can apply."""
        return target.admission if self.has_webhooks and target.kind.group != _EXEMPT_GROUP else None

    def _call_webhooks(
        self,
        target: Target,
        context: AdmissionContext,
        operation: str,
        new: JsonObject | None,
        old: JsonObject | None,
        *,
        options: JsonObject | None = None,
    ) -> None:
        request = _request(target, context, operation, new, old) | {"options": options or context.options}
        namespace = self._namespace(target, new, old)
        matching = [(key, webhook) for key, webhook in self._webhooks() if webhook.matches(request, namespace)]
        encoded_request = msgspec.json.encode(request, order="sorted").decode() if matching else ""
        results = context.state.results
        missing = [
            webhook.new_call(f"{key} {encoded_request}", request, uid=self._new_uid())
            for key, webhook in matching
            if f"{key} {encoded_request}" not in results
        ]
        if missing:
            raise WebhookCallsNeeded(missing)
        errors: list[StatusError] = []
        for key, webhook in matching:
            try:
                webhook.apply_result(results[f"{key} {encoded_request}"], target.warnings)
            except StatusError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _webhooks(self) -> Iterator[tuple[str, Webhook]]:
        """Yield the webhooks with their keys, in the order of their configurations."""
        for name, configuration in sorted(self._store.current_objects(VALIDATING_WEBHOOK_CONFIGURATION).items()):
            yield from ((f"{name}/{index}", webhook) for index, webhook in enumerate(parse_webhooks(configuration)))

    def _namespace(self, target: Target, new: JsonObject | None, old: JsonObject | None) -> JsonObject | None:
        """Return the namespace of an object, or the object itself if it is one; the namespace need not exist here."""
        if target.kind is NAMESPACE:
            return new or old
        if not target.namespace:
            return None
        minimal = {"metadata": {"name": target.namespace, "labels": {_NAME_LABEL: target.namespace}}}
        return self._store.get(NAMESPACE, target.namespace) or minimal


def _request(
    target: Target, context: AdmissionContext, operation: str, new: JsonObject | None, old: JsonObject | None
) -> JsonObject:
    """Return the AdmissionRequest without uid and options."""
    kind, user, obj = target.kind, context.user, new or old or {}
    name = (target.name or obj["metadata"].get("name", "")) if context.is_named else ""
    group, _, version = obj.get("apiVersion", kind.api_version).rpartition("/")
    user_info = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": dict(user.extra)}
    gvk = {"group": group, "version": version, "kind": obj.get("kind", kind.kind)}
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    return {
        "kind": gvk,
        "resource": resource,
        "subResource": target.subresource,
        "requestKind": gvk,
        "requestResource": resource,
        "requestSubResource": target.subresource,
        "name": name,
        "namespace": name if kind is NAMESPACE else target.namespace,
        "operation": operation,
        "userInfo": {name: value for name, value in user_info.items() if value},
        "object": new,
        "oldObject": old,
        "dryRun": target.dry_run,
    }
