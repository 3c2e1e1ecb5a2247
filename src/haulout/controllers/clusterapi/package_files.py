"""The hub in the alerts and the Grafana dashboard."""

from haulout.runtime.package_files import Alert, Packaging, Panel, Query

_ALERTS = (
    Alert(
        name="HauloutClustersUnreachable",
        expr='max by (connection) (haulout_hub_clusters{connection=~"unreachable|unreadable"}) > 0',
        for_="15m",
        summary="{{ $value }} workload clusters are {{ $labels.connection }} for the hub",
        description="Their Machines wait. `/readyz` of the hub names the clusters and the errors. Check that the "
        "Secret with the kubeconfig is up to date, and that network policies admit the hub.",
    ),
    Alert(
        name="HauloutApprovalOverdue",
        expr="max by (request) (haulout_hub_longest_wait_seconds) > 14400",
        for_="5m",
        summary="A Machine has waited {{ $value | humanizeDuration }} for the approval of its {{ $labels.request }}",
        description="Its node has not been prepared yet. `kubectl get events -A --field-selector "
        "reason=ApprovalOverdue` names the Machine; `haulout why NODE` in its workload cluster shows "
        "what the profile waits for.",
    ),
    Alert(
        name="HauloutClusterBudgetExhausted",
        expr="(max by (limit) (haulout_hub_budget_used) >= max by (limit) (haulout_hub_budget_limit)) "
        "and (max by (limit) (haulout_hub_budget_waiting) > 0)",
        for_="4h",
        summary="Workload clusters wait because the budget across clusters is exhausted: {{ $labels.limit }}",
        description="Find the cluster whose maintenance does not end: `haulout top --from` the hub, or its "
        "dashboard, shows the clusters that count, and what their Machines wait for. An unreachable "
        "cluster still counts.",
    ),
    Alert(
        name="HauloutHostNotPoweredOff",
        expr='max(haulout_hub_hosts{state="waiting"}) > 0',
        for_="30m",
        summary="{{ $value }} BareMetalHosts cannot be powered off for maintenance",
        description="`kubectl get events -A --field-selector reason=HostNotPoweredOff` shows the reason. Most often "
        "the node is not cordoned, or the host is being provisioned or inspected.",
    ),
)
_PANELS = (
    Panel(
        title="Workload clusters by reachability",
        stacked=True,
        queries=(Query("max by (connection) (haulout_hub_clusters{@})", "{{connection}}"),),
    ),
    Panel(
        title="Workload clusters by state",
        stacked=True,
        queries=(Query("max by (state) (haulout_hub_clusters_by_state{@})", "{{state}}"),),
    ),
    Panel(
        title="Budget across clusters",
        about="Clusters in maintenance, the limit, and clusters that wait.",
        queries=(
            Query("max by (limit) (haulout_hub_budget_used{@})", "{{limit}}: used"),
            Query("max by (limit) (haulout_hub_budget_limit{@})", "{{limit}}: limit"),
            Query("max by (limit) (haulout_hub_budget_waiting{@})", "{{limit}}: waiting"),
        ),
    ),
    Panel(
        title="Machines by approval",
        stacked=True,
        queries=(Query("max by (request, approved) (haulout_hub_machines{@})", "{{request}}, approved: {{approved}}"),),
    ),
    Panel(
        title="Longest wait for approval",
        unit="s",
        queries=(Query("max by (request) (haulout_hub_longest_wait_seconds{@})", "{{request}}"),),
    ),
    Panel(
        title="BareMetalHosts of Metal3",
        about="Powered off for maintenance, or waiting to be powered off.",
        queries=(Query("max by (state) (haulout_hub_hosts{@})", "{{state}}"),),
    ),
    Panel(
        title="Events about Machines",
        queries=(Query("sum by (reason) (increase(haulout_hub_events_total{@}[~]))", "{{reason}}"),),
    ),
)

PACKAGING = Packaging(alerts=_ALERTS, panels={"Hub": _PANELS})
