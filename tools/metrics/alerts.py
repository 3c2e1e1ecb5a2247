"""Prometheus alert rules: what an operator must know, and the command to run first.

Each alert is about something that a person can fix. Gauges of the leader are aggregated with `max`, because replicas
that do not lead expose none, or outdated values. Each alert has a section in the runbook, docs/operations/alerts.md.
Alerts about a component are beside it (`haulout.runtime.package_files`).
"""

from typing import Any

from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.api.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.app.components import packagings
from haulout.drain.blockers import PROGRESS_KINDS
from haulout.runtime.package_files import NODE_HINT, Alert, Severity

RUNBOOK = "https://haulout.dev/docs/operations/alerts.html"  # the page on the public site; change it for a mirror
# client-go programs expose the same metric
_LEASES = f"{LEADER_LEASE}|{PROFILES_LEASE}|{EXTENSION_LEASE}".replace(".", "[.]")
# Each program always exposes its own lease: 0 on a standby. The lease of profiles exists only with a configuration.
_REPLICAS = f'leader_election_master_status{{name=~"{LEADER_LEASE}|{EXTENSION_LEASE}"}}'.replace(".", "[.]")
_PROGRESS_KINDS = "|".join(PROGRESS_KINDS)


ALERTS = (
    Alert(
        name="HauloutAbsent",
        # The first part names the program if the operator or the hub is missing and the other one is not.
        expr=f"(count by (name) (last_over_time({_REPLICAS}[1d])) unless count by (name) ({_REPLICAS}))"
        f" or on () absent({_REPLICAS})",
        for_="5m",
        severity=Severity.CRITICAL,
        summary="Prometheus scrapes no metrics of Haulout: if no replica runs, maintenance neither starts nor ends",
        description="Check whether the pods exist and run: `kubectl get pods -A -l 'app.kubernetes.io/name in "
        "(haulout,haulout-hub)'`. If they are ready, Prometheus cannot scrape them: check its targets, "
        "the ServiceMonitor and the NetworkPolicy. Without a replica the webhook does not answer, and "
        "no NodeMaintenance can be created.",
    ),
    Alert(
        name="HauloutNoLeader",
        expr=f'max by (name) (leader_election_master_status{{name=~"{_LEASES}"}}) == 0',
        for_="2m",
        severity=Severity.CRITICAL,
        summary="No replica of Haulout holds lease {{ $labels.name }}: maintenance neither starts nor ends",
        description="Find the holder: `kubectl get lease -A | grep {{ $labels.name }}`. If it is another program, "
        "such as an old Node Maintenance Operator or maintenance-controller, remove that program. "
        "Otherwise the log of each replica says why it cannot lead: `kubectl logs -l "
        "app.kubernetes.io/name=haulout --tail=50`, or haulout-hub.",
    ),
    Alert(
        name="HauloutDrainBlocked",
        expr=f'max by (controller, kind) (haulout_drains_blocked{{kind!~"{_PROGRESS_KINDS}"}}) > 0',
        for_="30m",
        summary="{{ $value }} drains are blocked: {{ $labels.kind }}",
        description="Pods cannot be evicted from their node. `haulout top`, then `haulout why NODE`, shows the "
        "pods, their owners, and what the owners can do.",
    ),
    Alert(
        name="HauloutDrainsFailing",
        expr="sum by (controller) "
        '(increase(haulout_drain_duration_seconds_count{result=~"TimedOut|Refused|Crashed"}[1h])) > 0',
        summary="Drains ended before their node was empty",
        description="They timed out, or their policy does not allow a pod to be evicted. `kubectl get "
        "nodemaintenances` and `haulout history NODE` name the pods and the reasons.",
    ),
    Alert(
        name="HauloutBudgetExhausted",
        expr="(max by (limit, group) (haulout_budget_used) >= max by (limit, group) (haulout_budget_limit)) "
        "and on () (sum(max by (controller) (haulout_budget_waiting)) > 0)",
        for_="4h",
        summary="Maintenance waits because the budget is exhausted: {{ $labels.limit }} ({{ $labels.group }})",
        description="As many nodes are out of service as the limit allows. Find nodes that do not return: `haulout "
        "top`, or `kubectl get nodes | grep -v ' Ready '` for nodes that are down. " + NODE_HINT,
    ),
    *(alert for packaging in packagings().values() for alert in packaging.alerts),
    Alert(
        name="HauloutQueueLagHigh",
        expr="histogram_quantile(0.9, sum by (queue, le) (rate(haulout_queue_lag_seconds_bucket[5m]))) > 1",
        for_="15m",
        summary="Keys of work queue {{ $labels.queue }} wait {{ $value | humanizeDuration }} for their reconcile",
        description="The operator has too little CPU, or the API server answers slowly: see the row Health of the "
        "Grafana dashboard. `kubectl top pod -l app.kubernetes.io/name=haulout` shows whether it uses "
        "all CPU that its limit allows.",
    ),
    Alert(
        name="HauloutTimersLate",
        expr=(
            "histogram_quantile(0.99, sum by (queue, le) (rate(haulout_queue_scheduled_lag_seconds_bucket[15m]))) > 15"
        ),
        for_="15m",
        summary="Scheduled reconciles of work queue {{ $labels.queue }} start {{ $value | humanizeDuration }} late",
        description="Haulout acts late when a window opens, a wait ends or a notice is due. The causes are those of "
        "HauloutQueueLagHigh.",
    ),
    Alert(
        name="HauloutWatchSilent",
        expr="max by (resource) (haulout_watch_age_seconds) > 300 or max by (resource) (haulout_watch_not_synced) > 0",
        for_="10m",
        severity=Severity.CRITICAL,
        summary="The watch of {{ $labels.resource }} receives nothing: Haulout decides by a cache that may be stale",
        description="The API server is unreachable, or does not allow the watch. `haulout cluster-info` lists "
        "missing permissions, `kubectl logs -l app.kubernetes.io/name=haulout --tail=50` shows the "
        "responses.",
    ),
    Alert(
        name="HauloutApiErrors",
        expr='sum(rate(haulout_api_requests_total{code=~"0|401|403|5.."}[10m]))'
        " / sum(rate(haulout_api_requests_total[10m])) > 0.1",
        for_="15m",
        summary="{{ $value | humanizePercentage }} of Haulout's requests to the API server fail",
        description="401: the token is not accepted. 403: permissions are missing; `haulout cluster-info` lists "
        "them, and `haulout manifests` contains them. Other codes: check the API server.",
    ),
    Alert(
        name="HauloutHistoryEntriesDropped",
        expr="sum by (type) (increase(haulout_dropped_total[1h])) > 0",
        summary="Haulout dropped {{ $labels.type }} that it could not write",
        description="The API server refused the writes, or was too slow. Maintenance of nodes is not affected, but "
        "its record has gaps.",
    ),
)


def as_rule(alert: Alert) -> dict[str, Any]:
    """Return an alert in the format of Prometheus."""
    rule: dict[str, Any] = {"alert": alert.name, "expr": alert.expr}
    if alert.for_:
        rule["for"] = alert.for_
    return {
        **rule,
        "labels": {"severity": str(alert.severity)},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook_url": f"{RUNBOOK}#{alert.name.lower()}",
        },
    }


def rules() -> dict[str, Any]:
    """Return the content of the rules file."""
    return {"groups": [{"name": "haulout", "rules": [as_rule(alert) for alert in ALERTS]}]}
