"""The bundle for the Operator Lifecycle Manager (OLM), in the package and channel of the Node Maintenance Operator.

Who is subscribed to that has a catalog with this bundle as another source of the same package: OLM replaces the one by
the other, and NodeMaintenances stay. OLM grants permissions of a namespace in the operator's only, so those in other
namespaces are granted in all. It brings the certificate of the webhook, and has it trusted.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from haulout.app import manifests, needs, workload
from haulout.app.workload import NAME
from haulout.kube import access
from haulout.kube.access import Permission
from haulout.kube.objects import RawObject
from haulout.web import guarded, registration
from tools.packages.versions import semantic

PACKAGE = "node-maintenance-operator"
CHANNEL = "stable"
_NAMESPACE = "openshift-workload-availability"  # that NMO suggests; OLM decides
_SCORECARD = "scorecard.operatorframework.io/v1alpha3"
_DEPLOYMENT = f"{PACKAGE}-controller-manager"
_DESCRIPTION = """\
Takes nodes out of service and gives them back: on a person's order (NodeMaintenance), when a cloud announces
maintenance (MaintenanceNotice), or by profiles. Cordons and drains within disruption budgets, any number of nodes at
once, and always tells what it waits for. It takes the place of the Node Maintenance Operator: its objects, labels,
events and webhook stay what they are.
"""
_KINDS = {
    "nodemaintenances": ("NodeMaintenance", "An order to take a node out of service."),
    "maintenancerecords": ("MaintenanceRecord", "What happened to a node."),
    "maintenancenotices": ("MaintenanceNotice", "Maintenance that is announced for a node."),
}


def files(image: str, version: str) -> dict[str, str]:
    """Return the bundle, by path."""
    definitions = {it["metadata"]["name"]: it for it in manifests.definitions()}
    own = {
        f"{PACKAGE}.clusterserviceversion.yaml": service_version(image, version),
        f"{guarded.SERVICE}_v1_service.yaml": _without_namespace(workload.metrics_service(_NAMESPACE)),
        f"{NAME}_networking.k8s.io_v1_networkpolicy.yaml": _without_namespace(workload.network_policy(_NAMESPACE)),
        **{f"{name}.yaml": it for name, it in definitions.items()},
        **{f"{it['metadata']['name']}_rbac_v1_clusterrole.yaml": it for it in manifests.for_people()},
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
    copies = "".join(f"COPY {it} /{it}/\n" for it in ("manifests", "metadata", "tests/scorecard"))
    return {
        **{f"manifests/{path}": manifests.as_yaml([it]) for path, it in own.items()},
        "metadata/annotations.yaml": manifests.as_yaml([{"annotations": annotations}]),
        "tests/scorecard/config.yaml": manifests.as_yaml([_scorecard()]),
        "bundle.Dockerfile": f"FROM scratch\n\n{labels}\n{copies}",
    }


def service_version(image: str, version: str) -> RawObject:
    """Return the ClusterServiceVersion."""
    deployment = workload.deployment(image=image, namespace=_NAMESPACE)
    in_cluster, at_home = _permissions()
    pod_spec = deployment["spec"]["template"]["spec"]
    pod_spec["serviceAccountName"] = _DEPLOYMENT
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{NAME}.v{semantic(version)}",
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": _example(),
                "capabilities": "Seamless Upgrades",
                "categories": "OpenShift Optional",
                "containerImage": image,
                "description": "Takes nodes out of service, safely and visibly, and gives them back.",
                "olm.skipRange": ">=0.12.0",  # all versions of NMO that have this API
                "operatorframework.io/suggested-namespace": _NAMESPACE,
                "features.operators.openshift.io/disconnected": "true",
            },
        },
        "spec": {
            "displayName": "Haulout, for node maintenance",
            "description": _DESCRIPTION,
            "version": semantic(version),
            "minKubeVersion": "1.25.0",
            "maturity": "alpha",
            "keywords": ["node-maintenance", "drain", "cordon", "maintenance"],
            "provider": {"name": "Haulout"},
            "installModes": [
                {"type": it, "supported": it == "AllNamespaces"}
                for it in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": [
                        {"name": _DEPLOYMENT, "label": workload.LABELS, "spec": deployment["spec"]},
                    ],
                    "clusterPermissions": [{"serviceAccountName": _DEPLOYMENT, "rules": in_cluster}],
                    "permissions": [{"serviceAccountName": _DEPLOYMENT, "rules": at_home}],
                },
            },
            "customresourcedefinitions": {"owned": [_owned(it) for it in manifests.definitions()]},
            "webhookdefinitions": [_webhook()],
        },
    }


def _permissions() -> tuple[list[RawObject], list[RawObject]]:
    """Return the rules of the cluster, and those of the operator's own namespace."""
    needed = needs.permissions(namespace=_NAMESPACE, own_certificate=False)
    at_home = [it for it in needed if it.namespace == _NAMESPACE]
    elsewhere = [replace(it, namespace=None) for it in needed if it.namespace != _NAMESPACE]
    return _rules(access.lean(elsewhere)), _rules(at_home)


def _rules(permissions: Iterable[Permission]) -> list[RawObject]:
    return [
        {"apiGroups": [it.group], "resources": [it.resource], "verbs": list(it.verbs)}
        | ({"resourceNames": list(it.names)} if it.names else {})
        for it in permissions
    ]


def _owned(definition: RawObject) -> RawObject:
    spec = definition["spec"]
    (version,) = spec["versions"]
    kind, says = _KINDS[spec["names"]["plural"]]
    fields = version["schema"]["openAPIV3Schema"]["properties"]
    return {
        "name": definition["metadata"]["name"],
        "version": version["name"],
        "kind": kind,
        "displayName": kind,
        "description": says,
        **{
            f"{part}Descriptors": _descriptors(fields[part]["properties"])
            for part in ("spec", "status")
            if fields.get(part, {}).get("properties")
        },
    }


def _descriptors(fields: dict[str, Any]) -> list[RawObject]:
    return [
        {"path": name, "displayName": _title(name), "description": " ".join(it.get("description", "").split())}
        for name, it in fields.items()
    ]


def _title(name: str) -> str:
    words = "".join(f" {it.lower()}" if it.isupper() else it for it in name)
    return words[:1].upper() + words[1:]


def _webhook() -> RawObject:
    (hook,) = registration.configuration()["webhooks"]
    return {
        "type": "ValidatingAdmissionWebhook",
        "generateName": hook["name"],
        "deploymentName": _DEPLOYMENT,
        "containerPort": 443,
        "targetPort": registration.PORT,
        "webhookPath": registration.PATH,
        **{key: it for key, it in hook.items() if key not in ("name", "clientConfig")},
    }


def _without_namespace(made: RawObject) -> RawObject:
    """Return an object for OLM, which puts it into the namespace of the operator."""
    metadata = {key: value for key, value in made["metadata"].items() if key != "namespace"}
    return made | {"metadata": metadata}


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
        for suite, its in suites.items()
        for test in its
    ]
    return {
        "apiVersion": _SCORECARD,
        "kind": "Configuration",
        "metadata": {"name": "config"},
        "stages": [{"parallel": True, "tests": tests}],
    }
