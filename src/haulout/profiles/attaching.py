"""Which profiles a node has: those that its label names, in that order, and those whose selector matches it."""

from collections.abc import Mapping

from haulout.kube.objects import Node
from haulout.profiles.model import Profile
from haulout.profiles.plugin import DEFAULT_PROFILE, PROFILE_LABEL, SEPARATOR


def attached(node: Node, profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """Return the names, also of profiles that are not configured; without any, that of the default profile."""
    label = node.metadata.labels.get(PROFILE_LABEL, "")
    named = label.split(SEPARATOR) if label else []
    selected = [
        name
        for name, profile in profiles.items()
        if profile.selector is not None and profile.selector.matches(node.metadata.labels)
    ]
    return tuple(dict.fromkeys((*named, *selected))) or (DEFAULT_PROFILE,)
