"""The notice writer on a cluster without the CRD."""

from datetime import UTC, datetime

import pytest

from haulout.api.notice_reports import NoticeReport
from haulout.core.clock import Clock
from haulout.errors import NotFound
from haulout.providers.notice_writer import NoticeWriter
from support.clusters.backends import SandboxBackend


async def test_writing_a_report_without_the_crd_raises_not_found(clock: Clock) -> None:
    inbox = NoticeWriter(await SandboxBackend(clock).client())
    with pytest.raises(NotFound):
        await inbox.write(
            NoticeReport(source="oci", notice_id="e1", at=datetime(2026, 4, 2, tzinfo=UTC), provider_id="i")
        )
