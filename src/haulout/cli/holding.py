"""Holding and releasing nodes as a person does it: one annotation, `haulout.dev/hold`, and words about what it does."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from haulout.cli.cordoning import Decision, Done, Verb, change_node
from haulout.drain.cordon import BadMark, cordon_of
from haulout.kinds import hold
from haulout.kube import access
from haulout.kube.client import Client
from haulout.kube.objects import Node, RawObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was typed."""

    reason: str = ""
    by: str | None = None  # None: whoever the server says
    until: datetime | None = None


async def hold_node(client: Client, node: Node, wish: Wish, *, dry_run: str = "none") -> Done:
    """Hold a node."""
    by = wish.by if wish.by is not None else await my_name(client)
    value = hold.written(reason=wish.reason, by=by, until=wish.until)

    async def decide(seen: Node) -> Decision:
        notes = tuple(_about_others(seen, value, now=client.clock.now()))
        return Decision(_annotated(seen, value), Done(seen.name, Verb.HELD, notes=(str(hold.parse(value)), *notes)))

    return await change_node(client, node, decide, dry_run=dry_run)


async def release_node(client: Client, node: Node, *, dry_run: str = "none") -> Done:
    """Let maintenance begin on a node again."""

    async def decide(seen: Node) -> Decision:
        was = hold.told(seen, now=client.clock.now())
        if not was:
            return Decision(None, Done(seen.name, Verb.NOT_HELD))
        return Decision(_annotated(seen, None), Done(seen.name, Verb.RELEASED, notes=(f"was {was}",)))

    return await change_node(client, node, decide, dry_run=dry_run)


async def my_name(client: Client) -> str:
    """Return whom the server takes us for; empty if it does not say."""
    found = await access.whoami(client)
    return "" if found is None else found.username


def _annotated(node: Node, value: str | None) -> RawObject:
    return {"metadata": {"resourceVersion": node.resource_version, "annotations": {hold.ANNOTATION: value}}}


def _about_others(node: Node, value: str, *, now: datetime) -> Iterator[str]:
    if node.metadata.annotations.get(hold.ANNOTATION, value) != value:
        yield f"was {hold.told(node, now=now)}"
    try:
        mark = cordon_of(node)
    except BadMark:
        return
    if mark is not None and mark.owners:
        names = " and ".join(owner.replace("/", " ", 1) for owner in mark.owners)
        yield f"{names} has it already, and goes on"
