"""The Grafana dashboard: rows for the fleet, drains, budgets, each source of maintenance, and the operator's health.

A panel is declared by its content; its position, id and other JSON are derived. The Prometheus data source is a
variable, and so is `job`, which distinguishes several clusters in one Prometheus.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SCHEMA = 39
_WIDTH = 24  # of Grafana's grid
_HEIGHT = 8  # of each panel
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a panel, which shows one line or several."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel."""

    title: str
    queries: tuple[Query, ...]
    about: str = ""
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row of panels."""

    title: str
    panels: tuple[Panel, ...]


def _query(expr: str, legend: str = "") -> Query:
    """Return a query; `@` in it stands for the selected job, and `[~]` for the rate interval of the panel."""
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
                title="Out of service",
                about="In maintenance, on their way there, or down.",
                kind="stat",
                width=4,
                queries=(_query("max(haulout_nodes_unavailable{@})"),),
            ),
            Panel(
                title="Waiting for room",
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
                about="Those on whom maintenance is hardest.",
                width=12,
                queries=(
                    _query(
                        "topk(10, sum by (owner) (increase(maintenance_controller_pod_shuffles_per_replica{@}[1d])))",
                        "{{owner}}",
                    ),
                ),
            ),
            Panel(
                title="Left alone, and failing",
                width=12,
                queries=(
                    _query("max(haulout_profiles_nodes_skipped{@})", "nodes in trouble"),
                    _query(
                        "sum by (profile) (increase(maintenance_controller_transition_failure_count{@}[~]))",
                        "{{profile}} fails",
                    ),
                    _query("max(haulout_machine_maintenances_late{@})", "Machines late"),
                ),
            ),
        ),
    ),
    Row(
        "Drains",
        (
            Panel(
                title="Drains under way",
                stacked=True,
                queries=(_query("max by (controller) (haulout_drains_running{@})", "{{controller}}"),),
            ),
            Panel(
                title="How long they take",
                unit="s",
                queries=_quantiles("haulout_drain_duration_seconds", "controller"),
            ),
            Panel(
                title="How they end",
                stacked=True,
                queries=(
                    _query(
                        "sum by (result) (increase(haulout_drain_duration_seconds_count{@}[~]))",
                        "{{result}}",
                    ),
                ),
            ),
            Panel(
                title="Blocked now, by what",
                queries=(_query("max by (kind) (haulout_drains_blocked{@})", "{{kind}}"),),
            ),
            Panel(
                title="Blocked drains on average, by what",
                about="Seconds in a second: 2 means that two drains waited all the time.",
                queries=(
                    _query(
                        "sum by (kind) (rate(haulout_drain_blocked_seconds_total{@}[~]))",
                        "{{kind}}",
                    ),
                ),
            ),
            Panel(
                title="Pods made to leave, and refusals",
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
                title="Use of each limit",
                about="1: no further node may go.",
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
                title="Nodes waiting for room",
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
                title="How early they come",
                about="The earliest half, and all but a tenth.",
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
                title="Node empty before the start",
                about="How many of the maintenances that began in a week found their node empty.",
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
                title="Will be late",
                queries=(_query("max by (source) (haulout_notices_late{@})", "{{source}}"),),
            ),
            Panel(
                title="Silence of clouds",
                unit="s",
                queries=(_query("max by (source) (haulout_notices_source_silent_seconds{@})", "{{source}}"),),
            ),
            Panel(
                title="Messages",
                queries=(
                    _query(
                        "sum by (source) (increase(haulout_notices_messages_total{@}[~]))",
                        "{{source}}",
                    ),
                    _query(
                        "sum by (source) (increase(haulout_notices_quarantined_total{@}[~]))",
                        "{{source}} put aside",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Hub",
        (
            Panel(
                title="Workload clusters",
                stacked=True,
                queries=(_query("max by (connection) (haulout_hub_clusters{@})", "{{connection}}"),),
            ),
            Panel(
                title="What goes on in clusters",
                stacked=True,
                queries=(_query("max by (state) (haulout_hub_clusters_by_state{@})", "{{state}}"),),
            ),
            Panel(
                title="Budget across clusters",
                about="Clusters in maintenance, how many may be, and who waits.",
                queries=(
                    _query("max by (limit) (haulout_hub_budget_used{@})", "{{limit}}: used"),
                    _query("max by (limit) (haulout_hub_budget_limit{@})", "{{limit}}: limit"),
                    _query("max by (limit) (haulout_hub_budget_waiting{@})", "{{limit}}: waiting"),
                ),
            ),
            Panel(
                title="Machines",
                stacked=True,
                queries=(
                    _query(
                        "max by (request, approved) (haulout_hub_machines{@})", "{{request}}, approved: {{approved}}"
                    ),
                ),
            ),
            Panel(
                title="Longest wait for an approval",
                unit="s",
                queries=(_query("max by (request) (haulout_hub_longest_wait_seconds{@})", "{{request}}"),),
            ),
            Panel(
                title="Hosts of Metal3",
                about="Off for maintenance, or should be and cannot.",
                queries=(_query("max by (state) (haulout_hub_hosts{@})", "{{state}}"),),
            ),
            Panel(
                title="What was told of Machines",
                queries=(_query("sum by (reason) (increase(haulout_hub_events_total{@}[~]))", "{{reason}}"),),
            ),
        ),
    ),
    Row(
        "Kubernikus and ESX",
        (
            Panel(
                title="ESX hosts not in service",
                about="In maintenance or on their way there (true), or with an alarm.",
                stacked=True,
                queries=(_query('max by (state) (haulout_esx_hosts{@,state!="false"})', "{{state}}"),),
            ),
            Panel(
                title="vCenters that answer",
                about="0: it does not, or refuses.",
                queries=(_query("max by (zone) (haulout_esx_vcenter_up{@})", "zone {{zone}}"),),
            ),
            Panel(
                title="Nodes away for their ESX host",
                stacked=True,
                queries=(_query("max by (stuck) (haulout_esx_nodes{@})", "stuck: {{stuck}}"),),
            ),
            Panel(
                title="Servers of Kubernikus to be deleted",
                stacked=True,
                queries=(_query("max by (stuck) (haulout_kubernikus_deletions{@})", "stuck: {{stuck}}"),),
            ),
            Panel(
                title="Kubelets of another version",
                queries=(_query("max(haulout_kubernikus_kubelets_outdated{@})", "nodes"),),
            ),
        ),
    ),
    Row(
        "Health",
        (
            Panel(
                title="Leader",
                kind="stat",
                width=4,
                about="1 for each lease that somebody holds.",
                queries=(_query("max by (name) (leader_election_master_status{@})", "{{name}}"),),
            ),
            Panel(
                title="Version",
                kind="stat",
                width=4,
                queries=(_query("count by (version) (haulout_build_info{@})", "{{version}}"),),
            ),
            Panel(
                title="Configuration",
                kind="stat",
                width=4,
                about="1: the file makes sense.",
                queries=(_query("min(haulout_profiles_configuration_valid{@})"),),
            ),
            Panel(
                title="Due, by queue",
                width=12,
                queries=(_query("max by (queue) (haulout_queue_depth{@})", "{{queue}}"),),
            ),
            Panel(
                title="From due to looked at",
                unit="s",
                queries=_quantiles("haulout_queue_lag_seconds", "queue"),
            ),
            Panel(
                title="How late instants are kept",
                unit="s",
                queries=_quantiles("haulout_queue_scheduled_lag_seconds", "queue"),
            ),
            Panel(
                title="Failing looks, and what was dropped",
                queries=(
                    _query("sum by (queue) (rate(haulout_queue_failures_total{@}[~]))", "{{queue}}"),
                    _query("sum by (type) (rate(haulout_dropped_total{@}[~]))", "dropped {{type}}"),
                ),
            ),
            Panel(
                title="Transitions, by reason",
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
                title="Answers that are errors",
                unit="reqps",
                queries=(
                    _query(
                        'sum by (code) (rate(haulout_api_requests_total{@,code=~"0|4..|5.."}[~]))',
                        "{{code}}",
                    ),
                ),
            ),
            Panel(
                title="Latency of the API server",
                unit="s",
                queries=_quantiles("haulout_api_request_duration_seconds", "verb"),
            ),
            Panel(
                title="Age of what is known",
                about="How long ago a watch last said anything.",
                unit="s",
                queries=(_query("max by (resource) (haulout_watch_age_seconds{@})", "{{resource}}"),),
            ),
            Panel(
                title="Objects kept",
                queries=(_query("max by (resource) (haulout_watch_objects{@})", "{{resource}}"),),
            ),
            Panel(
                title="Reviews and viewers",
                queries=(
                    _query(
                        "sum by (result) (increase(haulout_webhook_reviews_total{@}[~]))",
                        "{{result}}",
                    ),
                    _query("sum(haulout_dashboard_viewers{@})", "viewers"),
                ),
            ),
            Panel(
                title="Connections",
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
        "description": "Node maintenance: the fleet, drains, budgets, notices, and the operator itself.",
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
        "label": "Operator",
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
