"""`haulout notice list` and `haulout notice show`: what is announced, as it stands now, whether or not anybody runs."""

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
    """Return an instant from now on, as an object has it."""
    return f"{clock.now() + timedelta(**ahead):%Y-%m-%dT%H:%M:%SZ}"


def put_some(desk: NoticeTerminal) -> None:
    """Have one of each phase; what each says about itself is on purpose not what is true now."""
    clock = desk.clock
    seen = {"phase": "Planned", "observedGeneration": 1}
    ahead = {"start": at(clock, hours=2), "end": at(clock, hours=3)}
    passed = {"start": at(clock, hours=-3), "end": at(clock, hours=-2)}
    desk.put_notice("later", seen, nodeName="n1", kind="Reboot", source="people", reason="bmc", **ahead)
    desk.put_notice("near", seen, nodeName="n1", kind="Stop", source="oci", start=at(clock, minutes=5))
    desk.put_notice("begun", seen, nodeName="n2", kind="Terminate", source="aws", stage="Started", **ahead)
    desk.put_notice("over", seen, nodeName="n2", kind="Reboot", source="people", **passed)
    desk.put_notice("off", seen, nodeName="n2", kind="Reboot", source="people", stage="Cancelled", **ahead)
    desk.put_notice("lost", seen, nodeName="n1", kind="Reboot", source="oci", stage="Scheduled", **passed)
    desk.put_notice("whenever", seen, providerID="i-1", kind="Freeze", source="aws")


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines()]


def names(text: str) -> list[str]:
    return [row[0] for row in rows(text)[1:]]


def test_its_phases_are_all_there_are() -> None:
    assert tuple(NoticePhase) == PHASES


async def test_it_reads_like_this(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as desk:
        put_some(desk)
        start, end = clock.now() + timedelta(hours=2), clock.now() + timedelta(hours=3)
        drain = start - timedelta(minutes=15)
        header, *_, last = rows((await desk.list("n1")).out)
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
        shown = [f"{it:%Y-%m-%d %H:%M:%S}".removesuffix(":00") for it in (start, end, drain)]
        assert last[:4] == ["later", "n1", "Reboot", "Planned"]
        assert last[4].startswith(f"{shown[0]} (in 1h59m") or last[4].startswith(f"{shown[0]} (in 2h0m")
        assert last[5:] == [shown[1], shown[2], "-", "people"]


async def test_what_begins_first_comes_first_and_what_is_over_only_if_asked_for(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as desk:
        put_some(desk)
        assert names((await desk.list()).out) == ["whenever", "near", "begun", "later"]
        everything = rows((await desk.list("--all")).out)[1:]
        assert {row[0]: row[3] for row in everything} == {
            "whenever": "Due",
            "lost": "Missed",
            "over": "Completed",
            "near": "Due",
            "begun": "Active",
            "later": "Planned",
            "off": "Cancelled",
        }


async def test_only_what_is_asked_for_is_shown(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as desk:
        put_some(desk)
        assert names((await desk.list("n1")).out) == ["near", "later"]
        assert names((await desk.list("n1", "n2", "--source", "oci", "--source", "aws")).out) == ["near", "begun"]
        assert names((await desk.list("--phase", "missed", "--phase", "Due")).out) == ["whenever", "lost", "near"]
        assert (await desk.list("n2", "-A", "-o", "name")).out.splitlines() == [
            "maintenancenotice.haulout.dev/over",
            "maintenancenotice.haulout.dev/begun",
            "maintenancenotice.haulout.dev/off",
        ]


async def test_when_there_is_nothing_it_says_so_beside_the_output(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2", "n3") as desk:
        assert await desk.list() == ("", "Nothing is announced.\n")
        put_some(desk)
        assert await desk.list("n3") == ("", "Nothing is announced for node n3.\n")
        one = await desk.list("n1", "--source", "nobody")
        assert one == ("", "Nothing is announced for node n1.\n")
        desk.put_notice("old", nodeName="n3", stage="Ended")
        assert (await desk.list("n3")).err == "Nothing is announced for node n3; --all shows 1 that has ended.\n"
        desk.put_notice("older", nodeName="n3", stage="Cancelled")
        assert (await desk.list("n3")).err == "Nothing is announced for node n3; --all shows 2 that have ended.\n"


async def test_a_mistyped_node_does_not_look_as_if_nothing_were_announced(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "node-1") as desk:
        said = await desk.list("node-2")
        assert said == ("", 'haulout: node "node-2" not found; did you mean "node-1"?\n')
        desk.put_notice("to-come", nodeName="node-2", start=at(clock, hours=2))
        assert names((await desk.list("node-2")).out) == ["to-come"]


async def test_what_the_operator_has_not_looked_at_is_said(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        desk.put_notice("new", nodeName="n1", start=at(clock, hours=2))
        assert (await desk.list()).err == "The operator has not processed new yet. Is it running?\n"


async def test_the_lead_time_is_that_of_the_operator(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        start, drain = at(clock, hours=2), at(clock, minutes=-1)
        status = {"phase": "Planned", "start": start, "drainAt": drain, "observedGeneration": 1}
        desk.put_notice("slow", status, nodeName="n1", start=start)
        assert rows((await desk.list()).out)[1][3] == "Due"
        desk.put_notice("moved", {**status, "start": at(clock, hours=1)}, nodeName="n1", start=start)
        assert rows((await desk.list()).out)[1][0:4] == ["moved", "n1", "Unknown", "Planned"]


async def test_who_will_be_late_is_seen(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        for name, answer in (("a", "False"), ("b", "True"), ("c", "Unknown")):
            told = {"type": "OnTime", "status": answer, "message": "its pods need 40m"}
            desk.put_notice(name, {"conditions": [told]}, nodeName="n1", start=at(clock, hours=2))
        assert [row[-2] for row in rows((await desk.list()).out)[1:]] == ["no", "yes", "-"]
        assert summary_line(view_of(await desk.get("a"), now=clock.now())).endswith(
            ", will not be empty in time; notice a"
        )
        assert "On time       no: its pods need 40m" in (await desk.show("a")).out
        assert "On time       unknown: its pods need 40m" in (await desk.show("c")).out


async def test_what_may_begin_at_any_moment_is_drained_at_once(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        desk.put_notice("a", nodeName="n1", kind="Stop")
        desk.put_notice("b", nodeName="n1", kind="Freeze")
        assert [row[4:7] for row in rows((await desk.list()).out)[1:]] == [
            ["any moment", "-", "at once"],
            ["any moment", "-", "-"],
        ]


async def test_wide_says_more(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        desk.put_notice("a", nodeName="n1", providerID="i-1", noticeID="T-1", reason="disk", deadline=at(clock, days=1))
        header, row = rows((await desk.list("-o", "wide")).out)
        assert header[-4:] == ["ID", "DEADLINE (UTC)", "MACHINE", "REASON"]
        assert (row[-4], row[-2:]) == ("T-1", ["i-1", "disk"])


async def test_programs_get_all_of_it(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as desk:
        put_some(desk)
        told = json.loads((await desk.list("-o", "json")).out)
        assert yaml.safe_load((await desk.list("-o", "yaml")).out)["notices"][3]["name"] == "later"
        later = told["notices"][3]
        assert (later["phase"], later["node"], later["onTime"], later["observed"]) == (
            "Planned",
            "n1",
            None,
            True,
        )
        assert later["phaseMessage"].startswith("it begins at ")
        assert json.loads((await desk.show("later", "-o", "json")).out)["name"] == "later"
        assert yaml.safe_load((await desk.show("later", "-o", "yaml")).out)["reason"] == "bmc"


async def test_what_cannot_be_read_hides_nothing_else(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        desk.put_notice("good", nodeName="n1", start=at(clock, hours=1))
        desk.put_notice("bad", nodeName="n1", start="0000-01-01T00:00:00Z")
        said = await desk.list()
        assert names(said.out) == ["good"]
        assert said.err.splitlines()[0].startswith("MaintenanceNotice bad cannot be read: ")


async def test_what_others_wrote_cannot_take_over_the_terminal(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        evil = {"time": at(clock), "reporter": "\x1b[2J", "message": "a\nb"}
        desk.put_notice(
            "a", {"history": [evil]}, nodeName="n1", reason="\x1b[31m\nhaulout: all is well", description="\r\x07"
        )
        for said in (await desk.list("-o", "wide"), await desk.show("a")):
            assert "\x1b" not in said.out
            assert "\x07" not in said.out
            assert "\nhaulout" not in said.out


async def test_one_is_shown_in_words(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
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
        desk.put_notice(
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
        shown = (await desk.show("e1")).out
        facts = {line[:14].strip(): line[14:] for line in shown.partition("\n\n")[0].splitlines()}
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
        history = shown.partition("\n\n")[2].splitlines()
        assert history[0] == "History (UTC)"
        assert history[1].split("   ")[1:] == ["aws", "Reboot is announced"]


async def test_one_about_which_little_is_known_is_shown_too(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        missing = {"type": "NodeFound", "status": "False", "reason": "NotFound", "message": "no node runs on i-1 yet"}
        desk.put_notice("a", {"conditions": [missing]}, providerID="i-1")
        shown = (await desk.show("a")).out
        for line in (
            "Node          not known: no node runs on i-1 yet",
            "Start         at any moment",
            "End           unknown",
            "Drain due     at once",
            "Source        unknown",
            "Can be moved  no",
            "Operator      has not processed the latest change: is it running?",
        ):
            assert line in shown.splitlines()
        desk.put_notice("b", providerID="i-1", kind="Freeze")
        other = (await desk.show("b")).out
        assert "Node          not known yet" in other
        assert "Drain due     not by default: a Freeze takes seconds" in other


async def test_an_unknown_name_is_answered_with_what_may_be_meant(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        desk.put_notice("people-chg-17", nodeName="n1", source="people", noticeID="CHG-17")
        desk.put_notice("tickets-1", nodeName="n2", source="tickets", noticeID="1")
        desk.put_notice("people-1", nodeName="n3", source="people", noticeID="1")
        assert (await desk.show("CHG-17")).out.startswith("Notice        people-chg-17\n")
        for name, says in (
            ("people-chg-71", 'notice "people-chg-71" not found; did you mean "people-chg-17"?'),
            ("n1", 'notice "n1" not found; for the node of that name there is people-chg-17'),
            ("zzz", 'notice "zzz" not found'),
            ("1", 'notice "1" may be people-1, tickets-1: give the full name'),
        ):
            with pytest.raises(KubeError) as refused:
                await desk.show(name)
            assert str(refused.value) == says


async def test_where_notices_are_not_installed_it_says_how_to_install_them(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", is_installed=False) as desk:
        for command in (desk.list(), desk.show("a")):
            with pytest.raises(HauloutError, match=r"is not installed; to install it: haulout manifests --crds-only"):
                await command


async def test_who_may_not_see_them_is_told_so(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        desk.cluster.transport.faults.fail_before_effect(path="/maintenancenotices", response=403, times=None)
        for command in (desk.list(), desk.show("a")):
            with pytest.raises(Forbidden):
                await command


async def test_a_watch_shows_each_change_once_and_to_its_end(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1", "n2") as desk:
        desk.put_notice("a", {"phase": "Planned", "observedGeneration": 1}, nodeName="n1", start=at(clock, hours=2))

        async def change(name: str, **changes: Any) -> None:
            await desk.client.patch(MAINTENANCE_NOTICES, name, merge_patch(changes))
            await clock.sleep(timedelta(seconds=1))

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(
                notice_text.watch_and_print(desk.client, NoticeQuery(nodes=("n1",)), output="text")
            )
            await clock.sleep(timedelta(seconds=1))
            desk.put_notice("b", nodeName="n1", start=at(clock, hours=3))
            desk.put_notice("c", nodeName="n2", start=at(clock, hours=3))
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


async def test_a_watch_of_an_unknown_node_is_refused(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        with pytest.raises(KubeError, match='node "n11" not found; did you mean "n1"'):
            await notice_text.watch_and_print(desk.client, NoticeQuery(nodes=("n11",)), output="text")


def test_the_command_line_is_checked_before_anything_is_asked(capsys: Capsys) -> None:
    run = command_runner(capsys)
    assert "--watch requires -o text or wide" in run("notice", "list", "--watch", "-o", "json").err
    for args in (("list", "--watch", "-o", "json"), ("list", "--phase", "x"), ("show",), ("show", "a", "-o", "wide")):
        assert run("notice", *args).code == 2
