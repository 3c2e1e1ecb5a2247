"""The operator's Deployment and its dependencies, as templates of the chart."""

from typing import Any

from haulout.api import machinemaintenance
from haulout.api.objects import RawObject
from haulout.app.components import component_types
from haulout.app.manifests import operator_manifests, workload
from haulout.app.manifests.workload import NAME
from haulout.httpserver import secure_metrics
from haulout.kube.namespaces import pod_security_labels
from haulout.runtime.component import SettingsFile
from tools.packages.helm.common import (
    ACCOUNT,
    HOME,
    IS_BEHIND_PROXY,
    IS_MOUNTED,
    LABELS,
    is_enabled,
    metadata,
    object_key,
    value,
    value_if_set,
)
from tools.packages.helm.gotemplate import Conditional, Expression, IndentedExpression, document

_CERTIFICATES_FOLDER = "/certificates"
_INGRESS_HOSTS = (
    "{{ $hosts := list }}{{ range .Values.ingress.hosts }}{{ $hosts = append $hosts .host }}{{ end }}"
    '{{ default "*" (join "," $hosts) }}'
)
_SPREAD = "topologySpreadConstraints"
# Helm otherwise deletes a namespace, with all that is in it, when a value no longer asks for it.
_KEEP_ON_DELETE = {"helm.sh/resource-policy": "keep"}


def deployment() -> RawObject:
    base = workload.deployment(image="", namespace=HOME, lease_namespace="{{ .Values.leases.namespace }}")
    pod = base["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    spec: RawObject = {
        "imagePullSecrets": value_if_set("image.pullSecrets"),
        "serviceAccountName": ACCOUNT,
        "priorityClassName": Conditional(".Values.priorityClassName", Expression(".Values.priorityClassName")),
        "terminationGracePeriodSeconds": Expression(".Values.terminationGracePeriodSeconds"),
        "securityContext": value("podSecurityContext"),
        "nodeSelector": value_if_set("nodeSelector"),
        "affinity": value_if_set("affinity", otherwise=pod["affinity"]),
        "topologySpreadConstraints": value_if_set(
            "topologySpreadConstraints", otherwise=pod["topologySpreadConstraints"]
        ),
        "tolerations": value_if_set("tolerations"),
        "containers": [_container(container)],
        "volumes": _volumes(pod["volumes"]),
    }
    pod_metadata = {
        "labels": IndentedExpression('include "haulout.podLabels" .'),
        "annotations": IndentedExpression('include "haulout.podAnnotations" .'),
    }
    template = {"metadata": pod_metadata, "spec": spec}
    return base | {
        "metadata": metadata(NAME),
        "spec": {**base["spec"], "replicas": Expression(".Values.replicas"), "template": template},
    }


def _container(base: RawObject) -> RawObject:
    machines = {key: f"machines.{key}" for key in ("lead", "window", "kinds")}
    env = [
        *base["env"],
        *(
            Conditional(f".Values.{path}", {"name": name, "value": Expression(f".Values.{path} | quote")})
            for name, path in (
                ("HAULOUT_AWS_SECRET", "clouds.awsSecret"),
                ("WD_NAMESPACE", "clouds.ociHandlerNamespace"),
                *((f"HAULOUT_MACHINES_{key.upper()}", path) for key, path in machines.items()),
            )
        ),
        Conditional(".Values.machines.surge", {"name": "HAULOUT_MACHINES_SURGE", "value": "true"}),
        Conditional(".Values.extraEnv", [IndentedExpression("toYaml .Values.extraEnv")]),
    ]
    secrets = [
        Conditional(path, {"secretRef": {"name": Expression(path)}})
        for path in (".Values.profiles.secret", ".Values.clouds.secret")
    ]
    mounts = [
        *base["volumeMounts"],
        Conditional(
            IS_MOUNTED,
            {"name": "certificates", "mountPath": _CERTIFICATES_FOLDER, "readOnly": True},
        ),
        Conditional(IS_BEHIND_PROXY, {"name": "proxy", "mountPath": workload.PROXY_FOLDER, "readOnly": True}),
        *(
            Conditional(
                is_enabled(kind), {"name": kind.name, "mountPath": workload.settings_folder(kind), "readOnly": True}
            )
            for kind in component_types()
            if kind.settings_file is not None
        ),
        Conditional(".Values.extraVolumeMounts", [IndentedExpression("toYaml .Values.extraVolumeMounts")]),
    ]
    args = [
        *base["args"],
        '--webhook={{ include "haulout.webhook" . }}',
        Conditional("not .Values.quorumCheck", "--no-quorum-check"),
        *(
            Conditional(f".Values.leaderElection.{name}", f"--{flag}={{{{ .Values.leaderElection.{name} }}}}")
            for name, flag in (
                ("leaseDuration", "lease-duration"),
                ("renewDeadline", "renew-deadline"),
                ("retryPeriod", "retry-period"),
            )
        ),
        Conditional(".Values.history.retention", "--history-retention={{ .Values.history.retention }}"),
        Conditional(".Values.history.deletedNodes", "--history-deleted-nodes={{ int .Values.history.deletedNodes }}"),
        Conditional(".Values.dashboard.clusterName", "--cluster-name={{ .Values.dashboard.clusterName }}"),
        '--dashboard-auth={{ default "token" .Values.dashboard.auth }}',
        Conditional(".Values.ingress.enabled", f"--dashboard-host={_INGRESS_HOSTS}"),
        Conditional(IS_BEHIND_PROXY, f"--dashboard-proxy-secret-file={workload.PROXY_FOLDER}/secret"),
        *(
            Conditional(is_enabled(kind), f"--{kind.name}={workload.settings_path(kind)}")
            for kind in component_types()
            if kind.settings_file is not None
        ),
        Conditional(".Values.extraArgs", [IndentedExpression("toYaml .Values.extraArgs")]),
    ]
    return base | {
        "image": Expression('include "haulout.image" . | quote'),
        "imagePullPolicy": Expression(".Values.image.pullPolicy"),
        "args": args,
        "env": env,
        "envFrom": [*base["envFrom"], *secrets],
        "volumeMounts": mounts,
        "resources": value("resources"),
        "securityContext": value("securityContext"),
    }


def _volumes(base: list[RawObject]) -> list[Any]:
    tmp, config = base
    name = Expression(f'default "{workload.PROFILES_CONFIG_MAP}" .Values.profiles.existingConfigMap')
    certificate_volume = {
        "name": "certificates",
        "secret": {"secretName": Expression(".Values.webhook.certificate.secretName")},
    }
    return [
        tmp,
        {**config, "configMap": {**config["configMap"], "name": name}},
        Conditional(IS_MOUNTED, certificate_volume),
        Conditional(
            IS_BEHIND_PROXY, {"name": "proxy", "secret": {"secretName": Expression(".Values.dashboard.proxySecret")}}
        ),
        *(
            Conditional(is_enabled(kind), {"name": kind.name, **_volume_source(kind.name, kind.settings_file)})
            for kind in component_types()
            if kind.settings_file is not None
        ),
        Conditional(".Values.extraVolumes", [IndentedExpression("toYaml .Values.extraVolumes")]),
    ]


def _volume_source(component: str, file: SettingsFile) -> RawObject:
    name = Expression(f".Values.{component}.{object_key(file)}")
    return {"secret": {"secretName": name}} if file.is_secret else {"configMap": {"name": name}}


def disruption_budget() -> RawObject:
    base = workload.disruption_budget(HOME)
    spec = base["spec"] | {"maxUnavailable": Expression(".Values.podDisruptionBudget.maxUnavailable")}
    return base | {"metadata": metadata(NAME), "spec": spec}


def account() -> RawObject:
    account_metadata = metadata(ACCOUNT) | {"annotations": value_if_set("serviceAccount.annotations")}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account_metadata}


def namespaces() -> str:
    """Return the namespaces that the operator needs besides its own; existing ones are left alone.

    Helm never deletes them, neither with the release nor when a value no longer asks for them: others may have created
    objects there, such as the leases of other operators of medik8s.
    """
    wanted = (
        (".Values.leases.namespace", ".Values.leases.createNamespace"),
        (f'"{machinemaintenance.NAMESPACE}"', ".Values.machines.enabled"),
    )
    labels = " ".join(f'"{key}" "{level}"' for key, level in pod_security_labels().items())
    labelled = IndentedExpression(f'include "haulout.labelsAnd" (list . (dict {labels}))')
    return "".join(
        document(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": Expression(name), "labels": labelled, "annotations": _KEEP_ON_DELETE},
            },
            when=f'and {condition} (include "haulout.createsNamespace" (list . {name}))',
        )
        for name, condition in wanted
    )


def people() -> str:
    """Return the roles for users, and for readers of metrics."""
    found = (
        obj | {"metadata": obj["metadata"] | {"labels": LABELS}} for obj in operator_manifests.user_cluster_roles()
    )
    documents = "".join(map(document, found))
    reader = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": secure_metrics.READER_ROLE}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "haulout-metrics-readers", "labels": LABELS},
        "roleRef": reader,
        "subjects": [
            Conditional(
                ".Values.metrics.readers",
                [{"kind": "ServiceAccount", "name": Expression(".name"), "namespace": Expression(".namespace")}],
                keyword="range",
            )
        ],
    }
    whole = f"{{{{- if .Values.rbac.people }}}}\n{documents}{{{{- end }}}}\n"
    return whole + document(binding, when="and .Values.rbac.people .Values.metrics.readers")


def configuration() -> str:
    """Return the ConfigMap with maintenance.yaml, and the environment variables of clouds."""
    file = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(workload.PROFILES_CONFIG_MAP),
        "data": {"maintenance.yaml": Expression('include "haulout.configuration" . | quote')},
    }
    clouds = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(workload.CLOUDS_CONFIG_MAP),
        "data": IndentedExpression('include "haulout.clouds" .'),
    }
    return document(file, when='include "haulout.configuration" .') + document(clouds, when=".Values.clouds.env")
