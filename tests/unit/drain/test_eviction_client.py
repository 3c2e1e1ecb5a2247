"""Responses to eviction requests."""

import pytest

from haulout.drain.eviction_client import is_gone
from haulout.errors import AlreadyExists, Conflict, KubeError, NotFound, ServerFailure, Unreachable

EVICTED = "the UID in the precondition (a) does not match the UID in record (b). The object might have been deleted"
STORED = "AdditionalErrorMsg: Precondition failed: UID in precondition: a, UID in object meta: b"


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (NotFound('pods "cart-0" not found', code=404), True),
        (Conflict(f'Operation cannot be fulfilled on Pod "cart-0": {EVICTED}', code=409), True),
        (Conflict(f'Operation cannot be fulfilled on pods "cart-0": StorageError: {STORED}', code=409), True),
        (Conflict("the object has been modified; please apply your changes to the latest version", code=409), False),
        (AlreadyExists("taken", code=409), False),
        (ServerFailure("no", code=500), False),
        (Unreachable("nobody there", sent=True), False),
    ],
)
def test_pod_is_gone_if_it_is_not_found_or_has_another_uid(error: KubeError, *, gone: bool) -> None:
    assert is_gone(error) is gone
