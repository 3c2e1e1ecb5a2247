"""`haulout notice cancel` and `haulout notice end`: what a person may say about a maintenance, and what not."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.maintenancenotice import NoticeStage
from haulout.core.clock import Clock
from haulout.errors import Unreachable
from haulout.kube.transport import Request
from support.cli.command_runner import command_runner
from support.cli.notice_terminal import NoticeTerminal, a_notice_terminal

Capsys = pytest.CaptureFixture[str]
SHORT = "maintenancenotice.haulout.dev"


def put(desk: NoticeTerminal, name: str, *, start: float, **spec: Any) -> None:
    """Have a notice that begins so many hours from now on."""
    begins = desk.clock.now() + timedelta(hours=start)
    ends = begins + timedelta(hours=1)
    times = {"start": f"{begins:%Y-%m-%dT%H:%M:%SZ}", "end": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
    desk.put_notice(name, None, nodeName="n1", **{"source": "people", **times, **spec})


async def stage(desk: NoticeTerminal, name: str) -> str:
    return (await desk.get(name)).spec.stage


async def test_what_is_planned_is_called_off(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=2)
        assert await desk.cancel("a") == (True, (f"{SHORT}/a cancelled\n", ""))
        assert await stage(desk, "a") == NoticeStage.CANCELLED
        assert await desk.cancel("a") == (True, (f"{SHORT}/a already cancelled\n", ""))


async def test_what_has_begun_is_called_off_or_ended_and_the_node_comes_back(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=-0.5)
        put(desk, "b", start=-0.5)
        back = "if a profile took node n1 out of service for it, the node returns to service once it is healthy"
        assert await desk.cancel("a") == (True, (f"{SHORT}/a cancelled\n", f"a: {back}\n"))
        assert await desk.end("b") == (True, (f"{SHORT}/b ended\n", f"b: {back}\n"))
        assert (await stage(desk, "a"), await stage(desk, "b")) == (NoticeStage.CANCELLED, NoticeStage.ENDED)
        assert await desk.end("b") == (True, (f"{SHORT}/b already ended\n", ""))


async def test_what_its_source_calls_so_is_found(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "people-x", start=2, noticeID="CHG-17")
        assert (await desk.cancel("CHG-17"))[1].out == f"{SHORT}/people-x cancelled\n"


@pytest.mark.parametrize(
    ("spec", "start", "says"),
    [
        ({}, -5, "is over, so it cannot be cancelled: its scheduled end was at "),
        ({"stage": "Ended"}, 2, "is over, so it cannot be cancelled: people reports that it has ended"),
        ({"stage": "Failed"}, -0.5, "failed; when its node works again, run: haulout notice end a"),
        (
            {"source": "aws"},
            2,
            "comes from aws, which carries it out anyway: cancel it there, then this notice is cancelled",
        ),
        ({"source": "oci", "stage": "Started"}, 2, "comes from oci, which carries it out anyway"),
        ({"source": "azure", "reportedAt": "2026-01-01T00:00:00Z"}, 2, "comes from azure, which carries it out anyway"),
    ],
)
async def test_what_cannot_be_called_off_is_said(
    clock: Clock, capsys: Capsys, spec: dict[str, str], start: float, says: str
) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=start, **spec)
        is_well, said = await desk.cancel("a")
        assert (is_well, said.out) == (False, "")
        assert said.err.startswith(f"haulout: notice a {says}")
        assert await stage(desk, "a") == spec.get("stage", "")


async def test_force_calls_off_what_a_cloud_announced_but_not_what_is_over(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "cloud", start=2, source="aws", stage="Scheduled")
        put(desk, "failed", start=-0.5, source="oci", stage="Failed")
        put(desk, "over", start=-5)
        assert (await desk.cancel("cloud", "failed", "--force"))[0]
        assert (await stage(desk, "cloud"), await stage(desk, "failed")) == (
            NoticeStage.CANCELLED,
            NoticeStage.CANCELLED,
        )
        assert not (await desk.cancel("over", "--force"))[0]


async def test_what_failed_is_ended_by_a_person(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=-5, source="oci", stage="Failed", reportedAt="2026-01-01T00:00:00Z")
        assert (await desk.end("a"))[0]
        assert await stage(desk, "a") == NoticeStage.ENDED


@pytest.mark.parametrize(
    ("spec", "start", "says"),
    [
        ({}, 2, "has not begun: it begins at "),
        ({"source": "aws", "stage": "Scheduled"}, 0.1, "has not begun: it begins at "),
        ({"source": "aws", "stage": "Scheduled"}, -0.5, "is managed by aws, which reports the end itself"),
        ({"source": "aws", "stage": "Started"}, 2, "is managed by aws, which reports the end itself"),
    ],
)
async def test_what_cannot_be_ended_is_said(
    clock: Clock, capsys: Capsys, spec: dict[str, str], start: float, says: str
) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=start, **spec)
        is_well, said = await desk.end("a")
        assert not is_well
        assert said.err.startswith(f"haulout: notice a {says}")
        is_well, _ = await desk.end("a", "--force")
        assert is_well is ("not begun" not in says), "what has not begun cannot be over"


async def test_what_is_over_already_is_no_error(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=-5)
        is_well, said = await desk.end("a")
        assert is_well
        assert said.out == f"{SHORT}/a already ended\n"
        assert said.err.startswith("a: Completed: its scheduled end was at ")


async def test_one_that_fails_stops_no_other(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=2)
        is_well, said = await desk.cancel("zz", "a")
        assert (is_well, said.out) == (False, f"{SHORT}/a cancelled\n")
        assert said.err == 'haulout: notice "zz" not found\n'


async def test_a_dry_run_changes_nothing(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=2)
        assert (await desk.cancel("a", "--dry-run"))[1].out == f"{SHORT}/a cancelled (dry run)\n"
        assert (await desk.cancel("a", "--dry-run=server"))[1].out == f"{SHORT}/a cancelled (server dry run)\n"
        assert await stage(desk, "a") == ""


async def test_who_is_overtaken_looks_again_and_thinks_again(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=2)
        desk.cluster.transport.faults.fail_before_effect(
            path="/maintenancenotices", response=409, where=lambda it: it.method == "PATCH"
        )
        assert (await desk.cancel("a"))[0]
        put(desk, "b", start=2)

        def is_overtaken(request: Request) -> bool:
            if request.method == "PATCH":
                put(desk, "b", start=-5)
            return request.method == "PATCH"

        desk.cluster.transport.faults.delay(timedelta(), where=is_overtaken)
        is_well, said = await desk.cancel("b")
        assert not is_well
        assert said.err.startswith("haulout: notice b is over")
        assert await stage(desk, "b") == ""


async def test_a_lost_answer_is_looked_up(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=2)
        desk.cluster.transport.faults.fail_after_effect(
            path="/maintenancenotices", where=lambda it: it.method == "PATCH"
        )
        assert (await desk.cancel("a"))[1].out == f"{SHORT}/a cancelled\n"


async def test_a_server_that_is_not_there_is_not_asked_again_for_each(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as desk:
        put(desk, "a", start=2)
        desk.cluster.transport.faults.fail_before_effect(path="/maintenancenotices", times=None)
        with pytest.raises(Unreachable):
            await desk.cancel("a", "b")


def test_the_command_line_is_checked_before_anything_is_asked(capsys: Capsys) -> None:
    run = command_runner(capsys)
    assert run("notice", "cancel").code == 2
    assert run("notice", "end", "a", "--dry-run=maybe").code == 2
