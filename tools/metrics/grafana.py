"""The Grafana dashboard: rows for the fleet, drains, budgets, each source of maintenance, and the operator's health.

A panel is declared by its content, beside the component that it is about, or here. Its position, id and other JSON are
derived. The Prometheus data source is a variable, and so is `job`, which distinguishes several clusters in one
Prometheus.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from haulout.app.components import packagings
from haulout.runtime.package_files import Panel, Query

# The version of Grafana's dashboard format. Newer releases of Grafana migrate it when they import it.
SCHEMA = 39
_WIDTH = 24  # of Grafana's grid
_HEIGHT = 8  # of each panel
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_FLEET, _HEALTH = "Fleet", "Health"  # rows with panels of components and others


@dataclass(frozen=True, slots=True)
class Row:
    """A row of panels, which Grafana can collapse."""

    title: str
    panels: tuple[Panel, ...]


def _quantiles(metric: str, by: str) -> tuple[Query, ...]:
    sums = f"sum by ({by}, le) (rate({metric}_bucket{{@}}[~]))"
    return tuple(Query(f"histogram_quantile({at}, {sums})", f"{{{{{by}}}}} {name}") for at, name in _QUANTILES)


def _panels_of_components(row: str) -> tuple[Panel, ...]:
    return tuple(panel for packaging in packagings().values() for panel in packaging.panels.get(row, ()))


def _rows_of_components() -> Iterator[Row]:
    """Yield the rows that only components have panels in."""
    found = dict.fromkeys(row for packaging in packagings().values() for row in packaging.panels)
    for row in found:
        if row not in (_FLEET, _HEALTH):
            titles = (kind.title for kind, packaging in packagings().items() if row in packaging.panels)
            yield Row(row or " and ".join(titles), _panels_of_components(row))


_QUANTILES = (("0.5", "median"), ("0.99", "99 %"))

ROWS = (
    Row(
        _FLEET,
        (
            *_panels_of_components(_FLEET),
            Panel(
                title="Skipped nodes and failed transitions",
                width=12,
                queries=(
                    Query("max(haulout_profiles_nodes_skipped{@})", "skipped nodes"),
                    Query(
                        "sum by (profile) (increase(maintenance_controller_transition_failure_count{@}[~]))",
                        "{{profile}} failed transitions",
                    ),
                    Query("max(haulout_machine_maintenances_late{@})", "late MachineMaintenances"),
                ),
            ),
        ),
    ),
    Row(
        "Drains",
        (
            Panel(
                title="Drains in progress",
                stacked=True,
                queries=(Query("max by (controller) (haulout_drains_running{@})", "{{controller}}"),),
            ),
            Panel(title="Drain duration", unit="s", queries=_quantiles("haulout_drain_duration_seconds", "controller")),
            Panel(
                title="Drains by result",
                stacked=True,
                queries=(
                    Query("sum by (result) (increase(haulout_drain_duration_seconds_count{@}[~]))", "{{result}}"),
                ),
            ),
            Panel(
                title="Blocked drains by kind of blocker",
                queries=(Query("max by (kind) (haulout_drains_blocked{@})", "{{kind}}"),),
            ),
            Panel(
                title="Blocked drains by kind of blocker, average",
                about="Blocked seconds per second: 2 means that two drains were blocked all the time.",
                queries=(Query("sum by (kind) (rate(haulout_drain_blocked_seconds_total{@}[~]))", "{{kind}}"),),
            ),
            Panel(
                title="Removed pods and refusals",
                queries=(
                    Query("sum by (method) (rate(haulout_drain_pods_total{@}[~]))", "{{method}}"),
                    Query("sum by (kind) (rate(haulout_drain_refusals_total{@}[~]))", "refused: {{kind}}"),
                ),
            ),
        ),
    ),
    Row(
        "Budgets",
        (
            Panel(
                title="Usage of limits",
                about="At 100 % no other node may go out of service.",
                unit="percentunit",
                width=12,
                queries=(
                    Query(
                        "max by (limit, group) (haulout_budget_used{@})"
                        " / max by (limit, group) (haulout_budget_limit{@})",
                        "{{limit}}: {{group}}",
                    ),
                ),
            ),
            Panel(
                title="Nodes waiting for the budget",
                width=12,
                stacked=True,
                queries=(Query("max by (controller) (haulout_budget_waiting{@})", "{{controller}}"),),
            ),
        ),
    ),
    *_rows_of_components(),
    Row(
        _HEALTH,
        (
            Panel(
                title="Leader",
                kind="stat",
                width=4,
                about="1 for each lease that a replica holds.",
                queries=(Query("max by (name) (leader_election_master_status{@})", "{{name}}"),),
            ),
            Panel(
                title="Replicas by version",
                kind="stat",
                width=4,
                queries=(Query("count by (version) (haulout_build_info{@})", "{{version}}"),),
            ),
            *_panels_of_components(_HEALTH),
            Panel(
                title="Work queue depth",
                width=12,
                queries=(Query("max by (queue) (haulout_queue_depth{@})", "{{queue}}"),),
            ),
            Panel(
                title="Work queue lag",
                about="Time from a change of an object, or from its requeue time, until its reconcile starts.",
                unit="s",
                queries=_quantiles("haulout_queue_lag_seconds", "queue"),
            ),
            Panel(
                title="Work queue lag of scheduled reconciles",
                about="Time from the requeue time until the reconcile starts, for example when a window opens.",
                unit="s",
                queries=_quantiles("haulout_queue_scheduled_lag_seconds", "queue"),
            ),
            Panel(
                title="Failed reconciles, dropped Events and history",
                queries=(
                    Query("sum by (queue) (rate(haulout_queue_failures_total{@}[~]))", "{{queue}}"),
                    Query("sum by (type) (rate(haulout_dropped_total{@}[~]))", "dropped {{type}}"),
                ),
            ),
            Panel(
                title="Transitions by reason",
                queries=(
                    Query(
                        "topk(10, sum by (controller, reason) (rate(haulout_transitions_total{@}[~])))",
                        "{{controller}} {{reason}}",
                    ),
                ),
            ),
            Panel(
                title="Requests to the API server",
                unit="reqps",
                queries=(
                    Query(
                        "topk(10, sum by (verb, resource) (rate(haulout_api_requests_total{@}[~])))",
                        "{{verb}} {{resource}}",
                    ),
                ),
            ),
            Panel(
                title="Failed requests to the API server",
                unit="reqps",
                queries=(
                    Query('sum by (code) (rate(haulout_api_requests_total{@,code=~"0|4..|5.."}[~]))', "{{code}}"),
                ),
            ),
            Panel(
                title="API server latency", unit="s", queries=_quantiles("haulout_api_request_duration_seconds", "verb")
            ),
            Panel(
                title="Watch age",
                about="Time since the API server last sent anything to a watch.",
                unit="s",
                queries=(Query("max by (resource) (haulout_watch_age_seconds{@})", "{{resource}}"),),
            ),
            Panel(
                title="Objects in informer caches",
                queries=(Query("max by (resource) (haulout_watch_objects{@})", "{{resource}}"),),
            ),
            Panel(
                title="Webhook reviews and dashboard viewers",
                queries=(
                    Query("sum by (result) (increase(haulout_webhook_reviews_total{@}[~]))", "{{result}}"),
                    Query("sum(haulout_dashboard_viewers{@})", "viewers"),
                ),
            ),
            Panel(
                title="HTTP connections",
                queries=(
                    Query("sum by (server) (haulout_http_connections{@})", "{{server}}"),
                    Query(
                        "sum by (server, reason) (increase(haulout_http_connections_closed_total{@}[~]))",
                        "{{server}} closed: {{reason}}",
                    ),
                    Query(
                        "sum by (server) (increase(haulout_http_bad_requests_total{@}[~]))", "{{server}} bad requests"
                    ),
                ),
            ),
            Panel(title="CPU", width=12, queries=(Query("rate(process_cpu_seconds_total{@}[~])", "{{instance}}"),)),
            Panel(
                title="Memory",
                unit="bytes",
                width=12,
                queries=(Query("process_resident_memory_bytes{@}", "{{instance}}"),),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard in Grafana's import format."""
    return {
        "title": "Haulout",
        "uid": "haulout",
        "description": "Node maintenance: nodes, drains, budgets, notices, and the health of the operator.",
        "tags": ["kubernetes", "maintenance"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_datasource(), _job()]},
        "panels": list(_panels()),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}


def _job() -> dict[str, Any]:
    query = "label_values(haulout_build_info, job)"
    return {
        "name": "job",
        "label": "Job",
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "job"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels() -> Iterator[dict[str, Any]]:
    y, number = 0, 0
    for row in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": y},
            "panels": [],
        }
        y, x = y + 1, 0
        for panel in row.panels:
            if x + panel.width > _WIDTH:
                y, x = y + _HEIGHT, 0
            number += 1
            yield _panel(panel, number, x=x, y=y)
            x += panel.width
        y += _HEIGHT


def _panel(panel: Panel, number: int, *, x: int, y: int) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _SOURCE,
            "expr": query.expr.replace("@", 'job=~"$job"').replace("[~]", "[$__rate_interval]"),
            # Without a legend Grafana would show the whole expression.
            "legendFormat": query.legend or panel.title,
            "editorMode": "code",
            "range": True,
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": panel.width, "x": x, "y": y},
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": targets,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"unit": panel.unit}
    stacking = {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 30} if panel.stacked else {}
    return {"unit": panel.unit, "min": 0, "custom": {"drawStyle": "line", "showPoints": "never", **stacking}}


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "textMode": "auto"}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
