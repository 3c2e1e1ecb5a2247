"""`haulout notice cancel` and `haulout notice end`: accepted and refused changes."""

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


def create_notice(terminal: NoticeTerminal, name: str, *, start: float, **spec: Any) -> None:
    """Put a notice that starts that many hours from now."""
    begins = terminal.clock.now() + timedelta(hours=start)
    ends = begins + timedelta(hours=1)
    times = {"start": f"{begins:%Y-%m-%dT%H:%M:%SZ}", "end": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
    terminal.put_notice(name, None, nodeName="n1", **{"source": "people", **times, **spec})


async def notice_stage(terminal: NoticeTerminal, name: str) -> str:
    return (await terminal.get(name)).spec.stage


async def test_planned_notice_is_cancelled(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=2)
        assert await terminal.cancel("a") == (True, (f"{SHORT}/a cancelled\n", ""))
        assert await notice_stage(terminal, "a") == NoticeStage.CANCELLED
        assert await terminal.cancel("a") == (True, (f"{SHORT}/a already cancelled\n", ""))


async def test_started_notice_is_cancelled_or_ended_and_the_node_returns_to_service(
    clock: Clock, capsys: Capsys
) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=-0.5)
        create_notice(terminal, "b", start=-0.5)
        back = "if a profile took node n1 out of service for it, the node returns to service once it is healthy"
        assert await terminal.cancel("a") == (True, (f"{SHORT}/a cancelled\n", f"a: {back}\n"))
        assert await terminal.end("b") == (True, (f"{SHORT}/b ended\n", f"b: {back}\n"))
        assert (await notice_stage(terminal, "a"), await notice_stage(terminal, "b")) == (
            NoticeStage.CANCELLED,
            NoticeStage.ENDED,
        )
        assert await terminal.end("b") == (True, (f"{SHORT}/b already ended\n", ""))


async def test_notice_is_found_by_the_id_of_its_source(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "people-x", start=2, noticeID="CHG-17")
        assert (await terminal.cancel("CHG-17"))[1].out == f"{SHORT}/people-x cancelled\n"


@pytest.mark.parametrize(
    ("spec", "start", "expected"),
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
async def test_refused_cancellation_gives_the_reason(
    clock: Clock, capsys: Capsys, spec: dict[str, str], start: float, expected: str
) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=start, **spec)
        is_well, output = await terminal.cancel("a")
        assert (is_well, output.out) == (False, "")
        assert output.err.startswith(f"haulout: notice a {expected}")
        assert await notice_stage(terminal, "a") == spec.get("stage", "")


async def test_force_cancels_cloud_notices_but_not_completed_notices(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "cloud", start=2, source="aws", stage="Scheduled")
        create_notice(terminal, "failed", start=-0.5, source="oci", stage="Failed")
        create_notice(terminal, "over", start=-5)
        assert (await terminal.cancel("cloud", "failed", "--force"))[0]
        assert (await notice_stage(terminal, "cloud"), await notice_stage(terminal, "failed")) == (
            NoticeStage.CANCELLED,
            NoticeStage.CANCELLED,
        )
        assert not (await terminal.cancel("over", "--force"))[0]


async def test_failed_notice_is_ended(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=-5, source="oci", stage="Failed", reportedAt="2026-01-01T00:00:00Z")
        assert (await terminal.end("a"))[0]
        assert await notice_stage(terminal, "a") == NoticeStage.ENDED


@pytest.mark.parametrize(
    ("spec", "start", "expected"),
    [
        ({}, 2, "has not begun: it begins at "),
        ({"source": "aws", "stage": "Scheduled"}, 0.1, "has not begun: it begins at "),
        ({"source": "aws", "stage": "Scheduled"}, -0.5, "is managed by aws, which reports the end itself"),
        ({"source": "aws", "stage": "Started"}, 2, "is managed by aws, which reports the end itself"),
    ],
)
async def test_refused_end_gives_the_reason(
    clock: Clock, capsys: Capsys, spec: dict[str, str], start: float, expected: str
) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=start, **spec)
        is_well, output = await terminal.end("a")
        assert not is_well
        assert output.err.startswith(f"haulout: notice a {expected}")
        is_well, _ = await terminal.end("a", "--force")
        assert is_well is ("not begun" not in expected), "what has not begun cannot be over"


async def test_ending_a_completed_notice_is_no_error(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=-5)
        is_well, output = await terminal.end("a")
        assert is_well
        assert output.out == f"{SHORT}/a already ended\n"
        assert output.err.startswith("a: Completed: its scheduled end was at ")


async def test_failure_of_one_notice_does_not_stop_the_others(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=2)
        is_well, output = await terminal.cancel("zz", "a")
        assert (is_well, output.out) == (False, f"{SHORT}/a cancelled\n")
        assert output.err == 'haulout: notice "zz" not found\n'


async def test_dry_run_changes_nothing(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=2)
        assert (await terminal.cancel("a", "--dry-run"))[1].out == f"{SHORT}/a cancelled (dry run)\n"
        assert (await terminal.cancel("a", "--dry-run=server"))[1].out == f"{SHORT}/a cancelled (server dry run)\n"
        assert await notice_stage(terminal, "a") == ""


async def test_write_conflict_reads_and_decides_again(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=2)
        terminal.cluster.transport.faults.fail_before_effect(
            path="/maintenancenotices", response=409, where=lambda it: it.method == "PATCH"
        )
        assert (await terminal.cancel("a"))[0]
        create_notice(terminal, "b", start=2)

        def is_overtaken(request: Request) -> bool:
            if request.method == "PATCH":
                create_notice(terminal, "b", start=-5)
            return request.method == "PATCH"

        terminal.cluster.transport.faults.delay(timedelta(), where=is_overtaken)
        is_well, output = await terminal.cancel("b")
        assert not is_well
        assert output.err.startswith("haulout: notice b is over")
        assert await notice_stage(terminal, "b") == ""


async def test_lost_response_is_resolved_by_reading_the_notice(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=2)
        terminal.cluster.transport.faults.fail_after_effect(
            path="/maintenancenotices", where=lambda it: it.method == "PATCH"
        )
        assert (await terminal.cancel("a"))[1].out == f"{SHORT}/a cancelled\n"


async def test_unreachable_server_ends_the_command(clock: Clock, capsys: Capsys) -> None:
    async with a_notice_terminal(clock, capsys, "n1") as terminal:
        create_notice(terminal, "a", start=2)
        terminal.cluster.transport.faults.fail_before_effect(path="/maintenancenotices", times=None)
        with pytest.raises(Unreachable):
            await terminal.cancel("a", "b")


def test_command_line_is_validated_before_any_request(capsys: Capsys) -> None:
    run = command_runner(capsys)
    assert run("notice", "cancel").code == 2
    assert run("notice", "end", "a", "--dry-run=maybe").code == 2
