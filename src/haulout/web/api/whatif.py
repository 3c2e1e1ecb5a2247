"""What would change with another configuration: in the file, and for the nodes as they are now.

For each node the very step is taken that the operator would take, once by what is in force and once by the edit
(`haulout.profiles.machine`), and nothing of it is performed. Nobody outside is asked: what is not known counts as not
known. Nodes for which the same would change are told together.

It gives way to others every few nodes, so that thousands of them hold up nobody.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from haulout.core.clock import Clock
from haulout.profiles import changes, inwords, picture
from haulout.profiles.model import Configuration
from haulout.profiles.plugin import State
from haulout.profiles.steps import ProfileReport, Result, TransitionReport
from haulout.web.api.edits import Read
from haulout.web.api.shapes import Change, WhatIf

MOST_NAMED = 20
_MOST_CHANGES = 500
_AT_A_TIME = 10  # nodes
_TOO_LONG = 1.0  # seconds for one node: then the edit is not tried on the others
_ALL_TOO_LONG = 30.0  # seconds for all of them

Consider = Callable[[str, Configuration], Result | None]
"""Returns which step a node would take by a configuration."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What becomes of a profile of a node next; equal ones are told together."""

    state: str
    goes_to: str = ""  # it goes there now, or begins to
    waits_for: tuple[str, ...] = ()  # checks that do not pass on the way that is nearest, or what else it needs
    error: str = ""

    def __str__(self) -> str:
        """Return it as what comes after `they`."""
        if self.error:
            return f"stay {self.state}, as something is wrong: {self.error}"
        match self.goes_to:
            case State.IN_MAINTENANCE:
                return "go into maintenance now"
            case State.OPERATIONAL:
                return "go back to operational now"
            case str(state) if state:
                return f"go on to {state} now"
        waits = f", and wait for {', '.join(self.waits_for)}" if self.waits_for else ""
        return f"stay {self.state}{waits}"


@dataclass(slots=True)
class _Groups:
    """Nodes by what would change for them."""

    nodes: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # by profile and text

    def add(self, profile: str, text: str, node: str) -> None:
        """Note it."""
        if len(self.nodes) < _MOST_CHANGES or (profile, text) in self.nodes:
            self.nodes.setdefault((profile, text), []).append(node)

    def changes(self) -> Iterator[Change]:
        """Yield them, those of most nodes first."""
        for (profile, text), found in sorted(self.nodes.items(), key=lambda it: (-len(it[1]), it[0])):
            yield Change(text=text, profile=profile, nodes=tuple(sorted(found)[:MOST_NAMED]), count=len(found))


async def compared(
    read: Read,
    in_force: Configuration,
    after: Configuration,
    *,
    nodes: Collection[str],
    consider: Consider,
    clock: Clock,
) -> WhatIf:
    """Return what an edit would change; both configurations are with what they have by default."""
    groups = _Groups()
    looked_at = 0
    changed = [*in_file(in_force, after, read)]
    first = clock.monotonic()
    for name in () if read.is_too_much else nodes:
        began = clock.monotonic()
        before, later = consider(name, in_force), consider(name, after)
        for profile, text in differences(before, later):
            groups.add(profile, text, name)
        looked_at += 1
        now = clock.monotonic()
        if now - began > _TOO_LONG or now - first > _ALL_TOO_LONG:
            break
        if looked_at % _AT_A_TIME == 0:
            await clock.sleep(timedelta())
    if looked_at < len(nodes):
        why = f"the edit was tried on {looked_at} of {len(nodes)} nodes only: it takes too long"
        changed.append(Change(text=why))
    return WhatIf(
        is_good=True,
        findings=read.findings,
        changes=tuple(_hidden(it, read) for it in (*groups.changes(), *changed)),
        looked_at=looked_at,
        profiles=read.profiles,
    )


def differences(before: Result | None, after: Result | None) -> Iterator[tuple[str, str]]:
    """Yield by profile what would be otherwise for a node."""
    old, new = outlooks(before), outlooks(after)
    for profile in dict.fromkeys((*old, *new)):
        if profile not in old:
            yield profile, f"would get profile {profile}, and {new[profile]}"
        elif profile not in new:
            unfinished = old[profile].state != State.OPERATIONAL
            yield profile, f"would lose profile {profile}" + (f" while {old[profile].state}" if unfinished else "")
        elif old[profile] != new[profile]:
            yield profile, f"would {new[profile]}; by what is in force they {old[profile]}"


def outlooks(result: Result | None) -> Mapping[str, Outlook]:
    """Return by profile what becomes of it next."""
    return {} if result is None else {it.name: _outlook(it, result) for it in result.reports}


def _outlook(report: ProfileReport, result: Result) -> Outlook:
    if report.error:
        return Outlook(report.state, error=report.error)
    if report.next != report.state:
        return Outlook(report.state, goes_to=report.next)
    begun = result.pending.get(report.name)
    if begun is not None:
        return Outlook(report.state, goes_to=begun.next)
    way = _nearest(report.transitions)
    return Outlook(report.state, waits_for=() if way is None else tuple(_holding_back(way)))


def _nearest(ways: Iterable[TransitionReport]) -> TransitionReport | None:
    """Return the way on that lacks least: the first of them."""
    return min(ways, key=lambda it: sum(1 for _ in _holding_back(it)), default=None)


def _holding_back(way: TransitionReport) -> Iterator[str]:
    if way.veto:
        yield "room in the budget" if "budget" in way.veto else way.veto
    if way.chain_passed:
        return
    for name, it in way.checks.items():
        if not it.verdict.passed:
            yield f"{name} (not known)" if it.verdict.passed is None else name


# What is different in the file


def in_file(before: Configuration, after: Configuration, read: Read) -> Iterator[Change]:
    """Yield what is different between two configurations, and of profiles and instances how."""
    for text in changes.between(before, after):
        family, _, rest = text.partition(" ")
        name = rest.removesuffix(" changed")
        if name == rest:
            yield Change(text=text, profile=rest.split(" ")[0] if family == "profile" else "")
        elif family == "profile" and after.profiles[name].is_ending:
            yield Change(text=f"profile {name} is gone, and only brings to its end what it has begun", profile=name)
        elif family == "profile":
            how = "; ".join(_between(picture.explained(before.profiles[name]), picture.explained(after.profiles[name])))
            if how:  # otherwise its instances changed, each of which is told by itself
                yield Change(text=f"{text}: {how}", profile=name)
        else:
            told = [_settings(it, family, name, read) for it in (before, after)]
            how = "; ".join(_between(*told))
            yield Change(text=f"{text}{f': {how}' if how else ''}")


def _between(old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, after = dict.fromkeys(map(str.strip, old)), dict.fromkeys(map(str.strip, new))
    yield from (f"now “{it}”" for it in after if it not in before)
    yield from (f"no longer “{it}”" for it in before if it not in after)


def _settings(configuration: Configuration, family: str, name: str, read: Read) -> list[str]:
    told = [it for it in inwords.tell_all(configuration, read.values) if (it.family, it.name) == (family, name)]
    return [f"{key}: {value}" for it in told for key, value in (("type", it.type), *it.options.items())]


def _hidden(change: Change, read: Read) -> Change:
    text = read.hide.hide(inwords.masked(change.text, read.values))
    return Change(text=text, profile=change.profile, nodes=change.nodes, count=change.count)
