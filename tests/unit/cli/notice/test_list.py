"""`haulout notice list` and `haulout notice show`: notices with their current phase, with and without an operator."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
import yaml

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticePhase
from haulout.cli.notice import notice_text
from haulout.cli.notice.command import PHASES
from haulout.cli.notice.notice_text import summary_line
from haulout.cli.notice.notice_view import NoticeQuery, view_of
from haulout.core.clock import Clock
from haulout.errors import Forbidden, HauloutError, KubeError
from haulout.kube.patches import merge_patch
from support.cli.command_runner import command_runner
from support.cli.notice_terminal import NoticeTerminal, a_notice_terminal

Capsys = pytest.CaptureFixture[str]


def at(clock: Clock, **ahead: float) -> str:
    """Return an instant relative to now as a timestamp."""
    return f"{clock.now() + timedelta(**ahead):%Y-%m-%dT%H:%M:%SZ}"


def put_sample_notices(terminal: NoticeTerminal) -> None:
    """Put one notice of each phase; their stored status is outdated on purpose."""
    clock = terminal.clock
    planned_status = {"phase": "Planned", "observedGeneration": 1}
    ahead = {"start": at(clock, hours=2), "end": at(clock, hours=3)}
    passed = {"start": at(clock, hours=-3), "end": at(clock, hours=-2)}
    terminal.put_notice("later", planned_status, nodeName="n1", kind="Reboot", source="people", reason="bmc", **ahead)
    terminal.put_notice("near", planned_status, nodeName="n1", kind="Stop", source="oci", start=at(clock, minutes=5))
    terminal.put_notice(
        "begun", planned_status, nodeName="n2", kind="Terminate", source="aws", stage="Started", **ahead
    )
    terminal.put_notice("over", planned_status, nodeName="n2", kind="Reboot", source="people", **passed)
    terminal.put_notice(
        "off", planned_status, nodeName="n2", kind="Reboot", source="people", stage="Cancelled", **ahead
    )
    terminal.put_notice("lost", planned_status, nodeName="n1", kind="Reboot", source="oci", stage="Scheduled", **passed)
    terminal.put_notice("whenever", planned_status, providerID="i-1", kind="Freeze", source="aws")


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines()]


def names(text: str) -> list[str]:
    return [row[0] for row in rows(text)[1:]]


def test_phase_flag_lists_all_notice_phases() -> None:
    assert tuple(NoticePhase) == PHASES


async def test_text_output_has_the_expected_lines(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as terminal:
        put_sample_notices(terminal)
        start, end = clock.now() + timedelta(hours=2), clock.now() + timedelta(hours=3)
        drain = start - timedelta(minutes=15)
        header, *_, last = rows((await terminal.list("n1")).out)
        assert header == [
            "NAME",
            "NODE",
            "KIND",
            "PHASE",
            "START (UTC)",
            "END (UTC)",
            "DRAIN AT (UTC)",
            "ON TIME",
            "SOURCE",
        ]
        times = [f"{it:%Y-%m-%d %H:%M:%S}".removesuffix(":00") for it in (start, end, drain)]
        assert last[:4] == ["later", "n1", "Reboot", "Planned"]
        assert last[4].startswith(f"{times[0]} (in 1h59m") or last[4].startswith(f"{times[0]} (in 2h0m")
        assert last[5:] == [times[1], times[2], "-", "people"]


async def test_list_sorts_by_start_and_hides_completed_notices_unless_all_is_given(
    clock: Clock, capsys: Capsys
) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as terminal:
        put_sample_notices(terminal)
        assert names((await terminal.list()).out) == ["whenever", "near", "begun", "later"]
        everything = rows((await terminal.list("--all")).out)[1:]
        assert {row[0]: row[3] for row in everything} == {
            "whenever": "Due",
            "lost": "Missed",
            "over": "Completed",
            "near": "Due",
            "begun": "Active",
            "later": "Planned",
            "off": "Cancelled",
        }


async def test_filters_select_the_listed_entries(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as terminal:
        put_sample_notices(terminal)
        assert names((await terminal.list("n1")).out) == ["near", "later"]
        assert names((await terminal.list("n1", "n2", "--source", "oci", "--source", "aws")).out) == ["near", "begun"]
        assert names((await terminal.list("--phase", "missed", "--phase", "Due")).out) == ["whenever", "lost", "near"]
        assert (await terminal.list("n2", "-A", "-o", "name")).out.splitlines() == [
            "maintenancenotice.haulout.dev/over",
            "maintenancenotice.haulout.dev/begun",
            "maintenancenotice.haulout.dev/off",
        ]


async def test_empty_list_is_reported_on_stderr(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2", "n3") as terminal:
        assert await terminal.list() == ("", "Nothing is announced.\n")
        put_sample_notices(terminal)
        assert await terminal.list("n3") == ("", "Nothing is announced for node n3.\n")
        one = await terminal.list("n1", "--source", "nobody")
        assert one == ("", "Nothing is announced for node n1.\n")
        terminal.put_notice("old", nodeName="n3", stage="Ended")
        assert (await terminal.list("n3")).err == "Nothing is announced for node n3; --all shows 1 that has ended.\n"
        terminal.put_notice("older", nodeName="n3", stage="Cancelled")
        assert (await terminal.list("n3")).err == "Nothing is announced for node n3; --all shows 2 that have ended.\n"


async def test_unknown_node_is_reported_with_a_suggestion(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "node-1") as terminal:
        output = await terminal.list("node-2")
        assert output == ("", 'haulout: node "node-2" not found; did you mean "node-1"?\n')
        terminal.put_notice("to-come", nodeName="node-2", start=at(clock, hours=2))
        assert names((await terminal.list("node-2")).out) == ["to-come"]


async def test_notice_that_the_operator_has_not_processed_is_reported(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        terminal.put_notice("new", nodeName="n1", start=at(clock, hours=2))
        assert (await terminal.list()).err == "The operator has not processed new yet. Is it running?\n"


async def test_drain_time_is_read_from_the_operator_status(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        start, drain = at(clock, hours=2), at(clock, minutes=-1)
        status = {"phase": "Planned", "start": start, "drainAt": drain, "observedGeneration": 1}
        terminal.put_notice("slow", status, nodeName="n1", start=start)
        assert rows((await terminal.list()).out)[1][3] == "Due"
        terminal.put_notice("moved", {**status, "start": at(clock, hours=1)}, nodeName="n1", start=start)
        assert rows((await terminal.list()).out)[1][0:4] == ["moved", "n1", "Unknown", "Planned"]


async def test_on_time_column_shows_late_notices(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        for name, answer in (("a", "False"), ("b", "True"), ("c", "Unknown")):
            condition = {"type": "OnTime", "status": answer, "message": "its pods need 40m"}
            terminal.put_notice(name, {"conditions": [condition]}, nodeName="n1", start=at(clock, hours=2))
        assert [row[-2] for row in rows((await terminal.list()).out)[1:]] == ["no", "yes", "-"]
        assert summary_line(view_of(await terminal.get("a"), now=clock.now())).endswith(
            ", will not be empty in time; notice a"
        )
        assert "On time       no: its pods need 40m" in (await terminal.show("a")).out
        assert "On time       unknown: its pods need 40m" in (await terminal.show("c")).out


async def test_notice_without_a_start_is_drained_at_once(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        terminal.put_notice("a", nodeName="n1", kind="Stop")
        terminal.put_notice("b", nodeName="n1", kind="Freeze")
        assert [row[4:7] for row in rows((await terminal.list()).out)[1:]] == [
            ["any moment", "-", "at once"],
            ["any moment", "-", "-"],
        ]


async def test_wide_output_adds_columns(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        terminal.put_notice(
            "a", nodeName="n1", providerID="i-1", noticeID="T-1", reason="disk", deadline=at(clock, days=1)
        )
        header, row = rows((await terminal.list("-o", "wide")).out)
        assert header[-4:] == ["ID", "DEADLINE (UTC)", "MACHINE", "REASON"]
        assert (row[-4], row[-2:]) == ("T-1", ["i-1", "disk"])


async def test_machine_readable_output_has_all_fields(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as terminal:
        put_sample_notices(terminal)
        document = json.loads((await terminal.list("-o", "json")).out)
        assert yaml.safe_load((await terminal.list("-o", "yaml")).out)["notices"][3]["name"] == "later"
        later = document["notices"][3]
        assert (later["phase"], later["node"], later["onTime"], later["observed"]) == (
            "Planned",
            "n1",
            None,
            True,
        )
        assert later["phaseMessage"].startswith("it begins at ")
        assert json.loads((await terminal.show("later", "-o", "json")).out)["name"] == "later"
        assert yaml.safe_load((await terminal.show("later", "-o", "yaml")).out)["reason"] == "bmc"


async def test_unreadable_notice_does_not_hide_other_notices(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        terminal.put_notice("good", nodeName="n1", start=at(clock, hours=1))
        terminal.put_notice("bad", nodeName="n1", start="0000-01-01T00:00:00Z")
        output = await terminal.list()
        assert names(output.out) == ["good"]
        assert output.err.splitlines()[0].startswith("MaintenanceNotice bad cannot be read: ")


async def test_control_characters_are_escaped(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        evil = {"time": at(clock), "reporter": "\x1b[2J", "message": "a\nb"}
        terminal.put_notice(
            "a", {"history": [evil]}, nodeName="n1", reason="\x1b[31m\nhaulout: all is well", description="\r\x07"
        )
        for output in (await terminal.list("-o", "wide"), await terminal.show("a")):
            assert "\x1b" not in output.out
            assert "\x07" not in output.out
            assert "\nhaulout" not in output.out


async def test_show_prints_all_fields_and_the_history(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        start = at(clock, hours=2)
        entry = {"time": at(clock, days=-1), "reporter": "aws", "message": "Reboot is announced"}
        conditions = [
            {"type": "NodeFound", "status": "True", "reason": "Found", "message": "it runs on i-1"},
            {"type": "Rescheduled", "status": "False", "reason": "Refused", "message": "aws says no"},
        ]
        status = {
            "phase": "Planned",
            "nodeName": "n1",
            "start": start,
            "observedGeneration": 1,
            "conditions": conditions,
            "history": [entry],
        }
        terminal.put_notice(
            "aws-e1",
            status,
            providerID="i-1",
            machineName="web-1",
            source="aws",
            noticeID="e1",
            kind="Reboot",
            reason="instance-reboot",
            description="a   scheduled\nreboot",
            start=start,
            deadline=at(clock, days=3),
            reschedulable=True,
            stage="Scheduled",
            reportedAt=at(clock, days=-1),
        )
        output = (await terminal.show("e1")).out
        facts = {line[:14].strip(): line[14:] for line in output.partition("\n\n")[0].splitlines()}
        assert list(facts) == [
            "Notice",
            "Kind",
            "Description",
            "Node",
            "Machine",
            "Phase",
            "Start",
            "End",
            "Deadline",
            "Drain due",
            "Rescheduled",
            "Source",
            "Can be moved",
        ]
        assert facts["Kind"] == "Reboot: instance-reboot"
        assert facts["Description"] == "a scheduled reboot"
        assert facts["Node"] == "n1: it runs on i-1"
        assert facts["Machine"] == "i-1, name web-1"
        assert facts["Phase"].startswith("Planned: it begins at ")
        assert facts["Deadline"].endswith(": the latest start")
        assert facts["Drain due"].endswith(", 15m0s before the start")
        assert facts["Rescheduled"] == "no, Refused: aws says no"
        assert facts["Source"] == "aws, ID e1"
        assert facts["Can be moved"] == "yes: the source accepts requests for another time"
        history = output.partition("\n\n")[2].splitlines()
        assert history[0] == "History (UTC)"
        assert history[1].split("   ")[1:] == ["aws", "Reboot is announced"]


async def test_show_prints_a_notice_with_few_fields(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        missing = {"type": "NodeFound", "status": "False", "reason": "NotFound", "message": "no node runs on i-1 yet"}
        terminal.put_notice("a", {"conditions": [missing]}, providerID="i-1")
        output = (await terminal.show("a")).out
        for line in (
            "Node          not known: no node runs on i-1 yet",
            "Start         at any moment",
            "End           unknown",
            "Drain due     at once",
            "Source        unknown",
            "Can be moved  no",
            "Operator      has not processed the latest change: is it running?",
        ):
            assert line in output.splitlines()
        terminal.put_notice("b", providerID="i-1", kind="Freeze")
        freeze_output = (await terminal.show("b")).out
        assert "Node          not known yet" in freeze_output
        assert "Drain due     not by default: a Freeze takes seconds" in freeze_output


async def test_unknown_name_is_refused_with_a_suggestion(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        terminal.put_notice("people-chg-17", nodeName="n1", source="people", noticeID="CHG-17")
        terminal.put_notice("tickets-1", nodeName="n2", source="tickets", noticeID="1")
        terminal.put_notice("people-1", nodeName="n3", source="people", noticeID="1")
        assert (await terminal.show("CHG-17")).out.startswith("Notice        people-chg-17\n")
        for name, expected in (
            ("people-chg-71", 'notice "people-chg-71" not found; did you mean "people-chg-17"?'),
            ("n1", 'notice "n1" not found; for the node of that name there is people-chg-17'),
            ("zzz", 'notice "zzz" not found'),
            ("1", 'notice "1" may be people-1, tickets-1: give the full name'),
        ):
            with pytest.raises(KubeError) as refused:
                await terminal.show(name)
            assert str(refused.value) == expected


async def test_missing_notice_definition_is_reported_with_a_remedy(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", is_installed=False) as terminal:
        for command in (terminal.list(), terminal.show("a")):
            with pytest.raises(HauloutError, match=r"is not installed; to install it: haulout manifests --crds-only"):
                await command


async def test_forbidden_list_is_an_error(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        terminal.cluster.transport.faults.fail_before_effect(path="/maintenancenotices", response=403, times=None)
        for command in (terminal.list(), terminal.show("a")):
            with pytest.raises(Forbidden):
                await command


async def test_watch_prints_each_change_once_including_the_end(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as terminal:
        terminal.put_notice("a", {"phase": "Planned", "observedGeneration": 1}, nodeName="n1", start=at(clock, hours=2))

        async def change(name: str, **changes: Any) -> None:
            await terminal.client.patch(MAINTENANCE_NOTICES, name, merge_patch(changes))
            await clock.sleep(timedelta(seconds=1))

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(
                notice_text.watch_and_print(terminal.client, NoticeQuery(nodes=("n1",)), output="text")
            )
            await clock.sleep(timedelta(seconds=1))
            terminal.put_notice("b", nodeName="n1", start=at(clock, hours=3))
            terminal.put_notice("c", nodeName="n2", start=at(clock, hours=3))
            await clock.sleep(timedelta(seconds=1))
            await change("a", metadata={"labels": {"nothing": "to-see"}})
            await change("a", spec={"kind": "Terminate"})
            await change("a", spec={"stage": "Cancelled"})
            watching.cancel()
        lines = rows(capsys.readouterr().out)
        assert [(row[0], row[2], row[3]) for row in lines[1:]] == [
            ("a", "Unknown", "Planned"),
            ("b", "Unknown", "Planned"),
            ("a", "Terminate", "Planned"),
            ("a", "Terminate", "Cancelled"),
        ]


async def test_watch_of_an_unknown_node_is_refused(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        with pytest.raises(KubeError, match='node "n11" not found; did you mean "n1"'):
            await notice_text.watch_and_print(terminal.client, NoticeQuery(nodes=("n11",)), output="text")


def test_command_line_is_validated_before_any_request(capsys: Capsys) -> None:
    run = command_runner(capsys)
    assert "--watch requires -o text or wide" in run("notice", "list", "--watch", "-o", "json").err
    for args in (("list", "--watch", "-o", "json"), ("list", "--phase", "x"), ("show",), ("show", "a", "-o", "wide")):
        assert run("notice", *args).code == 2
