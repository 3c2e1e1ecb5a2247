"""The ESX controller from host labels until nodes return: cases E03 to E06, E08, E10 and others."""

from dataclasses import replace
from datetime import timedelta

import pytest

from haulout.controllers.esx.labels import INITIATED, SHUTDOWN_REQUESTED, STATE, VERSION
from haulout.core.clock import Clock
from haulout.drain.cordon import CORDON_ANNOTATION
from haulout_sandbox.clouds.vsphere.cloud import POWER_OFF, POWERED_OFF, POWERED_ON
from support.builders.objects import a_pod
from support.clusters.cluster_plan import a_cluster
from support.platforms.esx import SETTINGS, TIMEOUT, EsxCluster, an_esx_cluster

QUIET = timedelta(minutes=5)


async def test_e03_nodes_get_labels_with_state_and_version_of_their_host(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        site.vcenter("b").host_by_name("esx-b1").version = "7.0.3"
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n1="false", n2="false", n3="false")
        await site.cluster.eventually(lambda: (site.label("n4"), site.label("n4", VERSION)), becomes=("false", "7.0.3"))


async def test_e04_only_nodes_of_a_host_in_maintenance_are_labelled_so(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        site.vcenter("a").host_by_name("esx-a1").in_maintenance = True
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n1="true", n2="true", n3="false")


async def test_host_that_enters_maintenance_counts_as_in_maintenance_while_the_task_runs(clock: Clock) -> None:
    """12.9: ESX running `EnterMaintenanceMode_Task`."""
    async with an_esx_cluster(clock) as site:
        task = site.vcenter("a").enter_maintenance("esx-a1")
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n1="true", n2="true", n3="false")
        assert task.state == "running"
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.wait_for_labels(n1="false", n2="false")


async def test_configured_alarm_takes_precedence_over_maintenance_and_other_alarms_are_ignored(clock: Clock) -> None:
    """12.9: alarm labelling."""
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        vcenter.enter_maintenance("esx-a1")
        vcenter.raise_alarm("esx-a1", "Host memory")
        vcenter.raise_alarm("esx-a2", "Something else")
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n1="alarm", n2="alarm", n3="false")
        vcenter.clear_alarm("esx-a1", "Host memory")
        await site.wait_for_labels(n1="true")


async def test_e05_only_approved_nodes_are_drained_and_their_virtual_machines_shut_down(clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=8, budget=6).with_daemon_set("kube-system/proxy")
    async with an_esx_cluster(clock, plan=plan) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.wait_for_labels(n1="true", n2="true")
        await site.approve("n1", "n2", "n3")
        await site.wait_until_down("n1", "n2")
        assert [site.annotation(node) for node in ("n1", "n2", "n3", "n4")] == ["true", "true", None, None]
        assert [site.is_cordoned(node) for node in ("n1", "n2", "n3", "n4")] == [True, True, False, False]
        assert [site.power_state(node) for node in ("n3", "n4")] == [POWERED_ON, POWERED_ON]
        assert all("cart" not in node for node in (*site.cluster.pods_on("n1"), *site.cluster.pods_on("n2")))
        assert site.vcenter("a").host_by_name("esx-a1").in_maintenance, (
            "the task of the host is done once nothing runs there"
        )
        assert POWER_OFF not in site.vcenter("a").faults.calls, "guests shut down on request"
        await site.cluster.eventually(lambda: not site.cluster.node_is_ready("n1"))


async def test_e06_nodes_return_when_their_host_does(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1", "n2")
        await site.wait_until_down("n1", "n2")
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.wait_until_back("n1", "n2")
        await site.cluster.eventually(lambda: site.cluster.node_is_ready("n1"))


async def test_e08_nodes_of_a_host_are_decided_independently(clock: Clock) -> None:
    """The original has a rule that all nodes of a host must be approved, and no code that asks for it."""
    async with an_esx_cluster(clock) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.wait_until_down("n1")
        await site.cluster.clock.sleep(QUIET)
        assert (site.power_state("n2"), site.is_cordoned("n2"), site.annotation("n2")) == (POWERED_ON, False, None)


async def test_e10_virtual_machine_is_powered_on_only_for_an_initiated_node_with_a_healthy_host(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n1="false")
        site.vcenter("a").set_power("n1", POWERED_OFF)
        await site.cluster.clock.sleep(QUIET)
        assert site.power_state("n1") == POWERED_OFF, "it was powered off by others"
        await site.cluster.patch("nodes", "n1", metadata={"annotations": {INITIATED: "true"}})
        await site.wait_until_back("n1")


async def test_guest_that_ignores_shutdown_is_powered_off_after_the_timeout(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        vcenter.machine_by_name("n1").ignores_shutdown = True
        site.cluster.run(site.run_controller)
        vcenter.enter_maintenance("esx-a1")
        await site.wait_for_labels(n1="true")
        await site.approve("n1")
        soon = timedelta(seconds=15)  # and not in the next round
        await site.cluster.eventually(lambda: site.annotation("n1", SHUTDOWN_REQUESTED) is not None, within=soon)
        requested_at = clock.now()
        await site.wait_until_down("n1")
        assert (
            SETTINGS.shutdown_timeout <= clock.now() - requested_at <= SETTINGS.shutdown_timeout + timedelta(seconds=15)
        )
        assert list(vcenter.faults.calls).count("ShutdownGuest") == 1, "it is asked once"


async def test_guest_without_vmware_tools_is_powered_off_at_once(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        vcenter.machine_by_name("n1").has_tools = False
        site.cluster.run(site.run_controller)
        vcenter.enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: site.annotation("n1", SHUTDOWN_REQUESTED) is not None)
        await site.cluster.eventually(lambda: site.power_state("n1"), becomes=POWERED_OFF, within=timedelta(seconds=5))


async def test_machine_powered_on_during_maintenance_is_shut_down_again(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        site.cluster.run(site.run_controller)
        vcenter.enter_maintenance("esx-a1")
        await site.approve("n1", "n2")
        await site.wait_until_down("n1", "n2")
        vcenter.set_power("n1", POWERED_ON)
        await site.wait_until_down("n1")
        assert POWER_OFF not in vcenter.faults.calls


async def test_late_pod_is_evicted_before_the_machine_is_shut_down_again(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        site.cluster.run(site.run_controller)
        vcenter.enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.wait_until_down("n1")
        await site.cluster.create(a_pod("shop/late", on="n1"))
        vcenter.set_power("n1", POWERED_ON)
        await site.cluster.eventually(lambda: site.power_state("n1") == POWERED_OFF, within=TIMEOUT)
        assert not site.cluster.has("pods", "shop/late")


async def test_a_node_that_a_person_had_cordoned_stays_cordoned(clock: Clock) -> None:
    """The original uncordons it."""
    async with an_esx_cluster(clock) as site:
        await site.cluster.cordon("n1")
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.wait_until_down("n1")
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.cluster.eventually(lambda: site.annotation("n1") is None, within=TIMEOUT)
        assert site.is_cordoned("n1")
        assert site.annotation("n1", CORDON_ANNOTATION) is None


async def test_maintenance_started_by_the_sap_maintenance_controller_is_completed(clock: Clock) -> None:
    """It cordons without an annotation of Haulout; its cordon is removed with its own annotation."""
    async with an_esx_cluster(clock) as site:
        for name in ("n1", "n3"):
            await site.cluster.patch(
                "nodes", name, metadata={"annotations": {INITIATED: "true"}}, spec={"unschedulable": True}
            )
        await site.approve("n1")
        site.vcenter("a").enter_maintenance("esx-a1")
        site.vcenter("a").set_power("n3", POWERED_OFF)
        site.cluster.run(site.run_controller)
        await site.wait_until_back("n3")
        await site.wait_until_down("n1")
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.wait_until_back("n1")


async def test_withdrawn_approval_stops_the_drain_and_the_node_waits_for_its_host(clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=2, budget=2)
    async with an_esx_cluster(clock, plan=plan, hosts={"n1": "esx-a1"}) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: site.annotation("n1"))
        await site.approve("n1", value=None)
        await site.cluster.clock.sleep(timedelta(seconds=10))
        await site.cluster.delete("poddisruptionbudgets", "shop/cart")
        await site.cluster.clock.sleep(QUIET)
        assert len(site.cluster.pods_on("n1")) == 2, "no pod is evicted any more"
        assert (site.is_cordoned("n1"), site.power_state("n1")) == (True, POWERED_ON)
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.wait_until_back("n1")


async def test_hold_prevents_the_start_of_maintenance_but_not_its_end(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        hold = {"annotations": {"haulout.dev/hold": "database migration"}}
        await site.cluster.patch("nodes", "n1", metadata=hold)
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1", "n2")
        await site.wait_until_down("n2")
        assert (site.annotation("n1"), site.power_state("n1")) == (None, POWERED_ON)
        await site.cluster.patch("nodes", "n1", metadata={"annotations": {"haulout.dev/hold": None}})
        await site.wait_until_down("n1")


async def test_alarm_evicts_pods_without_a_grace_period(clock: Clock) -> None:
    """E07 in effect: the original intended it, but the API server ignored its request."""
    slow = {"terminationGracePeriodSeconds": 600}
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=2, pods=slow)
    async with an_esx_cluster(clock, plan=plan, hosts={"n1": "esx-a1"}) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").raise_alarm("esx-a1", "Host memory")
        await site.approve("n1")
        await site.wait_until_down("n1")
        graces = {
            write.after["metadata"].get("deletionGracePeriodSeconds")
            for write in site.cluster.history
            if write.kind.plural == "pods" and write.after and "deletionTimestamp" in write.after["metadata"]
        }
        assert graces <= {0}


async def test_idle_interval_writes_nothing_and_leaves_no_session(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n1="false", n2="false", n3="false", n4="false")
        await site.cluster.clock.sleep(timedelta(seconds=10))
        before = len(_writes(site))
        calls = {zone: len(cloud.faults.calls) for zone, cloud in site.clouds.items()}
        await site.cluster.clock.sleep(timedelta(minutes=10))
        assert len(_writes(site)) == before
        assert all(not cloud.sessions for cloud in site.clouds.values())
        rounds = [list(cloud.faults.calls)[calls[zone] :].count("Login") for zone, cloud in site.clouds.items()]
        assert all(9 <= cloud <= 10 for cloud in rounds), "the period is a minute, and up to a tenth more"
        assert list(site.vcenter("a").faults.calls)[-3:] == ["Login", "RetrievePropertiesEx", "Logout"]


def _writes(site: EsxCluster) -> list[str]:
    return [
        write.key for write in site.cluster.history if write.kind.plural == "nodes" and write.username == "operator"
    ]


async def test_changed_settings_apply_in_the_next_interval(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        site.vcenter("a").raise_alarm("esx-a2", "Something else")
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n3="false")
        site.settings = replace(SETTINGS, alarms=frozenset({"Something else"}))
        await site.wait_for_labels(n3="alarm")


async def test_node_deleted_during_its_drain_blocks_no_other_node(clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=4, budget=4)
    async with an_esx_cluster(clock, plan=plan) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1", "n2")
        await site.cluster.eventually(lambda: site.annotation("n1"))
        await site.cluster.kubelets.remove("n1")
        site.vcenter("a").remove_machine("n1")
        await site.cluster.delete("poddisruptionbudgets", "shop/cart")
        await site.wait_until_down("n2")
        assert list(site.controller.problems()) == []


async def test_node_recreated_during_its_drain_starts_anew(clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=4, budget=4)
    async with an_esx_cluster(clock, plan=plan, hosts={"n1": "esx-a1", "n3": "esx-a2"}) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: site.annotation("n1"))
        before = site.node("n1")["metadata"]["uid"]
        await site.cluster.delete("nodes", "n1")
        await site.cluster.pass_time(seconds=1)
        site.cluster.start_kubelet("n1")
        await site.cluster.eventually(lambda: site.node("n1")["metadata"]["uid"] != before)
        await site.approve("n1")
        await site.cluster.delete("poddisruptionbudgets", "shop/cart")
        await site.wait_until_down("n1")


async def test_evicted_pods_are_reported_by_events_of_the_sap_maintenance_controller(clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=4)
    async with an_esx_cluster(clock, plan=plan) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1", "n2")
        await site.wait_until_down("n1", "n2")
        eviction_events = [event for event in site.cluster.by_key("events").values() if event["reason"] == "Evicting"]
        assert eviction_events
        assert {event["involvedObject"]["kind"] for event in eviction_events} == {"Pod"}


async def test_maintenance_is_reported_by_events_about_the_node(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1", "n2")
        await site.wait_until_down("n1", "n2")
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.wait_until_back("n1", "n2")
        await site.cluster.clock.sleep(timedelta(seconds=5))
        events = [event for event in site.cluster.by_key("events").values() if event["involvedObject"]["name"] == "n1"]
        events.sort(key=lambda event: str(event.get("eventTime")))
        messages = {event["reason"]: event["message"] for event in events if event["reportingComponent"] == "ESX"}
        assert list(messages) == ["EsxMaintenanceStarted", "EsxShutDown", "EsxPowerOn", "EsxMaintenanceEnded"]
        assert messages["EsxMaintenanceStarted"] == (
            "ESX host esx-a1 is entering maintenance, and the restart is approved: the node is cordoned and drained, "
            "and its virtual machine shut down"
        )


@pytest.mark.parametrize("key", [STATE, VERSION])
async def test_label_changed_by_others_is_restored(clock: Clock, key: str) -> None:
    async with an_esx_cluster(clock) as site:
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n1="false")
        await site.cluster.patch("nodes", "n1", metadata={"labels": {key: "wrong"}})
        await site.cluster.eventually(lambda: site.label("n1", key) != "wrong")
        await site.wait_for_labels(n1="false")
