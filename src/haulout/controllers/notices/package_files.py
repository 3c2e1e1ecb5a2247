"""Notices, and agents that write them, in the alerts and the Grafana dashboard."""

from haulout.runtime.package_files import Alert, Packaging, Panel, Query, Severity

_ALERTS = (
    Alert(
        name="HauloutCloudSourceDown",
        expr="max by (source) (haulout_notices_source_up) == 0",
        for_="10m",
        severity=Severity.CRITICAL,
        summary="Haulout receives no events of {{ $labels.source }}: maintenance may start without a notice",
        description="`haulout cluster-info` and the Health page of the dashboard show the error. Most often it is "
        "about credentials, permissions or the network.",
    ),
    Alert(
        name="HauloutAgentSourceDown",
        expr="count by (cloud) (haulout_agent_up == 0) > 0",
        for_="10m",
        summary="{{ $value }} agents receive no events of {{ $labels.cloud }}: maintenance may start without a notice",
        description="The pods of these agents are not ready, and their logs have the error: `kubectl get pods -A -l "
        "app.kubernetes.io/name=haulout-agent`. Nodes are still drained for maintenance that was "
        "announced before.",
    ),
    Alert(
        name="HauloutCloudMessagesQuarantined",
        expr="sum by (source) (increase(haulout_notices_quarantined_total[1h])) > 0",
        summary="Messages of {{ $labels.source }} could not be parsed, and were quarantined",
        description="An Event in the operator's namespace quotes them: `kubectl get events -A --field-selector "
        "reason=NoticeUnreadable`. If they announce maintenance, create the notice by hand: `haulout "
        "notice create`.",
    ),
    Alert(
        name="HauloutNodeNotEmptyInTime",
        expr="max by (source) (haulout_notices_late) > 0",
        severity=Severity.CRITICAL,
        summary="{{ $value }} nodes will not be empty when the maintenance announced by {{ $labels.source }} starts",
        description="`kubectl get maintenancenotices` names the nodes, `haulout why NODE` shows what a node waits "
        "for. To drain a node at once: `haulout drain NODE`.",
    ),
    Alert(
        name="HauloutNoticesLate",
        expr='sum by (source) (increase(haulout_notices_lead_seconds_bucket{le=~"900(.0)?"}[1d])) > 0',
        summary="{{ $labels.source }} announced maintenance less than 15 minutes before its start",
        description="This is hardly enough time to drain a node. Ask the cloud for earlier notices, or shorten the "
        "grace periods of pods. `haulout notice list` shows when each notice arrived.",
    ),
)
_PANELS = (
    Panel(
        title="Notices by phase",
        stacked=True,
        queries=(Query("sum by (phase) (max by (source, phase) (haulout_notices{@}))", "{{phase}}"),),
    ),
    Panel(
        title="Lead time of notices",
        about="Time from the arrival of a notice to the start of its maintenance: the median, and the 10th percentile.",
        unit="s",
        queries=(
            Query(
                "histogram_quantile(0.5, sum by (source, le) (increase(haulout_notices_lead_seconds_bucket{@}[7d])))",
                "{{source}} median",
            ),
            Query(
                "histogram_quantile(0.1, sum by (source, le) (increase(haulout_notices_lead_seconds_bucket{@}[7d])))",
                "{{source}} 10 %",
            ),
        ),
    ),
    Panel(
        title="Nodes empty before the start",
        about="Share of maintenance started within 7 days whose node was empty at the start.",
        unit="percentunit",
        queries=(
            Query(
                "1 - sum by (source) "
                '(increase(haulout_notices_empty_before_start_seconds_bucket{@,le=~"0(.0)?"}[7d]))'
                " / sum by (source) (increase(haulout_notices_empty_before_start_seconds_count{@}[7d]))",
                "{{source}}",
            ),
        ),
    ),
    Panel(
        title="Notices whose node will not be empty in time",
        queries=(Query("max by (source) (haulout_notices_late{@})", "{{source}}"),),
    ),
    Panel(
        title="Time since the last response of a cloud",
        unit="s",
        queries=(Query("max by (source) (haulout_notices_source_silent_seconds{@})", "{{source}}"),),
    ),
    Panel(
        title="Messages of clouds",
        queries=(
            Query("sum by (source) (increase(haulout_notices_messages_total{@}[~]))", "{{source}}"),
            Query("sum by (source) (increase(haulout_notices_quarantined_total{@}[~]))", "{{source}} quarantined"),
        ),
    ),
)

PACKAGING = Packaging(alerts=_ALERTS, panels={"Notices": _PANELS})
