"""Which profiles a node has: those in its label, in that order, and those whose selector matches the node.

A profile with `onNotice` is attached while the node has a maintenance notice, of any kind and however far away. It is
detached when there is no notice any more and the profile has finished with the node: it is operational and has no
pending transition. So no node stays cordoned because a notice was deleted.

A configuration that has only such profiles has no default profile. It leaves nodes without notices untouched, and keeps
what the data annotation says about profiles that the node does not have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import phase_at
from haulout.controllers.profiles.config.model import Profile
from haulout.controllers.profiles.machine.transitions import PendingTransition
from haulout.controllers.profiles.observation import Observation
from haulout.controllers.profiles.plugin import DEFAULT_PROFILE, PROFILE_LABEL, PROFILE_SEPARATOR, ProfileStatus, State
from haulout.controllers.profiles.view import topics
from haulout.core.timestamps import add_saturating
from haulout.errors import HauloutError

_HISTORY_RECHECK_AFTER = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class AttachedProfiles:
    """The profiles of a node, and when to evaluate them again: at a time, or on changes of topics."""

    names: tuple[str, ...]  # includes profiles that are not configured
    recheck_at: datetime | None = None
    topics: frozenset[str] = frozenset()


def attached_profiles(observation: Observation, profiles: Mapping[str, Profile]) -> AttachedProfiles:
    """Return the profiles of a node; without any, the default profile if there is one."""
    label = observation.node.metadata.labels.get(PROFILE_LABEL, "")
    labelled = label.split(PROFILE_SEPARATOR) if label else []
    others = [profile for profile in profiles.values() if profile.name not in labelled]
    notice_profiles = _NoticeProfiles(
        observation, reads_notices=any(profile.on_notice and not profile.is_ending for profile in others)
    )
    selected = [
        profile.name
        for profile in others
        if (notice_profiles.is_attached(profile) if profile.on_notice else _is_selected(profile, observation))
    ]
    names = tuple(dict.fromkeys((*labelled, *selected))) or ((DEFAULT_PROFILE,) if covers_all_nodes(profiles) else ())
    return AttachedProfiles(names, min(notice_profiles.recheck_times, default=None), notice_profiles.topics)


def covers_all_nodes(profiles: Mapping[str, Profile]) -> bool:
    """Return whether every node has one of these profiles, at least the default one, so that all its data is theirs."""
    return DEFAULT_PROFILE in profiles and not profiles[DEFAULT_PROFILE].on_notice


def is_unfinished(status: ProfileStatus | None, pending: PendingTransition | None) -> bool:
    """Return whether a profile has not finished with a node: it is not operational, or has a pending transition."""
    if status is None:
        return False
    is_pending = pending is not None and pending.belongs_to(status)
    return is_pending or status.current != State.OPERATIONAL or status.previous != status.current


def _is_selected(profile: Profile, observation: Observation) -> bool:
    return profile.selector is not None and profile.selector.matches(observation.node.metadata.labels)


class _NoticeProfiles:
    """Attaches notice profiles to a node. One object serves one evaluation: it reads the notices once."""

    def __init__(self, observation: Observation, *, reads_notices: bool) -> None:
        self.recheck_times: list[datetime] = []  # when the result may change
        self.topics = frozenset({topics.notices(observation.node.name)} if reads_notices else ())
        self._observation = observation
        self._has_notices = self._read_notices() if reads_notices else False  # None: unknown

    def is_attached(self, profile: Profile) -> bool:
        """Return whether the node has a profile."""
        observation, status = self._observation, self._observation.statuses.get(profile.name)
        if is_unfinished(status, observation.pending.get(profile.name)):
            return True  # regardless of label, selector and notices
        is_selected = not profile.is_ending and (profile.selector is None or _is_selected(profile, observation))
        if is_selected and self._has_notices:
            return True
        if status is None:
            return False
        if not observation.is_recorded:
            self.recheck_times.append(add_saturating(observation.now, _HISTORY_RECHECK_AFTER))
            return True  # keep the data until the history has the last transition: the data is its only other record
        return is_selected and self._has_notices is None

    def _read_notices(self) -> bool | None:
        try:
            node = self._observation.node
            notices = [notice for notice in self._observation.cluster.notices(node.name) if notice.matches_node(node)]
        except HauloutError:
            return None  # the node is requeued when the notice informer has synced
        readings = [phase_at(notice.spec, now=self._observation.now, lead=timedelta()) for notice in notices]
        open_notices = [notice for notice in readings if not notice.phase.is_over]
        self.recheck_times += [notice.until for notice in open_notices if notice.until is not None]
        return bool(open_notices)
