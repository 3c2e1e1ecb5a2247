"""Series with which each alert fires, and the alert's texts, as unit tests of promtool.

    case = AlertCase("HauloutDrainBlocked", {'haulout_drains_blocked{kind="Policy"}': "2+0x60"}, at="35m", …)
    promtool_test_file([case], rules)          # the input of `promtool test rules`

A series is in promtool's notation, one number per minute: `1+0x60` is 1 for an hour, `0+2x60` increases by 2.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haulout.api.clusterapi import EXTENSION_LEASE
from haulout.api.leases import LEADER_LEASE
from haulout.runtime.package_files import Alert
from support.metrics.promql import seconds
from tools.metrics.alerts import ALERTS, as_rule

_BY_NAME = {it.name: it for it in ALERTS}
_LEADS = "leader_election_master_status"
_HOUR, _LONG = "x60", "x300"  # for so many minutes


@dataclass(frozen=True, slots=True)
class AlertCase:
    """An alert that fires at an instant, with labels and a value as people read them; None: it does not fire."""

    name: str
    series: Mapping[str, str]
    at: str
    labels: Mapping[str, str] | None = field(default_factory=dict)
    value: str = ""

    @property
    def alert(self) -> Alert:
        """Return the alert that it is about."""
        return _BY_NAME[self.name]

    def expected_alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that promtool is to find."""
        if self.labels is None:
            return []
        rule = as_rule(self.alert)
        annotations = {key: self._fill_template(text) for key, text in rule["annotations"].items()}
        return [{"exp_labels": {**rule["labels"], **self.labels}, "exp_annotations": annotations}]

    def _fill_template(self, text: str) -> str:
        labels = self.labels or {}
        with_labels = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match_: labels[match_[1]], text)
        return re.sub(r"\{\{ \$value.*?\}\}", self.value, with_labels)


def promtool_test_file(cases: Sequence[AlertCase], rules: Path) -> dict[str, Any]:
    """Return a file of tests."""
    return {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [_promtool_test(case) for case in cases]}


def _promtool_test(case: AlertCase) -> dict[str, Any]:
    checks = [{"eval_time": case.at, "alertname": case.name, "exp_alerts": case.expected_alerts()}]
    if case.labels is not None and case.alert.for_:
        early = f"{int(seconds(case.alert.for_) / 60) - 1}m"
        checks.insert(0, {"eval_time": early, "alertname": case.name, "exp_alerts": []})
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    return {"name": f"{case.name} at {case.at}", "interval": "1m", "input_series": series, "alert_rule_test": checks}


def _leader_series(name: str, pod: str) -> str:
    return f'{_LEADS}{{name="{name}",pod="{pod}"}}'


def _lag_histogram(histogram: str, *, below: str, above: str) -> dict[str, str]:
    """Return a histogram of which all is between two bounds."""
    bounds = {below: "0+0", above: "0+60", "+Inf": "0+60"}
    metric = f"haulout_{histogram}_lag_seconds_bucket"
    return {f'{metric}{{queue="nodes",le="{bound}"}}': f"{increase}{_HOUR}" for bound, increase in bounds.items()}


_NO_LEADER = {
    _leader_series(name, pod): f"0+0{_LONG}" for name in (LEADER_LEASE, EXTENSION_LEASE) for pod in ("a", "b")
}
_LIMIT = {"limit": "at most 2 nodes", "group": "all nodes"}
_LIMIT_LABELS = '{limit="at most 2 nodes",group="all nodes"}'

FIRING_CASES = (
    AlertCase("HauloutAbsent", {"up": f"1+0{_HOUR}"}, at="6m"),
    AlertCase(
        "HauloutNoLeader",
        _NO_LEADER | {_leader_series(LEADER_LEASE, "a"): f"1+0{_HOUR}"},
        "3m",
        {"name": EXTENSION_LEASE},
    ),
    AlertCase("HauloutConfigurationBroken", {"haulout_profiles_configuration_valid": f"0+0{_HOUR}"}, at="6m"),
    AlertCase("HauloutNodesSkipped", {"haulout_profiles_nodes_skipped": f"3+0{_HOUR}"}, at="16m", value="3"),
    AlertCase(
        "HauloutTransitionsFailing",
        {'maintenance_controller_transition_failure_count{profile="os"}': f"0+1{_HOUR}"},
        "20m",
        {"profile": "os"},
    ),
    AlertCase(
        "HauloutDrainBlocked",
        {'haulout_drains_blocked{controller="nodemaintenance",kind="DisruptionBudget"}': f"2+0{_HOUR}"},
        "31m",
        {"controller": "nodemaintenance", "kind": "DisruptionBudget"},
        "2",
    ),
    AlertCase(
        "HauloutDrainsFailing",
        {'haulout_drain_duration_seconds_count{controller="nodemaintenance",result="TimedOut"}': "0+0x9 1+0x50"},
        "15m",
        {"controller": "nodemaintenance"},
    ),
    AlertCase(
        "HauloutBudgetExhausted",
        {
            f"haulout_budget_used{_LIMIT_LABELS}": f"2+0{_LONG}",
            f"haulout_budget_limit{_LIMIT_LABELS}": f"2+0{_LONG}",
            'haulout_budget_waiting{controller="nodemaintenance"}': f"1+0{_LONG}",
        },
        "245m",
        _LIMIT,
    ),
    AlertCase(
        "HauloutCloudSourceDown",
        {'haulout_notices_source_up{source="aws"}': f"0+0{_HOUR}"},
        "11m",
        {"source": "aws"},
    ),
    AlertCase(
        "HauloutAgentSourceDown",
        {f'haulout_agent_up{{cloud="azure",instance="{it}"}}': f"0+0{_HOUR}" for it in ("n1", "n2")},
        "11m",
        {"cloud": "azure"},
        "2",
    ),
    AlertCase(
        "HauloutCloudMessagesQuarantined",
        {'haulout_notices_quarantined_total{source="aws"}': "0+0x9 1+0x50"},
        "15m",
        {"source": "aws"},
    ),
    AlertCase(
        "HauloutNodeNotEmptyInTime",
        {'haulout_notices_late{source="gcp"}': f"1+0{_HOUR}"},
        "1m",
        {"source": "gcp"},
        "1",
    ),
    AlertCase(
        "HauloutNoticesLate",
        {'haulout_notices_lead_seconds_bucket{source="oci",le="900.0"}': "0+0x9 1+0x50"},
        "15m",
        {"source": "oci"},
    ),
    AlertCase(
        "HauloutMachinesNotReplaced",
        {'haulout_machine_maintenances{phase="Refused"}': f"2+0{_HOUR}"},
        at="16m",
        value="2",
    ),
    AlertCase("HauloutMachinesNotReplaced", {"haulout_machine_maintenances_late": f"1+0{_HOUR}"}, at="16m", value="1"),
    AlertCase("HauloutVCenterDown", {'haulout_esx_vcenter_up{zone="a"}': f"0+0{_HOUR}"}, "16m", {"zone": "a"}),
    AlertCase(
        "HauloutEsxHostWaiting", {'haulout_esx_hosts{state="alarm"}': f"1+0{_LONG}"}, "245m", {"state": "alarm"}, "1"
    ),
    AlertCase("HauloutEsxNodesStuck", {'haulout_esx_nodes{stuck="true"}': f"4+0{_HOUR}"}, at="16m", value="4"),
    AlertCase(
        "HauloutClustersUnreachable",
        {'haulout_hub_clusters{connection="unreadable"}': f"1+0{_HOUR}"},
        "16m",
        {"connection": "unreadable"},
        "1",
    ),
    AlertCase(
        "HauloutApprovalOverdue",
        {'haulout_hub_longest_wait_seconds{request="deletion"}': f"20000+0{_HOUR}"},
        "6m",
        {"request": "deletion"},
        "5h 33m 20s",
    ),
    AlertCase(
        "HauloutClusterBudgetExhausted",
        {f'haulout_hub_budget_{it}{{limit="at most 1"}}': f"1+0{_LONG}" for it in ("used", "limit", "waiting")},
        "245m",
        {"limit": "at most 1"},
    ),
    AlertCase("HauloutHostNotPoweredOff", {'haulout_hub_hosts{state="waiting"}': f"1+0{_HOUR}"}, at="31m", value="1"),
    AlertCase(
        "HauloutServersNotDeleted", {'haulout_kubernikus_deletions{stuck="true"}': f"1+0{_HOUR}"}, "16m", value="1"
    ),
    AlertCase("HauloutQueueLagHigh", _lag_histogram("queue", below="1", above="5"), "30m", {"queue": "nodes"}, "4.6s"),
    AlertCase(
        "HauloutTimersLate",
        _lag_histogram("queue_scheduled", below="15", above="60"),
        "45m",
        {"queue": "nodes"},
        "59.55s",
    ),
    AlertCase(
        "HauloutWatchSilent",
        {'haulout_watch_age_seconds{resource="nodes"}': f"400+0{_HOUR}"},
        "11m",
        {"resource": "nodes"},
    ),
    AlertCase(
        "HauloutWatchSilent", {'haulout_watch_not_synced{resource="pods"}': f"1+0{_HOUR}"}, "11m", {"resource": "pods"}
    ),
    AlertCase(
        "HauloutApiErrors",
        {
            'haulout_api_requests_total{verb="get",resource="pods",code="200"}': f"0+10{_HOUR}",
            'haulout_api_requests_total{verb="get",resource="pods",code="503"}': f"0+10{_HOUR}",
        },
        at="30m",
        value="50%",
    ),
    AlertCase(
        "HauloutHistoryEntriesDropped",
        {'haulout_dropped_total{type="events"}': "0+0x9 3+0x50"},
        "15m",
        {"type": "events"},
    ),
)
# The operator, or the hub, goes while the other one stays; or one replica of two does.
ABSENT_CASES = (
    AlertCase(
        "HauloutAbsent",
        _NO_LEADER | {_leader_series(LEADER_LEASE, it): "1+0x9 stale" for it in ("a", "b")},
        "16m",
        {"name": LEADER_LEASE},
    ),
    AlertCase(
        "HauloutAbsent",
        _NO_LEADER | {_leader_series(EXTENSION_LEASE, it): "1+0x9 stale" for it in ("a", "b")},
        "16m",
        {"name": EXTENSION_LEASE},
    ),
    AlertCase(
        "HauloutAbsent",
        {_leader_series(LEADER_LEASE, it): "1+0x9 stale" for it in ("a", "b")},
        "16m",
        {"name": LEADER_LEASE},
    ),
    AlertCase(
        "HauloutAbsent",
        {_leader_series(LEADER_LEASE, "a"): "1+0x9 stale", _leader_series(LEADER_LEASE, "b"): f"0+0{_HOUR}"},
        "1h",
        None,
    ),
    AlertCase("HauloutAbsent", {_leader_series(LEADER_LEASE, "a"): "1+0x9 stale _ _ 1+0x60"}, "20m", None),
    AlertCase("HauloutAbsent", {_leader_series(EXTENSION_LEASE, "a"): f"1+0{_HOUR}"}, "1h", None),
    AlertCase(
        "HauloutAbsent",
        {
            _leader_series("maintenance-controller-leader-election.cloud.sap", "a"): "1+0x9 stale",
            _leader_series(LEADER_LEASE, "a"): f"1+0{_HOUR}",
        },
        "16m",
        None,
    ),
)
_HEALTHY = {
    **_NO_LEADER,
    _leader_series(LEADER_LEASE, "a"): f"1+0{_LONG}",
    _leader_series(EXTENSION_LEASE, "a"): f"1+0{_LONG}",
    "haulout_profiles_configuration_valid": f"1+0{_LONG}",
    "haulout_profiles_nodes_skipped": f"0+0{_LONG}",
    'maintenance_controller_transition_failure_count{profile="os"}': f"7+0{_LONG}",
    'haulout_drains_blocked{controller="nodemaintenance",kind="Completion"}': f"1+0{_LONG}",
    'haulout_drain_duration_seconds_count{controller="nodemaintenance",result="Drained"}': f"0+1{_LONG}",
    f"haulout_budget_used{_LIMIT_LABELS}": f"2+0{_LONG}",
    f"haulout_budget_limit{_LIMIT_LABELS}": f"2+0{_LONG}",
    'haulout_budget_waiting{controller="nodemaintenance"}': f"0+0{_LONG}",
    'haulout_notices_source_up{source="aws"}': f"1+0{_LONG}",
    'haulout_agent_up{cloud="azure",instance="n1"}': f"1+0{_LONG}",
    'haulout_notices_quarantined_total{source="aws"}': f"3+0{_LONG}",
    'haulout_notices_late{source="gcp"}': f"0+0{_LONG}",
    'haulout_notices_lead_seconds_bucket{source="oci",le="3600.0"}': f"0+1{_LONG}",
    'haulout_machine_maintenances{phase="Done"}': f"1+0{_LONG}",
    'haulout_esx_vcenter_up{zone="a"}': f"1+0{_LONG}",
    'haulout_esx_hosts{state="false"}': f"9+0{_LONG}",
    'haulout_esx_nodes{stuck="false"}': f"1+0{_LONG}",
    'haulout_hub_clusters{connection="connected"}': f"5+0{_LONG}",
    'haulout_hub_longest_wait_seconds{request="deletion"}': f"600+0{_LONG}",
    'haulout_hub_hosts{state="off"}': f"1+0{_LONG}",
    'haulout_kubernikus_deletions{stuck="false"}': f"1+0{_LONG}",
    'haulout_watch_age_seconds{resource="nodes"}': f"40+0{_LONG}",
    'haulout_watch_not_synced{resource="nodes"}': f"0+0{_LONG}",
    'haulout_api_requests_total{verb="get",resource="pods",code="200"}': f"0+20{_LONG}",
    'haulout_api_requests_total{verb="get",resource="pods",code="503"}': f"0+1{_LONG}",
    'haulout_dropped_total{type="events"}': f"2+0{_LONG}",
}
QUIET_CASES = tuple(AlertCase(it.name, _HEALTHY, "290m", None) for it in ALERTS)
