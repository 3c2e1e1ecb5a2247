"""What somebody should know on every page, worst first. Pure: a function of what is known."""

from collections.abc import Sequence
from dataclasses import dataclass

from haulout.core.redaction import redact_recognizable
from haulout.errors import ConfigErrors
from haulout.profiles.words import counted, some
from haulout.web.api.health import NO_SUCH_KIND
from haulout.web.api.notices import is_late
from haulout.web.api.shapes import Banner, Level, Notice, PartHealth, WatchHealth

_WORST_FIRST = (Level.CRITICAL, Level.WARNING, Level.INFO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What banners are made of."""

    leader: str = ""  # who leads; empty: nobody does
    file: str = ""
    problem: ConfigErrors | None = None  # with the configuration file
    has_good: bool = True  # an earlier one is in force
    lacking: str = ""  # permissions, in words
    parts: Sequence[PartHealth] = ()
    sources: Sequence[PartHealth] = ()  # of notices: clouds
    watches: Sequence[WatchHealth] = ()
    notices: Sequence[Notice] = ()
    left_alone: int = 0  # nodes about which nothing is done
    others: Sequence[str] = ()  # whatever else somebody should look after, in words


def banners(known: Known) -> tuple[Banner, ...]:
    """Return what to tell; nothing if all is well."""
    found = [*_leading(known), *_configuration(known), *_parts(known), *_watches(known), *_rights(known)]
    found += [*_nodes(known), *(Banner(level=Level.WARNING, text=_short(it), page="health") for it in known.others)]
    return tuple(sorted(found, key=lambda it: _WORST_FIRST.index(it.level)))


def _leading(known: Known) -> Sequence[Banner]:
    if known.leader:
        return ()
    text = "nobody leads: no maintenance begins or goes on until a replica does"
    return (Banner(level=Level.CRITICAL, text=text, page="health"),)


def _configuration(known: Known) -> Sequence[Banner]:
    if known.problem is None:
        return ()
    first, *others = known.problem.errors or (known.problem,)
    where = f"line {first.line}: " if first.line else ""
    more = f" (and {counted(len(others), 'more error')})" if others else ""
    instead = "what it said before is in force" if known.has_good else "it is as if it were not there"
    text = f"{known.file} makes no sense, and {instead}: {where}{_short(first.problem)}{more}"
    level = Level.WARNING if known.has_good else Level.CRITICAL
    return (Banner(level=level, text=text, page="configuration"),)


def _parts(known: Known) -> Sequence[Banner]:
    found = [
        Banner(level=Level.CRITICAL, text=f"{it.name}: {_short(it.text)}", page="health")
        for it in known.parts
        if not it.is_well
    ]
    found += [
        Banner(level=Level.CRITICAL, text=f"{it.name} is not heard: {_short(it.text)}", page="health")
        for it in known.sources
        if not it.is_well
    ]
    return found


def _watches(known: Known) -> Sequence[Banner]:
    """Return what is not followed; what a cluster does not have at all is nobody's fault."""
    troubled = [it for it in known.watches if it.problem and it.problem != NO_SUCH_KIND]
    unknown, old = [it for it in troubled if not it.is_synced], [it for it in troubled if it.is_synced]
    found: list[Banner] = []
    if unknown:
        text = f"not known, as they cannot be followed: {some([it.resource for it in unknown])}"
        text = f"{text}: {_short(unknown[0].problem)}"
        found.append(Banner(level=Level.CRITICAL, text=text, page="health"))
    if old:
        text = f"may be shown as they were: {some([it.resource for it in old])}: {_short(old[0].problem)}"
        found.append(Banner(level=Level.WARNING, text=text, page="health"))
    return found


def _rights(known: Known) -> Sequence[Banner]:
    if not known.lacking:
        return ()
    text = f"the operator may not do what profiles need: {_short(known.lacking)}"
    return (Banner(level=Level.WARNING, text=text, page="health"),)


def _nodes(known: Known) -> Sequence[Banner]:
    found: list[Banner] = []
    late = [it for it in known.notices if is_late(it)]
    if late:
        nodes = some(sorted({it.node or it.name for it in late}))
        verb = "is" if len(late) == 1 else "are"
        text = f"{counted(len(late), 'notice')} {verb} late, as pods will still be there when it begins: {nodes}"
        found.append(Banner(level=Level.WARNING, text=text, page="notices"))
    if known.left_alone:
        text = f"nothing is done about {counted(known.left_alone, 'node')}, whose data cannot be used"
        found.append(Banner(level=Level.WARNING, text=text, page="fleet"))
    return found


def _short(text: str, most: int = 300) -> str:
    line = redact_recognizable(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"
