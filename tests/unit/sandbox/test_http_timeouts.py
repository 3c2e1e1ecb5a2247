"""On a fast clock, those who call have the time that they would have of a real server."""

import pytest

from haulout_sandbox.https_server import HttpTimeouts


@pytest.mark.parametrize(("timeout", "scaled"), [("30", "1800"), ("", "216000"), ("0", "216000"), ("x", "x")])
def test_a_watch_lasts_its_timeout_on_the_clock_of_the_client(timeout: str, scaled: str) -> None:
    query = (("watch", "1"), ("timeoutSeconds", timeout))
    assert dict(HttpTimeouts(60).scale_watch_timeout(query))["timeoutSeconds"] == scaled
    assert HttpTimeouts(1).scale_watch_timeout(query) == query


def test_connections_have_as_long() -> None:
    real, fast = HttpTimeouts(1), HttpTimeouts(60)
    assert (fast.idle, fast.handshake, fast.shutdown) == (60 * real.idle, 60 * real.handshake, 60 * real.shutdown)
