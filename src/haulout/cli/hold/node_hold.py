"""Hold and release nodes on behalf of a user: the annotation `haulout.dev/hold`."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from haulout.api import hold
from haulout.api.objects import Node, RawObject
from haulout.cli.cordon.node_changes import ChangeResult, ChangeVerb, NodeChangeDecision, change_node
from haulout.drain.cordon import InvalidCordonAnnotation, cordon_of
from haulout.kube import rbac
from haulout.kube.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRequest:
    """The options of the command."""

    reason: str = ""
    by: str | None = None  # None: the authenticated user
    until: datetime | None = None


async def hold_node(client: Client, node: Node, request: HoldRequest, *, dry_run: str = "none") -> ChangeResult:
    by = request.by if request.by is not None else await current_user(client)
    value = hold.format_annotation(reason=request.reason, by=by, until=request.until)

    async def decide(current: Node) -> NodeChangeDecision:
        notes = tuple(_previous_hold_notes(current, value, now=client.clock.now()))
        return NodeChangeDecision(
            _annotation_patch(current, value),
            ChangeResult(current.name, ChangeVerb.HELD, notes=(str(hold.parse(value)), *notes)),
        )

    return await change_node(client, node, decide, dry_run=dry_run)


async def release_node(client: Client, node: Node, *, dry_run: str = "none") -> ChangeResult:
    async def decide(current: Node) -> NodeChangeDecision:
        hold_text = hold.describe_hold(current, now=client.clock.now())
        if not hold_text:
            return NodeChangeDecision(None, ChangeResult(current.name, ChangeVerb.NOT_HELD))
        return NodeChangeDecision(
            _annotation_patch(current, None),
            ChangeResult(current.name, ChangeVerb.RELEASED, notes=(f"was {hold_text}",)),
        )

    return await change_node(client, node, decide, dry_run=dry_run)


async def current_user(client: Client) -> str:
    """Return the authenticated user; empty if the server does not say."""
    user = await rbac.whoami(client)
    return "" if user is None else user.username


def _annotation_patch(node: Node, value: str | None) -> RawObject:
    return {"metadata": {"resourceVersion": node.resource_version, "annotations": {hold.ANNOTATION: value}}}


def _previous_hold_notes(node: Node, value: str, *, now: datetime) -> Iterator[str]:
    if node.metadata.annotations.get(hold.ANNOTATION, value) != value:
        yield f"was {hold.describe_hold(node, now=now)}"
    try:
        mark = cordon_of(node)
    except InvalidCordonAnnotation:
        return
    if mark is not None and mark.owners:
        names = " and ".join(owner.replace("/", " ", 1) for owner in mark.owners)
        yield f"maintenance by {names} is in progress and continues"
