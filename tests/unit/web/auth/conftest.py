"""What tests of access to the dashboard share."""

from types import SimpleNamespace
from typing import Any

import pytest

from haulout.web.auth import rate_limits
from haulout.web.auth.buckets import Buckets


@pytest.fixture
def no_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no bucket of a rate limit fill again, however long the machine takes for the requests of a test."""
    still: Any = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(rate_limits, "Buckets", lambda _, **more: Buckets(still, **more))
