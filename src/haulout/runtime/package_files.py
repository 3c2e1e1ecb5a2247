"""What a component adds to the Helm chart, the alerts and the Grafana dashboard.

The module `package_files` beside a component contains its `PACKAGING`. Only the tools that make these files import it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

NODE_HINT = "`haulout top` shows all nodes, `haulout why NODE` what a node waits for."  # for descriptions of alerts
COMMON_ROW = ""  # of the dashboard: its title is those of its components


class Severity(StrEnum):
    """The label `severity`: a critical alert pages somebody, a warning can wait for working hours."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert rule. `summary` is one line for a pager; `description` has the commands to run.

    The runbook has a section about each.
    """

    name: str
    expr: str
    for_: str = ""  # how long the expression must be true
    severity: Severity = Severity.WARNING
    summary: str
    description: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a panel, which shows one line or several.

    `@` in it stands for the selected job, and `[~]` for the rate interval of the panel.
    """

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel of the dashboard. `about` becomes its description, which Grafana shows on hover."""

    title: str
    queries: tuple[Query, ...]
    about: str = ""
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartText:
    """A value of the chart that is text."""

    default: str
    about: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartValues:
    """The values of the component, besides `enabled` and the object with its settings file."""

    about: str  # of the group
    enabled_about: str  # of `enabled`
    object_about: str  # of the ConfigMap or Secret with the settings file
    more: Mapping[str, ChartText] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPermissions:
    """When the chart grants which permissions. Names in the settings are expressions of the template."""

    condition: str
    settings: Any = None
    namespaces: Mapping[str, str] = field(default_factory=dict)  # ends of the names of roles in other namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaging:
    """All of them."""

    chart: ChartValues | None = None
    permissions: ChartPermissions | None = None
    alerts: tuple[Alert, ...] = ()
    panels: Mapping[str, tuple[Panel, ...]] = field(default_factory=dict)  # by the title of their row
