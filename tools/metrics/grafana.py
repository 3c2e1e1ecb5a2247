"""The Grafana dashboard: rows for the fleet, drains, budgets, each source of maintenance, and the operator's health.

A panel is declared by its content; its position, id and other JSON are derived. The Prometheus data source is a
variable, and so is `job`, which distinguishes several clusters in one Prometheus.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from haulout.runtime.package_files import Panel, Query
from tools.components import packaged_components

# The version of Grafana's dashboard format. Newer releases of Grafana migrate it when they import it.
SCHEMA = 39
_WIDTH = 24  # of Grafana's grid
_HEIGHT = 8  # of each panel
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of panels, which Grafana can collapse."""

    title: str
    panels: tuple[Panel, ...]


def _query(expr: str, legend: str = "") -> Query:
    """Return a query with its placeholders replaced."""
    return Query(expr.replace("@", 'job=~"$job"').replace("[~]", "[$__rate_interval]"), legend)


def _quantiles(metric: str, by: str) -> tuple[Query, ...]:
    sums = f"sum by ({by}, le) (rate({metric}_bucket{{@}}[~]))"
    return tuple(_query(f"histogram_quantile({at}, {sums})", f"{{{{{by}}}}} {name}") for at, name in _QUANTILES)


_QUANTILES = (("0.5", "median"), ("0.99", "99 %"))

ROWS = (
    Row(
        "Fleet",
        (
            Panel(title="Nodes", kind="stat", width=4, queries=(_query("max(haulout_nodes{@})"),)),
            Panel(
                title="Nodes out of service",
                about="Nodes that count against budgets: in maintenance, entering it, or down.",
                kind="stat",
                width=4,
                queries=(_query("max(haulout_nodes_unavailable{@})"),),
            ),
            Panel(
                title="Nodes waiting for the budget",
                kind="stat",
                width=4,
                queries=(_query("max by (controller) (haulout_budget_waiting{@})", "{{controller}}"),),
            ),
            Panel(
                title="Nodes by profile and state",
                width=12,
                stacked=True,
                queries=(
                    _query(
                        'max by (profile, state) (haulout_profiles_nodes{@,state!="operational"})',
                        "{{profile}} {{state}}",
                    ),
                ),
            ),
            Panel(
                title="Pods moved by workload",
                about="The 10 workloads that lost most of their pods to maintenance within a day.",
                width=12,
                queries=(
                    _query(
                        "topk(10, sum by (owner) (increase(maintenance_controller_pod_shuffles_per_replica{@}[1d])))",
                        "{{owner}}",
                    ),
                ),
            ),
            Panel(
                title="Skipped nodes and failed transitions",
                width=12,
                queries=(
                    _query("max(haulout_profiles_nodes_skipped{@})", "skipped nodes"),
                    _query(
                        "sum by (profile) (increase(maintenance_controller_transition_failure_count{@}[~]))",
                        "{{profile}} failed transitions",
                    ),
                    _query("max(haulout_machine_maintenances_late{@})", "late MachineMaintenances"),
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
                queries=(_query("max by (controller) (haulout_drains_running{@})", "{{controller}}"),),
            ),
            Panel(
                title="Drain duration",
                unit="s",
                queries=_quantiles("haulout_drain_duration_seconds", "controller"),
            ),
            Panel(
                title="Drains by result",
                stacked=True,
                queries=(
                    _query(
                        "sum by (result) (increase(haulout_drain_duration_seconds_count{@}[~]))",
                        "{{result}}",
                    ),
                ),
            ),
            Panel(
                title="Blocked drains by kind of blocker",
                queries=(_query("max by (kind) (haulout_drains_blocked{@})", "{{kind}}"),),
            ),
            Panel(
                title="Blocked drains by kind of blocker, average",
                about="Blocked seconds per second: 2 means that two drains were blocked all the time.",
                queries=(
                    _query(
                        "sum by (kind) (rate(haulout_drain_blocked_seconds_total{@}[~]))",
                        "{{kind}}",
                    ),
                ),
            ),
            Panel(
                title="Removed pods and refusals",
                queries=(
                    _query("sum by (method) (rate(haulout_drain_pods_total{@}[~]))", "{{method}}"),
                    _query(
                        "sum by (kind) (rate(haulout_drain_refusals_total{@}[~]))",
                        "refused: {{kind}}",
                    ),
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
                    _query(
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
                queries=(_query("max by (controller) (haulout_budget_waiting{@})", "{{controller}}"),),
            ),
        ),
    ),
    Row(
        "Notices",
        (
            Panel(
                title="Notices by phase",
                stacked=True,
                queries=(_query("sum by (phase) (max by (source, phase) (haulout_notices{@}))", "{{phase}}"),),
            ),
            Panel(
                title="Lead time of notices",
                about="Time from the arrival of a notice to the start of its maintenance: the median, and the 10th "
                "percentile.",
                unit="s",
                queries=(
                    _query(
                        "histogram_quantile(0.5, sum by (source, le) (increase(haulout_notices_lead_seconds_bucket{@}"
                        "[7d])))",
                        "{{source}} median",
                    ),
                    _query(
                        "histogram_quantile(0.1, sum by (source, le) (increase(haulout_notices_lead_seconds_bucket{@}"
                        "[7d])))",
                        "{{source}} 10 %",
                    ),
                ),
            ),
            Panel(
                title="Nodes empty before the start",
                about="Share of maintenance started within 7 days whose node was empty at the start.",
                unit="percentunit",
                queries=(
                    _query(
                        "1 - sum by (source) "
                        '(increase(haulout_notices_empty_before_start_seconds_bucket{@,le=~"0(.0)?"}[7d]))'
                        " / sum by (source) (increase(haulout_notices_empty_before_start_seconds_count{@}[7d]))",
                        "{{source}}",
                    ),
                ),
            ),
            Panel(
                title="Notices whose node will not be empty in time",
                queries=(_query("max by (source) (haulout_notices_late{@})", "{{source}}"),),
            ),
            Panel(
                title="Time since the last response of a cloud",
                unit="s",
                queries=(_query("max by (source) (haulout_notices_source_silent_seconds{@})", "{{source}}"),),
            ),
            Panel(
                title="Messages of clouds",
                queries=(
                    _query(
                        "sum by (source) (increase(haulout_notices_messages_total{@}[~]))",
                        "{{source}}",
                    ),
                    _query(
                        "sum by (source) (increase(haulout_notices_quarantined_total{@}[~]))",
                        "{{source}} quarantined",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Hub",
        (
            Panel(
                title="Workload clusters by reachability",
                stacked=True,
                queries=(_query("max by (connection) (haulout_hub_clusters{@})", "{{connection}}"),),
            ),
            Panel(
                title="Workload clusters by state",
                stacked=True,
                queries=(_query("max by (state) (haulout_hub_clusters_by_state{@})", "{{state}}"),),
            ),
            Panel(
                title="Budget across clusters",
                about="Clusters in maintenance, the limit, and clusters that wait.",
                queries=(
                    _query("max by (limit) (haulout_hub_budget_used{@})", "{{limit}}: used"),
                    _query("max by (limit) (haulout_hub_budget_limit{@})", "{{limit}}: limit"),
                    _query("max by (limit) (haulout_hub_budget_waiting{@})", "{{limit}}: waiting"),
                ),
            ),
            Panel(
                title="Machines by approval",
                stacked=True,
                queries=(
                    _query(
                        "max by (request, approved) (haulout_hub_machines{@})", "{{request}}, approved: {{approved}}"
                    ),
                ),
            ),
            Panel(
                title="Longest wait for approval",
                unit="s",
                queries=(_query("max by (request) (haulout_hub_longest_wait_seconds{@})", "{{request}}"),),
            ),
            Panel(
                title="BareMetalHosts of Metal3",
                about="Powered off for maintenance, or waiting to be powered off.",
                queries=(_query("max by (state) (haulout_hub_hosts{@})", "{{state}}"),),
            ),
            Panel(
                title="Events about Machines",
                queries=(_query("sum by (reason) (increase(haulout_hub_events_total{@}[~]))", "{{reason}}"),),
            ),
        ),
    ),
    Row(
        " and ".join(kind.title for kind in packaged_components()),
        tuple(
            replace(panel, queries=tuple(_query(query.expr, query.legend) for query in panel.queries))
            for packaging in packaged_components().values()
            for panel in packaging.panels
        ),
    ),
    Row(
        "Health",
        (
            Panel(
                title="Leader",
                kind="stat",
                width=4,
                about="1 for each lease that a replica holds.",
                queries=(_query("max by (name) (leader_election_master_status{@})", "{{name}}"),),
            ),
            Panel(
                title="Replicas by version",
                kind="stat",
                width=4,
                queries=(_query("count by (version) (haulout_build_info{@})", "{{version}}"),),
            ),
            Panel(
                title="Configuration is valid",
                kind="stat",
                width=4,
                about="1: the file is valid. 0: it is invalid, and the previous one stays in force.",
                queries=(_query("min(haulout_profiles_configuration_valid{@})"),),
            ),
            Panel(
                title="Work queue depth",
                width=12,
                queries=(_query("max by (queue) (haulout_queue_depth{@})", "{{queue}}"),),
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
                    _query("sum by (queue) (rate(haulout_queue_failures_total{@}[~]))", "{{queue}}"),
                    _query("sum by (type) (rate(haulout_dropped_total{@}[~]))", "dropped {{type}}"),
                ),
            ),
            Panel(
                title="Transitions by reason",
                queries=(
                    _query(
                        "topk(10, sum by (controller, reason) (rate(haulout_transitions_total{@}[~])))",
                        "{{controller}} {{reason}}",
                    ),
                ),
            ),
            Panel(
                title="Requests to the API server",
                unit="reqps",
                queries=(
                    _query(
                        "topk(10, sum by (verb, resource) (rate(haulout_api_requests_total{@}[~])))",
                        "{{verb}} {{resource}}",
                    ),
                ),
            ),
            Panel(
                title="Failed requests to the API server",
                unit="reqps",
                queries=(
                    _query(
                        'sum by (code) (rate(haulout_api_requests_total{@,code=~"0|4..|5.."}[~]))',
                        "{{code}}",
                    ),
                ),
            ),
            Panel(
                title="API server latency",
                unit="s",
                queries=_quantiles("haulout_api_request_duration_seconds", "verb"),
            ),
            Panel(
                title="Watch age",
                about="Time since the API server last sent anything to a watch.",
                unit="s",
                queries=(_query("max by (resource) (haulout_watch_age_seconds{@})", "{{resource}}"),),
            ),
            Panel(
                title="Objects in informer caches",
                queries=(_query("max by (resource) (haulout_watch_objects{@})", "{{resource}}"),),
            ),
            Panel(
                title="Webhook reviews and dashboard viewers",
                queries=(
                    _query(
                        "sum by (result) (increase(haulout_webhook_reviews_total{@}[~]))",
                        "{{result}}",
                    ),
                    _query("sum(haulout_dashboard_viewers{@})", "viewers"),
                ),
            ),
            Panel(
                title="HTTP connections",
                queries=(
                    _query("sum by (server) (haulout_http_connections{@})", "{{server}}"),
                    _query(
                        "sum by (server, reason) (increase(haulout_http_connections_closed_total{@}[~]))",
                        "{{server}} closed: {{reason}}",
                    ),
                    _query(
                        "sum by (server) (increase(haulout_http_bad_requests_total{@}[~]))", "{{server}} bad requests"
                    ),
                ),
            ),
            Panel(
                title="CPU",
                width=12,
                queries=(_query("rate(process_cpu_seconds_total{@}[~])", "{{instance}}"),),
            ),
            Panel(
                title="Memory",
                unit="bytes",
                width=12,
                queries=(_query("process_resident_memory_bytes{@}", "{{instance}}"),),
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
            "expr": query.expr,
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
