"""What stands above every page, and whoever leads knows."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from haulout.web.api.shapes import Banner


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What stands above every page, beside the nodes."""

    identity: str
    since: datetime
    cluster: str = ""
    banners: Callable[[], tuple[Banner, ...]] = tuple
    has_history: Callable[[], bool] = bool
