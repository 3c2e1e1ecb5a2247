"""What profiles decide about a notice: maintenance windows, lead time, and whether a profile handles it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.objects import Node
from haulout.controllers.notices.reschedule import Calendar, no_preference

LeadTimeOf = Callable[[Node, MaintenanceNotice], timedelta | None]  # None: the default lead time
IsHandled = Callable[[Node, MaintenanceNotice], bool]  # whether a profile empties the node for the notice


def always_handled(node: Node, notice: MaintenanceNotice) -> bool:
    """Treat every notice as handled by a profile."""
    del node, notice
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePolicy:
    """The decisions of profiles, as functions."""

    calendar: Calendar = no_preference
    lead_time_of: LeadTimeOf = no_preference
    is_handled: IsHandled = always_handled
