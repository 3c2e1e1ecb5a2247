"""Notices: all reports about one event become one object."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, NoticeStage, definition
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.api.objects import RawObject
from haulout.errors import Invalid
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.providers.notice_writer import NoticeWriter
from support.clusters.backends import ClusterBackend
from support.clusters.crd_installation import install_crd

START = datetime(2026, 4, 16, 2, tzinfo=UTC)
REPORTED_AT = START - timedelta(days=14)


def report(
    notice: str, *, minute: int = 0, stage: NoticeStage = NoticeStage.SCHEDULED, start: datetime | None = None
) -> NoticeReport:
    plan = start and MaintenancePlan(
        kind=MaintenanceKind.REBOOT, start=start, end=start + timedelta(hours=2), reschedulable=True
    )
    return NoticeReport(
        source="oci",
        notice_id=notice,
        at=REPORTED_AT + timedelta(minutes=minute),
        provider_id="ocid1.instance.oc1.fra.a",
        stage=stage,
        plan=plan or None,
    )


async def a_client(cluster: ClusterBackend) -> Client:
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    return client


async def test_report_creates_a_notice(cluster: ClusterBackend) -> None:
    client = await a_client(cluster)
    await NoticeWriter(client).write(report("one", start=START))
    found = await client.get(MAINTENANCE_NOTICES, "oci-one")
    assert (found.spec.kind, found.spec.start, found.spec.stage) == (
        MaintenanceKind.REBOOT,
        START,
        NoticeStage.SCHEDULED,
    )
    assert found.spec.reschedulable
    assert found.spec.reported_at == REPORTED_AT


async def test_repeated_report_writes_nothing(cluster: ClusterBackend) -> None:
    client = await a_client(cluster)
    first = await NoticeWriter(client).write(report("again", start=START))
    again = await NoticeWriter(client).write(report("again", start=START))
    assert again.resource_version == first.resource_version


async def test_notes_are_annotations_and_foreign_annotations_are_kept(cluster: ClusterBackend) -> None:
    client = await a_client(cluster)
    writer = NoticeWriter(client)
    await writer.write(replace(report("noted", start=START), notes={"haulout.dev/one": "1"}))
    mark = merge_patch({"metadata": {"annotations": {"example.com/theirs": "yes"}}})
    await client.patch(MAINTENANCE_NOTICES, "oci-noted", mark)
    await writer.write(replace(report("noted"), notes={"haulout.dev/two": "2"}))
    last = await writer.write(replace(report("noted"), notes={"haulout.dev/one": "1"}))
    assert last.metadata.annotations == {"haulout.dev/one": "1", "haulout.dev/two": "2", "example.com/theirs": "yes"}


async def test_concurrent_reports_in_any_order_converge_on_one_notice(cluster: ClusterBackend) -> None:
    reports = [
        report("many", start=START),
        report("many", minute=5, start=START + timedelta(days=1)),
        report("many", minute=9, start=START + timedelta(hours=5)),
        report("many", minute=20, stage=NoticeStage.STARTED),
        report("many", minute=30, stage=NoticeStage.ENDED),
    ]
    random = Random(7)
    client = await a_client(cluster)

    async def take_all() -> None:
        writer = NoticeWriter(await cluster.client())
        for each in random.sample(reports, len(reports)):
            await writer.write(each)

    await asyncio.gather(*(take_all() for _ in range(5)))
    spec = (await client.get(MAINTENANCE_NOTICES, "oci-many")).spec
    assert (spec.stage, spec.start) == (NoticeStage.ENDED, START + timedelta(hours=5))
    named = [notice.name for notice in (await client.list(MAINTENANCE_NOTICES)).items]
    assert named.count("oci-many") == 1


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"kind": "Reboot"}, "a notice needs nodeName or providerID", id="about nothing"),
        pytest.param({"nodeName": "n1", "kind": "Explosion"}, "Unsupported value", id="a kind that there is not"),
        pytest.param(
            {"nodeName": "n1", "start": "2026-04-16T02:00:00Z", "end": "2026-04-16T01:00:00Z"},
            "end must not be before start",
            id="over before it begins",
        ),
        pytest.param({"nodeName": "n1", "start": "tomorrow"}, "date-time", id="no instant"),
        pytest.param({"nodeName": "n1", "source": "Our Tickets"}, "should match", id="a source of several words"),
    ],
)
async def test_invalid_notice_is_refused_with_the_reason(
    cluster: ClusterBackend, spec: RawObject, expected: str
) -> None:
    client = await a_client(cluster)
    kind = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}
    with pytest.raises(Invalid, match=expected):
        await client.create(MAINTENANCE_NOTICES, kind | {"metadata": {"name": "nonsense"}, "spec": spec})


async def test_notice_with_only_a_node_and_times_is_accepted(cluster: ClusterBackend) -> None:
    client = await a_client(cluster)
    kind = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}
    spec = {"nodeName": "n1", "start": "2026-04-16T02:00:00Z", "end": "2026-04-16T03:00:00Z"}
    made = await client.create(MAINTENANCE_NOTICES, kind | {"metadata": {"name": "by-hand"}, "spec": spec})
    assert (made.spec.kind, made.spec.stage, made.node) == (MaintenanceKind.UNKNOWN, "", "n1")
