"""The default handling of maintenance notices, used if no profiles are configured: `default.yaml`.

    effective = effective_configuration(configured, has_unfinished_nodes=any(map(is_unfinished_on, nodes)))

It is in force without a configuration, and together with a configuration that has only a budget, which then applies to
it. Configured profiles replace it. Nodes that it has not finished with at that moment keep it until it has, as they
would stay cordoned otherwise; no other node gets it.

It is loaded when the first notice exists, so a cluster without notices has no cost.

With `HAULOUT_NOTICES_RECOVERY`, a maximum waiting time, a node returns to operational only when the workloads that were
evicted from it are available again (`awaitRecovery`). The node is uncordoned before that.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from importlib import resources
from types import MappingProxyType

from haulout.api.objects import Node
from haulout.controllers.profiles.config.model import Configuration, needs_of
from haulout.controllers.profiles.machine import attachment, data_annotation, transitions
from haulout.controllers.profiles.plugin import DATA_ANNOTATION
from haulout.core import duration
from haulout.errors import ConfigError, ConfigErrors

PROFILE = "notices"
FILE = "default.yaml"
RECOVERY = "HAULOUT_NOTICES_RECOVERY"
_ENVIRONMENT = "environment"  # file name in errors
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
    """Return how long nodes wait for workloads to recover, from environment variables. Raise `ConfigErrors`."""
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
    # Imported late: plugins take time and memory to load, and are not needed in a cluster without notices.
    from haulout.controllers.profiles.config.loader import load
    from haulout.controllers.profiles.plugins.registry import registries

    return load(text(recovery).encode(), registries(), {}, file=FILE).configuration


def effective_configuration(
    configured: Configuration, *, has_unfinished_nodes: bool = False, recovery: timedelta | None = None
) -> Configuration:
    """Return a configuration with the default profile added if needed.

    `has_unfinished_nodes` is true if the default profile has not finished with some nodes.
    """
    if not configured.profiles:
        own = configuration(recovery)
        return replace(configured, profiles=own.profiles, needs=own.needs, requeue=own.requeue)
    if not has_unfinished_nodes or PROFILE in configured.profiles:
        return configured
    ending = replace(configuration(recovery).profiles[PROFILE], is_ending=True)
    profiles = {**configured.profiles, PROFILE: ending}
    return replace(configured, profiles=MappingProxyType(profiles), needs=needs_of(profiles.values()))


def is_unfinished_on(node: Node) -> bool:
    """Return whether the default profile has not finished with a node."""
    written = node.metadata.annotations.get(DATA_ANNOTATION, "")
    # Most nodes do not have it, and parsing their annotations would cost more than this search.
    if PROFILE not in written:
        return False
    try:
        status = data_annotation.statuses_of(written).get(PROFILE)
    except data_annotation.DataError:
        return False  # such a node is left untouched, and an event reports it
    return attachment.is_unfinished(status, transitions.read_pending(node).get(PROFILE))
