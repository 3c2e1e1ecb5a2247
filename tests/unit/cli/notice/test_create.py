"""`haulout notice create`: one notice per request in spite of failures, and its planned drain."""

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


async def only_notice(terminal: NoticeTerminal) -> MaintenanceNotice:
    """Return the only notice."""
    (name,) = await terminal.names()
    return await terminal.get(name)


def test_kind_flag_lists_all_maintenance_kinds() -> None:
    assert tuple(MaintenanceKind) == KINDS


async def test_text_output_has_the_expected_lines(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        now = clock.now()
        output = await terminal.create(*REBOOT, "--end", "+1h", "--reason", "new firmware", "--id", "chg-17")
        start, end, drain = (f"{now + timedelta(minutes=it):%Y-%m-%d %H:%M}" for it in (20, 60, 5))
        assert output.out == "maintenancenotice.haulout.dev/people-chg-17 created\n"
        first, second, last = output.err.splitlines()
        assert first.startswith(f"Reboot of node n1 at {start}")
        assert f", expected to end by {end}" in first
        assert second.startswith(f"A profile with the check `notice` drains the node from {drain}")
        assert second.endswith(", 15m0s before the start.")
        assert last == "The operator has not processed the notice yet. Is it running?"


async def test_notice_names_the_node_and_its_provider_id(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        now = clock.now().replace(microsecond=0)
        node = await terminal.client.get(NODES, "n1")
        assert node.spec.provider_id
        await terminal.create(
            *REBOOT, "--end", "+1h", "--deadline", "+30m", "--description", "two\nlines", "--reason", "bmc"
        )
        made = await only_notice(terminal)
        spec = made.spec
        assert (spec.node_name, spec.provider_id, spec.kind) == ("n1", node.spec.provider_id, MaintenanceKind.REBOOT)
        assert (spec.source, spec.reason, spec.description, spec.stage) == ("people", "bmc", "two\nlines", "")
        assert (spec.start, spec.end) == (now + timedelta(minutes=20), now + timedelta(hours=1))
        assert spec.deadline == now + timedelta(minutes=30)
        assert made.name == f"people-{spec.notice_id}"
        assert spec.notice_id.startswith("n1-")


async def test_notices_without_an_id_are_separate(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        for _ in range(3):
            await terminal.create(*REBOOT)
        assert len(set(await terminal.names())) == 3


async def test_same_id_updates_the_notice_and_prints_the_changes(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        start = "2027-01-05T10:00:00Z"
        await terminal.create("n1", "--kind", "stop", "--start", start, "--reason", "disk", "--id", "T-17")
        again = await terminal.create("n1", "--kind", "stop", "--start", start, "--reason", "disk", "--id", "T-17")
        assert again.out.endswith(" unchanged\n")
        moved = await terminal.create("n1", "--kind", "Stop", "--start", "2027-01-05T11:00Z", "--id", "T-17")
        assert moved.out.endswith(" configured\n")
        assert moved.err.splitlines()[:2] == [
            "  start: 2027-01-05 10:00:00 UTC → 2027-01-05 11:00:00 UTC",
            "  reason: disk → none",
        ]
        assert (await only_notice(terminal)).spec.reason == ""


async def test_fields_of_other_writers_are_kept(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        terminal.put_notice(
            "tickets-7", nodeName="n1", source="tickets", noticeID="7", stage="Started", machineName="rack-3"
        )
        await terminal.create(*REBOOT, "--source", "tickets", "--id", "7")
        spec = (await terminal.get("tickets-7")).spec
        assert (spec.stage, spec.machine_name, spec.kind) == (NoticeStage.STARTED, "rack-3", MaintenanceKind.REBOOT)


async def test_id_of_another_notice_is_refused(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as terminal:
        terminal.put_notice("people-a", nodeName="n2", source="people", noticeID="a")
        terminal.put_notice("people-b", nodeName="n1", source="people", noticeID="b", stage="Cancelled")
        terminal.put_notice("people-c", nodeName="n1", source="people", noticeID="c", reportedAt="2026-01-01T00:00:00Z")
        terminal.put_notice("people-d", providerID="i-1", source="people", noticeID="d")
        for notice, expected in (
            ("a", "people-a is about node n2: use another --id, or cancel it: haulout notice cancel people-a"),
            ("b", r"people-b has ended \(people reports that it was cancelled\): use another --id"),
            ("c", "people-c belongs to source people: use another --id"),
            ("d", "people-d is about machine i-1: use another --id"),
        ):
            with pytest.raises(HauloutError, match=expected):
                await terminal.create(*REBOOT, "--id", notice)


async def test_unknown_node_is_refused_unless_allowed(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "node-1", "node-2") as terminal:
        with pytest.raises(KubeError) as refused:
            await terminal.create("nodes/node-11", *REBOOT[1:])
        assert str(refused.value) == (
            'nodes "node-11" not found; no notice was created '
            '(for a node that does not exist yet: --allow-unknown-node); did you mean "node-1"?'
        )
        assert await terminal.names() == []
        output = await terminal.create("node-11", *REBOOT[1:], "--allow-unknown-node")
        assert "Node node-11 does not exist yet: the notice takes effect when it is created." in output.err.splitlines()
        made = await only_notice(terminal)
        assert (made.spec.node_name, made.spec.provider_id) == ("node-11", "")


async def test_yes_unknown_skips_the_node_lookup_when_nodes_are_forbidden(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        terminal.cluster.transport.faults.fail_before_effect(path="/nodes", response=403, times=None)
        with pytest.raises(Forbidden):
            await terminal.create(*REBOOT)
        await terminal.create(*REBOOT, "--allow-unknown-node")
        assert (await only_notice(terminal)).spec.node_name == "n1"


async def test_unusual_times_and_kinds_are_reported(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        started = await terminal.create("n1", "--kind", "Stop", "--start", "now", "--id", "a")
        assert started.err.splitlines()[1:3] == [
            "The start is not in the future: the maintenance counts as begun, and the node is drained at once.",
            "No end is set. When the maintenance has ended, run: haulout notice end people-a",
        ]
        frozen = await terminal.create("n1", "--kind", "Freeze", "--start", "+1h", "--end", "+2h")
        assert frozen.err.splitlines()[1] == "A Freeze takes seconds: by default the node is not drained for it."
        soon = await terminal.create("n1", "--kind", "Stop", "--start", "+5m", "--end", "+2h")
        assert soon.err.splitlines()[1].startswith("A profile with the check `notice` drains the node at once.")


async def test_create_prints_the_status_that_the_operator_wrote(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        output = await terminal.create(*REBOOT, "--end", "+1h", "--id", "a", "-o", "yaml")
        spec = yaml.safe_load(output.out)["spec"]
        at = f"{clock.now() + timedelta(minutes=2):%Y-%m-%dT%H:%M:%SZ}"
        late = {"type": "OnTime", "status": "False", "reason": "TooSlow", "message": "its pods need 40m"}
        status = {
            "phase": "Planned",
            "start": spec["start"],
            "drainAt": at,
            "observedGeneration": 1,
            "conditions": [late],
        }
        await terminal.client.patch(
            MAINTENANCE_NOTICES, "people-a", merge_patch({"status": status}), subresource="status"
        )
        messages = (
            await terminal.create("n1", "--kind", "Reboot", "--start", spec["start"], "--end", spec["end"], "--id", "a")
        ).err
        assert "(in 1m59s)" in messages or "(in 2m0s)" in messages
        assert messages.splitlines()[-1] == "The node will not be empty in time: its pods need 40m"


async def test_dry_run_changes_nothing(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        client_side = await terminal.create(*REBOOT, "--id", "a", "--dry-run")
        assert client_side.out == "maintenancenotice.haulout.dev/people-a created (dry run)\n"
        assert "operator" not in client_side.err
        server_side = await terminal.create(*REBOOT, "--id", "a", "--dry-run=server")
        assert server_side.out == "maintenancenotice.haulout.dev/people-a created (server dry run)\n"
        assert await terminal.names() == []
        await terminal.create(*REBOOT, "--id", "a")
        before = await terminal.get("people-a")
        for mode in ("client", "server"):
            changed = await terminal.create(
                "n1", "--kind", "Stop", "--start", "+2h", "--id", "a", f"--dry-run={mode}", "-o", "json"
            )
            assert json.loads(changed.out)["spec"]["kind"] == "Stop"
        assert await terminal.get("people-a") == before


async def test_output_formats_print_the_object_or_its_name(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        assert await terminal.create(*REBOOT, "--id", "a", "-o", "name") == (
            "maintenancenotice.haulout.dev/people-a\n",
            "",
        )
        made = yaml.safe_load((await terminal.create(*REBOOT, "--kind", "Unknown", "--id", "b", "-o", "yaml")).out)
        assert (made["kind"], made["metadata"]["name"], made["spec"]["kind"]) == (
            "MaintenanceNotice",
            "people-b",
            "Unknown",
        )


async def test_missing_notice_definition_is_reported_with_a_remedy(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", is_installed=False) as terminal:
        with pytest.raises(
            HauloutError, match=r"maintenancenotices\.haulout\.dev is not installed; to install it: haulout"
        ):
            await terminal.create(*REBOOT)


@pytest.mark.parametrize("given", [(), ("--id", "a")])
async def test_lost_response_does_not_create_a_second_notice(
    clock: Clock, capsys: Capsys, given: tuple[str, ...]
) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        terminal.cluster.transport.faults.fail_after_effect(path=POSTED, where=lambda it: it.method == "POST")
        output = await terminal.create(*REBOOT, *given)
        assert output.out.endswith(" created\n")
        await only_notice(terminal)


async def test_update_with_a_lost_response_is_applied_once(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        await terminal.create(*REBOOT, "--id", "a")
        terminal.cluster.transport.faults.fail_after_effect(
            path=POSTED, response=504, where=lambda it: it.method == "PATCH"
        )
        await terminal.create("n1", "--kind", "Stop", "--start", "+2h", "--id", "a")
        found = await only_notice(terminal)
        assert (found.spec.kind, found.metadata.generation) == (MaintenanceKind.STOP, 2)


async def test_write_conflict_is_retried_a_limited_number_of_times(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        await terminal.create(*REBOOT, "--id", "a")
        terminal.cluster.transport.faults.fail_before_effect(
            path=POSTED, response=409, where=lambda it: it.method == "PATCH", times=2
        )
        await terminal.create("n1", "--kind", "Stop", "--start", "+2h", "--id", "a")
        assert (await only_notice(terminal)).spec.kind == MaintenanceKind.STOP
        terminal.cluster.transport.faults.fail_before_effect(
            path=POSTED, response=409, where=lambda it: it.method == "PATCH", times=None
        )
        with pytest.raises(Conflict):
            await terminal.create(*REBOOT, "--id", "a")


async def test_notice_cancelled_meanwhile_is_not_changed(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        await terminal.create(*REBOOT, "--id", "a")

        def is_overtaken(request: Request) -> bool:
            if request.method == "PATCH":
                terminal.put_notice("people-a", nodeName="n1", source="people", noticeID="a", stage="Cancelled")
            return request.method == "PATCH"

        terminal.cluster.transport.faults.delay(timedelta(), where=is_overtaken)
        with pytest.raises(HauloutError, match="people-a has ended"):
            await terminal.create("n1", "--kind", "Stop", "--start", "+2h", "--id", "a")
        assert (await only_notice(terminal)).spec.kind == MaintenanceKind.UNKNOWN


async def test_repeated_server_errors_end_the_command(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        terminal.cluster.transport.faults.fail_before_effect(
            path=POSTED, response=500, where=lambda it: it.method == "POST", times=None
        )
        with pytest.raises(ServerFailure):
            await terminal.create(*REBOOT)


async def test_generated_name_that_exists_is_not_overwritten(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        # each client has the same seed here, so that the next one generates the same name
        name = (await terminal.create(*REBOOT, "--dry-run", "-o", "name")).out.strip().partition("/")[2]
        terminal.put_notice(name, nodeName="n1", source="people", kind="Stop")
        await terminal.create(*REBOOT)
        assert len(await terminal.names()) == 2
        assert (await terminal.get(name)).spec.kind == MaintenanceKind.STOP


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        (0, ""),
        (0.4, ""),
        (12, "Warning: the clock of the cluster is 12m0s ahead of yours. Give times by the clock of the cluster."),
        (-90, "Warning: the clock of the cluster is 1h30m behind yours. Give times by the clock of the cluster."),
    ],
)
def test_clock_skew_to_the_cluster_is_a_warning(minutes: float, expected: str) -> None:
    """For a user with a wrong clock, or a sandbox with accelerated time."""
    now = datetime(2026, 11, 15, 23, tzinfo=UTC)
    metadata = {"name": "a", "creationTimestamp": (now + timedelta(minutes=minutes)).isoformat()}
    made = ApplyResult(raw={"metadata": metadata, "spec": {}}, verb=ApplyVerb.CREATED, node=None)
    assert clock_skew_warning(made, now=now) == expected
    assert clock_skew_warning(replace(made, verb=ApplyVerb.UNCHANGED), now=now) == "", "it may have been made days ago"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--start", "+1h", "--end", "+30m"), "--end: expected a time after the start, "),
        (("--start", "+1h", "--end", "+1h"), "--end: expected a time after the start, "),
        (
            ("--start", "2020-01-01T00:00Z", "--end", "2020-01-02T00:00Z"),
            "--end: 2020-01-02 00:00:00 UTC is in the past",
        ),
        (("--start", "+1h", "--deadline", "+30m"), "--deadline: expected a time not before the start, "),
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
async def test_invalid_values_are_refused(clock: Clock, capsys: Capsys, args: tuple[str, ...], expected: str) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        with pytest.raises(UsageError, match=expected):
            await terminal.create("n1", "--kind", "Stop", *args)
        assert await terminal.names() == []


@pytest.mark.parametrize(
    ("args", "expected"),
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
def test_command_line_is_validated_before_any_request(capsys: Capsys, args: tuple[str, ...], expected: str) -> None:
    done = command_runner(capsys)("notice", "create", *args)
    assert (done.code, done.out) == (2, "")
    assert expected in done.err
