"""The remaining built-in kinds that daily life and node maintenance meet: one row for each.

`kinds` has those that the server itself knows more about. The facts are those of Kubernetes 1.36
(`pkg/registry/*/*/strategy.go` and `…/storage`).
"""

from typing import Any

from haulout_sandbox.apiserver.kinds import JsonObject, Kind, ScalePaths

_META_FIELDS = ("metadata.name", "metadata.namespace")
_RBAC = "rbac.authorization.k8s.io/v1"
_STORAGE = "storage.k8s.io/v1"
_ADMISSION = "admissionregistration.k8s.io/v1"
_NETWORKING = "networking.k8s.io/v1"


def _kind(api_version: str, kind: str, *, plural: str = "", short: str = "", **more: Any) -> Kind:
    group, _, version = api_version.rpartition("/")
    plural = plural or f"{kind.lower()}s"
    return Kind(group=group, version=version, plural=plural, kind=kind, short_names=tuple(short.split()), **more)


def _with_status(
    api_version: str, kind: str, *, status: JsonObject | None = None, sparse: tuple[str, ...] = ("status",), **more: Any
) -> Kind:
    """Return a kind with spec and status; `status` is what a new object has."""
    rest: JsonObject = {"initial_status": status or {}, "sections": ("spec", "status"), "sparse": sparse} | more
    return _kind(api_version, kind, has_status=True, **rest)


def _workload(api_version: str, kind: str, **more: Any) -> Kind:
    return _with_status(api_version, kind, categories=("all",), counts_generations=True, **more)


def _registration(kind: str, **more: Any) -> Kind:
    common: JsonObject = {"categories": ("api-extensions",), "counts_generations": True, "put_needs_version": True}
    return _kind(_ADMISSION, kind, namespaced=False, **common, **more)


# What runs pods

DEPLOYMENT = _workload("apps/v1", "Deployment", short="deploy", scale=ScalePaths())
REPLICA_SET = _workload("apps/v1", "ReplicaSet", short="rs", scale=ScalePaths(), status={"replicas": 0})
STATEFUL_SET = _workload(
    "apps/v1", "StatefulSet", short="sts", scale=ScalePaths(), status={"replicas": 0, "availableReplicas": 0}
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
CONTROLLER_REVISION = _kind("apps/v1", "ControllerRevision")
JOB = _workload("batch/v1", "Job", orphans=True, fields=(*_META_FIELDS, "status.successful"), sparse=())
CRON_JOB = _workload("batch/v1", "CronJob", short="cj")
PRIORITY_CLASS = _kind("scheduling.k8s.io/v1", "PriorityClass", plural="priorityclasses", short="pc", namespaced=False)

# Network

SERVICE = _with_status(
    "v1",
    "Service",
    short="svc",
    categories=("all",),
    status={"loadBalancer": {}},
    put_creates=True,
    delete_answers_object=True,
    fields=(*_META_FIELDS, "spec.clusterIP", "spec.type"),
    sparse=(),
)
INGRESS = _with_status(
    _NETWORKING,
    "Ingress",
    plural="ingresses",
    short="ing",
    status={"loadBalancer": {}},
    counts_generations=True,
    sparse=(),
)
NETWORK_POLICY = _kind(
    _NETWORKING,
    "NetworkPolicy",
    plural="networkpolicies",
    short="netpol",
    counts_generations=True,
    sections=("spec",),
)

# Configuration and access

SECRET = _kind("v1", "Secret", fields=(*_META_FIELDS, "type"), sparse=("",))
SERVICE_ACCOUNT = _kind("v1", "ServiceAccount", short="sa", delete_answers_object=True)
ROLE = _kind(_RBAC, "Role", put_creates=True)
ROLE_BINDING = _kind(_RBAC, "RoleBinding", put_creates=True)
CLUSTER_ROLE = _kind(_RBAC, "ClusterRole", namespaced=False, put_creates=True)
CLUSTER_ROLE_BINDING = _kind(_RBAC, "ClusterRoleBinding", namespaced=False, put_creates=True)

# Storage

CLAIM = _with_status(
    "v1", "PersistentVolumeClaim", short="pvc", status={"phase": "Pending"}, delete_answers_object=True
)
VOLUME = _with_status(
    "v1",
    "PersistentVolume",
    short="pv",
    namespaced=False,
    status={"phase": "Pending"},
    delete_answers_object=True,
)
STORAGE_CLASS = _kind(
    _STORAGE, "StorageClass", plural="storageclasses", short="sc", namespaced=False, delete_answers_object=True
)
VOLUME_ATTACHMENT = _with_status(
    _STORAGE,
    "VolumeAttachment",
    namespaced=False,
    status={"attached": False},
    put_needs_version=True,
    delete_answers_object=True,
    sparse=(),
)

# What extends the API

CUSTOM_RESOURCE_DEFINITION = _with_status(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    namespaced=False,
    short="crd crds",
    categories=("api-extensions",),
    status={"acceptedNames": {"plural": "", "kind": ""}},
    counts_generations=True,
    put_needs_version=True,
    delete_answers_object=True,
    sparse=(),
)
VALIDATING_WEBHOOKS = _registration("ValidatingWebhookConfiguration", sparse=("",))
MUTATING_WEBHOOKS = _registration("MutatingWebhookConfiguration", sparse=("",))
VALIDATING_POLICY = _registration(
    "ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    has_status=True,
    initial_status={},
    sections=("spec", "status"),
    sparse=("status",),
)
VALIDATING_POLICY_BINDING = _registration("ValidatingAdmissionPolicyBinding", sections=("spec",))

ALL = (
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
    CLAIM,
    VOLUME,
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
    CUSTOM_RESOURCE_DEFINITION,
    VALIDATING_WEBHOOKS,
    MUTATING_WEBHOOKS,
    VALIDATING_POLICY,
    VALIDATING_POLICY_BINDING,
)
