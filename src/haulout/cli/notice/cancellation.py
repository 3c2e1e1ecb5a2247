"""Cancel a maintenance notice (`haulout.controllers.notices.cancellation`), or declare it ended."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, NoticePhase, NoticeStage
from haulout.cli.cordon.node_changes import DRY_RUN_SUFFIXES
from haulout.cli.notice.apply import may_retry, new_retry
from haulout.cli.notice.notice_view import NoticeView, get_notice, view_of
from haulout.cli.output import OutputLine
from haulout.controllers.notices.cancellation import Objection, cancel_objection, stage_patch
from haulout.errors import CredentialsError, HauloutError, KubeError, Unauthorized, Unreachable
from haulout.kube.client import Client


class EndAction(StrEnum):
    """What a user declares about a maintenance; the values appear in the output."""

    CANCEL = "cancelled"
    END = "ended"


_STAGE_OF_ACTION = {EndAction.CANCEL: NoticeStage.CANCELLED, EndAction.END: NoticeStage.ENDED}


@dataclass(frozen=True, slots=True)
class EndResult:
    """The result of the command."""

    name: str
    verb: str
    notes: tuple[str, ...] = ()


async def end_notice(
    client: Client, notice: str, action: EndAction, *, force: bool = False, dry_run: str = "none"
) -> EndResult:
    """Cancel or end a notice; raise `HauloutError` if its state does not allow that."""
    retry = new_retry(client)
    while True:
        view = view_of(await get_notice(client, notice), now=client.clock.now())
        name = view.notice.name
        if view.notice.spec.stage == _STAGE_OF_ACTION[action]:
            return EndResult(name, str(action) if retry.failures else f"already {action}")
        if action is EndAction.END and view.phase.is_over:
            return EndResult(name, "already ended", (f"{view.phase}: {view.phase_status.message}",))
        refusal = find_objection(view, action)
        if refusal is not None and not (force and refusal.can_be_forced):
            raise HauloutError(f"notice {name} {refusal.reason}")
        if dry_run == "client":
            return EndResult(name, str(action), _result_notes(view))
        try:
            await client.patch(
                MAINTENANCE_NOTICES,
                name,
                stage_patch(view.notice, _STAGE_OF_ACTION[action]),
                dry_run=dry_run == "server",
            )
        except KubeError as error:
            if not may_retry(error):
                raise
            await retry.wait(error)
        else:
            return EndResult(name, str(action), _result_notes(view))


async def end_notices(client: Client, names: Sequence[str], action: EndAction, *, force: bool, dry_run: str) -> bool:
    """Cancel or end notices and print each result; return whether all succeeded. A failure does not stop the others."""
    all_well = True
    for notice in names:
        try:
            result = await end_notice(client, notice, action, force=force, dry_run=dry_run)
        except (CredentialsError, Unauthorized, Unreachable):
            raise  # the others would fail as well
        except HauloutError as error:
            OutputLine(f"haulout: {error}").print()
            all_well = False
            continue
        OutputLine(
            f"maintenancenotice.haulout.dev/{result.name} {result.verb}{DRY_RUN_SUFFIXES[dry_run]}", is_result=True
        ).print()
        for note in result.notes:
            OutputLine(f"{result.name}: {note}").print()
    return all_well


def find_objection(view: NoticeView, action: EndAction) -> Objection | None:
    """Return why a notice cannot be cancelled or ended; None if it can."""
    return _cancel_objection(view) if action is EndAction.CANCEL else _end_objection(view)


def _cancel_objection(view: NoticeView) -> Objection | None:
    found = cancel_objection(view.notice, view.phase_status)
    if found is None or not found.forced_effect:
        return found
    return replace(found, reason=f"{found.reason}; {found.forced_effect}: --force")


def _end_objection(view: NoticeView) -> Objection | None:
    spec, name = view.notice.spec, view.notice.name
    is_future = spec.start is not None and view.now < spec.start and view.phase is not NoticePhase.ACTIVE
    if is_future:
        return Objection(f"has not begun: {view.phase_status.message}; to cancel it: haulout notice cancel {name}")
    if view.is_by_a_source and spec.stage != NoticeStage.FAILED:
        who = spec.source or "another"
        why = f"is managed by {who}, which reports the end itself; to end it anyway: --force"
        return Objection(why, can_be_forced=True)
    return None


def _result_notes(view: NoticeView) -> tuple[str, ...]:
    if view.phase is NoticePhase.PLANNED or not view.node:
        return ()
    return (
        f"if a profile took node {view.node} out of service for it, the node returns to service once it is healthy",
    )
