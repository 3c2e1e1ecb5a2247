"""Notices: what is said about machines becomes one object each, whoever says it and however often."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from haulout.errors import Invalid
from haulout.kinds.notice import MAINTENANCE_NOTICES, Kind, Stage, definition
from haulout.kinds.reports import Plan, Report
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.notices.inbox import Inbox
from support.backends import Cluster
from support.defining import define

START = datetime(2026, 4, 16, 2, tzinfo=UTC)
SAID = START - timedelta(days=14)


def report(notice: str, *, minute: int = 0, stage: Stage = Stage.SCHEDULED, start: datetime | None = None) -> Report:
    plan = start and Plan(kind=Kind.REBOOT, start=start, end=start + timedelta(hours=2), reschedulable=True)
    return Report(
        source="oci",
        notice_id=notice,
        at=SAID + timedelta(minutes=minute),
        provider_id="ocid1.instance.oc1.fra.a",
        stage=stage,
        plan=plan or None,
    )


async def a_client(cluster: Cluster) -> Client:
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    return client


async def test_a_report_makes_an_object_that_says_so(cluster: Cluster) -> None:
    client = await a_client(cluster)
    await Inbox(client).take(report("one", start=START))
    found = await client.get(MAINTENANCE_NOTICES, "oci-one")
    assert (found.spec.kind, found.spec.start, found.spec.stage) == (Kind.REBOOT, START, Stage.SCHEDULED)
    assert found.spec.reschedulable
    assert found.spec.reported_at == SAID


async def test_the_same_report_again_writes_nothing(cluster: Cluster) -> None:
    client = await a_client(cluster)
    first = await Inbox(client).take(report("again", start=START))
    again = await Inbox(client).take(report("again", start=START))
    assert again.resource_version == first.resource_version


async def test_notes_are_annotations_beside_those_of_others(cluster: Cluster) -> None:
    client = await a_client(cluster)
    inbox = Inbox(client)
    await inbox.take(replace(report("noted", start=START), notes={"haulout.dev/one": "1"}))
    mark = merge_patch({"metadata": {"annotations": {"example.com/theirs": "yes"}}})
    await client.patch(MAINTENANCE_NOTICES, "oci-noted", mark)
    await inbox.take(replace(report("noted"), notes={"haulout.dev/two": "2"}))
    last = await inbox.take(replace(report("noted"), notes={"haulout.dev/one": "1"}))
    assert last.metadata.annotations == {"haulout.dev/one": "1", "haulout.dev/two": "2", "example.com/theirs": "yes"}


async def test_many_who_take_the_same_reports_in_any_order_write_one_object(cluster: Cluster) -> None:
    reports = [
        report("many", start=START),
        report("many", minute=5, start=START + timedelta(days=1)),
        report("many", minute=9, start=START + timedelta(hours=5)),
        report("many", minute=20, stage=Stage.STARTED),
        report("many", minute=30, stage=Stage.ENDED),
    ]
    random = Random(7)
    client = await a_client(cluster)

    async def take_all() -> None:
        inbox = Inbox(await cluster.client())
        for each in random.sample(reports, len(reports)):
            await inbox.take(each)

    await asyncio.gather(*(take_all() for _ in range(5)))
    spec = (await client.get(MAINTENANCE_NOTICES, "oci-many")).spec
    assert (spec.stage, spec.start) == (Stage.ENDED, START + timedelta(hours=5))
    named = [it.name for it in (await client.list(MAINTENANCE_NOTICES)).items]
    assert named.count("oci-many") == 1


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        pytest.param({"kind": "Reboot"}, "a notice is about a node", id="about nothing"),
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
async def test_a_notice_that_makes_no_sense_is_refused_with_the_reason(
    cluster: Cluster, spec: RawObject, told: str
) -> None:
    client = await a_client(cluster)
    kind = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}
    with pytest.raises(Invalid, match=told):
        await client.create(MAINTENANCE_NOTICES, kind | {"metadata": {"name": "nonsense"}, "spec": spec})


async def test_a_person_may_write_one_with_a_node_and_times_alone(cluster: Cluster) -> None:
    client = await a_client(cluster)
    kind = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}
    spec = {"nodeName": "n1", "start": "2026-04-16T02:00:00Z", "end": "2026-04-16T03:00:00Z"}
    made = await client.create(MAINTENANCE_NOTICES, kind | {"metadata": {"name": "by-hand"}, "spec": spec})
    assert (made.spec.kind, made.spec.stage, made.node) == (Kind.UNKNOWN, "", "n1")
