"""What is done about notices where nobody has configured profiles: `default.yaml`, a configuration as any other.

    configuration = in_force(configured, is_left=any(map(is_unfinished_on, nodes)))

It is in force without a configuration, and beside a budget alone, which then counts for it. Profiles that are
configured replace it. Nodes that it is not done with at that moment are brought to their end by it, as else they would
stay cordoned for ever: it is known for these, and for no others.

It is read when the first notice is there. Who has none pays nothing for it.
"""

from dataclasses import replace
from functools import cache
from importlib import resources
from types import MappingProxyType

from haulout.kube.objects import Node
from haulout.profiles import attaching, begun, data
from haulout.profiles.model import Configuration, needs_of
from haulout.profiles.plugin import DATA_ANNOTATION

PROFILE = "notices"
FILE = "default.yaml"


def text() -> str:
    """Return the file."""
    return resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")


@cache
def configuration() -> Configuration:
    """Return what it says."""
    from haulout.profiles.config import load
    from haulout.profiles.plugins.registry import registries

    return load(text().encode(), registries(), {}, file=FILE).configuration


def in_force(configured: Configuration, *, is_left: bool = False) -> Configuration:
    """Return a configuration with what it has by default; `is_left`: some nodes are not done with that."""
    if not configured.profiles:
        own = configuration()
        return replace(configured, profiles=own.profiles, needs=own.needs, requeue=own.requeue)
    if not is_left or PROFILE in configured.profiles:
        return configured
    ending = replace(configuration().profiles[PROFILE], is_ending=True)
    profiles = {**configured.profiles, PROFILE: ending}
    return replace(configured, profiles=MappingProxyType(profiles), needs=needs_of(profiles.values()))


def is_unfinished_on(node: Node) -> bool:
    """Tell whether the default profile is not done with a node."""
    written = node.metadata.annotations.get(DATA_ANNOTATION, "")
    if PROFILE not in written:
        return False
    try:
        entry = data.entries_of(written).get(PROFILE)
    except data.DataError:
        return False  # such a node is left alone, and told of
    return attaching.is_unfinished(entry, begun.read(node).get(PROFILE))
