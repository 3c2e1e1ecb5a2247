"""Something that happened to a notice, for its history and for an event."""

from dataclasses import dataclass

HAULOUT = "haulout"


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """Something that happened, for the history and for an event."""

    reason: str
    message: str
    actor: str = HAULOUT
    is_warning: bool = False
