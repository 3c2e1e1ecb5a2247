"""What tests of access to the dashboard share."""

from types import SimpleNamespace
from typing import Any

import pytest

from haulout.dashboard.auth import rate_limits
from haulout.dashboard.auth.rate_limits import TokenBuckets


@pytest.fixture
def no_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no bucket of a rate limit fill again, however long the machine takes for the requests of a test."""
    still: Any = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(rate_limits, "TokenBuckets", lambda _, **more: TokenBuckets(still, **more))
