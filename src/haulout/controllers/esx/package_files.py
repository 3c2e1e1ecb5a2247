"""ESX in the Helm chart, the alerts and the Grafana dashboard."""

from haulout.runtime.package_files import COMMON_ROW, Alert, ChartPermissions, ChartValues, Packaging, Panel, Query

PACKAGING = Packaging(
    chart=ChartValues(
        about="The ESX controller. It drains and shuts down nodes that are virtual machines on ESX hosts in "
        "maintenance. Requires the image variant `vsphere`.",
        enabled_about="Run the ESX controller.",
        object_about="Name of an existing Secret with esx.yaml. Changes take effect without a restart.",
    ),
    permissions=ChartPermissions(condition=".Values.esx.enabled"),
    alerts=(
        Alert(
            name="HauloutVCenterDown",
            expr="max by (zone) (haulout_esx_vcenter_up) == 0",
            for_="15m",
            summary="The vCenter of zone {{ $labels.zone }} does not answer, or refuses requests",
            description="Nodes on its ESX hosts are neither shut down nor started. `/readyz` of the leader shows the "
            "error.",
        ),
        Alert(
            name="HauloutEsxHostWaiting",
            expr='max by (state) (haulout_esx_hosts{state!="false"}) > 0',
            for_="4h",
            summary="{{ $value }} ESX hosts have been in state {{ $labels.state }} for more than 4 hours",
            description="Check whether the restart of their nodes is approved: `kubectl get nodes -L "
            "cloud.sap/esx-in-maintenance,cloud.sap/esx-reboot-ok`.",
        ),
        Alert(
            name="HauloutEsxNodesStuck",
            expr='max(haulout_esx_nodes{stuck="true"}) > 0',
            for_="15m",
            summary="{{ $value }} nodes cannot leave their ESX host for its maintenance, or cannot return to it",
            description="`/readyz` of the leader, `kubectl describe node` and `haulout history NODE` show the reason.",
        ),
    ),
    panels={
        COMMON_ROW: (
            Panel(
                title="ESX hosts out of service",
                about="In maintenance or entering it (true), or in alarm (alarm).",
                stacked=True,
                queries=(Query('max by (state) (haulout_esx_hosts{@,state!="false"})', "{{state}}"),),
            ),
            Panel(
                title="vCenter availability",
                about="1: the vCenter answers. 0: it does not answer, or refuses requests.",
                queries=(Query("max by (zone) (haulout_esx_vcenter_up{@})", "zone {{zone}}"),),
            ),
            Panel(
                title="Nodes in maintenance for their ESX host",
                stacked=True,
                queries=(Query("max by (stuck) (haulout_esx_nodes{@})", "stuck: {{stuck}}"),),
            ),
        )
    },
)
