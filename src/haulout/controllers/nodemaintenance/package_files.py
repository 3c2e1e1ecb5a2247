"""NodeMaintenances in the Grafana dashboard."""

from haulout.runtime.package_files import Packaging, Panel, Query

_PANELS = (
    Panel(title="Nodes", kind="stat", width=4, queries=(Query("max(haulout_nodes{@})"),)),
    Panel(
        title="Nodes out of service",
        about="Nodes that count against budgets: in maintenance, entering it, or down.",
        kind="stat",
        width=4,
        queries=(Query("max(haulout_nodes_unavailable{@})"),),
    ),
    Panel(
        title="Nodes waiting for the budget",
        kind="stat",
        width=4,
        queries=(Query("max by (controller) (haulout_budget_waiting{@})", "{{controller}}"),),
    ),
)

PACKAGING = Packaging(panels={"Fleet": _PANELS})
