"""The built-in kinds that `kind` does not define: one entry each, as far as users and node maintenance need them.

`kind` has the kinds that the server treats specially. The facts are those of Kubernetes 1.36
(`pkg/registry/*/*/strategy.go` and `…/storage`).
"""

from typing import Any

from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind, ScalePaths, kind_with_status, new_kind

_META_FIELDS = ("metadata.name", "metadata.namespace")
_RBAC = "rbac.authorization.k8s.io/v1"
_STORAGE = "storage.k8s.io/v1"
_ADMISSION = "admissionregistration.k8s.io/v1"
_NETWORKING = "networking.k8s.io/v1"


def _workload(api_version: str, kind: str, **kwargs: Any) -> Kind:
    return kind_with_status(api_version, kind, categories=("all",), has_generation=True, **kwargs)


def _admission_configuration(kind: str, **kwargs: Any) -> Kind:
    common: JsonObject = {"categories": ("api-extensions",), "has_generation": True, "requires_version_on_update": True}
    return new_kind(_ADMISSION, kind, namespaced=False, **common, **kwargs)


# Workloads

DEPLOYMENT = _workload("apps/v1", "Deployment", short="deploy", scale_paths=ScalePaths())
REPLICA_SET = _workload("apps/v1", "ReplicaSet", short="rs", scale_paths=ScalePaths(), status={"replicas": 0})
STATEFUL_SET = _workload(
    "apps/v1", "StatefulSet", short="sts", scale_paths=ScalePaths(), status={"replicas": 0, "availableReplicas": 0}
)
DAEMON_SET = _workload(
    "apps/v1",
    "DaemonSet",
    short="ds",
    status=dict.fromkeys(
        ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"),
        0,
    ),
)
CONTROLLER_REVISION = new_kind("apps/v1", "ControllerRevision")
JOB = _workload(
    "batch/v1", "Job", orphans_by_default=True, selectable_fields=(*_META_FIELDS, "status.successful"), omit_empty=()
)
CRON_JOB = _workload("batch/v1", "CronJob", short="cj")
PRIORITY_CLASS = new_kind(
    "scheduling.k8s.io/v1", "PriorityClass", plural="priorityclasses", short="pc", namespaced=False
)

# Network

SERVICE = kind_with_status(
    "v1",
    "Service",
    short="svc",
    categories=("all",),
    status={"loadBalancer": {}},
    allows_create_on_update=True,
    delete_returns_object=True,
    selectable_fields=(*_META_FIELDS, "spec.clusterIP", "spec.type"),
    omit_empty=(),
)
INGRESS = kind_with_status(
    _NETWORKING,
    "Ingress",
    plural="ingresses",
    short="ing",
    status={"loadBalancer": {}},
    has_generation=True,
    omit_empty=(),
)
NETWORK_POLICY = new_kind(
    _NETWORKING,
    "NetworkPolicy",
    plural="networkpolicies",
    short="netpol",
    has_generation=True,
    always_present=("spec",),
)

# Configuration and access

SECRET = new_kind("v1", "Secret", selectable_fields=(*_META_FIELDS, "type"), omit_empty=("",))
SERVICE_ACCOUNT = new_kind("v1", "ServiceAccount", short="sa", delete_returns_object=True)
ROLE = new_kind(_RBAC, "Role", allows_create_on_update=True)
ROLE_BINDING = new_kind(_RBAC, "RoleBinding", allows_create_on_update=True)
CLUSTER_ROLE = new_kind(_RBAC, "ClusterRole", namespaced=False, allows_create_on_update=True)
CLUSTER_ROLE_BINDING = new_kind(_RBAC, "ClusterRoleBinding", namespaced=False, allows_create_on_update=True)

# Storage

PERSISTENT_VOLUME_CLAIM = kind_with_status(
    "v1", "PersistentVolumeClaim", short="pvc", status={"phase": "Pending"}, delete_returns_object=True
)
PERSISTENT_VOLUME = kind_with_status(
    "v1",
    "PersistentVolume",
    short="pv",
    namespaced=False,
    status={"phase": "Pending"},
    delete_returns_object=True,
)
STORAGE_CLASS = new_kind(
    _STORAGE, "StorageClass", plural="storageclasses", short="sc", namespaced=False, delete_returns_object=True
)
VOLUME_ATTACHMENT = kind_with_status(
    _STORAGE,
    "VolumeAttachment",
    namespaced=False,
    status={"attached": False},
    requires_version_on_update=True,
    delete_returns_object=True,
    omit_empty=(),
)

# API extension

CUSTOM_RESOURCE_DEFINITION = kind_with_status(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    namespaced=False,
    short="crd crds",
    categories=("api-extensions",),
    status={"acceptedNames": {"plural": "", "kind": ""}},
    has_generation=True,
    requires_version_on_update=True,
    delete_returns_object=True,
    omit_empty=(),
)
VALIDATING_WEBHOOK_CONFIGURATION = _admission_configuration("ValidatingWebhookConfiguration", omit_empty=("",))
MUTATING_WEBHOOK_CONFIGURATION = _admission_configuration("MutatingWebhookConfiguration", omit_empty=("",))
VALIDATING_ADMISSION_POLICY = _admission_configuration(
    "ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    has_status=True,
    initial_status={},
    always_present=("spec", "status"),
    omit_empty=("status",),
)
VALIDATING_ADMISSION_POLICY_BINDING = _admission_configuration(
    "ValidatingAdmissionPolicyBinding", always_present=("spec",)
)

BUILTIN_KINDS = (
    DEPLOYMENT,
    REPLICA_SET,
    STATEFUL_SET,
    DAEMON_SET,
    CONTROLLER_REVISION,
    JOB,
    CRON_JOB,
    PRIORITY_CLASS,
    SERVICE,
    INGRESS,
    NETWORK_POLICY,
    SECRET,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    PERSISTENT_VOLUME_CLAIM,
    PERSISTENT_VOLUME,
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
    CUSTOM_RESOURCE_DEFINITION,
    VALIDATING_WEBHOOK_CONFIGURATION,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
)
