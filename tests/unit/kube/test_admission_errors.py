"""The admission policy or webhook that refused a write is read from the server's error message."""

import pytest

from haulout.api.objects import Status
from haulout.errors import (
    AdmissionDenied,
    AdmissionWebhookUnavailable,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    ServerFailure,
)
from haulout.kube.responses import admission_failure_of, condition_reason, error_from_status

POLICY = """nodes "n1" is forbidden: ValidatingAdmissionPolicy 'freeze' with binding 'all' denied request: not now"""
WEBHOOK = 'admission webhook "guard.example.com" denied the request: not now'
DEAD = (
    'Internal error occurred: failed calling webhook "guard.example.com": failed to call webhook: '
    'Post "https://guard.shop.svc:443/?timeout=2s": dial tcp 10.0.0.1:443: connect: connection refused'
)


@pytest.mark.parametrize(
    ("code", "message", "base_type", "denied_by"),
    [
        (422, POLICY, Invalid, "ValidatingAdmissionPolicy freeze"),
        (403, POLICY, Forbidden, "ValidatingAdmissionPolicy freeze"),
        (400, WEBHOOK, BadRequest, "webhook guard.example.com"),
        (403, WEBHOOK, Forbidden, "webhook guard.example.com"),
        (418, WEBHOOK, ApiError, "webhook guard.example.com"),
    ],
)
def test_denial_by_policy_or_webhook_is_admission_denied_and_keeps_the_type_of_its_code(
    code: int, message: str, base_type: type[ApiError], denied_by: str
) -> None:
    error = error_from_status(Status(code=code, message=message), doing="patching nodes n1")
    assert isinstance(error, AdmissionDenied)
    assert isinstance(error, base_type)
    found = admission_failure_of(error)
    assert found is not None
    assert (found.object, found.message) == (denied_by, "not now")
    assert found.advice
    assert condition_reason(error) == "AdmissionDenied"
    assert str(error) == f"patching nodes n1: {message}"


def test_webhook_that_does_not_answer_is_named_in_admission_webhook_unavailable() -> None:
    error = error_from_status(Status(code=500, reason="InternalError", message=DEAD))
    assert isinstance(error, AdmissionWebhookUnavailable)
    found = admission_failure_of(error)
    assert found is not None
    assert found.object == "webhook guard.example.com"
    assert "connection refused" in found.message
    assert condition_reason(error) == "AdmissionWebhookUnavailable"


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (403, 'nodes "n1" is forbidden: User "x" cannot patch resource "nodes"', Forbidden),
        (500, "etcdserver: request timed out", ServerFailure),
        (409, WEBHOOK, Conflict),
        (403, DEAD, Forbidden),  # a name or a message that quotes these words
    ],
)
def test_other_errors_keep_the_type_of_their_code_and_are_no_admission_failure(
    code: int, message: str, kind: type[ApiError]
) -> None:
    error = error_from_status(Status(code=code, message=message))
    assert type(error) is kind
    assert admission_failure_of(error) is None
    assert condition_reason(error) == ""
