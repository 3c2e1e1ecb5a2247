"""Which profiles a node has: those that its label names, in that order, and those whose selector matches it.

A profile with `onNotice` comes by itself, for a maintenance that is announced for the node, whatever kind that is and
however far away. It goes when nothing is announced any more and the profile is done with the node: it is operational,
and no transition has begun. So no node stays cordoned because a notice was deleted.

A configuration of such profiles alone has no default profile. It leaves nodes as they are for which nothing is
announced, and what the data of nodes says about profiles that it does not have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.errors import HauloutError
from haulout.kinds.standing import standing
from haulout.profiles import topics
from haulout.profiles.begun import Begun
from haulout.profiles.instants import later
from haulout.profiles.model import Profile
from haulout.profiles.plugin import DEFAULT_PROFILE, PROFILE_LABEL, SEPARATOR, Entry, State
from haulout.profiles.steps import Subject

_RECORDED_WITHIN = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Attached:
    """The profiles of a node, until when at least if nothing happens, and what may happen."""

    names: tuple[str, ...]  # also of profiles that are not configured
    until: datetime | None = None
    topics: frozenset[str] = frozenset()


def attached(subject: Subject, profiles: Mapping[str, Profile]) -> Attached:
    """Return the profiles of a node; without any, the default profile if there is one."""
    label = subject.node.metadata.labels.get(PROFILE_LABEL, "")
    named = label.split(SEPARATOR) if label else []
    others = [it for it in profiles.values() if it.name not in named]
    coming = _Coming(subject, looks=any(it.on_notice and not it.is_ending for it in others))
    selected = [it.name for it in others if (coming.comes(it) if it.on_notice else _is_selected(it, subject))]
    names = tuple(dict.fromkeys((*named, *selected))) or ((DEFAULT_PROFILE,) if knows_all(profiles) else ())
    return Attached(names, min(coming.instants, default=None), coming.topics)


def knows_all(profiles: Mapping[str, Profile]) -> bool:
    """Tell whether all data of nodes is about these profiles, and every node has one: the default profile at least."""
    return DEFAULT_PROFILE in profiles and not profiles[DEFAULT_PROFILE].on_notice


def is_unfinished(entry: Entry | None, begun: Begun | None) -> bool:
    """Tell whether a profile is not done with a node, by its data and by what it has begun."""
    if entry is None:
        return False
    has_begun = begun is not None and begun.is_of(entry)
    return has_begun or entry.current != State.OPERATIONAL or entry.previous != entry.current


def _is_selected(profile: Profile, subject: Subject) -> bool:
    return profile.selector is not None and profile.selector.matches(subject.node.metadata.labels)


class _Coming:
    """Profiles that come and go with what is announced for a node."""

    def __init__(self, subject: Subject, *, looks: bool) -> None:
        self.instants: list[datetime] = []  # when something may be different
        self.topics = frozenset({topics.notices(subject.node.name)} if looks else ())
        self._subject = subject
        self._is_noticed = self._look() if looks else False  # None: that is not known

    def comes(self, profile: Profile) -> bool:
        """Tell whether the node has it."""
        subject, entry = self._subject, self._subject.entries.get(profile.name)
        if is_unfinished(entry, subject.pending.get(profile.name)):
            return True  # whatever else has changed
        is_wanted = not profile.is_ending and (profile.selector is None or _is_selected(profile, subject))
        if is_wanted and self._is_noticed:
            return True
        if entry is None:
            return False
        if not subject.is_recorded:
            self.instants.append(later(subject.now, _RECORDED_WITHIN))
            return True  # until it is in the history, that it is done is told by the data alone
        return is_wanted and self._is_noticed is None

    def _look(self) -> bool | None:
        try:
            node = self._subject.node
            notices = [it for it in self._subject.sights.notices(node.name) if it.fits(node)]
        except HauloutError:
            return None  # who asks what is not known yet is woken when it is
        found = [standing(it.spec, now=self._subject.now, lead=timedelta()) for it in notices]
        left = [it for it in found if not it.phase.is_over]
        self.instants += [it.until for it in left if it.until is not None]
        return bool(left)
