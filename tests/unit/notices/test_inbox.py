"""The inbox, where the kind of object is missing."""

from datetime import UTC, datetime

import pytest

from haulout.core.clock import Clock
from haulout.errors import NotFound
from haulout.kinds.reports import Report
from haulout.notices.inbox import Inbox
from support.backends import Sandbox


async def test_without_the_definition_a_report_is_an_error_and_not_waited_for_in_silence(clock: Clock) -> None:
    inbox = Inbox(await Sandbox(clock).client())
    with pytest.raises(NotFound):
        await inbox.take(Report(source="oci", notice_id="e1", at=datetime(2026, 4, 2, tzinfo=UTC), provider_id="i"))
