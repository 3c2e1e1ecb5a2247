"""On a fast clock, those who call have the time that they would have of a real server."""

import pytest

from haulout_sandbox.patience import Patience


@pytest.mark.parametrize(("told", "lasts"), [("30", "1800"), ("", "216000"), ("0", "216000"), ("x", "x")])
def test_a_watch_lasts_as_long_for_who_watches(told: str, lasts: str) -> None:
    asked = (("watch", "1"), ("timeoutSeconds", told))
    assert dict(Patience(60).watching(asked))["timeoutSeconds"] == lasts
    assert Patience(1).watching(asked) == asked


def test_connections_have_as_long() -> None:
    life, fast = Patience(1), Patience(60)
    assert (fast.idle, fast.handshake, fast.farewell) == (60 * life.idle, 60 * life.handshake, 60 * life.farewell)
