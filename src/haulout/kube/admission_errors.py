"""Which admission policy or webhook is behind an answer of the API server, by the words that the server uses for it.

A Status has no field for that. The words are those of `ToStatusErr` and `newFailedWebhookError` in
staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook, and of the dispatcher in plugin/policy/validating. An answer
with other words is none of these.
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
    """Who stands in the way of a write."""

    object: str  # such as `ValidatingAdmissionPolicy no-drains`
    message: str
    advice: str


def error_type(kind: type[ApiError], message: str) -> type[ApiError]:
    """Return the type of the error with this message, which would be a `kind` by its status code alone."""
    if _DENIED_BY_WEBHOOK.search(message) or _DENIED_BY_POLICY.search(message):
        return _DENIED.get(kind, kind)
    if kind is errors.ServerFailure and _UNAVAILABLE.search(message):
        return errors.AdmissionWebhookUnavailable
    return kind


def admission_failure_of(error: BaseException) -> AdmissionFailure | None:
    """Return who is behind an error; None if that is no admission policy or webhook."""
    if not isinstance(error, errors.AdmissionDenied | errors.AdmissionWebhookUnavailable):
        return None
    if denied := _DENIED_BY_POLICY.search(error.message):
        advice = f"change it or its binding {denied['binding']}, or exempt the operator from it"
        return AdmissionFailure(f"ValidatingAdmissionPolicy {denied['name']}", denied["says"], advice)
    if denied := _DENIED_BY_WEBHOOK.search(error.message):
        advice = "ask those who run the webhook, or exempt the operator from it"
        return AdmissionFailure(f"webhook {denied['name']}", denied["says"], advice)
    if unavailable := _UNAVAILABLE.search(error.message):
        advice = "repair its Service and pods, or delete its webhook configuration"
        return AdmissionFailure(f"webhook {unavailable['name']}", f"it does not answer: {unavailable['says']}", advice)
    return None


def condition_reason(error: BaseException) -> str:
    """Return the word for an error in conditions and events; empty if it needs none of its own."""
    return error.REASON if isinstance(error, errors.AdmissionDenied | errors.AdmissionWebhookUnavailable) else ""
