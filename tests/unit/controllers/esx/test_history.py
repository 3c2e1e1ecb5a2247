"""The history of a node during maintenance of its ESX host."""

from datetime import timedelta
from functools import partial

from haulout.api.maintenancerecord import RECONSTRUCTED_REASON, custom_resource_definition
from haulout.cli.history.node_history import HistoryQuery, read_histories
from haulout.controllers.esx.labels import CORDON_OWNER, INITIATED
from haulout.core.clock import Clock
from haulout.kube.client import Client
from support.clusters.cluster_plan import a_cluster
from support.expectations.history_entries import entries_about, is_consistent, transition_texts
from support.faults.crash_test import CrashRun, assert_survives_crashes
from support.platforms.esx import EsxCluster, an_esx_cluster

SOON = timedelta(seconds=5)
HOSTS = {"n1": "esx-a1", "n3": "esx-a2"}


async def test_history_records_all_steps_with_drain_and_duration(clock: Clock) -> None:
    plan = a_cluster(clock).with_crd(custom_resource_definition()).with_deployment("shop/cart", replicas=4)
    async with an_esx_cluster(clock, plan=plan, hosts=HOSTS) as site:
        site.keeps_history = True
        left = len(site.cluster.pods_on("n1"))
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.wait_until_down("n1")
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.wait_until_back("n1")
        await clock.sleep(SOON)
        entries_of = partial(transition_texts, site.cluster, subject=CORDON_OWNER)
        assert entries_of("n1") == ["→ Running", "Drained", "EsxShutDown", "EsxPowerOn", "Running → Ended"]
        assert entries_of("n3") == []
        began, drained, *_, ended = entries_about(site.cluster, "n1", CORDON_OWNER)
        assert began.reason.startswith("ESX host esx-a1 is entering maintenance, and the restart is approved")
        assert drained.drain is not None
        assert drained.drain.pods == left > 0
        assert ended.since == began.time
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.wait_until_down("n1")
        await clock.sleep(SOON)
        assert entries_of("n1")[5:] == ["→ Running", "EsxShutDown"], "a second maintenance of an empty node"


async def test_history_of_an_adopted_maintenance_starts_with_the_takeover(clock: Clock) -> None:
    plan = a_cluster(clock).with_crd(custom_resource_definition())
    async with an_esx_cluster(clock, plan=plan, hosts=HOSTS) as site:
        site.keeps_history = True
        marked = {"annotations": {INITIATED: "true"}}
        await site.cluster.patch("nodes", "n3", metadata=marked, spec={"unschedulable": True})
        site.cluster.run(site.run_controller)
        await site.wait_until_back("n3")
        await clock.sleep(SOON)
        assert transition_texts(site.cluster, "n3", CORDON_OWNER) == ["Running → Ended"]
        await site.cluster.patch("nodes", "n1", metadata=marked, spec={"unschedulable": True})
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.wait_until_down("n1")
        await clock.sleep(SOON)
        assert transition_texts(site.cluster, "n1", CORDON_OWNER) == ["→ Running", "EsxShutDown"]


async def test_read_histories_reconstructs_an_unrecorded_maintenance(clock: Clock) -> None:
    plan = a_cluster(clock).with_crd(custom_resource_definition())
    async with an_esx_cluster(clock, plan=plan, hosts=HOSTS) as site:
        site.cluster.run(site.run_controller)  # without a history
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.wait_until_down("n1")
        found = await read_histories(site.cluster.admin, HistoryQuery(nodes=("n1", "n3")))
        (entry,), others = (node.entries for node in found.nodes)
        assert (entry.object, entry.to, entry.reason, others) == (CORDON_OWNER, "Running", RECONSTRUCTED_REASON, ())


def test_history_is_consistent_after_a_crash_at_any_write() -> None:
    sites: list[EsxCluster] = []

    async def operate(client: Client) -> None:
        await sites[-1].run_controller(client)

    async def story(run: CrashRun) -> None:
        plan = a_cluster(run.clock).with_crd(custom_resource_definition())
        async with an_esx_cluster(run.clock, plan=plan, hosts={"n1": "esx-a1"}) as site:
            sites.append(site)
            site.keeps_history = True
            run.start_operator(site.cluster.cluster)  # type: ignore[attr-defined]  # it is one on the sandbox
            site.vcenter("a").enter_maintenance("esx-a1")
            await site.wait_for_labels(n1="true")
            await site.approve("n1")
            await site.wait_until_down("n1")
            site.vcenter("a").exit_maintenance("esx-a1")
            await site.wait_until_back("n1")
            await site.cluster.eventually(
                lambda: transition_texts(site.cluster, "n1", CORDON_OWNER)[-1:] == ["Running → Ended"]
            )
            entries = entries_about(site.cluster, "n1", CORDON_OWNER)
            assert is_consistent(entries)
            assert [entry.to for entry in entries if entry.to] == ["Running", "Ended"]

    assert_survives_crashes(story, operator=operate, compare=lambda _: None)
