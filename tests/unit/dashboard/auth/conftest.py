"""Fixtures for tests of dashboard access."""

from types import SimpleNamespace
from typing import Any

import pytest

from haulout.dashboard.auth import rate_limits
from haulout.dashboard.auth.rate_limits import TokenBuckets


@pytest.fixture
def no_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the refill of rate limit buckets, so that a slow machine does not change the result."""
    still: Any = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(rate_limits, "TokenBuckets", lambda _, **more: TokenBuckets(still, **more))
