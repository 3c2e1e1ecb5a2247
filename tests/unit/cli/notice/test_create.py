"""`haulout notice create`: a maintenance is announced once, whatever happens, and it is said what will come of it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind, MaintenanceNotice, NoticeStage
from haulout.api.resources import NODES
from haulout.cli.notice.apply import ApplyResult, ApplyVerb
from haulout.cli.notice.command import KINDS
from haulout.cli.notice.creation import clock_skew_warning
from haulout.core.clock import Clock
from haulout.errors import Conflict, Forbidden, HauloutError, KubeError, ServerFailure, UsageError
from haulout.kube.patches import merge_patch
from haulout.kube.transport import Request
from support.cli.command_runner import command_runner
from support.cli.notice_terminal import NoticeTerminal, a_notice_terminal

Capsys = pytest.CaptureFixture[str]
REBOOT = ("n1", "--kind", "Reboot", "--start", "+20m")
POSTED = "/maintenancenotices"


async def only(desk: NoticeTerminal) -> MaintenanceNotice:
    """Return the one notice that there is."""
    (name,) = await desk.names()
    return await desk.get(name)


def test_its_kinds_are_all_there_are() -> None:
    assert tuple(MaintenanceKind) == KINDS


async def test_it_reads_like_this(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        now = clock.now()
        said = await desk.create(*REBOOT, "--end", "+1h", "--reason", "new firmware", "--id", "chg-17")
        start, end, drain = (f"{now + timedelta(minutes=it):%Y-%m-%d %H:%M}" for it in (20, 60, 5))
        assert said.out == "maintenancenotice.haulout.dev/people-chg-17 created\n"
        first, second, last = said.err.splitlines()
        assert first.startswith(f"Reboot of node n1 at {start}")
        assert f", expected to end by {end}" in first
        assert second.startswith(f"A profile with the check `notice` drains the node from {drain}")
        assert second.endswith(", 15m0s before the start.")
        assert last == "The operator has not processed the notice yet. Is it running?"


async def test_the_notice_names_the_node_and_its_machine(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        now = clock.now().replace(microsecond=0)
        node = await desk.client.get(NODES, "n1")
        assert node.spec.provider_id
        await desk.create(
            *REBOOT, "--end", "+1h", "--deadline", "+30m", "--description", "two\nlines", "--reason", "bmc"
        )
        made = await only(desk)
        spec = made.spec
        assert (spec.node_name, spec.provider_id, spec.kind) == ("n1", node.spec.provider_id, MaintenanceKind.REBOOT)
        assert (spec.source, spec.reason, spec.description, spec.stage) == ("people", "bmc", "two\nlines", "")
        assert (spec.start, spec.end) == (now + timedelta(minutes=20), now + timedelta(hours=1))
        assert spec.deadline == now + timedelta(minutes=30)
        assert made.name == f"people-{spec.notice_id}"
        assert spec.notice_id.startswith("n1-")


async def test_without_an_id_each_is_another(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        for _ in range(3):
            await desk.create(*REBOOT)
        assert len(set(await desk.names())) == 3


async def test_the_same_id_again_changes_the_same_notice_and_says_what(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        start = "2027-01-05T10:00:00Z"
        await desk.create("n1", "--kind", "stop", "--start", start, "--reason", "disk", "--id", "T-17")
        again = await desk.create("n1", "--kind", "stop", "--start", start, "--reason", "disk", "--id", "T-17")
        assert again.out.endswith(" unchanged\n")
        moved = await desk.create("n1", "--kind", "Stop", "--start", "2027-01-05T11:00Z", "--id", "T-17")
        assert moved.out.endswith(" configured\n")
        assert moved.err.splitlines()[:2] == [
            "  start: 2027-01-05 10:00:00 UTC → 2027-01-05 11:00:00 UTC",
            "  reason: disk → none",
        ]
        assert (await only(desk)).spec.reason == ""


async def test_what_others_said_about_it_stays(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        desk.put_notice(
            "tickets-7", nodeName="n1", source="tickets", noticeID="7", stage="Started", machineName="rack-3"
        )
        await desk.create(*REBOOT, "--source", "tickets", "--id", "7")
        spec = (await desk.get("tickets-7")).spec
        assert (spec.stage, spec.machine_name, spec.kind) == (NoticeStage.STARTED, "rack-3", MaintenanceKind.REBOOT)


async def test_an_id_of_something_else_is_refused(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as desk:
        desk.put_notice("people-a", nodeName="n2", source="people", noticeID="a")
        desk.put_notice("people-b", nodeName="n1", source="people", noticeID="b", stage="Cancelled")
        desk.put_notice("people-c", nodeName="n1", source="people", noticeID="c", reportedAt="2026-01-01T00:00:00Z")
        desk.put_notice("people-d", providerID="i-1", source="people", noticeID="d")
        for notice, says in (
            ("a", "people-a is about node n2: use another --id, or cancel it: haulout notice cancel people-a"),
            ("b", r"people-b has ended \(people reports that it was cancelled\): use another --id"),
            ("c", "people-c belongs to source people: use another --id"),
            ("d", "people-d is about machine i-1: use another --id"),
        ):
            with pytest.raises(HauloutError, match=says):
                await desk.create(*REBOOT, "--id", notice)


async def test_a_node_that_is_not_there_is_asked_about(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "node-1", "node-2") as desk:
        with pytest.raises(KubeError) as refused:
            await desk.create("nodes/node-11", *REBOOT[1:])
        assert str(refused.value) == (
            'nodes "node-11" not found; no notice was created '
            '(for a node that does not exist yet: --allow-unknown-node); did you mean "node-1"?'
        )
        assert await desk.names() == []
        said = await desk.create("node-11", *REBOOT[1:], "--allow-unknown-node")
        assert "Node node-11 does not exist yet: the notice takes effect when it is created." in said.err.splitlines()
        made = await only(desk)
        assert (made.spec.node_name, made.spec.provider_id) == ("node-11", "")


async def test_who_may_not_see_nodes_may_announce_without_looking(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        desk.cluster.transport.faults.fail_before_effect(path="/nodes", response=403, times=None)
        with pytest.raises(Forbidden):
            await desk.create(*REBOOT)
        await desk.create(*REBOOT, "--allow-unknown-node")
        assert (await only(desk)).spec.node_name == "n1"


async def test_what_is_odd_about_it_is_said(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        begun = await desk.create("n1", "--kind", "Stop", "--start", "now", "--id", "a")
        assert begun.err.splitlines()[1:3] == [
            "The start is not in the future: the maintenance counts as begun, and the node is drained at once.",
            "No end is set. When the maintenance has ended, run: haulout notice end people-a",
        ]
        frozen = await desk.create("n1", "--kind", "Freeze", "--start", "+1h", "--end", "+2h")
        assert frozen.err.splitlines()[1] == "A Freeze takes seconds: by default the node is not drained for it."
        soon = await desk.create("n1", "--kind", "Stop", "--start", "+5m", "--end", "+2h")
        assert soon.err.splitlines()[1].startswith("A profile with the check `notice` drains the node at once.")


async def test_it_tells_what_the_operator_makes_of_it(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        said = await desk.create(*REBOOT, "--end", "+1h", "--id", "a", "-o", "yaml")
        spec = yaml.safe_load(said.out)["spec"]
        at = f"{clock.now() + timedelta(minutes=2):%Y-%m-%dT%H:%M:%SZ}"
        late = {"type": "OnTime", "status": "False", "reason": "TooSlow", "message": "its pods need 40m"}
        status = {
            "phase": "Planned",
            "start": spec["start"],
            "drainAt": at,
            "observedGeneration": 1,
            "conditions": [late],
        }
        await desk.client.patch(MAINTENANCE_NOTICES, "people-a", merge_patch({"status": status}), subresource="status")
        told = (
            await desk.create("n1", "--kind", "Reboot", "--start", spec["start"], "--end", spec["end"], "--id", "a")
        ).err
        assert "(in 1m59s)" in told or "(in 2m0s)" in told
        assert told.splitlines()[-1] == "The node will not be empty in time: its pods need 40m"


async def test_a_dry_run_changes_nothing(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        client_side = await desk.create(*REBOOT, "--id", "a", "--dry-run")
        assert client_side.out == "maintenancenotice.haulout.dev/people-a created (dry run)\n"
        assert "operator" not in client_side.err
        server_side = await desk.create(*REBOOT, "--id", "a", "--dry-run=server")
        assert server_side.out == "maintenancenotice.haulout.dev/people-a created (server dry run)\n"
        assert await desk.names() == []
        await desk.create(*REBOOT, "--id", "a")
        before = await desk.get("people-a")
        for how in ("client", "server"):
            changed = await desk.create(
                "n1", "--kind", "Stop", "--start", "+2h", "--id", "a", f"--dry-run={how}", "-o", "json"
            )
            assert json.loads(changed.out)["spec"]["kind"] == "Stop"
        assert await desk.get("people-a") == before


async def test_programs_get_the_object_or_its_name(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        assert await desk.create(*REBOOT, "--id", "a", "-o", "name") == ("maintenancenotice.haulout.dev/people-a\n", "")
        made = yaml.safe_load((await desk.create(*REBOOT, "--kind", "Unknown", "--id", "b", "-o", "yaml")).out)
        assert (made["kind"], made["metadata"]["name"], made["spec"]["kind"]) == (
            "MaintenanceNotice",
            "people-b",
            "Unknown",
        )


async def test_where_notices_are_not_installed_it_says_how_to_install_them(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", is_installed=False) as desk:
        with pytest.raises(
            HauloutError, match=r"maintenancenotices\.haulout\.dev is not installed; to install it: haulout"
        ):
            await desk.create(*REBOOT)


@pytest.mark.parametrize("given", [(), ("--id", "a")])
async def test_a_lost_answer_does_not_announce_it_twice(clock: Clock, capsys: Capsys, given: tuple[str, ...]) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        desk.cluster.transport.faults.fail_after_effect(path=POSTED, where=lambda it: it.method == "POST")
        said = await desk.create(*REBOOT, *given)
        assert said.out.endswith(" created\n")
        await only(desk)


async def test_a_change_whose_answer_is_lost_is_made_once(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        await desk.create(*REBOOT, "--id", "a")
        desk.cluster.transport.faults.fail_after_effect(
            path=POSTED, response=504, where=lambda it: it.method == "PATCH"
        )
        await desk.create("n1", "--kind", "Stop", "--start", "+2h", "--id", "a")
        found = await only(desk)
        assert (found.spec.kind, found.metadata.generation) == (MaintenanceKind.STOP, 2)


async def test_who_is_overtaken_looks_again(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        await desk.create(*REBOOT, "--id", "a")
        desk.cluster.transport.faults.fail_before_effect(
            path=POSTED, response=409, where=lambda it: it.method == "PATCH", times=2
        )
        await desk.create("n1", "--kind", "Stop", "--start", "+2h", "--id", "a")
        assert (await only(desk)).spec.kind == MaintenanceKind.STOP
        desk.cluster.transport.faults.fail_before_effect(
            path=POSTED, response=409, where=lambda it: it.method == "PATCH", times=None
        )
        with pytest.raises(Conflict):
            await desk.create(*REBOOT, "--id", "a")


async def test_what_was_called_off_meanwhile_is_not_changed(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        await desk.create(*REBOOT, "--id", "a")

        def is_overtaken(request: Request) -> bool:
            if request.method == "PATCH":
                desk.put_notice("people-a", nodeName="n1", source="people", noticeID="a", stage="Cancelled")
            return request.method == "PATCH"

        desk.cluster.transport.faults.delay(timedelta(), where=is_overtaken)
        with pytest.raises(HauloutError, match="people-a has ended"):
            await desk.create("n1", "--kind", "Stop", "--start", "+2h", "--id", "a")
        assert (await only(desk)).spec.kind == MaintenanceKind.UNKNOWN


async def test_a_server_that_fails_is_not_asked_for_ever(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        desk.cluster.transport.faults.fail_before_effect(
            path=POSTED, response=500, where=lambda it: it.method == "POST", times=None
        )
        with pytest.raises(ServerFailure):
            await desk.create(*REBOOT)


async def test_a_name_that_is_taken_by_chance_is_left_alone(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        # each client begins with the same chance here, so that the next one makes the same name
        name = (await desk.create(*REBOOT, "--dry-run", "-o", "name")).out.strip().partition("/")[2]
        desk.put_notice(name, nodeName="n1", source="people", kind="Stop")
        await desk.create(*REBOOT)
        assert len(await desk.names()) == 2
        assert (await desk.get(name)).spec.kind == MaintenanceKind.STOP


@pytest.mark.parametrize(
    ("minutes", "says"),
    [
        (0, ""),
        (0.4, ""),
        (12, "Warning: the clock of the cluster is 12m0s ahead of yours. Give times by the clock of the cluster."),
        (-90, "Warning: the clock of the cluster is 1h30m behind yours. Give times by the clock of the cluster."),
    ],
)
def test_a_cluster_with_another_time_is_told_of(minutes: float, says: str) -> None:
    """Somebody whose clock is wrong, or who tries things on a sandbox that runs faster than life."""
    now = datetime(2026, 11, 15, 23, tzinfo=UTC)
    metadata = {"name": "a", "creationTimestamp": (now + timedelta(minutes=minutes)).isoformat()}
    made = ApplyResult(raw={"metadata": metadata, "spec": {}}, verb=ApplyVerb.CREATED, node=None)
    assert clock_skew_warning(made, now=now) == says
    assert clock_skew_warning(replace(made, verb=ApplyVerb.UNCHANGED), now=now) == "", "it may have been made days ago"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--start", "+1h", "--end", "+30m"), "--end: .* is not after the start, "),
        (("--start", "+1h", "--end", "+1h"), "--end: .* is not after the start, "),
        (
            ("--start", "2020-01-01T00:00Z", "--end", "2020-01-02T00:00Z"),
            "--end: 2020-01-02 00:00:00 UTC is in the past",
        ),
        (("--start", "+1h", "--deadline", "+30m"), "--deadline: .* is before the start, "),
        (("--start", "soon"), "--start: expected a time such as 2026-12-01T03:00:00Z"),
        (("--start", "2026-12-01 03:00"), "--start: the time zone of '2026-12-01 03:00'"),
        (("--start", "+1h", "--end", "later"), "--end: expected a time"),
        (("--start", "+1h", "--deadline", "later"), "--deadline: expected a time"),
        (
            ("--start", "+1h", "--source", "aws"),
            "--source: aws is reserved for notices that Haulout reads from that cloud",
        ),
        (
            ("--start", "+1h", "--source", "oci"),
            "--source: oci is reserved for notices that Haulout reads from that cloud",
        ),
    ],
)
async def test_what_makes_no_sense_is_refused(clock: Clock, capsys: Capsys, args: tuple[str, ...], says: str) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        with pytest.raises(UsageError, match=says):
            await desk.create("n1", "--kind", "Stop", *args)
        assert await desk.names() == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("n1", "--start", "+1h"), "Missing option '--kind'"),
        (("n1", "--kind", "Stop"), "Missing option '--start'"),
        (("--kind", "Stop", "--start", "+1h"), "Missing argument 'NODE'"),
        (("n1", "--kind", "Stopp", "--start", "+1h"), "'Stopp' is not one of"),
        (("n1", "--kind", "Stop", "--start", "+1h", "--source", "A b"), "expected a-z, 0-9 and - only"),
        (("n1", "--kind", "Stop", "--start", "+1h", "--id", ""), "expected 1 to 1024 characters"),
        (("n1", "--kind", "Stop", "--start", "2026-12-01 03:00"), "haulout: --start: the time zone of"),
        (("n1", "--kind", "Stop", "--start", "+1h", "--end", "+1m"), "haulout: --end: "),
    ],
)
def test_the_command_line_is_checked_before_anything_is_asked(capsys: Capsys, args: tuple[str, ...], says: str) -> None:
    done = command_runner(capsys)("notice", "create", *args)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
