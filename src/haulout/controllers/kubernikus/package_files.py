"""Kubernikus in the Helm chart, the alerts and the Grafana dashboard."""

from haulout.controllers.kubernikus.settings import KubernikusSettings, SecretKey
from haulout.runtime.package_files import (
    COMMON_ROW,
    Alert,
    ChartPermissions,
    ChartText,
    ChartValues,
    Packaging,
    Panel,
    Query,
)

_NAMESPACE = "{{ dir .Values.kubernikus.secret }}"
_SECRET = "{{ base .Values.kubernikus.secret }}"  # noqa: S105 - the name of a Secret, not its content

PACKAGING = Packaging(
    chart=ChartValues(
        about="The Kubernikus controller. It labels nodes with outdated kubelets, and deletes the servers of nodes "
        "that are marked for deletion. Requires the image variant `openstack`.",
        enabled_about="Run the Kubernikus controller.",
        object_about="Name of an existing ConfigMap with kubernikus.yaml. Changes take effect without a restart.",
        more={
            "secret": ChartText(
                default="",
                about="NAMESPACE/NAME of the Secret with cloudprovider.conf that the file names. The chart grants read "
                "access to it.",
                pattern="^([^/]+/[^/]+)?$",
            )
        },
    ),
    permissions=ChartPermissions(
        condition="and .Values.kubernikus.enabled .Values.kubernikus.secret",
        settings=KubernikusSettings(secret=SecretKey(namespace=_NAMESPACE, name=_SECRET)),
        namespaces={_NAMESPACE: "kubernikus"},
    ),
    alerts=(
        Alert(
            name="HauloutServersNotDeleted",
            expr='max(haulout_kubernikus_deletions{stuck="true"}) > 0',
            for_="15m",
            summary="{{ $value }} nodes of Kubernikus are marked for deletion, but their servers are not deleted",
            description="`kubectl get events -n default --field-selector type=Warning,reportingComponent=kubernikus` "
            "and `kubectl describe node` show the reason.",
        ),
    ),
    panels={
        COMMON_ROW: (
            Panel(
                title="Kubernikus nodes marked for deletion",
                stacked=True,
                queries=(Query("max by (stuck) (haulout_kubernikus_deletions{@})", "stuck: {{stuck}}"),),
            ),
            Panel(
                title="Kubernikus nodes with an outdated kubelet",
                queries=(Query("max(haulout_kubernikus_kubelets_outdated{@})", "nodes"),),
            ),
        )
    },
)
