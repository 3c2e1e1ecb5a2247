"""What clouds do in a scenario: they say so as in life, and the machines really go away."""

import base64
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from haulout.core.clock import Clock
from support.clusters.scenario_run import MINUTE, ScenarioRun, running_scenario

TWO_CLOUDS = """
pools:
  - {name: oracle, count: 2, zones: [a], cloud: oci}
  - {name: amazon, count: 2, zones: [a], cloud: aws}
  - {name: plain, count: 1, zones: [a]}
workloads:
  - {kind: Deployment, name: web, namespace: shop, replicas: 2, start: 1s, stop: 1s, nodeSelector: {team: web}}
"""


def boot(run: ScenarioRun, node: str) -> str:
    return str(run.node(node)["status"]["nodeInfo"]["bootID"])


def stream_events(run: ScenarioRun) -> list[str]:
    """Return what was told on the stream: the state of each maintenance."""
    stream = run.scenario_cluster.fleet.oci.cloud.stream
    cursor = stream.create_group_cursor({"type": "TRIM_HORIZON", "groupName": "test"})
    messages, _ = stream.get_messages(cursor, 100)
    events = [msgspec.json.decode(base64.b64decode(item["value"])) for item in messages]
    return [item["data"]["additionalDetails"]["lifecycleState"] for item in events]


def queue_messages(run: ScenarioRun) -> list[Any]:
    """Return what is in the queue."""
    return [msgspec.json.decode(message.body) for message in run.scenario_cluster.fleet.aws.cloud.queue.messages]


def instance(run: ScenarioRun, node: str) -> str:
    return str(run.node(node)["spec"]["providerID"]).rpartition("/")[2]


def messages(run: ScenarioRun) -> list[str]:
    return [message for _, message in run.log]


async def test_nodes_have_the_provider_id_of_their_instance(clock: Clock) -> None:
    async with running_scenario(clock, "  []", base=TWO_CLOUDS) as run:
        oracle, amazon, plain = (run.node(f"{item}-01") for item in ("oracle", "amazon", "plain"))
        assert oracle["spec"]["providerID"] in run.scenario_cluster.fleet.oci.cloud.compute_service.instances
        assert oracle["metadata"]["labels"]["displayName"] == "oracle-01"
        assert amazon["spec"]["providerID"].startswith("aws:///a/i-")
        assert instance(run, "amazon-01") in run.scenario_cluster.fleet.aws.cloud.ec2_instances.by_id
        assert amazon["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] == "amazon"
        assert plain["spec"]["providerID"] == "sandbox://a/plain-01"


async def test_oci_announces_a_reboot_and_does_it(clock: Clock) -> None:
    async with running_scenario(
        clock, "  - {at: 1s, announce: {nodes: oracle-01, in: 3m, for: 2m}}", base=TWO_CLOUDS
    ) as run:
        before = boot(run, "oracle-01")
        await run.wait_until_second(170)
        assert (stream_events(run), run.node_ready("oracle-01")) == (["SCHEDULED"], "True")
        await run.wait_until(lambda: run.node_ready("oracle-01") == "Unknown")
        assert stream_events(run) == ["SCHEDULED", "STARTED"]
        await run.wait_until(lambda: run.node_ready("oracle-01") == "True")
        assert stream_events(run) == ["SCHEDULED", "STARTED", "SUCCESSFUL"]
        assert boot(run, "oracle-01") != before
        assert run.log == [
            (1, "OCI will reboot oracle-01 in 3m"),
            (181, "OCI reboots oracle-01, which is empty"),
            (301, "OCI is done with oracle-01"),
        ]


async def test_aws_announces_a_reboot_by_health_and_ec2_and_does_it(clock: Clock) -> None:
    async with running_scenario(
        clock, "  - {at: 1s, announce: {nodes: amazon-01, in: 1m, for: 2m}}", base=TWO_CLOUDS
    ) as run:
        cloud = run.scenario_cluster.fleet.aws.cloud
        before = boot(run, "amazon-01")
        await run.wait_until_second(5)
        (event,) = cloud.ec2_instances.by_id[instance(run, "amazon-01")].events.values()
        assert event["NotBefore"] - clock.now() == pytest.approx(timedelta(seconds=56), abs=timedelta(seconds=1))
        assert [item["detail"]["statusCode"] for item in queue_messages(run)] == ["upcoming"]
        await run.wait_until(lambda: boot(run, "amazon-01") != before)
        assert [item["detail"]["statusCode"] for item in queue_messages(run)] == ["upcoming", "closed"]
        (event,) = cloud.ec2_instances.by_id[instance(run, "amazon-01")].events.values()
        assert event["Description"].startswith("[Completed]")


@pytest.mark.parametrize(("node", "to", "begins"), [("oracle-01", "5m", 310), ("amazon-01", "20s", 30)])
async def test_rescheduled_maintenance_starts_at_its_new_time(clock: Clock, node: str, to: str, begins: int) -> None:
    lines = f"""
  - {{at: 1s, announce: {{name: x, nodes: {node}, in: 2m}}}}
  - {{at: 10s, reschedule: {{name: x, in: {to}}}}}
"""
    async with running_scenario(clock, lines, base=TWO_CLOUDS) as run:
        await run.wait_until_second(begins - 5)
        assert len(run.log) == 2
        assert messages(run)[1].endswith(f"moves the reboot of {node} to {to} from now")
        await run.wait_until_second(10)
        assert [at for at, _ in run.log] == [1, 10, begins]


async def test_a_time_that_a_client_of_the_cloud_requested_applies(clock: Clock) -> None:
    """As the operator does, when the calendar of a profile has no room for it."""
    async with running_scenario(clock, "  - {at: 1s, announce: {nodes: {}, in: 10m}}", base=TWO_CLOUDS) as run:
        await run.wait_until_second(5)
        oci, aws = run.scenario_cluster.fleet.oci.cloud, run.scenario_cluster.fleet.aws.cloud
        start = clock.now().replace(microsecond=0) + timedelta(minutes=61)
        for event in list(oci.compute_service.events):
            await oci.compute().move_event(event, start=start, etag="", token="")
        for name in ("amazon-01", "amazon-02"):
            called = instance(run, name)
            (event,) = aws.ec2_instances.by_id[called].events
            await aws.move_event(called, event, to=start)
        await clock.sleep(30 * MINUTE)
        assert len(run.log) == 1
        await run.wait_until(lambda: len(run.log) == 5, within=40 * MINUTE)
        assert {at - run.log[1][0] for at, _ in run.log[1:]} == {0}
        assert run.log[1][0] == pytest.approx(61 * 60, abs=10)


@pytest.mark.parametrize(("node", "title"), [("oracle-01", "OCI"), ("amazon-01", "AWS")])
async def test_what_is_cancelled_does_not_happen(clock: Clock, node: str, title: str) -> None:
    lines = f"""
  - {{at: 1s, announce: {{name: x, nodes: {node}, in: 1m}}}}
  - {{at: 30s, cancelMaintenance: {{name: x}}}}
  - {{at: 2m, startMaintenance: {{name: x}}}}
  - {{at: 121s, cancelMaintenance: {{name: x}}}}
"""
    async with running_scenario(clock, lines, base=TWO_CLOUDS) as run:
        before = boot(run, node)
        await run.wait_until_second(300)
        assert (boot(run, node), run.node_ready(node)) == (before, "True")
        assert messages(run) == [
            f"{title} will reboot {node} in 1m",
            f"{title} cancels the reboot of {node}",
            f"startMaintenance failed: the reboot of {node} is ended and cannot be started",
            f"cancelMaintenance failed: the reboot of {node} is ended and cannot be cancelled",
        ]


async def test_it_may_begin_early_and_end_early(clock: Clock) -> None:
    lines = """
  - {at: 1s, announce: {name: x, nodes: oracle-01, in: 10m, for: 10m}}
  - {at: 30s, startMaintenance: {name: x}}
  - {at: 2m, endMaintenance: {name: x}}
"""
    async with running_scenario(clock, lines, base=TWO_CLOUDS) as run:
        before = boot(run, "oracle-01")
        await run.wait_until(lambda: boot(run, "oracle-01") != before)
        assert [at for at, _ in run.log] == [1, 30, 120]
        await clock.sleep(30 * MINUTE)
        assert (len(run.log), stream_events(run)) == (3, ["SCHEDULED", "STARTED", "SUCCESSFUL"])


@pytest.mark.parametrize("pool", ["oracle", "amazon"])
async def test_a_machine_that_is_terminated_is_gone_and_another_joins(clock: Clock, pool: str) -> None:
    lines = f"  - {{at: 1s, announce: {{nodes: {pool}-01, kind: Terminate, in: 1m, for: 30s}}}}"
    async with running_scenario(clock, lines, base=TWO_CLOUDS) as run:
        called = instance(run, f"{pool}-01")
        await run.wait_until(lambda: not run.api.has("nodes", f"{pool}-01"))
        oci, aws = (
            run.scenario_cluster.fleet.oci.cloud.compute_service.instances,
            run.scenario_cluster.fleet.aws.cloud.ec2_instances.by_id,
        )
        state = oci[called]["lifecycleState"] if pool == "oracle" else aws[called].state
        assert state.lower() == "terminated"
        await run.wait_until(lambda: run.api.has("nodes", f"{pool}-03") and run.node_ready(f"{pool}-03") == "True")
        assert instance(run, f"{pool}-03") != called
        assert run.log[-1] == (91, f"{pool}-03 joins in place of {pool}-01")


async def test_aws_also_announces_state_changes_of_a_stopped_instance(clock: Clock) -> None:
    lines = "  - {at: 1s, announce: {nodes: amazon-01, kind: Stop, in: 1s, for: 2m}}"
    async with running_scenario(clock, lines, base=TWO_CLOUDS) as run:
        before = boot(run, "amazon-01")
        await run.wait_until(lambda: boot(run, "amazon-01") != before)
        states = [item["detail"]["state"] for item in queue_messages(run) if "state" in item["detail"]]
        assert states == ["stopped", "running"]


async def test_a_freeze_leaves_what_runs_and_a_migration_is_not_felt(clock: Clock) -> None:
    lines = """
  - {at: 1s, announce: {nodes: amazon-01, kind: Freeze, in: 1s, for: 1m}}
  - {at: 1s, announce: {nodes: oracle-01, kind: Migrate, in: 1s, for: 1m}}
"""
    async with running_scenario(clock, lines, base=TWO_CLOUDS) as run:
        before = [boot(run, item) for item in ("amazon-01", "oracle-01")]
        await run.wait_until(lambda: run.node_ready("amazon-01") == "Unknown")
        assert run.node_ready("oracle-01") == "True"
        await run.wait_until(lambda: run.node_ready("amazon-01") == "True")
        assert [boot(run, item) for item in ("amazon-01", "oracle-01")] == before


async def test_the_cloud_starts_its_maintenance_on_occupied_nodes_too(clock: Clock) -> None:
    lines = """
  - {at: 1s, label: {nodes: oracle-01, labels: {team: web}}}
  - {at: 1m, announce: {nodes: oracle-01, in: 1s, for: 1m}}
"""
    async with running_scenario(clock, lines, base=TWO_CLOUDS) as run:
        await run.wait_until_second(70)
        assert run.log[-1] == (61, "OCI reboots oracle-01, with 2 pods on it")


async def test_a_spot_instance_goes_after_two_minutes_and_another_joins(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, interrupt: {nodes: amazon-02}}", base=TWO_CLOUDS) as run:
        await run.wait_until_second(5)
        assert [item["detail-type"] for item in queue_messages(run)] == ["EC2 Spot Instance Interruption Warning"]
        await run.wait_until_second(200)
        assert run.log == [
            (1, "AWS will take amazon-02 back in 2m"),
            (121, "AWS takes back amazon-02, which is empty"),
            (161, "amazon-03 joins in place of amazon-02"),
        ]


async def test_a_recommendation_takes_nothing_away(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, rebalance: {nodes: amazon-02}}", base=TWO_CLOUDS) as run:
        await run.wait_until_second(600)
        assert [item["detail-type"] for item in queue_messages(run)] == ["EC2 Instance Rebalance Recommendation"]
        assert run.node_ready("amazon-02") == "True"


async def test_scaling_in_waits_to_be_let_go(clock: Clock) -> None:
    async with running_scenario(clock, "  - {at: 1s, scaleIn: {nodes: {pool: amazon}}}", base=TWO_CLOUDS) as run:
        await run.wait_until_second(30)
        groups = run.scenario_cluster.fleet.aws.cloud.auto_scaling
        first = next(action for action in groups.actions.values() if action.instance == instance(run, "amazon-01"))
        groups.complete(first.instance, group=first.group, hook=first.hook, token=first.token)
        await run.wait_until(lambda: not run.api.has("nodes", "amazon-01"), within=MINUTE / 2)
        await run.wait_until(lambda: not run.api.has("nodes", "amazon-02"), within=2 * MINUTE)
        await run.wait_until_second(600)
        assert messages(run)[1:] == [
            "AWS terminates amazon-01, which is empty",
            "AWS waits no longer, and terminates amazon-02, which is empty",
        ]


async def test_a_machine_for_which_something_is_announced_is_not_chosen_again(clock: Clock) -> None:
    lines = """
  - {at: 1s, every: 1s, until: 3s, announce: {nodes: {pool: oracle, count: 1}, in: 1m, for: 1s}}
  - {at: 5m, announce: {nodes: {pool: oracle}}}
"""
    async with running_scenario(clock, lines, base=TWO_CLOUDS) as run:
        await run.wait_until_second(310)
        will = [what for what in messages(run) if "will" in what or "failed" in what]
        assert sorted(will[:2]) == ["OCI will reboot oracle-01 in 1m", "OCI will reboot oracle-02 in 1m"]
        assert will[2:] == ["announce failed: no node fits", "OCI will reboot oracle-01, oracle-02 in 20m"]


async def test_plans_for_a_machine_that_is_gone_are_dropped(clock: Clock) -> None:
    lines = """
  - {at: 1s, announce: {nodes: [oracle-01, amazon-01], in: 1m}}
  - {at: 2s, interrupt: {nodes: amazon-02}}
  - {at: 10s, removeNodes: {nodes: [oracle-01, amazon-01, amazon-02]}}
"""
    async with running_scenario(clock, lines, base=TWO_CLOUDS) as run:
        await run.wait_until_second(600)
        assert messages(run)[0] == "OCI will reboot oracle-01 and AWS will reboot amazon-01 in 1m"
        assert sorted(messages(run)[3:]) == [
            "AWS drops the reboot of amazon-01, which is gone",
            "OCI drops the reboot of oracle-01, which is gone",
        ]
        assert stream_events(run) == ["SCHEDULED", "CANCELED"]


async def test_an_action_that_a_cloud_does_not_support_is_reported(clock: Clock) -> None:
    lines = """
  - {at: 1s, announce: {nodes: plain-01}}
  - {at: 2s, announce: {nodes: oracle-01, kind: Freeze}}
  - {at: 3s, interrupt: {nodes: oracle-01}}
  - {at: 4s, cancelMaintenance: {name: later}}
  - {at: 5s, announce: {name: later, nodes: oracle-01}}
"""
    async with running_scenario(clock, lines, base=TWO_CLOUDS) as run:
        await run.wait_until_second(10)
        assert messages(run)[:4] == [
            "announce failed: plain-01: no machine of OCI or AWS or Azure or Google Cloud",
            "announce failed: oracle-01: no machine of AWS or Azure",
            "interrupt failed: oracle-01: no machine of AWS",
            "cancelMaintenance failed: nothing is announced under the name later",
        ]


GOOGLE = """
pools:
  - {name: google, count: 2, zones: [europe-west1-b], cloud: gcp}
"""


async def test_google_announces_a_reboot_and_does_it(clock: Clock) -> None:
    async with running_scenario(
        clock, "  - {at: 1s, announce: {nodes: google-01, in: 3m, for: 2m}}", base=GOOGLE
    ) as run:
        machine = run.scenario_cluster.fleet.gcp.cloud.instances.by_name["google-01"]

        def status() -> str:
            return (
                "" if machine.upcoming_maintenance is None else str(machine.upcoming_maintenance["maintenanceStatus"])
            )

        assert run.node("google-01")["spec"]["providerID"] == "gce://sandbox-project/europe-west1-b/google-01"
        before = boot(run, "google-01")
        await run.wait_until_second(170)
        assert status() == "PENDING"
        await run.wait_until(lambda: run.node_ready("google-01") == "Unknown")
        assert status() == "ONGOING"
        await run.wait_until(lambda: run.node_ready("google-01") == "True")
        assert (status(), machine.maintenance_event) == ("", "NONE")
        assert boot(run, "google-01") != before
        assert run.log == [
            (1, "Google Cloud will reboot google-01 in 3m"),
            (181, "Google Cloud reboots google-01, which is empty"),
            (301, "Google Cloud is done with google-01"),
        ]


async def test_maintenance_that_a_client_of_google_requests_starts_early(clock: Clock) -> None:
    line = "  - {at: 1s, announce: {nodes: google-01, in: 3h, for: 2m, canReschedule: true}}"
    async with running_scenario(clock, line, base=GOOGLE) as run:
        await run.wait_until_second(60)
        cloud = run.scenario_cluster.fleet.gcp.cloud
        instance = "/compute/v1/projects/sandbox-project/zones/europe-west1-b/instances/google-01"
        headers = {"Authorization": f"Bearer {cloud.access_tokens.issue()['access_token']}"}
        answer = await cloud.answer("POST", f"{instance}/performMaintenance", headers)
        assert answer.status == 200
        await run.wait_until(lambda: run.node_ready("google-01") == "Unknown")
        assert messages(run)[1] == "Google Cloud reboots google-01, which is empty"
