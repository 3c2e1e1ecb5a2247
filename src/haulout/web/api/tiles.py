"""A tile on the map: what of a node is seen at a glance. Pure."""

from haulout.kinds.hold import holding
from haulout.web.api.places import pool_of, zone_of
from haulout.web.api.shapes import NodeState, Tile
from haulout.web.api.standing import Stand, stand_of
from haulout.web.api.subject import Subject


def tile_of(subject: Subject) -> tuple[Tile, Stand]:
    """Return the tile of a node, and what it was made by."""
    stand, node = stand_of(subject), subject.node
    labels = node.metadata.labels
    tile = Tile(
        name=node.name,
        state=stand.state,
        since=stand.since,
        why=stand.why,
        at=stand.at,
        progress=stand.progress,
        zone=zone_of(labels),
        pool=pool_of(labels),
        is_ready=subject.is_ready,
        is_cordoned=node.spec.unschedulable,
        profiles={name: entry.current for name, entry in subject.entries.items()},
        notices=len(subject.notices),
        maintenance=next((it.name for it in subject.orders), ""),
        hold="" if (held := holding(node, now=subject.now)) is None else str(held),
        labels={} if subject.info is None else dict(subject.info.labels),
    )
    return tile, stand


def broken_tile(name: str, problem: str) -> Tile:
    """Return the tile of a node about which nothing sensible can be said."""
    return Tile(name=name, state=NodeState.BLOCKED, why=f"a defect in the operator, which goes on: {problem}")
