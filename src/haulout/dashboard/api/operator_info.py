"""What stands above every page, and whoever leads knows."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from haulout.dashboard.api.types import Banner


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorInfo:
    """What stands above every page, beside the nodes."""

    identity: str
    since: datetime
    cluster: str = ""
    banners: Callable[[], tuple[Banner, ...]] = tuple
    has_history: Callable[[], bool] = bool
