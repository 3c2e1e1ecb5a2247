"""Approve a maintenance: evaluate profiles as `haulout why` does, and set the label or annotation of a check."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.cli.cordon.node_changes import DRY_RUN_SUFFIXES
from haulout.cli.hold.node_hold import current_user
from haulout.cli.output import OutputLine
from haulout.cli.why.explanation import WhyOptions, connect_with_configuration
from haulout.controllers.profiles.explain import approval
from haulout.controllers.profiles.explain.approval import ApprovalError, Offer
from haulout.controllers.profiles.explain.explanation import evaluate
from haulout.kube.client import Client
from haulout.kube.patches import node_patch


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """The arguments of the command."""

    node: str
    profile: str = ""
    check: str = ""


async def approve_node(request: ApprovalRequest, options: WhyOptions, *, dry_run: str) -> tuple[OutputLine, ...]:
    """Set on a node what a profile waits for; raise `HauloutError`."""
    async with connect_with_configuration(options, request.node) as (client, configuration, notes):
        inspection = await evaluate(client, configuration, request.node, external=None)
        offers = approval.offers(inspection.decision.reports, configuration, by=await current_user(client))
        try:
            offer = approval.choose(offers, profile=request.profile, check=request.check)
        except ApprovalError as error:
            raise ApprovalError("; ".join((str(error), *notes))) from None
        if dry_run != "client":
            await _patch_node(client, inspection.observed.node, offer, dry_run=dry_run)
        lines = _approval_lines(inspection.observed.node, offer, suffix=DRY_RUN_SUFFIXES[dry_run])
        return (*lines, *(OutputLine(f"Note: {note}") for note in notes))


async def _patch_node(client: Client, node: Node, offer: Offer, *, dry_run: str) -> None:
    # No resourceVersion: concurrent changes to the node do not matter for an approval.
    change = approval.patch(offer.changes)
    change["metadata"]["uid"] = node.uid
    await client.patch(NODES, node.name, node_patch(change), dry_run=dry_run == "server")


def _approval_lines(node: Node, offer: Offer, *, suffix: str) -> Iterator[OutputLine]:
    yield OutputLine(f"node/{node.name} approved{suffix}", is_result=True)
    if offer.waits_for:
        yield OutputLine(
            f"node/{node.name}: profile {offer.profile} waits until {offer.waits_for}; then it moves to {offer.target}"
        )
    else:
        yield OutputLine(
            f"node/{node.name}: profile {offer.profile} moves to {offer.target}, because now {offer.remedy_text}"
        )
    for change in offer.changes:
        yield OutputLine(f"node/{node.name}: {change.command(node)}")
