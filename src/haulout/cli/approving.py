"""What `haulout approve` does: looks as `haulout why` does, and sets what a person can set."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.cli.cordoning import SUFFIXES
from haulout.cli.holding import my_name
from haulout.cli.lines import Line
from haulout.cli.looking import Wishes, connected
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kube.patches import node_patch
from haulout.kube.resources import NODES
from haulout.profiles import approval
from haulout.profiles.approval import ApprovalError, Offer
from haulout.profiles.why import looked_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was typed."""

    node: str
    profile: str = ""
    check: str = ""


async def approve_node(choice: Choice, wishes: Wishes, *, dry_run: str) -> tuple[Line, ...]:
    """Set on a node what a profile waits for; raises `HauloutError`."""
    async with connected(wishes, choice.node) as (client, configuration, notes):
        look = await looked_at(client, configuration, choice.node, outside=None)
        offered = approval.offers(look.result.reports, configuration, by=await my_name(client))
        try:
            offer = approval.choose(offered, profile=choice.profile, check=choice.check)
        except ApprovalError as error:
            raise ApprovalError("; ".join((str(error), *notes))) from None
        if dry_run != "client":
            await _set(client, look.sight.node, offer, dry_run=dry_run)
        said = _told(look.sight.node, offer, suffix=SUFFIXES[dry_run])
        return (*said, *(Line(f"Note: {note}") for note in notes))


async def _set(client: Client, node: Node, offer: Offer, *, dry_run: str) -> None:
    # Without its version: what others change about the node meanwhile is no reason not to approve.
    change = approval.patch(offer.wishes)
    change["metadata"]["uid"] = node.uid
    await client.patch(NODES, node.name, node_patch(change), dry_run=dry_run == "server")


def _told(node: Node, offer: Offer, *, suffix: str) -> Iterator[Line]:
    yield Line(f"node/{node.name} approved{suffix}", is_result=True)
    if offer.waits_for:
        yield Line(
            f"node/{node.name}: profile {offer.profile} waits until {offer.waits_for}; then it goes to {offer.target}"
        )
    else:
        yield Line(f"node/{node.name}: profile {offer.profile} goes to {offer.target}, as {offer.would} now")
    for wish in offer.wishes:
        yield Line(f"node/{node.name}: {wish.command(node)}")
