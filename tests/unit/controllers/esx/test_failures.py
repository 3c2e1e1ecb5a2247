"""Failures: unavailable, slow or refusing vCenters, ambiguous hosts and machines, two leaders."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from haulout.api.clusterapi import DRAIN_RULES
from haulout.api.objects import RawObject
from haulout.controllers.esx.labels import APPROVED, HOST, INITIATED, STATE
from haulout.controllers.esx.settings import VCenterAccess, VCenterCredentials, VCenters
from haulout.controllers.esx.vcenter import VCenter
from haulout.core.clock import Clock
from haulout.errors import CloudError, LeadershipHandover
from haulout.kube.client import Client
from haulout_sandbox.clouds.vsphere.cloud import POWER_OFF, POWER_ON, POWERED_OFF, POWERED_ON
from support.clusters.cluster_plan import a_cluster
from support.clusters.process import Process
from support.platforms.esx import PASSWORD, SETTINGS, TIMEOUT, EsxCluster, an_esx_cluster

SKIP_ALL = '{"rules": [{"name": "all", "behavior": "Skip"}]}'


def problems_of(site: EsxCluster) -> str:
    return "\n".join(site.controller.problems()) if site.controllers else ""


@pytest.mark.parametrize("operation", ["Login", "RetrievePropertiesEx"])
async def test_hanging_vcenter_delays_no_other(clock: Clock, operation: str) -> None:
    async with an_esx_cluster(clock) as site:
        hangs = site.vcenter("a").faults.hang(operation, times=None)
        site.cluster.run(site.run_controller)
        await site.cluster.eventually(lambda: site.label("n4"), becomes="false", within=timedelta(seconds=5))
        site.vcenter("b").enter_maintenance("esx-b1")
        await site.approve("n4")
        await site.wait_until_down("n4")
        await site.cluster.eventually(lambda: "no answer within 60 s" in problems_of(site))
        assert site.label("n1") is None
        site.vcenter("a").faults.remove(hangs)
        await site.wait_for_labels(n1="false")
        await site.cluster.eventually(lambda: problems_of(site), becomes="")


@pytest.mark.parametrize("status", [0, 503])
async def test_unavailable_vcenter_leaves_labels_unchanged(clock: Clock, status: int) -> None:
    async with an_esx_cluster(clock) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.wait_for_labels(n1="true")
        site.vcenter("a").faults.fail("Login", status=status, times=None)
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.cluster.eventually(lambda: "ESX in zone a: " in problems_of(site))
        assert site.label("n1") == "true"
        assert not site.controller.zones["a"].is_reachable
        site.vcenter("a").faults.remove()
        await site.wait_for_labels(n1="false")


async def test_refused_password_is_retried_rarely(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with an_esx_cluster(clock) as site:
        site.vcenter("a").users = {"maintenance": "another"}
        site.settings = replace(SETTINGS, interval=timedelta(seconds=10))
        site.cluster.run(site.run_controller)
        await site.cluster.clock.sleep(timedelta(minutes=10))
        assert 2 <= list(site.vcenter("a").faults.calls).count("Login") <= 4
        assert "logging in at https://vcenter-a.example.com/sdk as maintenance" in problems_of(site)
        assert "InvalidLogin" in problems_of(site)
        assert PASSWORD not in caplog.text + problems_of(site) + repr(site.settings)
        others = {zone: VCenterCredentials("maintenance", "another") for zone in "a"} | {
            "b": VCenterCredentials("maintenance", "x")
        }
        site.settings = replace(
            site.settings, vcenters=VCenters(template_url=SETTINGS.vcenters.template_url, credentials=others)
        )
        await site.wait_for_labels(n1="false")


@pytest.mark.parametrize("trouble", ["ended", "no answer"])
async def test_unusable_session_is_replaced_by_a_new_login(clock: Clock, trouble: str) -> None:
    async with an_esx_cluster(clock, guest_shutdown_delay=timedelta(minutes=2)) as site:
        vcenter = site.vcenter("a")
        site.settings = replace(SETTINGS, interval=timedelta(seconds=10))
        site.cluster.run(site.run_controller)
        vcenter.enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: "ShutdownGuest" in vcenter.faults.calls)
        logins = list(vcenter.faults.calls).count("Login")
        if trouble == "ended":
            vcenter.sessions.clear()
        else:
            vcenter.faults.fail("RetrievePropertiesEx", status=0)
        soon = timedelta(seconds=25)
        await site.cluster.eventually(lambda: list(vcenter.faults.calls).count("Login") == logins + 1, within=soon)
        await site.wait_until_down("n1")
        assert POWER_OFF not in vcenter.faults.calls


@pytest.mark.parametrize("trouble", ["refuses", "hangs"])
async def test_withdrawn_approval_stops_the_drain_although_no_vcenter_responds(clock: Clock, trouble: str) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=2, budget=2)
    async with an_esx_cluster(clock, plan=plan, hosts={"n1": "esx-a1"}) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: site.annotation("n1"))
        if trouble == "refuses":
            site.vcenter("a").faults.fail("Login", status=500, code="NoPermission", times=None)
            await site.cluster.eventually(lambda: "NoPermission" in problems_of(site))
        else:
            site.vcenter("a").faults.hang("RetrievePropertiesEx", times=None)
            await site.cluster.eventually(lambda: "no answer within" in problems_of(site), within=timedelta(minutes=5))
        await site.approve("n1", value=None)
        await site.cluster.clock.sleep(timedelta(seconds=1))
        await site.cluster.delete("poddisruptionbudgets", "shop/cart")
        await site.cluster.clock.sleep(timedelta(minutes=3))
        assert len(site.cluster.pods_on("n1")) == 2


async def test_machine_powered_on_by_others_first_counts_as_on(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        vcenter.set_power("n1", POWERED_OFF)
        await site.cluster.patch("nodes", "n1", metadata={"annotations": {INITIATED: "true"}})

        async def overtake(operation: str, after: bool) -> None:  # noqa: FBT001 - as it is called
            if operation == POWER_ON and not after:
                vcenter.set_power("n1", POWERED_ON)

        vcenter.faults.on_call = overtake
        site.cluster.run(site.run_controller)
        await site.cluster.eventually(lambda: site.is_released("n1"), within=timedelta(seconds=20))
        assert problems_of(site) == ""


async def test_zone_without_credentials_is_reported_and_others_continue(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        known = {"a": SETTINGS.vcenters.credentials["a"]}
        site.settings = replace(SETTINGS, vcenters=replace(SETTINGS.vcenters, credentials=known))
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n1="false")
        expected = "ESX in zone b: vCenters.credentials.b: expected a username for zone b"
        await site.cluster.eventually(lambda: problems_of(site), becomes=expected)


async def test_missing_or_ambiguous_host_leaves_its_nodes_unchanged(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        site.vcenter("a").add_host("esx-a1")
        await site.cluster.patch("nodes", "n3", metadata={"labels": {HOST: "elsewhere"}})
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n4="false")
        await site.cluster.eventually(
            lambda: set(site.controller.problems()),
            becomes={
                "ESX in zone a: expected one host esx-a1 in the vCenter, found 2: its nodes are not changed",
                "ESX in zone a: expected one host elsewhere in the vCenter, found none: its nodes are not changed",
            },
        )
        assert site.label("n1") is site.label("n3") is None


async def test_missing_or_ambiguous_machine_is_left_alone(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        vcenter.add_machine("n1", on="esx-a2")
        vcenter.remove_machine("n2")
        site.cluster.run(site.run_controller)
        vcenter.enter_maintenance("esx-a1")
        await site.approve("n1", "n2")
        await site.cluster.eventually(
            lambda: "n2: expected one virtual machine of this name, found no" in problems_of(site)
        )
        assert "node n1: expected one virtual machine of this name, found 2 virtual machines" in problems_of(site)
        assert all(machine.power == POWERED_ON for machine in vcenter.machines.values())
        assert "ShutdownGuest" not in vcenter.faults.calls


async def test_failed_power_on_is_retried_each_interval(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        vcenter.set_power("n1", POWERED_OFF)
        await site.cluster.patch("nodes", "n1", metadata={"annotations": {INITIATED: "true"}})
        vcenter.faults.fail(POWER_ON, status=500, code="NoPermission", message="no permission", times=3)
        site.cluster.run(site.run_controller)
        await site.cluster.eventually(lambda: "node n1: PowerOnVM_Task: 500 NoPermission" in problems_of(site))
        assert site.annotation("n1") == "true"
        await site.wait_for_labels(n3="false")
        await site.wait_until_back("n1")


async def test_conflict_is_retried_and_loses_no_change_of_others(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        for number in range(40):
            await site.cluster.patch("nodes", "n1", metadata={"annotations": {"of/others": str(number)}})
            await site.cluster.clock.sleep(timedelta(milliseconds=500))
        await site.wait_until_down("n1")
        assert site.annotation("n1", "of/others") == "39"


async def test_two_leaders_reach_the_same_end(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        for name in ("operator", "another"):
            site.cluster.run(site.run_controller, name=name)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1", "n2")
        await site.wait_until_down("n1", "n2")
        assert [site.power_state(node) for node in ("n3", "n4")] == [POWERED_ON, POWERED_ON]
        assert POWER_OFF not in site.vcenter("a").faults.calls
        site.vcenter("a").exit_maintenance("esx-a1")
        await site.wait_until_back("n1", "n2")
        await site.cluster.clock.sleep(timedelta(minutes=5))
        assert site.is_released("n1")
        assert site.label("n1") == "false"


@pytest.mark.parametrize("change", [{"annotations": {INITIATED: None}}, {"labels": {APPROVED: None}}])
async def test_stale_controller_powers_off_no_machine_of_a_released_node(
    clock: Clock, change: dict[str, object]
) -> None:
    async with an_esx_cluster(clock, guest_shutdown_delay=timedelta(minutes=30)) as site:
        old = site.cluster.run(site.run_controller, name="old")
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: "ShutdownGuest" in site.vcenter("a").faults.calls)
        assert isinstance(old, Process)
        await site.cluster.clock.sleep(timedelta(seconds=5))
        old.transport.faults.delay_event(timedelta(hours=2), path="/nodes", times=None)
        await site.cluster.patch("nodes", "n1", metadata=change)
        await site.cluster.clock.sleep(timedelta(minutes=5))
        assert POWER_OFF not in site.vcenter("a").faults.calls
        assert site.power_state("n1") == POWERED_ON


async def test_leader_hands_over_before_its_own_node_is_drained(clock: Clock) -> None:
    handed_over: list[LeadershipHandover] = []
    async with an_esx_cluster(clock) as site:
        site.own_node = "n1"

        async def program(client: Client) -> None:
            try:
                await site.run_controller(client)
            except* LeadershipHandover as group:
                handed_over.extend(group.exceptions)  # type: ignore[arg-type]  # there is nothing else in it

        site.cluster.run(program)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: bool(handed_over))
        assert "n1" in str(handed_over[0])
        assert site.power_state("n1") == POWERED_ON
        assert not site.vcenter("a").sessions, "it logs out"


async def test_forbidden_node_writes_leave_machines_alone(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        process = site.cluster.run(site.run_controller)
        await site.wait_for_labels(n1="false")
        assert isinstance(process, Process)
        process.transport.faults.fail_before_effect(method="PATCH", path="/nodes", response=403, times=None)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: "node n1: " in problems_of(site), within=TIMEOUT)
        assert site.label("n1", STATE) == "false"
        assert site.power_state("n1") == POWERED_ON


@pytest.mark.parametrize("withdrawn", [False, True], ids=["approved", "approval is taken back"])
async def test_guest_shutting_down_when_its_host_recovers_is_powered_on_afterwards(
    clock: Clock, *, withdrawn: bool
) -> None:
    """Releasing the node while its machine is still on would leave the machine off for ever."""
    async with an_esx_cluster(clock, guest_shutdown_delay=timedelta(minutes=2)) as site:
        vcenter = site.vcenter("a")
        site.cluster.run(site.run_controller)
        vcenter.enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: "ShutdownGuest" in vcenter.faults.calls)
        if withdrawn:
            await site.approve("n1", value=None)
            await site.cluster.clock.sleep(timedelta(seconds=10))
        vcenter.exit_maintenance("esx-a1")
        await site.cluster.eventually(lambda: POWER_ON in vcenter.faults.calls, within=TIMEOUT)
        began = clock.now()
        await site.wait_until_back("n1")
        assert clock.now() - began < timedelta(seconds=10), "no wait after the shutdown"
        await site.cluster.clock.sleep(TIMEOUT)
        assert site.is_released("n1")


async def test_guest_that_ignores_shutdown_is_released_when_its_host_recovers(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        vcenter.machine_by_name("n1").ignores_shutdown = True
        site.cluster.run(site.run_controller)
        vcenter.enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: "ShutdownGuest" in vcenter.faults.calls)
        vcenter.exit_maintenance("esx-a1")
        await site.wait_until_back("n1")
        assert {POWER_OFF, POWER_ON}.isdisjoint(vcenter.faults.calls)


async def test_failed_shutdown_request_is_repeated_before_power_off(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        vcenter.faults.fail("ShutdownGuest", status=500, code="TaskInProgress", message="busy")
        site.cluster.run(site.run_controller)
        vcenter.enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.wait_until_down("n1")
        assert list(vcenter.faults.calls).count("ShutdownGuest") == 2
        assert POWER_OFF not in vcenter.faults.calls


async def test_machine_with_unknown_power_state_delays_no_other(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        vcenter = site.vcenter("a")
        vcenter.machine_by_name("n1").power = "unknown"
        site.cluster.run(site.run_controller)
        vcenter.enter_maintenance("esx-a1")
        await site.approve("n1", "n2")
        await site.wait_until_down("n2")
        await site.cluster.eventually(lambda: "node n1: the vCenter does not report whether" in problems_of(site))
        calls = list(vcenter.faults.calls)
        assert (calls.count("ShutdownGuest"), calls.count(POWER_OFF)) == (1, 0)


async def test_drain_blocker_is_reported_once_and_cleared_when_it_is_gone(clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=2, budget=2)
    async with an_esx_cluster(clock, plan=plan, hosts={"n1": "esx-a1"}) as site:
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: "PodDisruptionBudget shop/cart" in problems_of(site))
        await site.cluster.clock.sleep(timedelta(minutes=10))
        (event,) = events_about(site, "n1", "EsxDrainBlocked")
        assert event["type"] == "Warning"
        assert "esx-a1 is entering maintenance, and the drain of the node is blocked: shop/cart" in event["message"]
        assert event.get("count", 1) == 1
        await site.cluster.delete("poddisruptionbudgets", "shop/cart")
        await site.wait_until_down("n1")
        await site.cluster.eventually(lambda: problems_of(site), becomes="")


async def test_hold_is_reported_by_an_event(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        hold = {"annotations": {"haulout.dev/hold": "by=alice; database migration"}}
        await site.cluster.patch("nodes", "n1", metadata=hold)
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: "held by alice: database migration" in problems_of(site))
        (event,) = events_about(site, "n1", "Held")
        assert "held by alice: database migration" in event["message"]


async def test_vcenter_problem_is_logged_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with an_esx_cluster(clock) as site:
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n1="false")
        caplog.clear()
        reads: list[str] = []

        async def watcher(operation: str, after: bool) -> None:  # noqa: FBT001 - as it is called
            if operation == "RetrievePropertiesEx" and not after:
                reads.append(operation)
                if len(reads) % 2 == 0:  # hosts, then machines
                    raise CloudError("told to fail", doing="machines", code="NoPermission")

        await site.cluster.patch("nodes", "n1", metadata={"annotations": {INITIATED: "true"}})
        site.vcenter("a").faults.on_call = watcher
        await site.cluster.clock.sleep(timedelta(minutes=10))
        assert len(reads) > 15
        assert [record.message for record in caplog.records if "zone a" in record.message] == [
            "ESX in zone a: machines: NoPermission: told to fail"
        ]


async def test_machine_drain_rules_of_the_node_apply(clock: Clock) -> None:
    plan = a_cluster(clock).with_deployment("shop/cart", replicas=2)
    async with an_esx_cluster(clock, plan=plan, hosts={"n1": "esx-a1"}) as site:
        await site.cluster.patch("nodes", "n1", metadata={"annotations": {DRAIN_RULES: SKIP_ALL}})
        before = site.cluster.pods_on("n1")
        site.cluster.run(site.run_controller)
        site.vcenter("a").enter_maintenance("esx-a1")
        await site.approve("n1")
        await site.cluster.eventually(lambda: "ShutdownGuest" in site.vcenter("a").faults.calls)
        assert site.cluster.pods_on("n1") == before
        assert before


def events_about(site: EsxCluster, node: str, reason: str) -> list[RawObject]:
    events = site.cluster.by_key("events").values()
    return [event for event in events if (event["involvedObject"]["name"], event["reason"]) == (node, reason)]


async def test_defect_in_one_zone_does_not_affect_others(clock: Clock) -> None:
    async with an_esx_cluster(clock) as site:
        connect, defects = site.connect_in_process(), ["a"]

        async def connect_with_defect(access: VCenterAccess) -> VCenter:
            if any(f"vcenter-{zone}." in access.url for zone in defects):
                raise RuntimeError("a defect")
            return await connect(access)

        site.connect = connect_with_defect
        site.cluster.run(site.run_controller)
        await site.wait_for_labels(n4="false")
        expected = "ESX in zone a: RuntimeError('a defect'); see the log for details"
        await site.cluster.eventually(lambda: problems_of(site), becomes=expected)
        defects.clear()
        await site.wait_for_labels(n1="false")
        await site.cluster.eventually(lambda: problems_of(site), becomes="")
