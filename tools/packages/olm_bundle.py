"""The bundle for the Operator Lifecycle Manager (OLM), in the package and channel of the Node Maintenance Operator.

Users who subscribe to that operator add a catalog with this bundle as another source of the same package: OLM then
replaces the operator, and NodeMaintenances stay. OLM grants namespaced permissions only in the operator's namespace, so
those in other namespaces are granted cluster-wide. OLM issues the webhook's certificate and injects its CA.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from haulout.api.objects import RawObject
from haulout.app.manifests import operator_manifests, workload
from haulout.app.manifests.workload import NAME
from haulout.app.permissions import operator_permissions
from haulout.httpserver import secure_metrics
from haulout.kube import rbac
from haulout.kube.rbac import Permission
from haulout.webhook import registration
from tools.packages.semver import to_semver

PACKAGE = "node-maintenance-operator"
CHANNEL = "stable"
_NAMESPACE = "openshift-workload-availability"  # suggested by NMO; OLM decides
_SCORECARD = "scorecard.operatorframework.io/v1alpha3"
_DEPLOYMENT = f"{PACKAGE}-controller-manager"
_DESCRIPTION = """\
Takes nodes out of service for maintenance, and returns them: for a NodeMaintenance that a user creates, for
maintenance that a cloud announces (MaintenanceNotice), or by profiles. Cordons and drains any number of nodes at once,
respects PodDisruptionBudgets, and always shows what it waits for. It replaces the Node Maintenance Operator, and keeps
its objects, labels, events and webhook.
"""
_KINDS = {
    "nodemaintenances": ("NodeMaintenance", "A request to take a node out of service."),
    "maintenancerecords": ("MaintenanceRecord", "The maintenance history of a node."),
    "maintenancefreezes": ("MaintenanceFreeze", "A time in which no new maintenance begins."),
    "maintenancenotices": ("MaintenanceNotice", "Maintenance announced for a node."),
}


def files(image: str, version: str) -> dict[str, str]:
    definitions = {entry["metadata"]["name"]: entry for entry in operator_manifests.definitions()}
    own_files = {
        f"{PACKAGE}.clusterserviceversion.yaml": service_version(image, version),
        f"{secure_metrics.SERVICE}_v1_service.yaml": _without_namespace(workload.metrics_service(_NAMESPACE)),
        f"{NAME}_networking.k8s.io_v1_networkpolicy.yaml": _without_namespace(workload.network_policy(_NAMESPACE)),
        **{f"{name}.yaml": entry for name, entry in definitions.items()},
        **{
            f"{entry['metadata']['name']}_rbac_v1_clusterrole.yaml": entry
            for entry in operator_manifests.user_cluster_roles()
        },
    }
    annotations = {
        "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
        "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
        "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
        "operators.operatorframework.io.bundle.package.v1": PACKAGE,
        "operators.operatorframework.io.bundle.channels.v1": CHANNEL,
        "operators.operatorframework.io.bundle.channel.default.v1": CHANNEL,
        "operators.operatorframework.io.test.mediatype.v1": "scorecard+v1",
        "operators.operatorframework.io.test.config.v1": "tests/scorecard/",
    }
    labels = "".join(f"LABEL {name}={value}\n" for name, value in annotations.items())
    copy_lines = "".join(f"COPY {entry} /{entry}/\n" for entry in ("manifests", "metadata", "tests/scorecard"))
    return {
        **{f"manifests/{path}": operator_manifests.as_yaml([entry]) for path, entry in own_files.items()},
        "metadata/annotations.yaml": operator_manifests.as_yaml([{"annotations": annotations}]),
        "tests/scorecard/config.yaml": operator_manifests.as_yaml([_scorecard()]),
        "bundle.Dockerfile": f"FROM scratch\n\n{labels}\n{copy_lines}",
    }


def service_version(image: str, version: str) -> RawObject:
    deployment = workload.deployment(image=image, namespace=_NAMESPACE)
    cluster_rules, own_namespace_rules = _permissions()
    pod_spec = deployment["spec"]["template"]["spec"]
    pod_spec["serviceAccountName"] = _DEPLOYMENT
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{NAME}.v{to_semver(version)}",
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": _example(),
                "capabilities": "Seamless Upgrades",
                "categories": "OpenShift Optional",
                "containerImage": image,
                "description": "Takes nodes out of service for maintenance, and returns them.",
                "olm.skipRange": ">=0.12.0",  # all versions of NMO with this API
                "operatorframework.io/suggested-namespace": _NAMESPACE,
                "features.operators.openshift.io/disconnected": "true",
            },
        },
        "spec": {
            "displayName": "Haulout Node Maintenance",
            "description": _DESCRIPTION,
            "version": to_semver(version),
            "minKubeVersion": "1.25.0",
            "maturity": "alpha",
            "keywords": ["node-maintenance", "drain", "cordon", "maintenance"],
            "provider": {"name": "Haulout"},
            "installModes": [
                {"type": entry, "supported": entry == "AllNamespaces"}
                for entry in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": [
                        {"name": _DEPLOYMENT, "label": workload.LABELS, "spec": deployment["spec"]},
                    ],
                    "clusterPermissions": [{"serviceAccountName": _DEPLOYMENT, "rules": cluster_rules}],
                    "permissions": [{"serviceAccountName": _DEPLOYMENT, "rules": own_namespace_rules}],
                },
            },
            "customresourcedefinitions": {"owned": [_owned(entry) for entry in operator_manifests.definitions()]},
            "webhookdefinitions": [_webhook()],
        },
    }


def _permissions() -> tuple[list[RawObject], list[RawObject]]:
    """Return the cluster-wide rules, and those of the operator's namespace."""
    required = operator_permissions(namespace=_NAMESPACE, own_certificate=False)
    own_namespace = [permission for permission in required if permission.namespace == _NAMESPACE]
    other_namespaces = [
        replace(permission, namespace=None) for permission in required if permission.namespace != _NAMESPACE
    ]
    return _rules(rbac.without_redundant(other_namespaces)), _rules(own_namespace)


def _rules(permissions: Iterable[Permission]) -> list[RawObject]:
    return [
        {"apiGroups": [permission.group], "resources": [permission.resource], "verbs": list(permission.verbs)}
        | ({"resourceNames": list(permission.names)} if permission.names else {})
        for permission in permissions
    ]


def _owned(definition: RawObject) -> RawObject:
    spec = definition["spec"]
    (version,) = spec["versions"]
    kind, description = _KINDS[spec["names"]["plural"]]
    fields = version["schema"]["openAPIV3Schema"]["properties"]
    return {
        "name": definition["metadata"]["name"],
        "version": version["name"],
        "kind": kind,
        "displayName": kind,
        "description": description,
        **{
            f"{part}Descriptors": _descriptors(fields[part]["properties"])
            for part in ("spec", "status")
            if fields.get(part, {}).get("properties")
        },
    }


def _descriptors(fields: dict[str, Any]) -> list[RawObject]:
    return [
        {"path": name, "displayName": _title(name), "description": " ".join(field_.get("description", "").split())}
        for name, field_ in fields.items()
    ]


def _title(name: str) -> str:
    spaced = "".join(f" {char.lower()}" if char.isupper() else char for char in name)
    return spaced[:1].upper() + spaced[1:]


def _webhook() -> RawObject:
    (hook,) = registration.configuration()["webhooks"]
    return {
        "type": "ValidatingAdmissionWebhook",
        "generateName": hook["name"],
        "deploymentName": _DEPLOYMENT,
        # The port of the Service that OLM creates for the webhook; `targetPort` is that of the container.
        "containerPort": 443,
        "targetPort": registration.PORT,
        "webhookPath": registration.PATH,
        **{key: value for key, value in hook.items() if key not in ("name", "clientConfig")},
    }


def _without_namespace(obj: RawObject) -> RawObject:
    """Return an object without namespace; OLM creates it in the operator's."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "namespace"}
    return obj | {"metadata": metadata}


def _example() -> str:
    return (
        '[{"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",'
        ' "metadata": {"name": "nodemaintenance-sample"},'
        ' "spec": {"nodeName": "node02", "reason": "kernel update"}}]'
    )


def _scorecard() -> RawObject:
    suites = {
        "basic": ("basic-check-spec",),
        "olm": (
            "olm-bundle-validation",
            "olm-crds-have-validation",
            "olm-crds-have-resources",
            "olm-spec-descriptors",
            "olm-status-descriptors",
        ),
    }
    tests = [
        {"entrypoint": ["scorecard-test", test], "labels": {"suite": suite, "test": f"{test}-test"}}
        for suite, names in suites.items()
        for test in names
    ]
    return {
        "apiVersion": _SCORECARD,
        "kind": "Configuration",
        "metadata": {"name": "config"},
        "stages": [{"parallel": True, "tests": tests}],
    }
