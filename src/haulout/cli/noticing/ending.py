"""Calling a maintenance off (`haulout.notices.calling_off`), and saying that it is over."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from haulout.cli.cordoning import SUFFIXES
from haulout.cli.lines import Line
from haulout.cli.noticing.finding import find
from haulout.cli.noticing.retrying import pause
from haulout.cli.noticing.sights import Sight, sight
from haulout.errors import CredentialsError, HauloutError, KubeError, Unauthorized, Unreachable
from haulout.kinds.notice import MAINTENANCE_NOTICES, Phase, Stage
from haulout.kube.client import Client
from haulout.notices.calling_off import Objection, against_cancelling, said


class Step(StrEnum):
    """What a person says about a maintenance; the words are for what became of it."""

    CANCEL = "cancelled"
    END = "ended"


_STAGES = {Step.CANCEL: Stage.CANCELLED, Step.END: Stage.ENDED}


@dataclass(frozen=True, slots=True)
class Done:
    """What came of it."""

    name: str
    verb: str
    notes: tuple[str, ...] = ()


async def take(client: Client, called: str, step: Step, *, force: bool = False, dry_run: str = "none") -> Done:
    """Say it of a notice; raises `HauloutError` if that makes no sense."""
    attempt = 0
    while True:
        seen = sight(await find(client, called), now=client.clock.now())
        name = seen.notice.name
        if seen.notice.spec.stage == _STAGES[step]:
            return Done(name, str(step) if attempt else f"already {step}")
        if step is Step.END and seen.phase.is_over:
            return Done(name, "already over", (f"{seen.phase}: {seen.standing.why}",))
        objected = objection(seen, step)
        if objected is not None and not (force and objected.yields_to_force):
            raise HauloutError(f"notice {name} {objected.why}")
        if dry_run == "client":
            return Done(name, str(step), _afterwards(seen))
        try:
            await client.patch(MAINTENANCE_NOTICES, name, said(seen.notice, _STAGES[step]), dry_run=dry_run == "server")
        except KubeError as error:
            attempt += 1
            await pause(client, error, attempt=attempt)
        else:
            return Done(name, str(step), _afterwards(seen))


async def take_all(client: Client, names: Sequence[str], step: Step, *, force: bool, dry_run: str) -> bool:
    """Say it of each, and print what came of it; return whether all went well. One that fails stops no other."""
    all_well = True
    for called in names:
        try:
            done = await take(client, called, step, force=force, dry_run=dry_run)
        except (CredentialsError, Unauthorized, Unreachable):
            raise  # the others would fare no better
        except HauloutError as error:
            Line(f"haulout: {error}").print()
            all_well = False
            continue
        Line(f"maintenancenotice.haulout.dev/{done.name} {done.verb}{SUFFIXES[dry_run]}", is_result=True).print()
        for note in done.notes:
            Line(f"{done.name}: {note}").print()
    return all_well


def objection(seen: Sight, step: Step) -> Objection | None:
    """Return why a step makes no sense; None if it does."""
    return _against_cancelling(seen) if step is Step.CANCEL else _against_ending(seen)


def _against_cancelling(seen: Sight) -> Objection | None:
    found = against_cancelling(seen.notice, seen.standing)
    if found is None or not found.by_force:
        return found
    return replace(found, why=f"{found.why}; {found.by_force}: --force")


def _against_ending(seen: Sight) -> Objection | None:
    spec, name = seen.notice.spec, seen.notice.name
    is_ahead = spec.start is not None and seen.now < spec.start and seen.phase is not Phase.ACTIVE
    if is_ahead:
        return Objection(f"has not begun: {seen.standing.why}; to call it off: haulout notice cancel {name}")
    if seen.is_by_a_source and spec.stage != Stage.FAILED:
        who = spec.source or "another"
        why = f"is of {who}, which says itself when it is over; to say so for it: --force"
        return Objection(why, yields_to_force=True)
    return None


def _afterwards(seen: Sight) -> tuple[str, ...]:
    if seen.phase is Phase.PLANNED or not seen.node:
        return ()
    return (f"if a profile took node {seen.node} out of service for it, the node comes back once it is well",)
