"""The annotation `cloud.sap/maintenance-data`: the state of each profile of a node.

    {"Profiles":{"flatcar":{"Transition":"2024-05-01T10:00:00Z","Current":"operational","Previous":"operational"}},
     "Notifications":{"approval_required":"0001-01-01T00:00:00Z"}}

It is shared with the SAP maintenance-controller, so that either can take over from the other at any moment. Each reads
what the other writes, byte for byte: one line, members in this order, keys sorted, `<`, `>` and `&` escaped. The Go
program rejects unknown members, so Haulout must keep all further data elsewhere.

The resolution of a transition's time shows who wrote it: Go's clock has nanoseconds, Haulout's has microseconds. One in
a thousand of Go's times ends in three zeros and is taken for one of Haulout's.

An annotation that cannot be parsed raises `DataError`. The caller must then leave the annotation untouched, since
someone wrote it on purpose.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from haulout.controllers.profiles.plugin import DATA_ANNOTATION as ANNOTATION
from haulout.controllers.profiles.plugin import ProfileStatus
from haulout.core import timestamps
from haulout.core.timestamps import GO_ZERO_TIME, GoTime
from haulout.errors import HauloutError

T = TypeVar("T")
_Pairs = list[tuple[str, Any]]
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
# encoding/json of Go escapes these so that JSON can be embedded in HTML and JavaScript.
_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
_LEGACY = ("LastTransition", "LastNotificationTimes", "ProfileStates", "PreviousStates")


class DataError(HauloutError, ValueError):
    """Raised if the annotation of a node cannot be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileData:
    """One profile of a node: its state, the state that the last evaluation saw, and the time of the last transition."""

    transition: GoTime = GO_ZERO_TIME
    current: str = ""
    previous: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeData:
    """The content of the annotation. Unknown members are never dropped: they raise `DataError`."""

    profiles: Mapping[str, ProfileData] = field(default_factory=dict)
    notifications: Mapping[str, GoTime] = field(default_factory=dict)  # by instance: when it was last sent


@lru_cache(maxsize=256)  # each reconcile of a node parses the same text several times
def parse(text: str | None) -> NodeData:
    """Return the content of an annotation; a missing or empty one is empty. Raise `DataError`.

    As in Go, anything after the first JSON value is ignored and a profile that is null counts as absent. The layout
    from before mid-2023 is parsed as well.
    """
    if not text:
        return NodeData()
    try:
        value, _ = _DECODER.raw_decode(text.lstrip(" \t\r\n"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected JSON in annotation {ANNOTATION}: {error}") from None
    members = _members(value, "the annotation")
    legacy = [name for name, _ in members if _member(name, _LEGACY)]
    return _parse_legacy(members) if legacy and len(legacy) == len(members) else _parse_current(members)


def write(data: NodeData) -> str:
    """Return the annotation as Go's encoding/json writes it."""
    profiles = {
        name: {"Transition": entry.transition.text, "Current": entry.current, "Previous": entry.previous}
        for name, entry in sorted(data.profiles.items())
    }
    notifications = {name: sent.text for name, sent in sorted(data.notifications.items())}
    members = {"Profiles": profiles, "Notifications": notifications}
    return _ENCODER.encode(members).translate(_ESCAPES)


def statuses_of(text: str | None) -> dict[str, ProfileStatus]:
    """Return the status of each profile. Raise `DataError`."""
    return {
        name: ProfileStatus(
            current=profile.current,
            previous=profile.previous,
            transition=_instant(profile.transition),
            is_from_smc=profile.transition.is_finer_than_microseconds,
        )
        for name, profile in parse(text).profiles.items()
    }


def last_sent_of(text: str | None) -> dict[str, datetime | None]:
    """Return when each notification was last sent, None if never. Raise `DataError`."""
    return {name: _instant(sent) for name, sent in parse(text).notifications.items()}


def updated(before: str | None, statuses: Mapping[str, ProfileStatus], last_sent: Mapping[str, datetime | None]) -> str:
    """Return the annotation with these values; times that do not change keep their text. Raise `DataError`."""
    old = parse(before)
    profiles = {
        name: ProfileData(
            transition=_same_or_new(
                old.profiles[name].transition if name in old.profiles else GO_ZERO_TIME, status.transition
            ),
            current=status.current,
            previous=status.previous,
        )
        for name, status in statuses.items()
    }
    sent = {name: _same_or_new(old.notifications.get(name, GO_ZERO_TIME), at) for name, at in last_sent.items()}
    return write(NodeData(profiles=profiles, notifications=sent))


def _instant(time: GoTime) -> datetime | None:
    return None if time.is_never else time.instant


def _same_or_new(before: GoTime, now: datetime | None) -> GoTime:
    if now == _instant(before):
        return before
    return GO_ZERO_TIME if now is None else timestamps.go_time_of(now)


class _Object:
    """A JSON object with its members in order, including duplicates."""

    def __init__(self, pairs: _Pairs) -> None:
        self.pairs = [(_replace_surrogates(name), value) for name, value in pairs]


def _constant(name: str) -> None:
    raise ValueError(f"expected a value, found {name}")


_DECODER = json.JSONDecoder(object_pairs_hook=_Object, parse_constant=_constant)


def _parse_current(members: _Pairs) -> NodeData:
    profiles: dict[str, ProfileData] = {}
    notifications: dict[str, GoTime] = {}
    for name, value in members:
        match _known_member(name, ("Profiles", "Notifications"), "the annotation"):
            # As in Go: null resets a map, and a repeated member is merged into it.
            case "Profiles" if value is None:
                profiles = {}
            case "Profiles":
                profiles |= _parse_members(value, "Profiles", _profile)
            case _ if value is None:
                notifications = {}
            case _:
                notifications |= _parse_members(value, "Notifications", _time)
    absent = [name for name, entry in profiles.items() if entry is _ABSENT]
    return NodeData(
        profiles={name: profiles[name] for name in profiles if name not in absent}, notifications=notifications
    )


_ABSENT = ProfileData()


def _profile(value: Any, where: str) -> ProfileData:
    if value is None:
        return _ABSENT
    found: dict[str, Any] = {}
    for name, each in _members(value, where):
        known = _known_member(name, ("Transition", "Current", "Previous"), where)
        if each is not None:
            read = _time if known == "Transition" else _state
            found[known.lower()] = read(each, f"{where}.{known}")
        elif known == "Transition":
            found["transition"] = found.get("transition", GO_ZERO_TIME)
    return ProfileData(**found)


def _parse_legacy(members: _Pairs) -> NodeData:
    last = GO_ZERO_TIME
    sent: dict[str, GoTime] = {}
    states: dict[str, str] = {}
    previous: dict[str, str] = {}
    for name, value in members:
        match _known_member(name, _LEGACY, "the annotation"):
            case "LastTransition":
                last = _time(value, name)
            case "LastNotificationTimes":
                sent = _parse_members(value, name, _time)
            case "ProfileStates":
                states = _parse_members(value, name, _state)
            case _:
                previous = _parse_members(value, name, _state)
    profiles = {
        name: ProfileData(transition=last, current=state, previous=previous.get(name, state))
        for name, state in states.items()
    }
    return NodeData(profiles=profiles, notifications=sent)


def _parse_members(value: Any, where: str, read: Callable[[Any, str], T]) -> dict[str, T]:
    pairs = [] if value is None else _members(value, where)
    return {name: read(each, f"{where}.{name}") for name, each in pairs}


def _members(value: Any, where: str) -> _Pairs:
    if value is None:
        return []
    if not isinstance(value, _Object):
        raise DataError(f"expected an object as {where} in {ANNOTATION}, found {_type_name(value)}")
    return value.pairs


def _time(value: Any, where: str) -> GoTime:
    if value is None:
        return GO_ZERO_TIME
    if not isinstance(value, str):
        raise DataError(f"expected a timestamp as {where} in {ANNOTATION}, found {_type_name(value)}")
    try:
        return timestamps.parse_go_time(value)
    except ValueError as error:
        raise DataError(f"{where} in {ANNOTATION}: {error}") from None


def _state(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"expected a state as {where} in {ANNOTATION}, found {_type_name(value)}")
    return _replace_surrogates(value)


def _known_member(name: str, known: tuple[str, ...], where: str) -> str:
    member = _member(name, known)
    if member is None:
        raise DataError(f"expected {' or '.join(known)} in {where} of {ANNOTATION}, found {name!r}")
    return member


def _member(name: str, known: tuple[str, ...]) -> str | None:
    if name in known:
        return name
    # Go matches member names without case (encoding/json, Unmarshal).
    folded = name.lower().replace("\u017f", "s")  # Go folds the long s to s
    return next((each for each in known if each.lower() == folded), None)


def _replace_surrogates(value: str) -> str:
    # Half of a surrogate pair is not a character: Go replaces it.
    return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    type_names = {str: "a text", list: "a list", _Object: "an object"}
    return type_names.get(type(value), "a number")
