"""The values of the Helm chart: defaults, descriptions and schemas."""

from haulout.app.manifests import agent_manifests, workload
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.notices.orphans import AGENT_SOURCES
from tools.metrics.alerts import RUNBOOK
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
    "Which image runs.",
    {
        "registry": string_value(
            "", "Your registry, and a path in it if there is one; empty: what the nodes take for usual."
        ),
        "repository": string_value("haulout", "The name of the image there."),
        "variant": string_value(
            "",
            "Which SDK the image has: none, that of Oracle Cloud Infrastructure, of AWS, of OpenStack, or of vSphere.",
            choice=("", "oci", "aws", "openstack", "vsphere"),
        ),
        "tag": string_value("", "The tag; empty: the chart's appVersion. The variant is added to it, as in `-oci`."),
        "digest": string_value(
            "", "The digest, `sha256:…`; it is used instead of a tag.", pattern="^(sha256:[0-9a-f]{64})?$"
        ),
        "pullPolicy": string_value(
            "IfNotPresent", "When the image is pulled.", choice=("Always", "IfNotPresent", "Never")
        ),
        "pullSecrets": list_value("Secrets to pull the image with, as `[{name: …}]`."),
    },
)
CRDS = Group(
    "The CustomResourceDefinitions. They are templates, so that an upgrade brings them up to date.",
    {
        "install": bool_value(
            "Install and upgrade the definitions; if not, apply deploy/crds by yourself.", default=True
        ),
        "keep": bool_value(
            "Leave them when the release is removed. Else all NodeMaintenances, notices and records go with them.",
            default=True,
        ),
    },
)
PROFILES = Group(
    "Profiles decide by themselves when a node goes. Without any, maintenance that is announced is acted on as usual.",
    {
        "config": Value(
            None,
            "The maintenance.yaml, as a text (`--set-file profiles.config=maintenance.yaml`) or as an object. Edits"
            " take effect without a restart. Its plugins decide what the operator is granted.",
            {"type": ["string", "object", "null"]},
        ),
        "existingConfigMap": string_value(
            "",
            "A ConfigMap of your own with maintenance.yaml in it, instead. The chart cannot look into it, so what is"
            " usual is granted.",
            pattern=_NAME_OR_NOTHING,
        ),
        "secret": string_value(
            "",
            "A Secret of your own with variables that the file names, such as `${SLACK_TOKEN}`.",
            pattern=_NAME_OR_NOTHING,
        ),
        "permissions": string_value(
            "auto",
            "`auto`: what the plugins in `config` need. `usual`: what most need, whatever is configured.",
            choice=("auto", "usual"),
        ),
    },
)
MACHINES = Group(
    "Replaces Machines of OpenShift whose instance the cloud will stop or retire.",
    {
        "enabled": bool_value("Replace Machines. The cluster must be one of OpenShift.", default=False),
        "lead": string_value("", "How long before the cloud begins a Machine may go, such as `2h`; empty: at once."),
        "window": string_value("", "When Machines may go, as the config of a timeWindow; empty: always."),
        "surge": bool_value("Have another Machine come first.", default=False),
        "kinds": string_value(
            "", "Which kinds of notices have a Machine replaced, with commas between; empty: what is usual."
        ),
    },
)
KUBERNIKUS = Group(
    "Nodes of Kubernikus: old kubelets are labelled, and servers deleted whose nodes are ordered to go. Needs the"
    " image's variant `openstack`.",
    {
        "enabled": bool_value("See to nodes of Kubernikus.", default=False),
        "configMap": string_value(
            workload.KUBERNIKUS_CONFIG_MAP,
            "A ConfigMap of your own with kubernikus.yaml in it. Edits take effect without a restart.",
            pattern=_NAME,
        ),
        "secret": string_value(
            "",
            "NAMESPACE/NAME of the Secret with cloudprovider.conf that the file names, so that it may be read.",
            pattern="^([^/]+/[^/]+)?$",
        ),
    },
)
ESX = Group(
    "Empties nodes that are virtual machines on ESX hosts in maintenance, and shuts them down. It needs the variant"
    " `vsphere` of the image.",
    {
        "enabled": bool_value("See to nodes on ESX hosts.", default=False),
        "secretName": string_value(
            workload.ESX_SECRET,
            "A Secret of your own with esx.yaml in it. Edits take effect without a restart.",
            pattern=_NAME,
        ),
    },
)
CLOUDS = Group(
    "Which clouds are listened to, for maintenance that they announce.",
    {
        "env": string_map_value("Variables, such as `WD_STREAM_OCID` or `QUEUE_URL`; docs/reference has all of them."),
        "secret": string_value("", "A Secret with more variables, such as the keys of AWS.", pattern=_NAME_OR_NOTHING),
        "awsSecret": string_value(
            "",
            "NAMESPACE/NAME of a Secret with the keys of AWS, as OpenShift makes it.",
            pattern="^([^/]+/[^/]+)?$",
        ),
        "ociHandlerNamespace": string_value(
            "", "Where the OCI Node Maintenance Handler has CronJobs that are taken over.", pattern=_NAME_OR_NOTHING
        ),
    },
)
AGENT = Group(
    "A small pod on each node, for clouds that announce maintenance on the machine: Azure, Google Cloud,"
    " AWS without a queue. It needs Kubernetes 1.32.",
    {
        "enabled": bool_value("Run agents, with a policy that lets each write of its own node only.", default=False),
        "cloud": string_value(
            "auto", "Whose metadata service is asked; `auto`: whichever answers.", choice=("auto", *AGENT_SOURCES)
        ),
        "nodeSelector": string_map_value("Labels of nodes on which agents run.", agent_manifests.NODE_SELECTOR),
        "tolerations": list_value("Taints that agents tolerate: all.", agent_manifests.TOLERATIONS),
        "resources": object_value("What each agent gets. The defaults are measured.", agent_manifests.RESOURCES),
        "priorityClassName": string_value(agent_manifests.PRIORITY, "Priority class of the agents; empty: none."),
    },
)
CERTIFICATE = Group(
    "The certificate of the webhook, and of metrics over HTTPS.",
    {
        "from": string_value(
            "self",
            "`self`: the operator makes and renews it. `cert-manager`: that does. `secret`: it is one of yours.",
            choice=("self", "cert-manager", "secret"),
        ),
        "secretName": string_value(
            "haulout-webhook-tls", "The Secret into which `cert-manager` puts it, or that has yours.", pattern=_NAME
        ),
        "caBundle": string_value("", "For `secret`: who vouches for it, PEM in base64."),
        "issuer": Group(
            "For `cert-manager`: who issues it.",
            {
                "name": string_value("", "Name of the issuer; empty: the chart makes a self-signed one."),
                "kind": string_value("Issuer", "Kind of the issuer.", choice=("Issuer", "ClusterIssuer")),
                "group": string_value("cert-manager.io", "API group of the issuer."),
            },
        ),
    },
)
WEBHOOK = Group(
    "The webhook refuses NodeMaintenances that cannot be: of a node that is not there, a second one, or one that would"
    " cost etcd its quorum.",
    {
        "enabled": bool_value("Serve the webhook. Metrics over HTTPS need it, too.", default=True),
        "failurePolicy": string_value(
            "Fail", "What API servers do when no replica answers.", choice=("Fail", "Ignore")
        ),
        "timeoutSeconds": int_value(15, "How long they wait for an answer.", minimum=1, maximum=30),
        "certificate": CERTIFICATE,
    },
)
METRICS = Group(
    "Metrics, for Prometheus.",
    {
        "readers": list_value(
            "ServiceAccounts that may read metrics over HTTPS: `[{namespace: monitoring, name: prometheus-k8s}]`.",
            items=_NAMESPACED_NAME,
        ),
        "serviceMonitor": Group(
            "A ServiceMonitor, where the Prometheus Operator is installed.",
            {
                "enabled": bool_value("Make a ServiceMonitor.", default=False),
                "interval": string_value("30s", "How often metrics are read."),
                "labels": string_map_value("Labels by which your Prometheus selects it."),
            },
        ),
        "prometheusRule": Group(
            "Alerts, where the Prometheus Operator is installed.",
            {
                "enabled": bool_value("Make a PrometheusRule.", default=False),
                "runbookUrl": string_value(
                    RUNBOOK,
                    "The page to which `runbook_url` of each alert leads; its anchor is added. `make docs` makes it.",
                    pattern="^https?://[^ #]+$",
                ),
                "labels": string_map_value("Labels by which your Prometheus selects it."),
            },
        ),
        "dashboard": Group(
            "A dashboard, where Grafana's sidecar looks for ConfigMaps.",
            {
                "enabled": bool_value("Make a ConfigMap with the dashboard.", default=False),
                "labels": Value(
                    {"grafana_dashboard": "1"},
                    "Labels by which the sidecar selects it.",
                    {"type": "object", "additionalProperties": {"type": "string"}},
                ),
            },
        ),
    },
)
DASHBOARD = Group(
    "The dashboard: who may use it, and what it calls the cluster.",
    {
        "clusterName": string_value("", "How people know the cluster; the dashboard says it on every page."),
        "auth": string_value(
            "token",
            "How it knows who asks: `token`, who shows one of Kubernetes, as does empty; `proxy`, whom a proxy in front"
            " names; `off`, not at all: everybody who reaches it may read, and nobody may act.",
            choice=("token", "proxy", "off", ""),
        ),
        "proxySecret": string_value(
            workload.PROXY_SECRET,
            "A Secret that has, under `secret`, what the proxy sends as X-Haulout-Proxy-Secret.",
            pattern=_NAME,
        ),
        "actions": string_value(
            "",
            "With `proxy`: let people act from it, in their own names, by a ServiceAccount of its own that impersonates"
            " them. `constrained`: for these actions only, from Kubernetes 1.36 on. `unrestricted`: on any version;"
            " beware, that account may do anything in anybody's name. With `token` people act with their own token,"
            " without it.",
            choice=("", "constrained", "unrestricted"),
        ),
    },
)
NETWORK = Group(
    "Who may reach the pods. Everybody reaches the webhook, and metrics over HTTPS, which ask for a token. Agents use"
    " the network of their node, where no NetworkPolicy applies.",
    {
        "enabled": bool_value("Make a NetworkPolicy.", default=True),
        "from": list_value(
            "Peers that may reach the dashboard and /metrics on port 8080, beside the replicas, such as those of an"
            " Ingress controller: `[{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}]`."
        ),
        "probesFrom": list_value(
            "Peers that may reach probes on port 8081. A node always reaches its own pods, so kubelets need no entry,"
            " unless your network plugin says otherwise."
        ),
        "egress": list_value(
            "Where the pods may call; empty: everywhere. They must reach the API server, DNS, and all clouds and"
            " receivers of notifications that are configured."
        ),
    },
)
INGRESS = Group(
    "An Ingress for the dashboard. Set `dashboard.auth`, or let the Ingress ask for a password.",
    {
        "enabled": bool_value("Make an Ingress.", default=False),
        "className": string_value("", "Its class; empty: the cluster's usual one."),
        "annotations": string_map_value("Its annotations."),
        "hosts": list_value(
            "Its hosts, as `[{host: maintenance.example.com, path: /}]`; empty: any.", items=_INGRESS_HOST
        ),
        "tls": list_value("Its certificates, as `[{secretName: …, hosts: […]}]`."),
    },
)
ACCOUNT = Group(
    "Whose permissions the operator has.",
    {
        "create": bool_value("Make a ServiceAccount.", default=True),
        "name": string_value(workload.NAME, "Name of the ServiceAccount.", pattern=_NAME),
        "annotations": string_map_value("Its annotations, such as the role that it has in a cloud."),
    },
)
RBAC = Group(
    "Permissions.",
    {
        "create": bool_value("Make the roles of the operator, and bind them.", default=True),
        "podDeletion": bool_value(
            "Let the operator delete pods: for NodeMaintenances whose "
            "policy deletes pods that cannot be evicted, and for"
            " files that the chart does not see. What `profiles.config` deletes is granted anyway.",
            default=False,
        ),
        "people": bool_value("Make the roles for people: nodemaintenance-editor-role and others.", default=True),
        "extraRules": list_value(
            "Rules that are added to the operator's ClusterRole, as those of your own plugins need."
        ),
    },
)
LEASES = Group(
    "Leases lock nodes while they are in maintenance, also for other operators of medik8s.",
    {
        "namespace": string_value(node_lease.NAMESPACE, "The namespace of these leases.", pattern=_NAME),
        "createNamespace": bool_value(
            "Make that namespace, unless somebody else has. It stays when the release is removed: others may use it.",
            default=True,
        ),
    },
)
_DURATION_OR_NOTHING = r"^([0-9]+(\.[0-9]+)?(ms|s|m))?$"
LEADER_ELECTION = Group(
    "How soon a standby takes over from a leader that crashed. Shorter durations cost more writes, and a leader that"
    " cannot reach the API server stops sooner.",
    {
        "leaseDuration": string_value(
            "",
            "How long a standby waits after the last renewal, in whole seconds; empty: 8s.",
            pattern=_DURATION_OR_NOTHING,
        ),
        "renewDeadline": string_value(
            "",
            "How long a leader that cannot renew goes on; less than `leaseDuration`; empty: 6s.",
            pattern=_DURATION_OR_NOTHING,
        ),
        "retryPeriod": string_value(
            "",
            "How often a leader renews; less than `renewDeadline` divided by 1.2; empty: 1.5s.",
            pattern=_DURATION_OR_NOTHING,
        ),
    },
)

HISTORY = Group(
    "What happened to nodes that were deleted.",
    {
        "retention": string_value(
            "",
            "How long the history of a node is kept after the node was deleted, such as 12h, 30d or 52w; 0: it goes"
            " with the node; empty: 90d.",
            pattern=r"^(0|([0-9]+[wdhms])+)?$",
        ),
        "deletedNodes": int_value(
            0,
            "Of how many deleted nodes at most; those that were deleted first go first; 0: 1000.",
            minimum=0,
            maximum=10_000,
        ),
    },
)

SETTINGS = Group(
    "Values of the chart.",
    {
        "image": IMAGE,
        "replicas": int_value(workload.REPLICAS, "How many pods; one of them leads.", minimum=1, maximum=10),
        "crds": CRDS,
        "profiles": PROFILES,
        "clouds": CLOUDS,
        "agent": AGENT,
        "machines": MACHINES,
        "kubernikus": KUBERNIKUS,
        "esx": ESX,
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
            "Refuse what would cost etcd its quorum, outside of OpenShift as well.", default=True
        ),
        "podDisruptionBudget": Group(
            "Keeps a replica there while nodes are drained, by us and by others.",
            {
                "enabled": bool_value("Make a PodDisruptionBudget.", default=True),
                "maxUnavailable": int_value(1, "How many pods may be away.", minimum=1, maximum=10),
            },
        ),
        "resources": object_value(
            "What each pod gets. The defaults are measured: enough for 5,000 nodes.", workload.RESOURCES
        ),
        "priorityClassName": string_value(workload.PRIORITY, "Priority class of the pods; empty: none."),
        "terminationGracePeriodSeconds": int_value(
            workload.GRACE_SECONDS, "How long a pod has to hand over.", minimum=0, maximum=3600
        ),
        "podSecurityContext": object_value("Security context of the pods.", workload.POD_SECURITY),
        "securityContext": object_value("Security context of the container.", workload.CONTAINER_SECURITY),
        "nodeSelector": string_map_value("Labels of nodes on which pods may run."),
        "tolerations": list_value("Taints that pods tolerate.", workload.TOLERATIONS),
        "affinity": object_value("Affinity of the pods; empty: they keep off each other's nodes."),
        "topologySpreadConstraints": list_value("How pods are spread; empty: over zones."),
        "podAnnotations": string_map_value("Annotations of the pods."),
        "podLabels": string_map_value("More labels of the pods."),
        "commonLabels": string_map_value("More labels of everything."),
        "extraArgs": list_value(
            "More arguments of `haulout run`, such as `--log-format=text`.", items={"type": "string"}
        ),
        "extraEnv": list_value("More variables of the container."),
        "extraVolumes": list_value("More volumes of the pods, such as a Secret with OCI's configuration file."),
        "extraVolumeMounts": list_value("Where these are mounted."),
    },
)
