"""The inbox, where the kind of object is missing."""

from datetime import UTC, datetime

import pytest

from haulout.api.notice_reports import NoticeReport
from haulout.core.clock import Clock
from haulout.errors import NotFound
from haulout.providers.notice_writer import NoticeWriter
from support.clusters.backends import SandboxBackend


async def test_without_the_definition_a_report_is_an_error_and_not_waited_for_in_silence(clock: Clock) -> None:
    inbox = NoticeWriter(await SandboxBackend(clock).client())
    with pytest.raises(NotFound):
        await inbox.write(
            NoticeReport(source="oci", notice_id="e1", at=datetime(2026, 4, 2, tzinfo=UTC), provider_id="i")
        )
