"""Admission: webhooks have a say before something is written.

The server answers at once and cannot wait for a webhook. So whoever reaches the admission point with an object that a
webhook wants to see raises `WebhookCallsNeeded`; the transport has the webhook asked and runs the request again. The
`Case` of the request remembers the verdicts, each under the webhook and all that it was told. An object that changed
meanwhile is another question, and is asked again, as a real server does after a conflict. A case also remembers what a
run drew by chance or read off the clock, so that each run makes the same object.

Configurations are in force as soon as they are written, and are not themselves subject to any.
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
    """Asks the webhooks of the configurations in a store; `new_uid` names a question."""

    def __init__(self, store: Store, *, new_uid: Callable[[], str]) -> None:
        self._store = store
        self._new_uid = new_uid

    @property
    def has_webhooks(self) -> bool:
        """Tell whether anybody has a say."""
        return bool(self._store.current_objects(VALIDATING_WEBHOOK_CONFIGURATION))

    def admit(self, target: Target, new: JsonObject, old: JsonObject | None) -> None:
        """Refuse what is about to be written if somebody does."""
        if context := self._context(target):
            self._call_webhooks(target, context, "UPDATE" if old else "CREATE", new, old)

    def admit_deletion(self, target: Target, old: JsonObject, options: JsonObject) -> None:
        """Refuse that an object goes, or begins to, if somebody does."""
        if context := self._context(target):
            delete_options: JsonObject = {"dryRun": ["All"]} if target.dry_run else {}
            delete_options |= {name: value for name, value in options.items() if name not in _NON_OPTION_FIELDS}
            self._call_webhooks(target, context, "DELETE", None, old, options=delete_options)

    def admit_subresource(
        self, target: Target, body: JsonObject, *, api_version: str, kind: str, old: JsonObject | None = None
    ) -> JsonObject:
        """Return what is sent to a subresource of another kind; refuse if somebody does."""
        if context := self._context(target):
            meta = {name: value for name, value in body["metadata"].items() if value} | {"namespace": target.namespace}
            body = body | {"apiVersion": api_version, "kind": kind, "metadata": meta}
            self._call_webhooks(target, context, "UPDATE" if old else "CREATE", body, old)
        return body

    def _context(self, target: Target) -> AdmissionContext | None:
        """Return who asks, None if nobody has a say."""
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
        """Yield the webhooks, each with what it is known by, in the order of their configurations."""
        for name, configuration in sorted(self._store.current_objects(VALIDATING_WEBHOOK_CONFIGURATION).items()):
            yield from ((f"{name}/{index}", webhook) for index, webhook in enumerate(parse_webhooks(configuration)))

    def _namespace(self, target: Target, new: JsonObject | None, old: JsonObject | None) -> JsonObject | None:
        """Return the namespace that an object is in, or is; here one need not exist."""
        if target.kind is NAMESPACE:
            return new or old
        if not target.namespace:
            return None
        minimal = {"metadata": {"name": target.namespace, "labels": {_NAME_LABEL: target.namespace}}}
        return self._store.get(NAMESPACE, target.namespace) or minimal


def _request(
    target: Target, context: AdmissionContext, operation: str, new: JsonObject | None, old: JsonObject | None
) -> JsonObject:
    """Return the AdmissionRequest, without its uid and its options."""
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
