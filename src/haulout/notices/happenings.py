"""Something that happened to a notice, for its history and for an event."""

from dataclasses import dataclass

US = "haulout"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened, for the history and for an event."""

    reason: str
    what: str
    who: str = US
    is_bad: bool = False
