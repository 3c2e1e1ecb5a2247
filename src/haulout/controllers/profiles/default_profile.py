"""What is done about notices where nobody has configured profiles: `default.yaml`, a configuration as any other.

    configuration = in_force(configured, is_left=any(map(is_unfinished_on, nodes)))

It is in force without a configuration, and beside a budget alone, which then counts for it. Profiles that are
configured replace it. Nodes that it is not done with at that moment are brought to their end by it, as else they would
stay cordoned for ever: it is known for these, and for no others.

It is read when the first notice is there. Who has none pays nothing for it.

With `HAULOUT_NOTICES_RECOVERY`, the longest time to wait, a node counts as back only when the workloads that were
evicted from it are available again (`awaitRecovery`). It is uncordoned first.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from importlib import resources
from types import MappingProxyType

from haulout.api.objects import Node
from haulout.controllers.profiles.config.model import Configuration, needs_of
from haulout.controllers.profiles.machine import attachment, data_annotation, pending_transitions
from haulout.controllers.profiles.plugin import DATA_ANNOTATION
from haulout.core import duration
from haulout.errors import ConfigError, ConfigErrors

PROFILE = "notices"
FILE = "default.yaml"
RECOVERY = "HAULOUT_NOTICES_RECOVERY"
_ENVIRONMENT = "environment"  # what errors name as the place
_UNCORDON = "  - {name: uncordon, type: eviction, config: {action: uncordon}}\n"
_RETURN_TRANSITION = '"!due && ready", next: operational, trigger: uncordon'


def text(recovery: timedelta | None = None) -> str:
    """Return the file; with `recovery`, nodes wait that long at most for workloads to recover."""
    shipped = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    if recovery is None:
        return shipped
    wait = f"  - {{name: recovered, type: awaitRecovery, config: {{timeout: {duration.format(recovery)}}}}}\n"
    return shipped.replace(_UNCORDON, f"{_UNCORDON}{wait}").replace(
        _RETURN_TRANSITION, f"{_RETURN_TRANSITION} && recovered"
    )


def recovery_timeout(variables: Mapping[str, str]) -> timedelta | None:
    """Return how long nodes wait for workloads to recover, by environment variables; raises `ConfigErrors`."""
    written = variables.get(RECOVERY, "").strip()
    if not written:
        return None
    try:
        found = duration.parse(written)
    except duration.DurationError as error:
        raise ConfigErrors([ConfigError(str(error), file=_ENVIRONMENT, key=RECOVERY)]) from None
    if found <= timedelta():
        problem = f"expected a duration above zero, found {written!r:.60}"
        raise ConfigErrors([ConfigError(problem, file=_ENVIRONMENT, key=RECOVERY)])
    return found


@lru_cache(maxsize=2)
def configuration(recovery: timedelta | None = None) -> Configuration:
    """Return what it says."""
    from haulout.controllers.profiles.config.loader import load
    from haulout.controllers.profiles.plugins.registry import registries

    return load(text(recovery).encode(), registries(), {}, file=FILE).configuration


def effective_configuration(
    configured: Configuration, *, has_unfinished_nodes: bool = False, recovery: timedelta | None = None
) -> Configuration:
    """Return a configuration with what it has by default; `has_unfinished_nodes`: some nodes are not done with that."""
    if not configured.profiles:
        own = configuration(recovery)
        return replace(configured, profiles=own.profiles, needs=own.needs, requeue=own.requeue)
    if not has_unfinished_nodes or PROFILE in configured.profiles:
        return configured
    ending = replace(configuration(recovery).profiles[PROFILE], is_ending=True)
    profiles = {**configured.profiles, PROFILE: ending}
    return replace(configured, profiles=MappingProxyType(profiles), needs=needs_of(profiles.values()))


def is_unfinished_on(node: Node) -> bool:
    """Tell whether the default profile is not done with a node."""
    written = node.metadata.annotations.get(DATA_ANNOTATION, "")
    if PROFILE not in written:
        return False
    try:
        status = data_annotation.statuses_of(written).get(PROFILE)
    except data_annotation.DataError:
        return False  # such a node is left alone, and told of
    return attachment.is_unfinished(status, pending_transitions.read(node).get(PROFILE))
