"""What people do with `haulout notice`, on any API server: it takes what is written, and keeps what two write apart."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from haulout.cli.noticing import ending, finding
from haulout.cli.noticing.announcing import wanted
from haulout.cli.noticing.creating import Verb, Wanted, create
from haulout.cli.noticing.ending import Step
from haulout.errors import HauloutError, Invalid, KubeError
from haulout.kinds.notice import MAINTENANCE_NOTICES, Kind, Stage, definition
from haulout.kube.client import Client
from haulout.kube.resources import NODES
from support.backends import Cluster
from support.builders import a_node
from support.defining import define


@pytest.fixture
async def node(cluster: Cluster) -> AsyncIterator[str]:
    """Have a node, and notices."""
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    name = f"{cluster.prefix}-announced"
    made = a_node(name)
    await client.create(NODES, {**made, "spec": {**made.get("spec", {}), "providerID": f"aws:///eu/{name}"}})
    yield name
    for it in (await finding.look(client, finding.Wanted(nodes=(name,), everything=True))).sights:
        await client.delete(MAINTENANCE_NOTICES, it.notice.name)
    await client.delete(NODES, name)


def typed(cluster: Cluster, node: str, notice_id: str | None, **more: str) -> Wanted:
    usual = {"kind": "Reboot", "source": "people", "start": "+20m", "end": "+1h", "reason": "", "description": ""}
    return wanted(
        cluster.clock.now(),
        **{"node": node, "notice_id": notice_id, "deadline": None, "yes_unknown": None, **usual, **more},  # type: ignore[arg-type]  # as they are typed
    )


async def test_a_notice_is_made_changed_shown_and_called_off(cluster: Cluster, node: str) -> None:
    client = await cluster.client()
    made = await create(client, typed(cluster, node, f"{node}-1", reason="bmc"))
    assert (made.verb, made.notice.spec.provider_id, made.notice.spec.kind) == (
        Verb.CREATED,
        f"aws:///eu/{node}",
        Kind.REBOOT,
    )
    moved = await create(client, typed(cluster, node, f"{node}-1", start="+1d", end="+2d"))
    assert (moved.verb, moved.notice.uid, moved.notice.metadata.generation) == (Verb.CHANGED, made.notice.uid, 2)
    assert moved.notice.spec.reason == ""
    (seen,) = (await finding.look(client, finding.Wanted(nodes=(node,)))).sights
    assert (seen.notice.name, str(seen.phase)) == (made.notice.name, "Planned")
    assert (await ending.take(client, f"{node}-1", Step.CANCEL)).verb == "cancelled"
    assert (await client.get(MAINTENANCE_NOTICES, made.notice.name)).spec.stage == Stage.CANCELLED
    assert (await finding.look(client, finding.Wanted(nodes=(node,)))).sights == ()
    with pytest.raises(HauloutError, match="is over"):
        await create(client, typed(cluster, node, f"{node}-1"))


async def test_a_kind_that_nobody_names_any_more_is_unknown(cluster: Cluster, node: str) -> None:
    client = await cluster.client()
    await create(client, typed(cluster, node, f"{node}-2"))
    again = await create(client, typed(cluster, node, f"{node}-2", kind="Unknown"))
    assert again.raw["spec"]["kind"] == "Unknown"


async def test_many_who_say_the_same_at_once_make_one_notice(cluster: Cluster, node: str) -> None:
    client = await cluster.client()
    same = typed(cluster, node, f"{node}-3")
    made = await asyncio.gather(*(create(client, same) for _ in range(6)))
    assert len({it.notice.uid for it in made}) == 1
    found = (await finding.look(client, finding.Wanted(nodes=(node,)))).sights
    assert [it.notice.metadata.generation for it in found] == [1]


async def test_a_trial_on_the_server_leaves_nothing_and_finds_what_is_wrong(cluster: Cluster, node: str) -> None:
    client = await cluster.client()
    fine = typed(cluster, node, f"{node}-4", dry_run="server")
    assert (await create(client, fine)).notice.uid
    assert (await finding.look(client, finding.Wanted(nodes=(node,)))).sights == ()
    with pytest.raises(Invalid, match=r"spec\.reason"):
        await create(client, typed(cluster, node, f"{node}-4", dry_run="server", reason="x" * 2_000))


async def test_two_who_end_it_at_once_are_both_right(cluster: Cluster, node: str) -> None:
    client = await cluster.client()
    await create(client, typed(cluster, node, f"{node}-5", start="now", end="+1h"))
    await cluster.clock.sleep(timedelta(seconds=1))
    both = await asyncio.gather(*(ending.take(client, f"{node}-5", Step.END) for _ in range(2)))
    assert {it.verb for it in both} <= {"ended", "already ended"}
    assert (await finding.find(client, f"{node}-5")).spec.stage == Stage.ENDED


async def test_an_unknown_node_or_notice_is_an_answer(cluster: Cluster, node: str) -> None:
    client: Client = await cluster.client()
    with pytest.raises(KubeError, match=f'nodes "{node}s" not found; .*did you mean "{node}"'):
        await create(client, typed(cluster, f"{node}s", None))
    with pytest.raises(KubeError, match=f'notice "{node}-none" not found'):
        await ending.take(client, f"{node}-none", Step.END)
