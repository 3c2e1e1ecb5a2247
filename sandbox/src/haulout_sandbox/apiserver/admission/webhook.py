"""Validating admission webhooks: configuration, matching, requests and responses.

Nothing here waits: a `WebhookClient` (in `webhook_client`) makes the call, and the response comes back as a
`WebhookResult`. Only validating webhooks are called. Configurations of mutating webhooks are stored and have no effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import msgspec

from haulout_sandbox.apiserver import field_errors, status
from haulout_sandbox.apiserver.kinds.kind import JsonObject, without_nulls
from haulout_sandbox.apiserver.selectors import from_label_selector
from haulout_sandbox.apiserver.status import StatusError

_MIN_ERROR_CODE = 400


class WebhookCallsNeeded(Exception):
    """The server needs the results of these webhook calls before it can continue."""

    def __init__(self, calls: Sequence["WebhookCall"]) -> None:
        self.calls = calls
        super().__init__(f"asking {', '.join(call.webhook for call in calls)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCall:
    key: str  # the key under which the result is stored
    webhook: str
    client_config: JsonObject
    timeout: timedelta
    review: JsonObject


@dataclass(frozen=True, slots=True)
class WebhookResult:
    """The AdmissionReview that the webhook returned and the uid it must have, or why the call failed."""

    review: JsonObject | None = None
    uid: str = ""
    failure: str = ""


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    operations: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: Literal["*", "Cluster", "Namespaced"] = "*"

    def matches(self, request: JsonObject, *, is_namespaced: bool) -> bool:
        resource = request["resource"]
        return (
            self.scope in ("*", "Namespaced" if is_namespaced else "Cluster")
            and _matches_any(self.operations, request["operation"])
            and _matches_any(self.api_groups, resource["group"])
            and _matches_any(self.api_versions, resource["version"])
            and any(
                _resource_matches(pattern, resource["resource"], request["subResource"]) for pattern in self.resources
            )
        )


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: JsonObject
    admission_review_versions: tuple[str, ...]
    side_effects: Literal["None", "NoneOnDryRun", "Some", "Unknown"]
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    timeout_seconds: int = 10
    rules: tuple[_Rule, ...] = ()
    namespace_selector: JsonObject = {}
    object_selector: JsonObject = {}
    match_conditions: tuple[JsonObject, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a webhook that cannot be called."""
        if "v1" not in self.admission_review_versions:
            raise ValueError("admissionReviewVersions must have v1")
        if ("url" in self.client_config) == ("service" in self.client_config):
            raise ValueError("clientConfig must have either url or service")
        if self.match_conditions:
            raise ValueError("the sandbox has no matchConditions")

    def matches(self, request: JsonObject, namespace: JsonObject | None) -> bool:
        """Return whether the webhook applies to a request.

        `namespace` is the namespace of the object, or the object itself if it is a Namespace; None if cluster-scoped.
        """
        is_namespaced = namespace is not None and request["resource"]["resource"] != "namespaces"
        if not any(rule.matches(request, is_namespaced=is_namespaced) for rule in self.rules):
            return False
        if namespace is not None and not from_label_selector(self.namespace_selector)(_labels(namespace)):
            return False
        objects = [item for item in (request["object"], request["oldObject"]) if item is not None]
        if not any(from_label_selector(self.object_selector)(_labels(item)) for item in objects):
            return False
        if request["dryRun"] and self.side_effects not in ("None", "NoneOnDryRun"):
            raise status.bad_request(f'admission webhook "{self.name}" does not support dry run')
        return True

    def new_call(self, key: str, request: JsonObject, *, uid: str) -> WebhookCall:
        """Return the call for this request; `uid` must be new."""
        return WebhookCall(
            key=key,
            webhook=self.name,
            client_config=self.client_config,
            timeout=timedelta(seconds=self.timeout_seconds),
            review={
                "kind": "AdmissionReview",
                "apiVersion": "admission.k8s.io/v1",
                "request": {"uid": uid} | {name: value for name, value in request.items() if value != ""},
            },
        )

    def apply_result(self, result: WebhookResult, warnings: list[str]) -> None:
        """Raise if the webhook denies the request, or if it fails and its failurePolicy is Fail."""
        response = (result.review or {}).get("response")
        if result.failure or not isinstance(response, dict) or response.get("uid") != result.uid:
            if self.failure_policy == "Ignore":
                return
            raise _call_error(self.name, result.failure or "received invalid webhook response")
        warnings.extend(text for text in response.get("warnings") or () if isinstance(text, str) and text.isprintable())
        if not response.get("allowed"):
            raise StatusError(_denial_status(self.name, response.get("status")))


def validate(configuration: JsonObject) -> None:
    try:
        parse_webhooks(configuration)
    except msgspec.ValidationError as error:
        name = configuration["metadata"].get("name", "")
        cause = field_errors.invalid("webhooks", field_errors.OMITTED, str(error))
        raise status.invalid("admissionregistration.k8s.io", configuration["kind"], name, [cause]) from None


def parse_webhooks(configuration: JsonObject) -> list[Webhook]:
    """Return the webhooks of a configuration; raise `msgspec.ValidationError` if it is invalid."""
    return msgspec.convert(without_nulls(configuration.get("webhooks") or []), list[Webhook])


def _labels(obj: JsonObject) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _matches_any(items: Sequence[str], value: str) -> bool:
    return "*" in items or value in items


def _resource_matches(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, sub = pattern.partition("/")
    return resource in ("*", plural) and sub in ("*", subresource)


def _denial_status(webhook: str, webhook_status: Any) -> JsonObject:
    """Return the Status of a denial: the webhook's own, completed where it lacks fields."""
    webhook_status = webhook_status if isinstance(webhook_status, dict) else {}
    denial = f'admission webhook "{webhook}" denied the request'
    message, reason = webhook_status.get("message") or "", webhook_status.get("reason") or ""
    message = f"{denial}: {message or reason}" if message or reason else f"{denial} without explanation"
    code = webhook_status.get("code")
    code = code if isinstance(code, int) and code >= _MIN_ERROR_CODE else _MIN_ERROR_CODE
    return status.failure_status(code, reason, message, webhook_status.get("details"))


def _call_error(webhook: str, detail: str) -> StatusError:
    message = f'failed calling webhook "{webhook}": {detail}'
    details = {"causes": [{"message": message}]}
    return StatusError(status.failure_status(500, "InternalError", f"Internal error occurred: {message}", details))
