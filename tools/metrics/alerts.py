"""Prometheus alert rules: what an operator must know, and the command to run first.

Each alert is about something that a person can fix. Gauges of the leader are aggregated with `max`, because replicas
that do not lead expose none, or outdated values. Each alert has a section in the runbook, docs/operations/alerts.md.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.app.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.drain.blockers import PROGRESS_KINDS

RUNBOOK = "https://haulout.dev/docs/operations/alerts.html"  # the page on the public site; change it for a mirror
# client-go programs expose the same metric
_LEASES = f"{LEADER_LEASE}|{PROFILES_LEASE}|{EXTENSION_LEASE}".replace(".", "[.]")
# Each program always exposes its own lease: 0 on a standby. The lease of profiles exists only with a configuration.
_REPLICAS = f'leader_election_master_status{{name=~"{LEADER_LEASE}|{EXTENSION_LEASE}"}}'.replace(".", "[.]")
_PROGRESS_KINDS = "|".join(PROGRESS_KINDS)
_NODE_HINT = "`haulout top` shows the fleet, `haulout why NODE` what a node waits for."


class Severity(StrEnum):
    """Whether an alert pages somebody."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert rule."""

    name: str
    expr: str
    for_: str = ""  # how long the expression must be true
    severity: Severity = Severity.WARNING
    summary: str
    description: str

    def as_rule(self) -> dict[str, Any]:
        """Return the rule in the format of Prometheus."""
        rule: dict[str, Any] = {"alert": self.name, "expr": self.expr}
        if self.for_:
            rule["for"] = self.for_
        return {
            **rule,
            "labels": {"severity": str(self.severity)},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOK}#{self.name.lower()}",
            },
        }


ALERTS = (
    Alert(
        name="HauloutAbsent",
        # The first part names the program if the operator or the hub is missing and the other one is not.
        expr=f"(count by (name) (last_over_time({_REPLICAS}[1d])) unless count by (name) ({_REPLICAS}))"
        f" or on () absent({_REPLICAS})",
        for_="5m",
        severity=Severity.CRITICAL,
        summary="Prometheus reads no metrics of Haulout: if no replica runs, no maintenance begins, goes on or ends",
        description="Are there pods, and do they run? `kubectl get pods -A -l 'app.kubernetes.io/name in (haulout,"
        "haulout-hub)'`. If they are ready, Prometheus does not reach them: see its targets, the ServiceMonitor and "
        "the NetworkPolicy. Without a replica nobody answers the webhook, and no NodeMaintenance can be created.",
    ),
    Alert(
        name="HauloutNoLeader",
        expr=f'max by (name) (leader_election_master_status{{name=~"{_LEASES}"}}) == 0',
        for_="2m",
        severity=Severity.CRITICAL,
        summary="No replica of Haulout holds lease {{ $labels.name }}: no maintenance begins, goes on or ends",
        description="See who holds it: `kubectl get lease -A | grep {{ $labels.name }}`. If that is another program, "
        "such as an old Node Maintenance Operator or maintenance-controller, remove it. Otherwise the log of each "
        "replica says why it cannot lead: `kubectl logs -l app.kubernetes.io/name=haulout --tail=50`, or haulout-hub.",
    ),
    Alert(
        name="HauloutConfigurationBroken",
        expr="min(haulout_profiles_configuration_valid) == 0",
        for_="5m",
        summary="The configuration of Haulout makes no sense, and an earlier one stays in force",
        description="Its log and the Configuration page of its dashboard name the line. Try the file before it is "
        "applied: `haulout check FILE`.",
    ),
    Alert(
        name="HauloutNodesSkipped",
        expr="max(haulout_profiles_nodes_skipped) > 0",
        for_="15m",
        summary="Haulout leaves {{ $value }} nodes alone",
        description="Their data cannot be read, or the API server refuses to change them. " + _NODE_HINT,
    ),
    Alert(
        name="HauloutTransitionsFailing",
        expr="sum by (profile) (increase(maintenance_controller_transition_failure_count[15m])) > 0",
        for_="15m",
        summary="Profile {{ $labels.profile }} fails again and again",
        description="A check or a trigger of it goes wrong. `kubectl get events -A --field-selector "
        "reason=ChangeMaintenanceStateFailed` tells on which nodes, `haulout why NODE` what exactly.",
    ),
    Alert(
        name="HauloutDrainBlocked",
        expr=f'max by (controller, kind) (haulout_drains_blocked{{kind!~"{_PROGRESS_KINDS}"}}) > 0',
        for_="30m",
        summary="{{ $value }} drains do not go on: {{ $labels.kind }}",
        description="Pods cannot be made to leave their node. `haulout top`, then `haulout why NODE`, names the "
        "pods, whose they are, and what their owners can do about it.",
    ),
    Alert(
        name="HauloutDrainsFailing",
        expr="sum by (controller) "
        '(increase(haulout_drain_duration_seconds_count{result=~"TimedOut|Refused|Crashed"}[1h])) > 0',
        summary="Drains ended without an empty node",
        description="They ran out of time, or their policy does not let some pod go. `kubectl get nodemaintenances` "
        "and `haulout history NODE` say which and why.",
    ),
    Alert(
        name="HauloutBudgetExhausted",
        expr="(max by (limit, group) (haulout_budget_used) >= max by (limit, group) (haulout_budget_limit)) "
        "and on () (sum(max by (controller) (haulout_budget_waiting)) > 0)",
        for_="4h",
        summary="Maintenance waits, as the budget is used up: {{ $labels.limit }} ({{ $labels.group }})",
        description="So many nodes are out of service that no other may be taken. Find those that do not come back: "
        "`haulout top`, or `kubectl get nodes | grep -v ' Ready '` for those that are down. " + _NODE_HINT,
    ),
    Alert(
        name="HauloutCloudSourceDown",
        expr="max by (source) (haulout_notices_source_up) == 0",
        for_="10m",
        severity=Severity.CRITICAL,
        summary="Haulout does not hear what {{ $labels.source }} says: announced maintenance may come as a surprise",
        description="`haulout cluster-info` and the Health page of the dashboard say why: credentials, permissions or "
        "the network, most often.",
    ),
    Alert(
        name="HauloutAgentSourceDown",
        expr="count by (cloud) (haulout_agent_up == 0) > 0",
        for_="10m",
        summary="{{ $value }} agents do not hear what {{ $labels.cloud }} says: maintenance may come as a surprise",
        description="Pods that are not ready are theirs, and their logs say why: `kubectl get pods -A -l "
        "app.kubernetes.io/name=haulout-agent`. What was announced before is still done in its time.",
    ),
    Alert(
        name="HauloutCloudMessagesQuarantined",
        expr="sum by (source) (increase(haulout_notices_quarantined_total[1h])) > 0",
        summary="Messages of {{ $labels.source }} make no sense, and were put aside",
        description="An event of the operator's namespace quotes them: `kubectl get events -A --field-selector "
        "reason=NoticeUnreadable`. If they announce maintenance, tell of it by hand: `haulout notice create`.",
    ),
    Alert(
        name="HauloutNodeNotEmptyInTime",
        expr="max by (source) (haulout_notices_late) > 0",
        severity=Severity.CRITICAL,
        summary="{{ $value }} nodes will not be empty when the maintenance of {{ $labels.source }} begins",
        description="`kubectl get maintenancenotices` names them, `haulout why NODE` what they wait for. Who cannot "
        "wait orders it: `haulout drain NODE`.",
    ),
    Alert(
        name="HauloutNoticesLate",
        expr='sum by (source) (increase(haulout_notices_lead_seconds_bucket{le=~"900(.0)?"}[1d])) > 0',
        summary="{{ $labels.source }} announced maintenance less than 15 minutes ahead",
        description="That is hardly enough to empty a node. Ask the cloud for earlier notices, or see that pods leave "
        "quickly: `haulout notice list` tells when each came.",
    ),
    Alert(
        name="HauloutMachinesNotReplaced",
        expr='max(haulout_machine_maintenances{phase="Refused"}) > 0 or max(haulout_machine_maintenances_late) > 0',
        for_="15m",
        summary="{{ $value }} Machines are not replaced, or not in time",
        description="`kubectl get machinemaintenances -A` says why.",
    ),
    Alert(
        name="HauloutVCenterDown",
        expr="max by (zone) (haulout_esx_vcenter_up) == 0",
        for_="15m",
        summary="The vCenter of zone {{ $labels.zone }} does not answer, or refuses",
        description="Nodes on its ESX hosts are neither shut down nor turned on. `/readyz` of the leader says why.",
    ),
    Alert(
        name="HauloutEsxHostWaiting",
        expr='max by (state) (haulout_esx_hosts{state!="false"}) > 0',
        for_="4h",
        summary="{{ $value }} ESX hosts are in state {{ $labels.state }} for hours",
        description="Is the restart of their nodes approved? `kubectl get nodes -L cloud.sap/esx-in-maintenance,"
        "cloud.sap/esx-reboot-ok` shows it.",
    ),
    Alert(
        name="HauloutEsxNodesStuck",
        expr='max(haulout_esx_nodes{stuck="true"}) > 0',
        for_="15m",
        summary="{{ $value }} nodes should leave their ESX host, or be back on it, and are held up",
        description="`/readyz` of the leader, `kubectl describe node` and `haulout history NODE` say why.",
    ),
    Alert(
        name="HauloutClustersUnreachable",
        expr='max by (connection) (haulout_hub_clusters{connection=~"unreachable|unreadable"}) > 0',
        for_="15m",
        summary="{{ $value }} workload clusters are {{ $labels.connection }} for the hub",
        description="Their Machines wait. `/readyz` of the hub names them and says why: is the Secret with the "
        "kubeconfig up to date, and does a network policy let the hub through?",
    ),
    Alert(
        name="HauloutApprovalOverdue",
        expr="max by (request) (haulout_hub_longest_wait_seconds) > 14400",
        for_="5m",
        summary="A Machine waits for the approval of its {{ $labels.request }} since {{ $value | humanizeDuration }}",
        description="Nobody has prepared its node: `kubectl get events -A --field-selector reason=ApprovalOverdue` "
        "names it, and `haulout why NODE` on its cluster says what the profile waits for.",
    ),
    Alert(
        name="HauloutClusterBudgetExhausted",
        expr="(max by (limit) (haulout_hub_budget_used) >= max by (limit) (haulout_hub_budget_limit)) "
        "and (max by (limit) (haulout_hub_budget_waiting) > 0)",
        for_="4h",
        summary="Workload clusters wait, as the budget across clusters is used up: {{ $labels.limit }}",
        description="Find the cluster whose maintenance does not end: `haulout top --from` the hub, or its "
        "dashboard, names who counts, and what their Machines wait for. One that cannot be reached counts on.",
    ),
    Alert(
        name="HauloutHostNotPoweredOff",
        expr='max(haulout_hub_hosts{state="waiting"}) > 0',
        for_="30m",
        summary="{{ $value }} BareMetalHosts are to be powered off for maintenance, and cannot be",
        description="`kubectl get events -A --field-selector reason=HostNotPoweredOff` says why: most often the "
        "node is not cordoned, or the host is in the middle of something else.",
    ),
    Alert(
        name="HauloutServersNotDeleted",
        expr='max(haulout_kubernikus_deletions{stuck="true"}) > 0',
        for_="15m",
        summary="{{ $value }} nodes of Kubernikus are to be deleted, and are not",
        description="`kubectl get events -n default --field-selector type=Warning,reportingComponent=kubernikus` and "
        "`kubectl describe node` say why.",
    ),
    Alert(
        name="HauloutQueueLagHigh",
        expr="histogram_quantile(0.9, sum by (queue, le) (rate(haulout_queue_lag_seconds_bucket[5m]))) > 1",
        for_="15m",
        summary="Haulout is late: {{ $labels.queue }} waits for {{ $value | humanizeDuration }}",
        description="It has too little CPU, or the API server answers slowly: see the Health row of its Grafana "
        "dashboard. `kubectl top pod -l app.kubernetes.io/name=haulout` tells whether it is throttled.",
    ),
    Alert(
        name="HauloutTimersLate",
        expr=(
            "histogram_quantile(0.99, sum by (queue, le) (rate(haulout_queue_scheduled_lag_seconds_bucket[15m]))) > 15"
        ),
        for_="15m",
        summary="Windows, waits and notices are acted on {{ $value | humanizeDuration }} late ({{ $labels.queue }})",
        description="What should happen at an instant happens later. The causes are those of HauloutQueueLagHigh.",
    ),
    Alert(
        name="HauloutWatchSilent",
        expr="max by (resource) (haulout_watch_age_seconds) > 300 or max by (resource) (haulout_watch_not_synced) > 0",
        for_="10m",
        severity=Severity.CRITICAL,
        summary="Haulout has not heard of {{ $labels.resource }} for a while: it goes by what it knew then",
        description="The API server cannot be reached, or does not permit it. `haulout cluster-info` tells what it "
        "may do, `kubectl logs -l app.kubernetes.io/name=haulout --tail=50` what it is answered.",
    ),
    Alert(
        name="HauloutApiErrors",
        expr='sum(rate(haulout_api_requests_total{code=~"0|401|403|5.."}[10m]))'
        " / sum(rate(haulout_api_requests_total[10m])) > 0.1",
        for_="15m",
        summary="The API server fails {{ $value | humanizePercentage }} of the requests of Haulout",
        description="401 and 403 are about its permissions: `haulout cluster-info` lists those that it lacks, and "
        "`haulout manifests` has them. Anything else is about the API server.",
    ),
    Alert(
        name="HauloutHistoryEntriesDropped",
        expr="sum by (type) (increase(haulout_dropped_total[1h])) > 0",
        summary="Some {{ $labels.type }} could not be written, and are lost",
        description="The API server refused or was too slow. What happens to nodes is not affected; its record has "
        "gaps.",
    ),
)


def rules() -> dict[str, Any]:
    """Return the content of the rules file."""
    return {"groups": [{"name": "haulout", "rules": [alert.as_rule() for alert in ALERTS]}]}
