"""What the leader knows for the header of every page."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from haulout.dashboard.api.types import Banner


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorInfo:
    """The header of every page, besides the nodes."""

    identity: str
    since: datetime
    cluster: str = ""
    banners: Callable[[], tuple[Banner, ...]] = tuple
    has_history: Callable[[], bool] = bool
