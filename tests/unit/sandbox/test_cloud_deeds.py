"""What clouds do in a scenario: they say so as in life, and the machines really go away."""

import base64
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from haulout.core.clock import Clock
from support.playing import MINUTE, Play, played

TWO_CLOUDS = """
pools:
  - {name: oracle, count: 2, zones: [a], cloud: oci}
  - {name: amazon, count: 2, zones: [a], cloud: aws}
  - {name: plain, count: 1, zones: [a]}
workloads:
  - {kind: Deployment, name: web, namespace: shop, replicas: 2, start: 1s, stop: 1s, nodeSelector: {team: web}}
"""


def boot(play: Play, node: str) -> str:
    return str(play.node(node)["status"]["nodeInfo"]["bootID"])


def streamed(play: Play) -> list[str]:
    """Return what was told on the stream: the state of each maintenance."""
    stream = play.stage.fleet.oci.cloud.stream
    cursor = stream.create_cursor({"partition": "0", "type": "TRIM_HORIZON"})
    found, _ = stream.get_messages(cursor, 100)
    events = [msgspec.json.decode(base64.b64decode(it["value"])) for it in found]
    return [it["data"]["additionalDetails"]["lifecycleState"] for it in events]


def queued(play: Play) -> list[Any]:
    """Return what is in the queue."""
    return [msgspec.json.decode(it.body) for it in play.stage.fleet.aws.cloud.queue.messages]


def instance(play: Play, node: str) -> str:
    return str(play.node(node)["spec"]["providerID"]).rpartition("/")[2]


def words(play: Play) -> list[str]:
    return [what for _, what in play.told]


async def test_nodes_say_which_machine_of_their_cloud_they_are(clock: Clock) -> None:
    async with played(clock, "  []", base=TWO_CLOUDS) as play:
        oracle, amazon, plain = (play.node(f"{it}-01") for it in ("oracle", "amazon", "plain"))
        assert oracle["spec"]["providerID"] in play.stage.fleet.oci.cloud.machines.instances
        assert oracle["metadata"]["labels"]["displayName"] == "oracle-01"
        assert amazon["spec"]["providerID"].startswith("aws:///a/i-")
        assert instance(play, "amazon-01") in play.stage.fleet.aws.cloud.machines.by_name
        assert amazon["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] == "amazon"
        assert plain["spec"]["providerID"] == "sandbox://a/plain-01"


async def test_oci_announces_a_reboot_and_does_it(clock: Clock) -> None:
    async with played(clock, "  - {at: 1s, announce: {nodes: oracle-01, in: 3m, for: 2m}}", base=TWO_CLOUDS) as play:
        before = boot(play, "oracle-01")
        await play.at(170)
        assert (streamed(play), play.ready("oracle-01")) == (["SCHEDULED"], "True")
        await play.until(lambda: play.ready("oracle-01") == "Unknown")
        assert streamed(play) == ["SCHEDULED", "STARTED"]
        await play.until(lambda: play.ready("oracle-01") == "True")
        assert streamed(play) == ["SCHEDULED", "STARTED", "SUCCESSFUL"]
        assert boot(play, "oracle-01") != before
        assert play.told == [
            (1, "OCI will reboot oracle-01 in 3m"),
            (181, "OCI reboots oracle-01, which is empty"),
            (301, "OCI is done with oracle-01"),
        ]


async def test_aws_announces_a_reboot_by_health_and_ec2_and_does_it(clock: Clock) -> None:
    async with played(clock, "  - {at: 1s, announce: {nodes: amazon-01, in: 1m, for: 2m}}", base=TWO_CLOUDS) as play:
        cloud = play.stage.fleet.aws.cloud
        before = boot(play, "amazon-01")
        await play.at(5)
        (event,) = cloud.machines.by_name[instance(play, "amazon-01")].events.values()
        assert event["NotBefore"] - clock.now() == pytest.approx(timedelta(seconds=56), abs=timedelta(seconds=1))
        assert [it["detail"]["statusCode"] for it in queued(play)] == ["upcoming"]
        await play.until(lambda: boot(play, "amazon-01") != before)
        assert [it["detail"]["statusCode"] for it in queued(play)] == ["upcoming", "closed"]
        (event,) = cloud.machines.by_name[instance(play, "amazon-01")].events.values()
        assert event["Description"].startswith("[Completed]")


@pytest.mark.parametrize(("node", "to", "begins"), [("oracle-01", "5m", 310), ("amazon-01", "20s", 30)])
async def test_what_is_moved_begins_at_its_new_time(clock: Clock, node: str, to: str, begins: int) -> None:
    lines = f"""
  - {{at: 1s, announce: {{name: x, nodes: {node}, in: 2m}}}}
  - {{at: 10s, move: {{name: x, in: {to}}}}}
"""
    async with played(clock, lines, base=TWO_CLOUDS) as play:
        await play.at(begins - 5)
        assert len(play.told) == 2
        assert words(play)[1].endswith(f"moves the reboot of {node} to {to} from now")
        await play.at(10)
        assert [at for at, _ in play.told] == [1, 10, begins]


async def test_a_time_that_somebody_asked_the_cloud_for_counts(clock: Clock) -> None:
    """As the operator does, when the calendar of a profile has no room for it."""
    async with played(clock, "  - {at: 1s, announce: {nodes: {}, in: 10m}}", base=TWO_CLOUDS) as play:
        await play.at(5)
        oci, aws = play.stage.fleet.oci.cloud, play.stage.fleet.aws.cloud
        start = clock.now().replace(microsecond=0) + timedelta(minutes=61)
        for event in list(oci.machines.events):
            await oci.compute().move_event(event, start=start, etag="", token="")
        for name in ("amazon-01", "amazon-02"):
            called = instance(play, name)
            (event,) = aws.machines.by_name[called].events
            await aws.move_event(called, event, to=start)
        await clock.sleep(30 * MINUTE)
        assert len(play.told) == 1
        await play.until(lambda: len(play.told) == 5, within=40 * MINUTE)
        assert {at - play.told[1][0] for at, _ in play.told[1:]} == {0}
        assert play.told[1][0] == pytest.approx(61 * 60, abs=10)


@pytest.mark.parametrize(("node", "title"), [("oracle-01", "OCI"), ("amazon-01", "AWS")])
async def test_what_is_cancelled_does_not_happen(clock: Clock, node: str, title: str) -> None:
    lines = f"""
  - {{at: 1s, announce: {{name: x, nodes: {node}, in: 1m}}}}
  - {{at: 30s, cancel: {{name: x}}}}
  - {{at: 2m, begin: {{name: x}}}}
  - {{at: 2m, cancel: {{name: x}}}}
"""
    async with played(clock, lines, base=TWO_CLOUDS) as play:
        before = boot(play, node)
        await play.at(300)
        assert (boot(play, node), play.ready(node)) == (before, "True")
        assert words(play) == [
            f"{title} will reboot {node} in 1m",
            f"{title} cancels the reboot of {node}",
            f"begin failed: the reboot of {node} is over and cannot be begun",
            f"cancel failed: the reboot of {node} is over and cannot be cancelled",
        ]


async def test_it_may_begin_early_and_end_early(clock: Clock) -> None:
    lines = """
  - {at: 1s, announce: {name: x, nodes: oracle-01, in: 10m, for: 10m}}
  - {at: 30s, begin: {name: x}}
  - {at: 2m, end: {name: x}}
"""
    async with played(clock, lines, base=TWO_CLOUDS) as play:
        before = boot(play, "oracle-01")
        await play.until(lambda: boot(play, "oracle-01") != before)
        assert [at for at, _ in play.told] == [1, 30, 120]
        await clock.sleep(30 * MINUTE)
        assert (len(play.told), streamed(play)) == (3, ["SCHEDULED", "STARTED", "SUCCESSFUL"])


@pytest.mark.parametrize("pool", ["oracle", "amazon"])
async def test_a_machine_that_is_terminated_is_gone_and_another_joins(clock: Clock, pool: str) -> None:
    lines = f"  - {{at: 1s, announce: {{nodes: {pool}-01, kind: Terminate, in: 1m, for: 30s}}}}"
    async with played(clock, lines, base=TWO_CLOUDS) as play:
        called = instance(play, f"{pool}-01")
        await play.until(lambda: not play.api.has("nodes", f"{pool}-01"))
        oci, aws = play.stage.fleet.oci.cloud.machines.instances, play.stage.fleet.aws.cloud.machines.by_name
        state = oci[called]["lifecycleState"] if pool == "oracle" else aws[called].state
        assert state.lower() == "terminated"
        await play.until(lambda: play.api.has("nodes", f"{pool}-03") and play.ready(f"{pool}-03") == "True")
        assert instance(play, f"{pool}-03") != called
        assert play.told[-1] == (91, f"{pool}-03 joins in place of {pool}-01")


async def test_a_stop_of_aws_is_also_told_as_the_instance_changes(clock: Clock) -> None:
    lines = "  - {at: 1s, announce: {nodes: amazon-01, kind: Stop, in: 1s, for: 2m}}"
    async with played(clock, lines, base=TWO_CLOUDS) as play:
        before = boot(play, "amazon-01")
        await play.until(lambda: boot(play, "amazon-01") != before)
        states = [it["detail"]["state"] for it in queued(play) if "state" in it["detail"]]
        assert states == ["stopped", "running"]


async def test_a_freeze_leaves_what_runs_and_a_migration_is_not_felt(clock: Clock) -> None:
    lines = """
  - {at: 1s, announce: {nodes: amazon-01, kind: Freeze, in: 1s, for: 1m}}
  - {at: 1s, announce: {nodes: oracle-01, kind: Migrate, in: 1s, for: 1m}}
"""
    async with played(clock, lines, base=TWO_CLOUDS) as play:
        before = [boot(play, it) for it in ("amazon-01", "oracle-01")]
        await play.until(lambda: play.ready("amazon-01") == "Unknown")
        assert play.ready("oracle-01") == "True"
        await play.until(lambda: play.ready("amazon-01") == "True")
        assert [boot(play, it) for it in ("amazon-01", "oracle-01")] == before


async def test_the_cloud_asks_nobody_whether_the_node_is_empty(clock: Clock) -> None:
    lines = """
  - {at: 1s, label: {nodes: oracle-01, labels: {team: web}}}
  - {at: 1m, announce: {nodes: oracle-01, in: 1s, for: 1m}}
"""
    async with played(clock, lines, base=TWO_CLOUDS) as play:
        await play.at(70)
        assert play.told[-1] == (61, "OCI reboots oracle-01, with 2 pods on it")


async def test_a_spot_instance_goes_after_two_minutes_and_another_joins(clock: Clock) -> None:
    async with played(clock, "  - {at: 1s, interrupt: {nodes: amazon-02}}", base=TWO_CLOUDS) as play:
        await play.at(5)
        assert [it["detail-type"] for it in queued(play)] == ["EC2 Spot Instance Interruption Warning"]
        await play.at(200)
        assert play.told == [
            (1, "AWS will take amazon-02 back in 2m"),
            (121, "AWS takes back amazon-02, which is empty"),
            (161, "amazon-03 joins in place of amazon-02"),
        ]


async def test_a_recommendation_takes_nothing_away(clock: Clock) -> None:
    async with played(clock, "  - {at: 1s, rebalance: {nodes: amazon-02}}", base=TWO_CLOUDS) as play:
        await play.at(600)
        assert [it["detail-type"] for it in queued(play)] == ["EC2 Instance Rebalance Recommendation"]
        assert play.ready("amazon-02") == "True"


async def test_scaling_in_waits_to_be_let_go(clock: Clock) -> None:
    async with played(clock, "  - {at: 1s, scaleIn: {nodes: {pool: amazon}}}", base=TWO_CLOUDS) as play:
        await play.at(30)
        groups = play.stage.fleet.aws.cloud.groups
        first = next(it for it in groups.actions.values() if it.instance == instance(play, "amazon-01"))
        groups.complete(first.instance, group=first.group, hook=first.hook, token=first.token)
        await play.until(lambda: not play.api.has("nodes", "amazon-01"), within=MINUTE / 2)
        await play.until(lambda: not play.api.has("nodes", "amazon-02"), within=2 * MINUTE)
        await play.at(600)
        assert words(play)[1:] == [
            "AWS terminates amazon-01, which is empty",
            "AWS waits no longer, and terminates amazon-02, which is empty",
        ]


async def test_a_machine_for_which_something_is_announced_is_not_chosen_again(clock: Clock) -> None:
    lines = """
  - {at: 1s, every: 1s, until: 3s, announce: {nodes: {pool: oracle, count: 1}, in: 1m, for: 1s}}
  - {at: 5m, announce: {nodes: {pool: oracle}}}
"""
    async with played(clock, lines, base=TWO_CLOUDS) as play:
        await play.at(310)
        will = [what for what in words(play) if "will" in what or "failed" in what]
        assert sorted(will[:2]) == ["OCI will reboot oracle-01 in 1m", "OCI will reboot oracle-02 in 1m"]
        assert will[2:] == ["announce failed: no node fits", "OCI will reboot oracle-01, oracle-02 in 20m"]


async def test_plans_for_a_machine_that_is_gone_are_dropped(clock: Clock) -> None:
    lines = """
  - {at: 1s, announce: {nodes: [oracle-01, amazon-01], in: 1m}}
  - {at: 2s, interrupt: {nodes: amazon-02}}
  - {at: 10s, removeNodes: {nodes: [oracle-01, amazon-01, amazon-02]}}
"""
    async with played(clock, lines, base=TWO_CLOUDS) as play:
        await play.at(600)
        assert words(play)[0] == "OCI will reboot oracle-01 and AWS will reboot amazon-01 in 1m"
        assert sorted(words(play)[3:]) == [
            "AWS drops the reboot of amazon-01, which is gone",
            "OCI drops the reboot of oracle-01, which is gone",
        ]
        assert streamed(play) == ["SCHEDULED", "CANCELED"]


async def test_what_a_cloud_cannot_do_is_told(clock: Clock) -> None:
    lines = """
  - {at: 1s, announce: {nodes: plain-01}}
  - {at: 2s, announce: {nodes: oracle-01, kind: Freeze}}
  - {at: 3s, interrupt: {nodes: oracle-01}}
  - {at: 4s, cancel: {name: later}}
  - {at: 5s, announce: {name: later, nodes: oracle-01}}
"""
    async with played(clock, lines, base=TWO_CLOUDS) as play:
        await play.at(10)
        assert words(play)[:4] == [
            "announce failed: plain-01: no machine of OCI or AWS or Azure or Google Cloud",
            "announce failed: oracle-01: no machine of AWS or Azure",
            "interrupt failed: oracle-01: no machine of AWS",
            "cancel failed: nothing is announced under the name later",
        ]


GOOGLE = """
pools:
  - {name: google, count: 2, zones: [europe-west1-b], cloud: gcp}
"""


async def test_google_announces_a_reboot_and_does_it(clock: Clock) -> None:
    async with played(clock, "  - {at: 1s, announce: {nodes: google-01, in: 3m, for: 2m}}", base=GOOGLE) as play:
        machine = play.stage.fleet.gcp.cloud.machines.by_name["google-01"]

        def status() -> str:
            return "" if machine.upcoming is None else str(machine.upcoming["maintenanceStatus"])

        assert play.node("google-01")["spec"]["providerID"] == "gce://sandbox-project/europe-west1-b/google-01"
        before = boot(play, "google-01")
        await play.at(170)
        assert status() == "PENDING"
        await play.until(lambda: play.ready("google-01") == "Unknown")
        assert status() == "ONGOING"
        await play.until(lambda: play.ready("google-01") == "True")
        assert (status(), machine.event) == ("", "NONE")
        assert boot(play, "google-01") != before
        assert play.told == [
            (1, "Google Cloud will reboot google-01 in 3m"),
            (181, "Google Cloud reboots google-01, which is empty"),
            (301, "Google Cloud is done with google-01"),
        ]


async def test_what_somebody_asks_google_to_begin_begins_early(clock: Clock) -> None:
    line = "  - {at: 1s, announce: {nodes: google-01, in: 3h, for: 2m, movable: true}}"
    async with played(clock, line, base=GOOGLE) as play:
        await play.at(60)
        cloud = play.stage.fleet.gcp.cloud
        instance = "/compute/v1/projects/sandbox-project/zones/europe-west1-b/instances/google-01"
        headers = {"Authorization": f"Bearer {cloud.access.give()['access_token']}"}
        answer = await cloud.answer("POST", f"{instance}/performMaintenance", headers)
        assert answer.status == 200
        await play.until(lambda: play.ready("google-01") == "Unknown")
        assert words(play)[1] == "Google Cloud reboots google-01, which is empty"
