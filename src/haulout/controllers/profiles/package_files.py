"""Profiles in the alerts and the Grafana dashboard."""

from haulout.runtime.package_files import NODE_HINT, Alert, Packaging, Panel, Query

_ALERTS = (
    Alert(
        name="HauloutConfigurationBroken",
        expr="min(haulout_profiles_configuration_valid) == 0",
        for_="5m",
        summary="The configuration of Haulout is invalid, and the previous one stays in force",
        description="The log and the Configuration page of the dashboard name the line. Check a file before you "
        "apply it: `haulout check FILE`.",
    ),
    Alert(
        name="HauloutNodesSkipped",
        expr="max(haulout_profiles_nodes_skipped) > 0",
        for_="15m",
        summary="Profiles skip {{ $value }} nodes",
        description="Their data cannot be parsed, or the API server refuses to change them. " + NODE_HINT,
    ),
    Alert(
        name="HauloutTransitionsFailing",
        expr="sum by (profile) (increase(maintenance_controller_transition_failure_count[15m])) > 0",
        for_="15m",
        summary="Transitions of profile {{ $labels.profile }} fail repeatedly",
        description="A check or a trigger of the profile fails. `kubectl get events -A --field-selector "
        "reason=ChangeMaintenanceStateFailed` names the nodes, `haulout why NODE` shows the error.",
    ),
)
_FLEET_PANELS = (
    Panel(
        title="Nodes by profile and state",
        width=12,
        stacked=True,
        queries=(
            Query('max by (profile, state) (haulout_profiles_nodes{@,state!="operational"})', "{{profile}} {{state}}"),
        ),
    ),
    Panel(
        title="Pods moved by workload",
        about="The 10 workloads that lost most of their pods to maintenance within a day.",
        width=12,
        queries=(
            Query(
                "topk(10, sum by (owner) (increase(maintenance_controller_pod_shuffles_per_replica{@}[1d])))",
                "{{owner}}",
            ),
        ),
    ),
)
_HEALTH_PANELS = (
    Panel(
        title="Configuration is valid",
        kind="stat",
        width=4,
        about="1: the file is valid. 0: it is invalid, and the previous one stays in force.",
        queries=(Query("min(haulout_profiles_configuration_valid{@})"),),
    ),
)

PACKAGING = Packaging(alerts=_ALERTS, panels={"Fleet": _FLEET_PANELS, "Health": _HEALTH_PANELS})
