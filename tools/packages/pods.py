"""The operator as templates of the chart: its pods and all that they need to run."""

from typing import Any

from haulout.app import manifests, workload
from haulout.app.workload import NAME
from haulout.kinds import machinemaintenance
from haulout.kube.namespaces import pod_security_labels
from haulout.kube.objects import RawObject
from haulout.web import guarded
from tools.packages.common import (
    ACCOUNT,
    HOME,
    IS_BEHIND_PROXY,
    IS_MOUNTED,
    LABELS,
    metadata,
    value,
    value_if_set,
)
from tools.packages.gotemplate import Filled, Inset, When, document

_CERTIFICATES_AT = "/certificates"
_IS_KUBERNIKUS = ".Values.kubernikus.enabled"
_IS_ON_ESX = ".Values.esx.enabled"
_INGRESS_HOSTS = (
    "{{ $hosts := list }}{{ range .Values.ingress.hosts }}{{ $hosts = append $hosts .host }}{{ end }}"
    '{{ default "*" (join "," $hosts) }}'
)
_SPREAD = "topologySpreadConstraints"
_KEPT = {"helm.sh/resource-policy": "keep"}


def deployment() -> RawObject:
    """Return the Deployment."""
    made = workload.deployment(image="", namespace=HOME, lease_namespace="{{ .Values.leases.namespace }}")
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    spec: RawObject = {
        "imagePullSecrets": value_if_set("image.pullSecrets"),
        "serviceAccountName": ACCOUNT,
        "priorityClassName": When(".Values.priorityClassName", Filled(".Values.priorityClassName")),
        "terminationGracePeriodSeconds": Filled(".Values.terminationGracePeriodSeconds"),
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
    about = {
        "labels": Inset('include "haulout.podLabels" .'),
        "annotations": Inset('include "haulout.podAnnotations" .'),
    }
    template = {"metadata": about, "spec": spec}
    return made | {
        "metadata": metadata(NAME),
        "spec": {**made["spec"], "replicas": Filled(".Values.replicas"), "template": template},
    }


def _container(made: RawObject) -> RawObject:
    machines = {it: f"machines.{it}" for it in ("lead", "window", "kinds")}
    env = [
        *made["env"],
        *(
            When(f".Values.{path}", {"name": name, "value": Filled(f".Values.{path} | quote")})
            for name, path in (
                ("HAULOUT_AWS_SECRET", "clouds.awsSecret"),
                ("WD_NAMESPACE", "clouds.ociHandlerNamespace"),
                *((f"HAULOUT_MACHINES_{it.upper()}", path) for it, path in machines.items()),
            )
        ),
        When(".Values.machines.surge", {"name": "HAULOUT_MACHINES_SURGE", "value": "true"}),
        When(".Values.extraEnv", [Inset("toYaml .Values.extraEnv")]),
    ]
    secrets = [
        When(path, {"secretRef": {"name": Filled(path)}})
        for path in (".Values.profiles.secret", ".Values.clouds.secret")
    ]
    mounts = [
        *made["volumeMounts"],
        When(
            IS_MOUNTED,
            {"name": "certificates", "mountPath": _CERTIFICATES_AT, "readOnly": True},
        ),
        When(IS_BEHIND_PROXY, {"name": "proxy", "mountPath": workload.PROXY_FOLDER, "readOnly": True}),
        When(_IS_KUBERNIKUS, {"name": "kubernikus", "mountPath": workload.KUBERNIKUS_FOLDER, "readOnly": True}),
        When(_IS_ON_ESX, {"name": "esx", "mountPath": workload.ESX_FOLDER, "readOnly": True}),
        When(".Values.extraVolumeMounts", [Inset("toYaml .Values.extraVolumeMounts")]),
    ]
    args = [
        *made["args"],
        '--webhook={{ include "haulout.webhook" . }}',
        When("not .Values.quorumCheck", "--no-quorum-check"),
        *(
            When(f".Values.leaderElection.{name}", f"--{flag}={{{{ .Values.leaderElection.{name} }}}}")
            for name, flag in (
                ("leaseDuration", "lease-duration"),
                ("renewDeadline", "renew-deadline"),
                ("retryPeriod", "retry-period"),
            )
        ),
        When(".Values.history.retention", "--history-retention={{ .Values.history.retention }}"),
        When(".Values.history.deletedNodes", "--history-deleted-nodes={{ int .Values.history.deletedNodes }}"),
        When(".Values.dashboard.clusterName", "--cluster-name={{ .Values.dashboard.clusterName }}"),
        '--dashboard-auth={{ default "token" .Values.dashboard.auth }}',
        When(".Values.ingress.enabled", f"--dashboard-host={_INGRESS_HOSTS}"),
        When(IS_BEHIND_PROXY, f"--dashboard-proxy-secret-file={workload.PROXY_FOLDER}/secret"),
        When(_IS_KUBERNIKUS, f"--kubernikus={workload.KUBERNIKUS_FOLDER}/kubernikus.yaml"),
        When(_IS_ON_ESX, f"--esx={workload.ESX_FOLDER}/esx.yaml"),
        When(".Values.extraArgs", [Inset("toYaml .Values.extraArgs")]),
    ]
    return made | {
        "image": Filled('include "haulout.image" . | quote'),
        "imagePullPolicy": Filled(".Values.image.pullPolicy"),
        "args": args,
        "env": env,
        "envFrom": [*made["envFrom"], *secrets],
        "volumeMounts": mounts,
        "resources": value("resources"),
        "securityContext": value("securityContext"),
    }


def _volumes(made: list[RawObject]) -> list[Any]:
    tmp, config = made
    name = Filled(f'default "{workload.CONFIGURATION}" .Values.profiles.existingConfigMap')
    given = {"name": "certificates", "secret": {"secretName": Filled(".Values.webhook.certificate.secretName")}}
    return [
        tmp,
        {**config, "configMap": {**config["configMap"], "name": name}},
        When(IS_MOUNTED, given),
        When(IS_BEHIND_PROXY, {"name": "proxy", "secret": {"secretName": Filled(".Values.dashboard.proxySecret")}}),
        When(_IS_KUBERNIKUS, {"name": "kubernikus", "configMap": {"name": Filled(".Values.kubernikus.configMap")}}),
        When(_IS_ON_ESX, {"name": "esx", "secret": {"secretName": Filled(".Values.esx.secretName")}}),
        When(".Values.extraVolumes", [Inset("toYaml .Values.extraVolumes")]),
    ]


def disruption_budget() -> RawObject:
    """Return what keeps a replica there."""
    made = workload.disruption_budget(HOME)
    spec = made["spec"] | {"maxUnavailable": Filled(".Values.podDisruptionBudget.maxUnavailable")}
    return made | {"metadata": metadata(NAME), "spec": spec}


def account() -> RawObject:
    """Return the ServiceAccount."""
    about = metadata(ACCOUNT) | {"annotations": value_if_set("serviceAccount.annotations")}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}


def namespaces() -> str:
    """Return those that the operator needs beside its own; one that somebody else has made is left to them.

    Helm never deletes them, neither with the release nor when a value no longer wants them: others have made objects in
    them meanwhile, such as the leases of other operators of medik8s.
    """
    wanted = (
        (".Values.leases.namespace", ".Values.leases.createNamespace"),
        (f'"{machinemaintenance.NAMESPACE}"', ".Values.machines.enabled"),
    )
    labels = " ".join(f'"{key}" "{level}"' for key, level in pod_security_labels().items())
    labelled = Inset(f'include "haulout.labelsAnd" (list . (dict {labels}))')
    return "".join(
        document(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": Filled(name), "labels": labelled, "annotations": _KEPT},
            },
            when=f'and {condition} (include "haulout.mayMakeNamespace" (list . {name}))',
        )
        for name, condition in wanted
    )


def people() -> str:
    """Return the roles for people, and for those who read metrics."""
    found = (it | {"metadata": it["metadata"] | {"labels": LABELS}} for it in manifests.for_people())
    documents = "".join(map(document, found))
    reader = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": guarded.READER_ROLE}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "haulout-metrics-readers", "labels": LABELS},
        "roleRef": reader,
        "subjects": [
            When(
                ".Values.metrics.readers",
                [{"kind": "ServiceAccount", "name": Filled(".name"), "namespace": Filled(".namespace")}],
                word="range",
            )
        ],
    }
    whole = f"{{{{- if .Values.rbac.people }}}}\n{documents}{{{{- end }}}}\n"
    return whole + document(binding, when="and .Values.rbac.people .Values.metrics.readers")


def configuration() -> str:
    """Return the maintenance.yaml, and the variables of clouds."""
    file = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(workload.CONFIGURATION),
        "data": {"maintenance.yaml": Filled('include "haulout.configuration" . | quote')},
    }
    clouds = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(workload.CLOUDS),
        "data": Inset('include "haulout.clouds" .'),
    }
    return document(file, when='include "haulout.configuration" .') + document(clouds, when=".Values.clouds.env")
