"""AdmissionReviews: the request of an API server to a webhook, and our response.

An API server always sends a valid review. Any other client that reaches the port may send anything: its input is
validated first, and it gets a short text that says what is wrong.
"""

from typing import Any

import msgspec

from haulout.api.objects import Base, RawObject
from haulout.controllers.nodemaintenance.admission import AdmissionResult

_API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
_FORBIDDEN = 403


class InvalidReview(ValueError):
    """The body is not an AdmissionReview with a request; the message is for the sender."""


class AdmissionRequest(Base, frozen=True):
    """The fields of an AdmissionRequest that the webhook reads."""

    uid: str
    operation: str
    object: Any = None
    old_object: Any = None
    dry_run: bool | None = None


class _Review(Base, frozen=True):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


def parse_request(body: bytes | RawObject) -> AdmissionRequest:
    """Return the request of an AdmissionReview; raise `InvalidReview` if there is none."""
    try:
        review = msgspec.convert(body, _Review) if isinstance(body, dict) else msgspec.json.decode(body, type=_Review)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidReview(f"expected an {_KIND} in JSON: {error}") from None
    if (review.api_version, review.kind) != (_API_VERSION, _KIND):
        found = f"{review.kind or 'no kind'} of {review.api_version or 'no version'}"
        raise InvalidReview(f"expected an {_KIND} of {_API_VERSION}, found {found}")
    if review.request is None:
        raise InvalidReview(f"expected an {_KIND} with a request, found none")
    return review.request


def build_response(request: AdmissionRequest, decision: AdmissionResult) -> RawObject:
    """Return the AdmissionReview that answers a request."""
    response: RawObject = {"uid": request.uid, "allowed": decision.refusal is None}
    if decision.refusal is not None:
        status = {"status": "Failure", "message": decision.refusal, "reason": "Forbidden", "code": _FORBIDDEN}
        response["status"] = status
    if decision.warnings:
        response["warnings"] = list(decision.warnings)
    return {"apiVersion": _API_VERSION, "kind": _KIND, "response": response}
