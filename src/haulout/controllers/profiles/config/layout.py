"""The layout of a `maintenance.yaml`: the structure of the file before it is interpreted.

`loader` reads a file into these classes and builds the model from them. The JSON schema for completion and validation
in editors is derived from them, too: the docstrings of classes are its descriptions.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from haulout.api.notification_events import EventName
from haulout.budget.limits import parse_max_unavailable
from haulout.compat.ucfg.goyaml import Value
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.options import RAW, option, schema
from haulout.controllers.profiles.plugin import State
from haulout.core.yaml_decoder import TextFormat
from haulout.drain.progress import BLOCKED_AFTER
from haulout.kube import selectors
from haulout.kube.selectors import Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalsLayout:
    """Intervals of the controller."""

    requeue: timedelta = option(
        "how often at least a node is reconciled if one of its checks queries an external service"
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.requeue < timedelta():
            yield "requeue", "expected a duration that is not negative"


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardLayout:
    """Settings of the dashboard."""

    label_filter: tuple[str, ...] = option("keys of node labels that the JSON API and the dashboard show", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLayout:
    """A plugin with a name and a configuration."""

    name: str = option("the name that chains use", default="")
    type: str = option("the type of the plugin")
    config: Value | None = option("the plugin's options", default=None, kind=RAW)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleLayout:
    """When a notification is sent."""

    type: str = option("the type of the schedule: periodic, scheduled or oneshot")
    config: Value | None = option("the schedule's options", default=None, kind=RAW)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationLayout:
    """A notification plugin with a name, a configuration and a schedule."""

    name: str = option("the name that chains use", default="")
    type: str = option("the type of the plugin")
    config: Value | None = option("the plugin's options", default=None, kind=RAW)
    schedule: ScheduleLayout | None = option(
        "when it is sent in a state of a profile; `notifications` do not need it", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesLayout:
    """The plugins that chains may name."""

    check: tuple[InstanceLayout, ...] = option("checks", default=())
    notify: tuple[NotificationLayout, ...] = option("notifications", default=())
    trigger: tuple[InstanceLayout, ...] = option("triggers", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionLayout:
    """A transition from one state to another."""

    check: str = option("the checks that have to pass, such as `a && !(b || c)`")
    next: State = option("the state that it leads to")
    trigger: str = option("the triggers that run on the way, such as `a && b`", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayout:
    """What happens in a state."""

    enter: str = option("the triggers that run when the state is entered", default="")
    notify: str = option("the notifications that are sent in this state", default="")
    transitions: tuple[TransitionLayout, ...] = option("the transitions out of this state", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileLayout:
    """A profile: what happens in each state, and which nodes it applies to."""

    name: str = option("the name that the node label cloud.sap/maintenance-profile contains")
    selector: Selector | None = option(
        "nodes that have this profile even without that label; only Haulout knows this key",
        default=None,
        kind=TextFormat("a label selector such as pool=gpu", selectors.parse),
    )
    on_notice: bool = option(
        "nodes have this profile only while maintenance is announced for them, and until the profile has completed it; "
        "only Haulout knows this key",
        default=False,
    )
    operational: StateLayout = option("the state of a node that needs no maintenance", default=None)
    required: StateLayout = option("the state of a node that needs maintenance", default=None, key=State.REQUIRED.value)
    in_maintenance: StateLayout = option(
        "the state of a node in maintenance", default=None, key=State.IN_MAINTENANCE.value
    )

    def state(self, state: State) -> StateLayout:
        found: dict[State, Any] = {
            State.OPERATIONAL: self.operational,
            State.REQUIRED: self.required,
            State.IN_MAINTENANCE: self.in_maintenance,
        }
        layout: StateLayout = found[state]
        return layout


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitLayout:
    """How many nodes may be unavailable at once, whatever the cause: in total, or in each group."""

    max: int | str = option(
        "how many nodes: a number, or a percentage of the nodes that the limit applies to, such as 10%",
        kind=TextFormat(
            "a number of at least 1, or a share from 1% to 100%", parse_max_unavailable, accepts_numbers=True
        ),
    )
    group_by: tuple[str, ...] = option(
        "label keys: the limit applies to each group of nodes with the same values of these labels", default=()
    )
    selector: Selector | None = option(
        "the limit applies only to nodes with these labels",
        default=None,
        kind=TextFormat("a label selector such as pool=gpu", selectors.parse),
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        for at, key in enumerate(self.group_by):
            if not selectors.is_qualified_name(key):
                expected = "the key of a label, such as topology.kubernetes.io/zone"
                yield f"groupBy[{at}]", f"expected {expected}, found {key!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRuleLayout:
    """Notifications about NodeMaintenances and MaintenanceNotices."""

    notify: tuple[str, ...] = option("names of instances under `instances.notify`", required=True)
    events: tuple[EventName, ...] = option("the events to notify about; default: all", default=())
    after: timedelta = option(
        "how long a NodeMaintenance must have been blocked before NodeMaintenanceBlocked is sent", default=BLOCKED_AFTER
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.after < timedelta():
            yield "after", "expected a duration that is not negative"
        if self.events and EventName.NODE_MAINTENANCE_BLOCKED not in self.events and self.after != BLOCKED_AFTER:
            yield "after", f"it applies only to {EventName.NODE_MAINTENANCE_BLOCKED}, which is not among the events"


_NOTIFICATIONS = "notifications about NodeMaintenances and MaintenanceNotices; only Haulout knows this key"
_BUDGET = "limits on how many nodes are unavailable at once, whatever the cause; only Haulout knows this key"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLayout:
    """A file that has a budget or notifications, but no profiles."""

    instances: InstancesLayout = option("the plugins that notifications may name", default=None)
    budget: tuple[LimitLayout, ...] = option(_BUDGET, default=())
    notifications: tuple[NotificationRuleLayout, ...] = option(_NOTIFICATIONS, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """A whole `maintenance.yaml`."""

    intervals: IntervalsLayout = option("how often things happen", default=None)
    dashboard: DashboardLayout = option("what the dashboard shows", default=None)
    instances: InstancesLayout = option("the plugins that chains may name", default=None)
    profiles: tuple[ProfileLayout, ...] = option("the profiles that nodes may have", default=())
    budget: tuple[LimitLayout, ...] = option(_BUDGET, default=())
    notifications: tuple[NotificationRuleLayout, ...] = option(_NOTIFICATIONS, default=())


def schema_text(registries: Registries) -> str:
    return json.dumps(file_schema(registries), indent=2, ensure_ascii=False) + "\n"


def file_schema(registries: Registries) -> dict[str, Any]:
    """Return the schema of a file that may use these plugins."""
    found = schema(FileLayout)
    notification = _with_plugin_types(schema(NotificationLayout), registries.notifications)
    notification["properties"]["schedule"] = _with_plugin_types(schema(ScheduleLayout), registries.schedules)
    found["properties"]["instances"] = {
        "type": ["object", "null"],
        "properties": {
            "check": _list_of(_with_plugin_types(schema(InstanceLayout), registries.checks)),
            "notify": _list_of(notification),
            "trigger": _list_of(_with_plugin_types(schema(InstanceLayout), registries.triggers)),
        },
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "maintenance.yaml", **found}


def _list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": ["array", "null"], "items": items}


def _with_plugin_types(layout: dict[str, Any], plugins: Mapping[str, type]) -> dict[str, Any]:
    layout["properties"]["type"] = {"enum": sorted(plugins)}
    layout["allOf"] = [
        {
            "if": {"properties": {"type": {"const": name}}},
            "then": {"properties": {"config": schema(cls)}},
        }
        for name, cls in sorted(plugins.items())
    ]
    return layout
