"""The banners of every page, most severe first. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from haulout.core.redaction import redact_known_patterns
from haulout.core.text import format_count, format_list
from haulout.dashboard.api.health import NO_SUCH_KIND
from haulout.dashboard.api.notices import is_late
from haulout.dashboard.api.types import Banner, ComponentHealth, Level, Notice, WatchHealth
from haulout.errors import ConfigErrors
from haulout.runtime.freezes import Freeze

_WORST_FIRST = (Level.CRITICAL, Level.WARNING, Level.INFO)


@dataclass(frozen=True, slots=True, kw_only=True)
class BannerInputs:
    """The inputs of all banners."""

    leader: str = ""  # identity of the leader; empty: there is none
    file: str = ""
    problem: ConfigErrors | None = None  # errors in the configuration file
    has_last_good: bool = True  # an earlier configuration is in force
    missing_permissions: str = ""  # in words
    components: Sequence[ComponentHealth] = ()
    sources: Sequence[ComponentHealth] = ()  # event sources of clouds
    watches: Sequence[WatchHealth] = ()
    notices: Sequence[Notice] = ()
    freezes: Sequence[Freeze] = ()  # those that are active
    skipped_nodes: int = 0  # how many nodes have unusable data
    other_warnings: Sequence[str] = ()  # all other warnings, in words


def banners(inputs: BannerInputs) -> tuple[Banner, ...]:
    """Return the banners; empty if all is well."""
    found = [
        *_leadership(inputs),
        *_configuration(inputs),
        *_components(inputs),
        *_watches(inputs),
        *_permissions(inputs),
    ]
    found += [
        *_nodes(inputs),
        *freeze_banners(inputs.freezes),
        *(Banner(level=Level.WARNING, message=_shorten(item), page="health") for item in inputs.other_warnings),
    ]
    return tuple(sorted(found, key=lambda item: _WORST_FIRST.index(item.level)))


def _leadership(inputs: BannerInputs) -> Sequence[Banner]:
    if inputs.leader:
        return ()
    text = "no replica is the leader: no maintenance starts or continues until one is elected"
    return (Banner(level=Level.CRITICAL, message=text, page="health"),)


def _configuration(inputs: BannerInputs) -> Sequence[Banner]:
    if inputs.problem is None:
        return ()
    first, *more_errors = inputs.problem.errors or (inputs.problem,)
    location = f"line {first.line}: " if first.line else ""
    more = f" (and {format_count(len(more_errors), 'more error')})" if more_errors else ""
    instead = "the last valid version stays in force" if inputs.has_last_good else "its content is ignored"
    text = f"{inputs.file} is invalid, and {instead}: {location}{_shorten(first.problem)}{more}"
    level = Level.WARNING if inputs.has_last_good else Level.CRITICAL
    return (Banner(level=level, message=text, page="configuration"),)


def _components(inputs: BannerInputs) -> Sequence[Banner]:
    found = [
        Banner(level=Level.CRITICAL, message=f"{component.name}: {_shorten(component.message)}", page="health")
        for component in inputs.components
        if not component.is_healthy
    ]
    found += [
        Banner(
            level=Level.CRITICAL,
            message=f"{component.name} does not answer: {_shorten(component.message)}",
            page="health",
        )
        for component in inputs.sources
        if not component.is_healthy
    ]
    return found


def _watches(inputs: BannerInputs) -> Sequence[Banner]:
    """Return failing watches; a kind that is not installed is no failure."""
    failing = [watch for watch in inputs.watches if watch.problem and watch.problem != NO_SUCH_KIND]
    unsynced, outdated = (
        [watch for watch in failing if not watch.is_synced],
        [watch for watch in failing if watch.is_synced],
    )
    found: list[Banner] = []
    if unsynced:
        text = f"cannot be watched: {format_list([watch.resource for watch in unsynced])}"
        text = f"{text}: {_shorten(unsynced[0].problem)}"
        found.append(Banner(level=Level.CRITICAL, message=text, page="health"))
    if outdated:
        text = (
            f"the watch fails, so the data may be out of date: {format_list([watch.resource for watch in outdated])}: "
            f"{_shorten(outdated[0].problem)}"
        )
        found.append(Banner(level=Level.WARNING, message=text, page="health"))
    return found


def _permissions(inputs: BannerInputs) -> Sequence[Banner]:
    if not inputs.missing_permissions:
        return ()
    text = f"the operator lacks permissions that profiles need: {_shorten(inputs.missing_permissions)}"
    return (Banner(level=Level.WARNING, message=text, page="health"),)


def _nodes(inputs: BannerInputs) -> Sequence[Banner]:
    found: list[Banner] = []
    late_notices = [notice for notice in inputs.notices if is_late(notice)]
    if late_notices:
        nodes = format_list(sorted({notice.node or notice.name for notice in late_notices}))
        verb = "is" if len(late_notices) == 1 else "are"
        text = (
            f"{format_count(len(late_notices), 'notice')} {verb} late, "
            f"as the drain is not expected to finish before the maintenance starts: {nodes}"
        )
        found.append(Banner(level=Level.WARNING, message=text, page="notices"))
    if inputs.skipped_nodes:
        text = f"{format_count(inputs.skipped_nodes, 'node')} skipped, as their data cannot be read"
        found.append(Banner(level=Level.WARNING, message=text, page="fleet"))
    return found


def freeze_banners(freezes: Iterable[Freeze]) -> Sequence[Banner]:
    """Return a banner for each active freeze."""
    return [
        Banner(level=Level.INFO, message=_shorten(f"{_selected(item)} {item.to_hold()}"), page="fleet")
        for item in freezes
    ]


def _selected(item: Freeze) -> str:
    count = item.freeze.status.nodes
    if count is None:
        return "nodes are"
    return f"{format_count(count, 'node')} {'is' if count == 1 else 'are'}"


def _shorten(text: str, max_length: int = 300) -> str:
    line = redact_known_patterns(" ".join(text.split()))
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"
