"""What stays in the history of a node that had to leave its ESX host."""

from datetime import timedelta
from functools import partial

from haulout.cli.node_history import Wanted, look
from haulout.core.clock import Clock
from haulout.esx.keys import INITIATED, OWNER
from haulout.history.record import COMPLETED, definition
from haulout.kube.client import Client
from support.clusters import a_cluster
from support.crashes import Stage, survives_crashes
from support.esx import Site, a_site
from support.remembering import remembered, replays, words

SOON = timedelta(seconds=5)
HOSTS = {"n1": "esx-a1", "n3": "esx-a2"}


async def test_all_that_was_done_and_what_it_took(clock: Clock) -> None:
    plan = a_cluster(clock).with_definition(definition()).with_deployment("shop/cart", replicas=4)
    async with a_site(clock, plan=plan, hosts=HOSTS) as site:
        site.remembers = True
        left = len(site.cluster.pods_on("n1"))
        site.cluster.run(site.operate)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.is_down("n1")
        site.vcenter("a").leave_maintenance("esx-a1")
        await site.is_back("n1")
        await clock.sleep(SOON)
        told = partial(words, site.cluster, what=OWNER)
        assert told("n1") == ["→ Running", "Drained", "EsxShutDown", "EsxPowerOn", "Running → Ended"]
        assert told("n3") == []
        began, drained, *_, ended = remembered(site.cluster, "n1", OWNER)
        assert began.why.startswith("ESX host esx-a1 is entering maintenance, and the restart is approved")
        assert drained.drain is not None
        assert drained.drain.pods == left > 0
        assert ended.since == began.time
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.is_down("n1")
        await clock.sleep(SOON)
        assert told("n1")[5:] == ["→ Running", "EsxShutDown"], "it is another time, and the node was empty"


async def test_what_the_sap_maintenance_controller_began_is_told_from_when_it_was_taken_over(clock: Clock) -> None:
    plan = a_cluster(clock).with_definition(definition())
    async with a_site(clock, plan=plan, hosts=HOSTS) as site:
        site.remembers = True
        marked = {"annotations": {INITIATED: "true"}}
        await site.cluster.change("nodes", "n3", metadata=marked, spec={"unschedulable": True})
        site.cluster.run(site.operate)
        await site.is_back("n3")
        await clock.sleep(SOON)
        assert words(site.cluster, "n3", OWNER) == ["Running → Ended"]
        await site.cluster.change("nodes", "n1", metadata=marked, spec={"unschedulable": True})
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.is_down("n1")
        await clock.sleep(SOON)
        assert words(site.cluster, "n1", OWNER) == ["→ Running", "EsxShutDown"]


async def test_haulout_history_tells_what_is_not_written_down_yet(clock: Clock) -> None:
    plan = a_cluster(clock).with_definition(definition())
    async with a_site(clock, plan=plan, hosts=HOSTS) as site:
        site.cluster.run(site.operate)  # which keeps none
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.is_down("n1")
        found = await look(site.cluster.me, Wanted(nodes=("n1", "n3")))
        (entry,), others = (it.entries for it in found.nodes)
        assert (entry.what, entry.to, entry.why, others) == (OWNER, "Running", COMPLETED, ())


def test_a_crash_at_any_write_leaves_a_history_that_leads_to_its_end() -> None:
    sites: list[Site] = []

    async def operate(client: Client) -> None:
        await sites[-1].operate(client)

    async def story(stage: Stage) -> None:
        plan = a_cluster(stage.clock).with_definition(definition())
        async with a_site(stage.clock, plan=plan, hosts={"n1": "esx-a1"}) as site:
            sites.append(site)
            site.remembers = True
            stage.begin(site.cluster.cluster)  # type: ignore[attr-defined]  # it is one on the sandbox
            site.vcenter("a").enter_maintenance("esx-a1")
            await site.labelled(n1="true")
            await site.approve("n1")
            await site.is_down("n1")
            site.vcenter("a").leave_maintenance("esx-a1")
            await site.is_back("n1")
            await site.cluster.eventually(lambda: words(site.cluster, "n1", OWNER)[-1:] == ["Running → Ended"])
            told = remembered(site.cluster, "n1", OWNER)
            assert replays(told)
            assert [it.to for it in told if it.to] == ["Running", "Ended"]

    survives_crashes(story, operator=operate, compare=lambda _: None)
