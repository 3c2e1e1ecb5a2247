"""Recognizes errors of admission policies and webhooks by the text of the API server's message.

A Status has no field for that. The texts are those of `ToStatusErr` and `newFailedWebhookError` in
staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook, and of the dispatcher in plugin/policy/validating. A message
with another text is not recognized.
"""

import re
from dataclasses import dataclass

from haulout import errors
from haulout.errors import ApiError

_DENIED_BY_WEBHOOK = re.compile(r'admission webhook "(?P<name>[^"]+)" denied the request(: )?(?P<says>.*)')
_DENIED_BY_POLICY = re.compile(
    r"ValidatingAdmissionPolicy '(?P<name>[^']+)' with binding '(?P<binding>[^']+)' denied request: (?P<says>.*)"
)
_UNAVAILABLE = re.compile(r'failed calling webhook "(?P<name>[^"]+)": (?P<says>.*)')
_DENIED: dict[type[ApiError], type[ApiError]] = {
    ApiError: errors.AdmissionDenied,
    errors.BadRequest: errors.BadRequestByAdmission,
    errors.Forbidden: errors.ForbiddenByAdmission,
    errors.Invalid: errors.InvalidByAdmission,
}


@dataclass(frozen=True, slots=True)
class AdmissionFailure:
    """The admission policy or webhook that prevents a write."""

    object: str  # for example `ValidatingAdmissionPolicy no-drains`
    message: str
    advice: str


def error_type(kind: type[ApiError], message: str) -> type[ApiError]:
    """Return the error type for this message. `kind` is the type that the status code alone implies."""
    if _DENIED_BY_WEBHOOK.search(message) or _DENIED_BY_POLICY.search(message):
        return _DENIED.get(kind, kind)
    if kind is errors.ServerFailure and _UNAVAILABLE.search(message):
        return errors.AdmissionWebhookUnavailable
    return kind


def admission_failure_of(error: BaseException) -> AdmissionFailure | None:
    """Return the policy or webhook that caused an error; None if neither did."""
    if not isinstance(error, errors.AdmissionDenied | errors.AdmissionWebhookUnavailable):
        return None
    if denied := _DENIED_BY_POLICY.search(error.message):
        advice = f"change it or its binding {denied['binding']}, or exempt the operator from it"
        return AdmissionFailure(f"ValidatingAdmissionPolicy {denied['name']}", denied["says"], advice)
    if denied := _DENIED_BY_WEBHOOK.search(error.message):
        advice = "ask the owner of the webhook, or exempt the operator from it"
        return AdmissionFailure(f"webhook {denied['name']}", denied["says"], advice)
    if unavailable := _UNAVAILABLE.search(error.message):
        advice = "repair its Service and pods, or delete its webhook configuration"
        return AdmissionFailure(f"webhook {unavailable['name']}", f"it does not answer: {unavailable['says']}", advice)
    return None


def condition_reason(error: BaseException) -> str:
    """Return the reason of an error for conditions and events; empty if it has no reason of its own."""
    return error.REASON if isinstance(error, errors.AdmissionDenied | errors.AdmissionWebhookUnavailable) else ""
