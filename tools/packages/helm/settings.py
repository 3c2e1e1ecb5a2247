"""The values of the Helm chart: defaults, descriptions and schemas."""

from haulout.app.components import ComponentType, packagings
from haulout.app.manifests import agent_manifests, workload
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.notices.orphans import AGENT_SOURCES
from haulout.runtime.package_files import ChartValues
from tools.metrics.alerts import RUNBOOK
from tools.packages.helm.common import object_key
from tools.packages.helm.values import (
    Group,
    Value,
    bool_value,
    int_value,
    list_value,
    object_value,
    string_map_value,
    string_value,
)

_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_NAME_OR_NOTHING = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"
_NAMESPACED_NAME = {
    "type": "object",
    "required": ["namespace", "name"],
    "additionalProperties": False,
    "properties": {"namespace": {"type": "string"}, "name": {"type": "string"}},
}
_INGRESS_HOST = {
    "type": "object",
    "required": ["host"],
    "additionalProperties": False,
    "properties": {"host": {"type": "string"}, "path": {"type": "string"}},
}

IMAGE = Group(
    "The container image.",
    {
        "registry": string_value("", "Your registry, with a path if needed; empty: the default registry of the nodes."),
        "repository": string_value("haulout", "Name of the image in the registry."),
        "variant": string_value(
            "",
            "Variant of the image, by the SDK that it contains; empty: no SDK.",
            choice=("", "oci", "aws", "openstack", "vsphere"),
        ),
        "tag": string_value(
            "", "Tag of the image; empty: the chart's appVersion. The variant is appended, such as `-oci`."
        ),
        "digest": string_value(
            "", "Digest of the image, `sha256:…`. It takes precedence over the tag.", pattern="^(sha256:[0-9a-f]{64})?$"
        ),
        "pullPolicy": string_value(
            "IfNotPresent", "Pull policy of the image.", choice=("Always", "IfNotPresent", "Never")
        ),
        "pullSecrets": list_value("Image pull secrets, as `[{name: …}]`."),
    },
)
CRDS = Group(
    "The CustomResourceDefinitions. They are templates, so that an upgrade of the release updates them.",
    {
        "install": bool_value(
            "Install and upgrade the CustomResourceDefinitions. If false, apply deploy/crds yourself.", default=True
        ),
        "keep": bool_value(
            "Keep them when the release is uninstalled. Otherwise all NodeMaintenances, MaintenanceNotices and "
            "MaintenanceRecords are deleted with them.",
            default=True,
        ),
    },
)
PROFILES = Group(
    "Maintenance profiles, which decide when a node goes into maintenance. Without profiles, Haulout acts on "
    "announced maintenance by its defaults.",
    {
        "config": Value(
            None,
            "The maintenance.yaml, as text (`--set-file profiles.config=maintenance.yaml`) or as an object. Changes "
            "take effect without a restart. The chart grants the permissions that its plugins need.",
            {"type": ["string", "object", "null"]},
        ),
        "existingConfigMap": string_value(
            "",
            "Name of an existing ConfigMap with maintenance.yaml, instead of `config`. The chart cannot read it, "
            "and grants the permissions that most plugins need.",
            pattern=_NAME_OR_NOTHING,
        ),
        "secret": string_value(
            "",
            "Name of an existing Secret with the environment variables that the file refers to, such as "
            "`${SLACK_TOKEN}`.",
            pattern=_NAME_OR_NOTHING,
        ),
        "permissions": string_value(
            "auto",
            "Permissions for plugins. `auto`: those that the plugins in `config` need. `usual`: those that most "
            "plugins need, whatever is configured.",
            choice=("auto", "usual"),
        ),
    },
)
MACHINES = Group(
    "Replacement of OpenShift Machines whose instance the cloud will stop or retire.",
    {
        "enabled": bool_value("Replace Machines. Requires OpenShift.", default=False),
        "lead": string_value(
            "",
            "How long before the start of the cloud's maintenance a Machine may be replaced, such as `2h`; empty: at "
            "once.",
        ),
        "window": string_value("", "When Machines may be replaced, as the config of a timeWindow; empty: always."),
        "surge": bool_value("Wait for a new Machine before the old one is deleted.", default=False),
        "kinds": string_value(
            "", "Kinds of notices for which Machines are replaced, separated by commas; empty: the default kinds."
        ),
    },
)


def _component_group(kind: ComponentType, chart: ChartValues) -> Group:
    """Return the values of a component."""
    values: dict[str, Value] = {"enabled": bool_value(chart.enabled_about, default=False)}
    if kind.settings_file is not None:
        values[object_key(kind.settings_file)] = string_value(
            kind.settings_file.object_name, chart.object_about, pattern=_NAME
        )
    more = {name: string_value(item.default, item.about, pattern=item.pattern) for name, item in chart.more.items()}
    return Group(chart.about, values | more)


CLOUDS = Group(
    "Clouds from which announced maintenance is received.",
    {
        "env": string_map_value(
            "Environment variables, such as `WD_STREAM_OCID` or `QUEUE_URL`; see docs/reference for all of them."
        ),
        "secret": string_value(
            "",
            "Name of an existing Secret with more environment variables, such as AWS access keys.",
            pattern=_NAME_OR_NOTHING,
        ),
        "awsSecret": string_value(
            "",
            "NAMESPACE/NAME of a Secret with AWS access keys, in the format of OpenShift.",
            pattern="^([^/]+/[^/]+)?$",
        ),
        "ociHandlerNamespace": string_value(
            "",
            "Namespace of the OCI Node Maintenance Handler, whose CronJobs Haulout takes over.",
            pattern=_NAME_OR_NOTHING,
        ),
    },
)
AGENT = Group(
    "The agent, a DaemonSet for clouds that announce maintenance in the metadata service of the instance: Azure, "
    "Google Cloud, and AWS without a queue. Requires Kubernetes 1.32.",
    {
        "enabled": bool_value(
            "Run agents, with a ValidatingAdmissionPolicy that restricts each agent to objects of its own node.",
            default=False,
        ),
        "cloud": string_value(
            "auto", "Cloud whose metadata service is polled; `auto`: detect it.", choice=("auto", *AGENT_SOURCES)
        ),
        "nodeSelector": string_map_value("Node selector of the agents.", agent_manifests.NODE_SELECTOR),
        "tolerations": list_value(
            "Tolerations of the agents. The default tolerates all taints.", agent_manifests.TOLERATIONS
        ),
        "resources": object_value(
            "Resources of each agent. The defaults are based on measurements.", agent_manifests.RESOURCES
        ),
        "priorityClassName": string_value(agent_manifests.PRIORITY, "Priority class of the agents; empty: none."),
    },
)
CERTIFICATE = Group(
    "The serving certificate of the webhook, and of metrics over HTTPS.",
    {
        "from": string_value(
            "self",
            "Who issues the certificate. `self`: the operator issues and renews it. `cert-manager`: cert-manager "
            "does. `secret`: you provide it in a Secret.",
            choice=("self", "cert-manager", "secret"),
        ),
        "secretName": string_value(
            "haulout-webhook-tls",
            "Name of the Secret that cert-manager writes, or that has your certificate.",
            pattern=_NAME,
        ),
        "caBundle": string_value("", "CA bundle for `secret`: PEM, base64-encoded."),
        "issuer": Group(
            "The issuer for `cert-manager`.",
            {
                "name": string_value("", "Name of the issuer; empty: the chart creates a self-signed issuer."),
                "kind": string_value("Issuer", "Kind of the issuer.", choice=("Issuer", "ClusterIssuer")),
                "group": string_value("cert-manager.io", "API group of the issuer."),
            },
        ),
    },
)
WEBHOOK = Group(
    "The validating webhook. It denies a NodeMaintenance if its node does not exist, if its node has another one, "
    "or if etcd would lose its quorum.",
    {
        "enabled": bool_value("Serve the webhook. Metrics over HTTPS require it.", default=True),
        "failurePolicy": string_value(
            "Fail", "Failure policy: what the API server does if no replica answers.", choice=("Fail", "Ignore")
        ),
        "timeoutSeconds": int_value(15, "How long the API server waits for an answer.", minimum=1, maximum=30),
        "certificate": CERTIFICATE,
    },
)
METRICS = Group(
    "Metrics for Prometheus.",
    {
        "readers": list_value(
            "ServiceAccounts that may read metrics over HTTPS: `[{namespace: monitoring, name: prometheus-k8s}]`.",
            items=_NAMESPACED_NAME,
        ),
        "serviceMonitor": Group(
            "A ServiceMonitor. Requires the Prometheus Operator.",
            {
                "enabled": bool_value("Create a ServiceMonitor.", default=False),
                "interval": string_value("30s", "Scrape interval."),
                "labels": string_map_value("Labels by which your Prometheus selects the object."),
            },
        ),
        "prometheusRule": Group(
            "A PrometheusRule with the alerts. Requires the Prometheus Operator.",
            {
                "enabled": bool_value("Create a PrometheusRule.", default=False),
                "runbookUrl": string_value(
                    RUNBOOK,
                    "Address of the page to which the annotation `runbook_url` of each alert links; the chart "
                    "appends the anchor. `make docs` generates the page.",
                    pattern="^https?://[^ #]+$",
                ),
                "labels": string_map_value("Labels by which your Prometheus selects the object."),
            },
        ),
        "dashboard": Group(
            "A ConfigMap with the Grafana dashboard. Requires Grafana's sidecar for dashboards.",
            {
                "enabled": bool_value("Create the ConfigMap.", default=False),
                "labels": Value(
                    {"grafana_dashboard": "1"},
                    "Labels by which the sidecar selects the ConfigMap.",
                    {"type": "object", "additionalProperties": {"type": "string"}},
                ),
            },
        ),
    },
)
DASHBOARD = Group(
    "The dashboard of the operator.",
    {
        "clusterName": string_value("", "Name of the cluster, which the dashboard shows on every page."),
        "auth": string_value(
            "token",
            "How users authenticate. `token` or empty: with a Kubernetes token. `proxy`: by the user name that an "
            "authenticating proxy sends. `off`: not at all; everybody who reaches the dashboard may read, and "
            "nobody may act.",
            choice=("token", "proxy", "off", ""),
        ),
        "proxySecret": string_value(
            workload.PROXY_SECRET,
            "Name of an existing Secret whose key `secret` has the value that the proxy sends in the header "
            "X-Haulout-Proxy-Secret.",
            pattern=_NAME,
        ),
        "actions": string_value(
            "",
            "With `proxy`: whether users may act from the dashboard, by a separate ServiceAccount that impersonates "
            "them. `constrained`: only for these actions; requires Kubernetes 1.36. `unrestricted`: on any version; "
            "beware that this ServiceAccount may do anything in the name of any user. With `token` users act with "
            "their own token, and this value has no effect.",
            choice=("", "constrained", "unrestricted"),
        ),
    },
)
NETWORK = Group(
    "The NetworkPolicy of the pods. It admits all peers to the webhook, and to metrics over HTTPS, which require a "
    "token. It does not apply to agents, which use the host network.",
    {
        "enabled": bool_value("Create a NetworkPolicy.", default=True),
        "from": list_value(
            "Peers that may reach the dashboard and /metrics on port 8080, besides the replicas, such as an Ingress "
            "controller: `[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}]`."
        ),
        "probesFrom": list_value(
            "Peers that may reach the probes on port 8081. Kubelets need no entry, unless your network plugin "
            "blocks traffic from a node to its own pods."
        ),
        "egress": list_value(
            "Egress rules; empty: egress is not restricted. The pods must reach the API server, DNS, and all "
            "configured clouds and receivers of notifications."
        ),
    },
)
INGRESS = Group(
    "An Ingress for the dashboard. Set `dashboard.auth`, or authenticate users at the Ingress.",
    {
        "enabled": bool_value("Create an Ingress.", default=False),
        "className": string_value("", "Ingress class; empty: the cluster's default."),
        "annotations": string_map_value("Annotations of the Ingress."),
        "hosts": list_value(
            "Hosts of the Ingress, as `[{host: maintenance.example.com, path: /}]`; empty: any host.",
            items=_INGRESS_HOST,
        ),
        "tls": list_value("TLS of the Ingress, as `[{secretName: …, hosts: […]}]`."),
    },
)
ACCOUNT = Group(
    "The ServiceAccount of the operator.",
    {
        "create": bool_value("Create the ServiceAccount.", default=True),
        "name": string_value(workload.NAME, "Name of the ServiceAccount.", pattern=_NAME),
        "annotations": string_map_value("Annotations of the ServiceAccount, such as its role in a cloud."),
    },
)
RBAC = Group(
    "Roles and bindings.",
    {
        "create": bool_value("Create the roles of the operator, and their bindings.", default=True),
        "podDeletion": bool_value(
            "Grant the deletion of pods, for NodeMaintenances whose policy deletes pods that cannot be evicted, and "
            "for profiles that the chart cannot read. If `profiles.config` needs it, the chart grants it anyway.",
            default=False,
        ),
        "people": bool_value("Create the ClusterRoles for users, such as nodemaintenance-editor-role.", default=True),
        "extraRules": list_value(
            "Rules to add to the operator's ClusterRole, such as those that your own plugins need."
        ),
    },
)
LEASES = Group(
    "The leases that lock nodes during maintenance, also against other medik8s operators.",
    {
        "namespace": string_value(node_lease.NAMESPACE, "Namespace of these leases.", pattern=_NAME),
        "createNamespace": bool_value(
            "Create the namespace, unless it exists. It is kept when the release is uninstalled, because other "
            "operators may use it.",
            default=True,
        ),
    },
)
_DURATION_OR_NOTHING = r"^([0-9]+(\.[0-9]+)?(ms|s|m))?$"
LEADER_ELECTION = Group(
    "Leader election: how soon a standby replaces a leader that crashed. Shorter durations cost more writes, and a "
    "leader that cannot reach the API server stops sooner.",
    {
        "leaseDuration": string_value(
            "",
            "How long a standby waits after the last renewal, in whole seconds; empty: 8s.",
            pattern=_DURATION_OR_NOTHING,
        ),
        "renewDeadline": string_value(
            "",
            "How long a leader that cannot renew its lease continues; less than `leaseDuration`; empty: 6s.",
            pattern=_DURATION_OR_NOTHING,
        ),
        "retryPeriod": string_value(
            "",
            "How often a leader renews its lease; less than `renewDeadline` divided by 1.2; empty: 1.5s.",
            pattern=_DURATION_OR_NOTHING,
        ),
    },
)

HISTORY = Group(
    "The history of deleted nodes.",
    {
        "retention": string_value(
            "",
            "How long the history of a node is kept after the node was deleted, such as 12h, 30d or 52w; 0: it is "
            "deleted with the node; empty: 90d.",
            pattern=r"^(0|([0-9]+[wdhms])+)?$",
        ),
        "deletedNodes": int_value(
            0,
            "Maximum number of deleted nodes with a history; the oldest are deleted first; 0: 1000.",
            minimum=0,
            maximum=10_000,
        ),
    },
)

SETTINGS = Group(
    "Values of the chart.",
    {
        "image": IMAGE,
        "replicas": int_value(
            workload.REPLICAS, "Number of replicas; one of them is the leader.", minimum=1, maximum=10
        ),
        "crds": CRDS,
        "profiles": PROFILES,
        "clouds": CLOUDS,
        "agent": AGENT,
        "machines": MACHINES,
        **{kind.name: _component_group(kind, item.chart) for kind, item in packagings().items() if item.chart},
        "webhook": WEBHOOK,
        "metrics": METRICS,
        "dashboard": DASHBOARD,
        "networkPolicy": NETWORK,
        "ingress": INGRESS,
        "serviceAccount": ACCOUNT,
        "rbac": RBAC,
        "leases": LEASES,
        "leaderElection": LEADER_ELECTION,
        "history": HISTORY,
        "quorumCheck": bool_value(
            "Deny maintenance by which etcd would lose its quorum, also outside of OpenShift.", default=True
        ),
        "podDisruptionBudget": Group(
            "A PodDisruptionBudget, which keeps a replica running while nodes are drained.",
            {
                "enabled": bool_value("Create a PodDisruptionBudget.", default=True),
                "maxUnavailable": int_value(1, "How many replicas may be unavailable.", minimum=1, maximum=10),
            },
        ),
        "resources": object_value(
            "Resources of each pod. The defaults are based on measurements, and are enough for 5,000 nodes.",
            workload.RESOURCES,
        ),
        "priorityClassName": string_value(workload.PRIORITY, "Priority class of the pods; empty: none."),
        "terminationGracePeriodSeconds": int_value(
            workload.GRACE_SECONDS,
            "Termination grace period: how long a pod has to finish requests and release its leases.",
            minimum=0,
            maximum=3600,
        ),
        "podSecurityContext": object_value("Security context of the pods.", workload.POD_SECURITY),
        "securityContext": object_value("Security context of the container.", workload.CONTAINER_SECURITY),
        "nodeSelector": string_map_value("Node selector of the pods."),
        "tolerations": list_value("Tolerations of the pods.", workload.TOLERATIONS),
        "affinity": object_value("Affinity of the pods; empty: replicas prefer different nodes."),
        "topologySpreadConstraints": list_value("Topology spread constraints of the pods; empty: spread over zones."),
        "podAnnotations": string_map_value("Annotations of the pods."),
        "podLabels": string_map_value("Additional labels of the pods."),
        "commonLabels": string_map_value("Additional labels of all objects."),
        "extraArgs": list_value(
            "Additional arguments of `haulout run`, such as `--log-format=text`.", items={"type": "string"}
        ),
        "extraEnv": list_value("Additional environment variables of the container."),
        "extraVolumes": list_value("Additional volumes of the pods, such as a Secret with OCI's configuration file."),
        "extraVolumeMounts": list_value("Mounts of the additional volumes."),
    },
)
