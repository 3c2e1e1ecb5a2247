"""`haulout notice` on any API server: accepted objects, and concurrent writes."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, NoticeStage, definition
from haulout.api.resources import NODES
from haulout.cli.notice import cancellation, notice_view
from haulout.cli.notice.apply import ApplyVerb, NoticeRequest, apply_notice
from haulout.cli.notice.cancellation import EndAction
from haulout.cli.notice.creation import parse_request
from haulout.errors import HauloutError, Invalid, KubeError
from haulout.kube.client import Client
from support.builders.objects import a_node
from support.clusters.backends import ClusterBackend
from support.clusters.crd_installation import install_crd


@pytest.fixture
async def node(cluster: ClusterBackend) -> AsyncIterator[str]:
    """Create a node, and install the definition of notices."""
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    name = f"{cluster.prefix}-announced"
    made = a_node(name)
    await client.create(NODES, {**made, "spec": {**made.get("spec", {}), "providerID": f"aws:///eu/{name}"}})
    yield name
    for item in (await notice_view.list_notices(client, notice_view.NoticeQuery(nodes=(name,), everything=True))).views:
        await client.delete(MAINTENANCE_NOTICES, item.notice.name)
    await client.delete(NODES, name)


def parsed_notice(cluster: ClusterBackend, node: str, notice_id: str | None, **more: str) -> NoticeRequest:
    defaults = {"kind": "Reboot", "source": "people", "start": "+20m", "end": "+1h", "reason": "", "description": ""}
    return parse_request(
        cluster.clock.now(),
        **{"node": node, "notice_id": notice_id, "deadline": None, "allow_unknown_node": None, **defaults, **more},  # type: ignore[arg-type]  # as they are typed
    )


async def test_notice_is_created_updated_listed_and_cancelled(cluster: ClusterBackend, node: str) -> None:
    client = await cluster.client()
    made = await apply_notice(client, parsed_notice(cluster, node, f"{node}-1", reason="bmc"))
    assert (made.verb, made.notice.spec.provider_id, made.notice.spec.kind) == (
        ApplyVerb.CREATED,
        f"aws:///eu/{node}",
        MaintenanceKind.REBOOT,
    )
    moved = await apply_notice(client, parsed_notice(cluster, node, f"{node}-1", start="+1d", end="+2d"))
    assert (moved.verb, moved.notice.uid, moved.notice.metadata.generation) == (ApplyVerb.CHANGED, made.notice.uid, 2)
    assert moved.notice.spec.reason == ""
    (listed,) = (await notice_view.list_notices(client, notice_view.NoticeQuery(nodes=(node,)))).views
    assert (listed.notice.name, str(listed.phase)) == (made.notice.name, "Planned")
    assert (await cancellation.end_notice(client, f"{node}-1", EndAction.CANCEL)).verb == "cancelled"
    assert (await client.get(MAINTENANCE_NOTICES, made.notice.name)).spec.stage == NoticeStage.CANCELLED
    assert (await notice_view.list_notices(client, notice_view.NoticeQuery(nodes=(node,)))).views == ()
    with pytest.raises(HauloutError, match="has ended"):
        await apply_notice(client, parsed_notice(cluster, node, f"{node}-1"))


async def test_kind_is_reset_to_unknown(cluster: ClusterBackend, node: str) -> None:
    client = await cluster.client()
    await apply_notice(client, parsed_notice(cluster, node, f"{node}-2"))
    again = await apply_notice(client, parsed_notice(cluster, node, f"{node}-2", kind="Unknown"))
    assert again.raw["spec"]["kind"] == "Unknown"


async def test_concurrent_identical_requests_create_one_notice(cluster: ClusterBackend, node: str) -> None:
    client = await cluster.client()
    same = parsed_notice(cluster, node, f"{node}-3")
    made = await asyncio.gather(*(apply_notice(client, same) for _ in range(6)))
    assert len({item.notice.uid for item in made}) == 1
    found = (await notice_view.list_notices(client, notice_view.NoticeQuery(nodes=(node,)))).views
    assert [item.notice.metadata.generation for item in found] == [1]


async def test_server_dry_run_validates_without_writing(cluster: ClusterBackend, node: str) -> None:
    client = await cluster.client()
    valid_request = parsed_notice(cluster, node, f"{node}-4", dry_run="server")
    assert (await apply_notice(client, valid_request)).notice.uid
    assert (await notice_view.list_notices(client, notice_view.NoticeQuery(nodes=(node,)))).views == ()
    with pytest.raises(Invalid, match=r"spec\.reason"):
        await apply_notice(client, parsed_notice(cluster, node, f"{node}-4", dry_run="server", reason="x" * 2_000))


async def test_concurrent_end_commands_both_succeed(cluster: ClusterBackend, node: str) -> None:
    client = await cluster.client()
    await apply_notice(client, parsed_notice(cluster, node, f"{node}-5", start="now", end="+1h"))
    await cluster.clock.sleep(timedelta(seconds=1))
    both = await asyncio.gather(*(cancellation.end_notice(client, f"{node}-5", EndAction.END) for _ in range(2)))
    assert {item.verb for item in both} <= {"ended", "already ended"}
    assert (await notice_view.get_notice(client, f"{node}-5")).spec.stage == NoticeStage.ENDED


async def test_unknown_node_or_notice_is_an_error(cluster: ClusterBackend, node: str) -> None:
    client: Client = await cluster.client()
    with pytest.raises(KubeError, match=f'nodes "{node}s" not found; .*did you mean "{node}"'):
        await apply_notice(client, parsed_notice(cluster, f"{node}s", None))
    with pytest.raises(KubeError, match=f'notice "{node}-none" not found'):
        await cancellation.end_notice(client, f"{node}-none", EndAction.END)
