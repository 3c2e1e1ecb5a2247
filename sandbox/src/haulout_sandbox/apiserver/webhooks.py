"""Admission webhooks: what they are told, and what is made of their answers.

Follows `apiserver/pkg/admission/plugin/webhook` of Kubernetes 1.36, down to the words. Nothing here waits: a question
is put by a `Caller` (in `webhook_callers`), and its answer comes back as a `Verdict`.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.admission_cel import Expression, scope_of
from haulout_sandbox.apiserver.changes import Change, admission_request
from haulout_sandbox.apiserver.decoding import Misfit, fitted_as
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.matching import Conditions, ConditionsFailed, Criteria
from haulout_sandbox.apiserver.patches import JSON_PATCH
from haulout_sandbox.apiserver.patches import patched as json_patched
from haulout_sandbox.apiserver.rbac import refusal
from haulout_sandbox.apiserver.status import Refused

_REVIEW = "AdmissionReview"
_VERSIONS = ("v1", "v1beta1")
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


@dataclass(frozen=True, slots=True)
class Told:
    """What one webhook is told about a change."""

    change: Change
    seen: Change
    _keys: dict[str, str] = field(default_factory=dict)

    @property
    def request(self) -> JsonObject:
        """Return the AdmissionRequest, but for its uid."""
        return admission_request(self.change, self.seen)

    def key(self, webhook: "Webhook") -> str:
        """Return what a verdict is remembered under: who was told, and everything that he was told."""
        if webhook.id not in self._keys:
            self._keys[webhook.id] = f"{webhook.id} {msgspec.json.encode(self.request, order='sorted').decode()}"
        return self._keys[webhook.id]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Webhook:
    """One webhook of a configuration."""

    id: str
    raw: JsonObject
    is_mutating: bool
    criteria: Criteria
    conditions: Conditions

    @property
    def name(self) -> str:
        """Return its name, which need not be unique."""
        name: str = self.raw["name"]
        return name

    @property
    def fails_open(self) -> bool:
        """Tell whether a webhook that cannot be asked is passed over."""
        return bool(self.raw.get("failurePolicy") == "Ignore")

    @property
    def reinvokes(self) -> bool:
        """Tell whether it wants to see what later webhooks change."""
        return bool(self.raw.get("reinvocationPolicy") == "IfNeeded")

    @property
    def version(self) -> str:
        """Return the version of AdmissionReview that it understands, the first that the server knows."""
        return next((it for it in self.raw.get("admissionReviewVersions") or () if it in _VERSIONS), "")

    def wants(self, change: Change, namespace: JsonObject | None, kinds: Iterable[Kind]) -> Told | None:
        """Return what it is told about the change, None if it does not want to know."""
        seen = self.criteria.seen(change, namespace, kinds)
        if seen is None:
            return None
        try:
            if not self.conditions.hold(scope_of(change, seen) if self.conditions.expressions else {}):
                return None
        except ConditionsFailed as problem:
            raise Refused(refusal(change.kind.group, change.kind.plural, change.name, str(problem))) from None
        if change.dry_run and self.raw.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise status.bad_request(f'admission webhook "{self.name}" does not support dry run')
        return Told(change, seen)


def parsed(configuration: JsonObject) -> Iterator[Webhook]:
    """Yield the webhooks of a configuration."""
    is_mutating = configuration["kind"] == "MutatingWebhookConfiguration"
    for index, raw in enumerate(configuration.get("webhooks") or ()):
        expressions = [Expression(it["expression"]) for it in raw.get("matchConditions") or ()]
        yield Webhook(
            id=f"{configuration['kind']}/{configuration['metadata']['name']}/{index}",
            raw=raw,
            is_mutating=is_mutating,
            criteria=Criteria({"rules": []} | raw),
            conditions=Conditions(expressions, fails_open=raw.get("failurePolicy") == "Ignore"),
        )


def question(webhook: Webhook, told: Told, *, uid: str) -> Question:
    """Return the call that asks `webhook`; `uid` is new."""
    request = {"uid": uid} | told.request
    return Question(
        key=told.key(webhook),
        webhook=webhook.name,
        client_config=webhook.raw["clientConfig"],
        timeout=timedelta(seconds=webhook.raw.get("timeoutSeconds", 10)),
        review={"kind": _REVIEW, "apiVersion": f"admission.k8s.io/{webhook.version}", "request": request},
    )


def respect(webhook: Webhook, told: Told, verdict: Verdict, warnings: list[str]) -> JsonObject | None:
    """Refuse if the webhook does; return its response, None if it is passed over since it could not be asked."""
    try:
        response = _response(webhook, verdict)
        patch = _patch(response) if webhook.is_mutating else []
    except _CallFailed as problem:
        if webhook.fails_open:
            return None
        raise _internal_error(f'failed calling webhook "{webhook.name}": {problem}') from None
    warnings.extend(text for text in response.get("warnings") or () if isinstance(text, str) and text.isprintable())
    if not response.get("allowed"):
        raise Refused(_denial(webhook.name, response.get("status")))
    if patch and told.seen.obj is None:
        said = "attempted to modify the object, which is not supported for this operation"
        raise _internal_error(f'admission webhook "{webhook.name}" {said}')
    return response | {"patch": patch}


def patched(webhook: Webhook, told: Told, verdict: Verdict, warnings: list[str]) -> JsonObject | None:
    """Return what the webhook makes of the object, None if it leaves it alone; refuse if it does."""
    response = respect(webhook, told, verdict, warnings)
    if response is None or not response["patch"] or told.seen.obj is None:
        return None
    new: JsonObject = msgspec.json.decode(msgspec.json.encode(told.seen.obj))
    for operation in response["patch"]:
        try:
            new = json_patched(new, msgspec.json.encode([operation]), JSON_PATCH)
        except Refused:
            raise _internal_error(_does_not_apply(operation)) from None
    try:
        new = fitted_as(told.seen.api_version, told.seen.object_kind, new).obj
    except Misfit as misfit:
        raise _internal_error(str(misfit)) from None
    if not isinstance(new.get("metadata"), dict):
        raise _internal_error("the patched object has no metadata")
    return new


class _CallFailed(Exception):
    """The webhook said nothing that can be used."""


def _response(webhook: Webhook, verdict: Verdict) -> JsonObject:
    if verdict.failure:
        raise _CallFailed(f"failed to call webhook: {verdict.failure}")
    review = verdict.review or {}
    version, kind = str(review.get("apiVersion") or ""), str(review.get("kind") or "")
    known = [f"admission.k8s.io/{it}" for it in _VERSIONS]
    if kind and (kind != _REVIEW or version not in known):
        said = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        raise _CallFailed(f"failed to call webhook: {said}")
    if kind and version != f"admission.k8s.io/{webhook.version}":
        said = f"converting ({version.rpartition('/')[2]}.{_REVIEW}) to ({webhook.version}.{_REVIEW})"
        raise _CallFailed(f"failed to call webhook: {said}: unknown conversion")
    response = review.get("response")
    if not isinstance(response, dict):
        raise _CallFailed("received invalid webhook response: webhook response was absent")
    if webhook.version == "v1" and (problem := _problem(webhook, response, verdict.uid)):
        raise _CallFailed(f"received invalid webhook response: {problem}")
    return response


def _problem(webhook: Webhook, response: JsonObject, uid: str) -> str:
    if response.get("uid", "") != uid:
        return f'expected response.uid="{uid}", got "{response.get("uid", "")}"'
    patch, kind = response.get("patch"), response.get("patchType")
    if not webhook.is_mutating:
        given = "patch" if patch else "patchType" if kind is not None else ""
        return f"validating webhook may not return response.{given}" if given else ""
    if patch and kind is None:
        return "webhook returned response.patch but not response.patchType"
    if not patch and kind is not None:
        return "webhook returned response.patchType but not response.patch"
    return 'webhook returned invalid response.patchType of ""' if kind == "" else ""


def _patch(response: JsonObject) -> list[JsonObject]:
    """Return the operations of a patch."""
    if not response.get("patch") or not response.get("allowed"):
        return []
    try:
        operations = msgspec.json.decode(base64.b64decode(response["patch"]))
    except (msgspec.DecodeError, binascii.Error, TypeError, ValueError) as error:
        raise _CallFailed(f"received undecodable patch in webhook response: {error}") from None
    if not isinstance(operations, list) or not all(isinstance(it, dict) for it in operations):
        said = "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        raise _CallFailed(f"received undecodable patch in webhook response: {said}")
    if operations and response.get("patchType", "JSONPatch") != "JSONPatch":
        raise _CallFailed(f'unsupported patch type "{response["patchType"]}"')
    return operations


def _denial(webhook: str, said: Any) -> JsonObject:
    """Return the Status of a refusal: the webhook's own, made to be one."""
    said = said if isinstance(said, dict) else {}
    refused = f'admission webhook "{webhook}" denied the request'
    message, reason = said.get("message") or "", said.get("reason") or ""
    message = f"{refused}: {message or reason}" if message or reason else f"{refused} without explanation"
    code = said.get("code")
    code = code if isinstance(code, int) and code >= _LEAST_REFUSAL else _LEAST_REFUSAL
    return status.failure(code, reason, message, said.get("details"))


def _does_not_apply(operation: JsonObject) -> str:
    name, path = operation.get("op"), operation.get("path")
    if name == "test":
        return f"testing value {path} failed: test failed"
    return f'{name} operation does not apply: doc is missing path: "{path}": missing value'


def _internal_error(message: str) -> Refused:
    details = {"causes": [{"message": message}]}
    return Refused(status.failure(500, "InternalError", f"Internal error occurred: {message}", details))
