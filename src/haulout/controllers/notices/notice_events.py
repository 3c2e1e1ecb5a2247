"""An event of a notice, for its history and for a Kubernetes Event."""

from dataclasses import dataclass

HAULOUT = "haulout"


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """Something that happened to a notice; `actor` is who caused it."""

    reason: str
    message: str
    actor: str = HAULOUT
    is_warning: bool = False
