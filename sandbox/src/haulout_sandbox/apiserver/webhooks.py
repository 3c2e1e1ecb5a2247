"""Admission webhooks: which they are, what they are told, and what is made of their answers.

Nothing here waits: a question is put by a `Caller` (in `webhook_callers`), and its answer comes back as a `Verdict`.
Only validating webhooks are asked; the configurations of others are kept and have no effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import msgspec

from haulout_sandbox.apiserver import cel, fields, status
from haulout_sandbox.apiserver.kinds import JsonObject, without_nulls
from haulout_sandbox.apiserver.selectors import structured
from haulout_sandbox.apiserver.status import Refused

_VARIABLES = ("object", "oldObject", "request")
_LEAST_REFUSAL = 400


class NeedsAdmission(Exception):
    """The server must hear these webhooks first."""

    def __init__(self, questions: Sequence["Question"]) -> None:
        self.questions = questions
        super().__init__(f"asking {', '.join(it.webhook for it in questions)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A call of a webhook."""

    key: str  # what its verdict is remembered under
    webhook: str
    client_config: JsonObject
    timeout: timedelta
    review: JsonObject


@dataclass(frozen=True, slots=True)
class Verdict:
    """The AdmissionReview that came back and the uid that it should name, or why there is none."""

    review: JsonObject | None = None
    uid: str = ""
    failure: str = ""


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    operations: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: Literal["*", "Cluster", "Namespaced"] = "*"

    def matches(self, request: JsonObject, *, in_namespace: bool) -> bool:
        resource = request["resource"]
        return (
            self.scope in ("*", "Namespaced" if in_namespace else "Cluster")
            and _has(self.operations, request["operation"])
            and _has(self.api_groups, resource["group"])
            and _has(self.api_versions, resource["version"])
            and any(_covers(it, resource["resource"], request["subResource"]) for it in self.resources)
        )


class _Condition(msgspec.Struct, frozen=True):
    expression: str

    def __post_init__(self) -> None:
        """Refuse a condition that cannot be compiled."""
        cel.compiled(self.expression, _VARIABLES)


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    """One webhook of a configuration."""

    name: str
    client_config: JsonObject
    admission_review_versions: tuple[str, ...]
    side_effects: Literal["None", "NoneOnDryRun", "Some", "Unknown"]
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    timeout_seconds: int = 10
    rules: tuple[_Rule, ...] = ()
    namespace_selector: JsonObject = {}
    object_selector: JsonObject = {}
    match_conditions: tuple[_Condition, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a webhook that cannot be called."""
        if "v1" not in self.admission_review_versions:
            raise ValueError("admissionReviewVersions must have v1")
        if ("url" in self.client_config) == ("service" in self.client_config):
            raise ValueError("clientConfig must have either url or service")

    def wants(self, request: JsonObject, namespace: JsonObject | None) -> bool:
        """Tell whether it is to be asked about a request; `namespace` is the one that it is in, or is about."""
        in_namespace = namespace is not None and request["resource"]["resource"] != "namespaces"
        if not any(rule.matches(request, in_namespace=in_namespace) for rule in self.rules):
            return False
        if namespace is not None and not structured(self.namespace_selector)(_labels(namespace)):
            return False
        objects = [it for it in (request["object"], request["oldObject"]) if it is not None]
        if not any(structured(self.object_selector)(_labels(it)) for it in objects):
            return False
        if not all(self._holds(it, request) for it in self.match_conditions):
            return False
        if request["dryRun"] and self.side_effects not in ("None", "NoneOnDryRun"):
            raise status.bad_request(f'admission webhook "{self.name}" does not support dry run')
        return True

    def _holds(self, condition: _Condition, request: JsonObject) -> bool:
        scope = {"object": request["object"], "oldObject": request["oldObject"], "request": request}
        try:
            return cel.compiled(condition.expression, _VARIABLES).evaluate(scope) is True
        except cel.CelError as error:
            raise _failed(self.name, f"{condition.expression}: {error}") from None

    def question(self, key: str, request: JsonObject, *, uid: str) -> Question:
        """Return the call that asks it; `uid` is new."""
        return Question(
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

    def respect(self, verdict: Verdict, warnings: list[str]) -> None:
        """Refuse if the webhook does, or if it does not answer and its author wants that to count."""
        response = (verdict.review or {}).get("response")
        if verdict.failure or not isinstance(response, dict) or response.get("uid") != verdict.uid:
            if self.failure_policy == "Ignore":
                return
            raise _failed(self.name, verdict.failure or "received invalid webhook response")
        warnings.extend(text for text in response.get("warnings") or () if isinstance(text, str) and text.isprintable())
        if not response.get("allowed"):
            raise Refused(_denial(self.name, response.get("status")))


def check(configuration: JsonObject) -> None:
    """Refuse a configuration that cannot be put in force."""
    try:
        parsed(configuration)
    except msgspec.ValidationError as error:
        name = configuration["metadata"].get("name", "")
        cause = fields.invalid("webhooks", fields.OMIT, str(error))
        raise status.invalid("admissionregistration.k8s.io", configuration["kind"], name, [cause]) from None


def parsed(configuration: JsonObject) -> list[Webhook]:
    """Return the webhooks of a configuration; raise `msgspec.ValidationError` for what is none."""
    return msgspec.convert(without_nulls(configuration.get("webhooks") or []), list[Webhook])


def _labels(obj: JsonObject) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def _has(items: Sequence[str], wanted: str) -> bool:
    return "*" in items or wanted in items


def _covers(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, sub = pattern.partition("/")
    return resource in ("*", plural) and sub in ("*", subresource)


def _denial(webhook: str, said: Any) -> JsonObject:
    """Return the Status of a refusal: the webhook's own, made to be one."""
    said = said if isinstance(said, dict) else {}
    refused = f'admission webhook "{webhook}" denied the request'
    message, reason = said.get("message") or "", said.get("reason") or ""
    message = f"{refused}: {message or reason}" if message or reason else f"{refused} without explanation"
    code = said.get("code")
    code = code if isinstance(code, int) and code >= _LEAST_REFUSAL else _LEAST_REFUSAL
    return status.failure(code, reason, message, said.get("details"))


def _failed(webhook: str, why: str) -> Refused:
    message = f'failed calling webhook "{webhook}": {why}'
    details = {"causes": [{"message": message}]}
    return Refused(status.failure(500, "InternalError", f"Internal error occurred: {message}", details))
