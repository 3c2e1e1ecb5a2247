"""The remaining built-in kinds that daily life and node maintenance meet: one row for each.

`workload_kinds` has those that controllers of the sandbox run; `kinds` has those that the server itself knows more
about. The facts are those of Kubernetes 1.36 (`pkg/registry/*/*/strategy.go` and `…/storage`), the blanks are what its
watches show in bookmarks.
"""

from haulout_sandbox.apiserver.kinds import JsonObject, Kind, ScalePaths
from haulout_sandbox.apiserver.workload_kinds import WORKLOAD_KINDS

_META_FIELDS = ("metadata.name", "metadata.namespace")
_TEMPLATE: JsonObject = {"metadata": {}, "spec": {"containers": None}}
_NO_ROLE: JsonObject = {"roleRef": {"apiGroup": "", "kind": "", "name": ""}}
_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_NETWORKING = "networking.k8s.io"

SERVICE = Kind(
    group="",
    version="v1",
    plural="services",
    kind="Service",
    short_names=("svc",),
    categories=("all",),
    has_status=True,
    initial_status={"loadBalancer": {}},
    put_creates=True,
    delete_answers_object=True,
    fields=(*_META_FIELDS, "spec.clusterIP", "spec.type"),
    sections=("spec", "status"),
    blank={"spec": {}, "status": {"loadBalancer": {}}},
)
ENDPOINTS = Kind(
    group="",
    version="v1",
    plural="endpoints",
    kind="Endpoints",
    short_names=("ep",),
    put_creates=True,
    sparse=("",),
)
SECRET = Kind(
    group="",
    version="v1",
    plural="secrets",
    kind="Secret",
    fields=(*_META_FIELDS, "type"),
    sparse=("",),
)
SERVICE_ACCOUNT = Kind(
    group="",
    version="v1",
    plural="serviceaccounts",
    kind="ServiceAccount",
    short_names=("sa",),
    delete_answers_object=True,
)
VOLUME = Kind(
    group="",
    version="v1",
    plural="persistentvolumes",
    kind="PersistentVolume",
    namespaced=False,
    short_names=("pv",),
    has_status=True,
    initial_status={"phase": "Pending"},
    delete_answers_object=True,
    sections=("spec", "status"),
    sparse=("status",),
    blank={"spec": {}, "status": {}},
)
REPLICATION_CONTROLLER = Kind(
    group="",
    version="v1",
    plural="replicationcontrollers",
    kind="ReplicationController",
    short_names=("rc",),
    categories=("all",),
    has_status=True,
    scale=ScalePaths(),
    initial_status={"replicas": 0},
    counts_generations=True,
    orphans=True,
    fields=(*_META_FIELDS, "status.replicas"),
    field_defaults={"status.replicas": 0},
    sections=("spec", "status"),
    sparse=("status",),
    blank={"spec": {}, "status": {"replicas": 0}},
)
LIMIT_RANGE = Kind(
    group="",
    version="v1",
    plural="limitranges",
    kind="LimitRange",
    short_names=("limits",),
    put_creates=True,
    sections=("spec",),
    blank={"spec": {"limits": None}},
)
RESOURCE_QUOTA = Kind(
    group="",
    version="v1",
    plural="resourcequotas",
    kind="ResourceQuota",
    short_names=("quota",),
    has_status=True,
    initial_status={},
    delete_answers_object=True,
    sections=("spec", "status"),
    sparse=("status",),
    blank={"spec": {}, "status": {}},
)
POD_TEMPLATE = Kind(
    group="",
    version="v1",
    plural="podtemplates",
    kind="PodTemplate",
    counts_generations=True,
    delete_answers_object=True,
    sections=("template",),
    blank={"template": _TEMPLATE},
)
CRON_JOB = Kind(
    group="batch",
    version="v1",
    plural="cronjobs",
    kind="CronJob",
    short_names=("cj",),
    categories=("all",),
    has_status=True,
    initial_status={},
    counts_generations=True,
    sections=("spec", "status"),
    sparse=("status",),
    blank={"spec": {"schedule": "", "jobTemplate": {"metadata": {}, "spec": {"template": _TEMPLATE}}}, "status": {}},
)
ROLE = Kind(group=_RBAC, version="v1", plural="roles", kind="Role", put_creates=True, blank={"rules": None})
ROLE_BINDING = Kind(
    group=_RBAC,
    version="v1",
    plural="rolebindings",
    kind="RoleBinding",
    put_creates=True,
    blank=_NO_ROLE,
)
CLUSTER_ROLE = Kind(
    group=_RBAC,
    version="v1",
    plural="clusterroles",
    kind="ClusterRole",
    namespaced=False,
    put_creates=True,
    blank={"rules": None},
)
CLUSTER_ROLE_BINDING = Kind(
    group=_RBAC,
    version="v1",
    plural="clusterrolebindings",
    kind="ClusterRoleBinding",
    namespaced=False,
    put_creates=True,
    blank=_NO_ROLE,
)
PRIORITY_CLASS = Kind(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    kind="PriorityClass",
    namespaced=False,
    short_names=("pc",),
    blank={"value": 0},
)
STORAGE_CLASS = Kind(
    group=_STORAGE,
    version="v1",
    plural="storageclasses",
    kind="StorageClass",
    namespaced=False,
    short_names=("sc",),
    delete_answers_object=True,
    blank={"provisioner": ""},
)
VOLUME_ATTACHMENT = Kind(
    group=_STORAGE,
    version="v1",
    plural="volumeattachments",
    kind="VolumeAttachment",
    namespaced=False,
    has_status=True,
    initial_status={"attached": False},
    put_needs_version=True,
    delete_answers_object=True,
    sections=("spec", "status"),
    blank={"spec": {"attacher": "", "source": {}, "nodeName": ""}, "status": {"attached": False}},
)
CSI_NODE = Kind(
    group=_STORAGE,
    version="v1",
    plural="csinodes",
    kind="CSINode",
    namespaced=False,
    put_needs_version=True,
    delete_answers_object=True,
    sections=("spec",),
    blank={"spec": {"drivers": None}},
)
CSI_DRIVER = Kind(
    group=_STORAGE,
    version="v1",
    plural="csidrivers",
    kind="CSIDriver",
    namespaced=False,
    put_needs_version=True,
    delete_answers_object=True,
    sections=("spec",),
    blank={"spec": {}},
)
CUSTOM_RESOURCE_DEFINITION = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    has_status=True,
    initial_status={"acceptedNames": {"plural": "", "kind": ""}},
    counts_generations=True,
    put_needs_version=True,
    delete_answers_object=True,
    sections=("spec", "status"),
    blank={
        "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None},
        "status": {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None},
    },
)
VALIDATING_WEBHOOKS = Kind(
    group=_ADMISSION,
    version="v1",
    plural="validatingwebhookconfigurations",
    kind="ValidatingWebhookConfiguration",
    namespaced=False,
    categories=("api-extensions",),
    counts_generations=True,
    put_needs_version=True,
    sparse=("",),
)
# Those who apply manifests with the following three find them again; they have no effect.
MUTATING_WEBHOOKS = Kind(
    group=_ADMISSION,
    version="v1",
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    namespaced=False,
    categories=("api-extensions",),
    counts_generations=True,
    put_needs_version=True,
    sparse=("",),
)
VALIDATING_POLICY = Kind(
    group=_ADMISSION,
    version="v1",
    plural="validatingadmissionpolicies",
    kind="ValidatingAdmissionPolicy",
    namespaced=False,
    categories=("api-extensions",),
    has_status=True,
    initial_status={},
    counts_generations=True,
    put_needs_version=True,
    sections=("spec", "status"),
    sparse=("status",),
    blank={"spec": {}, "status": {}},
)
VALIDATING_POLICY_BINDING = Kind(
    group=_ADMISSION,
    version="v1",
    plural="validatingadmissionpolicybindings",
    kind="ValidatingAdmissionPolicyBinding",
    namespaced=False,
    categories=("api-extensions",),
    counts_generations=True,
    put_needs_version=True,
    sections=("spec",),
    blank={"spec": {}},
)
ENDPOINT_SLICE = Kind(
    group="discovery.k8s.io",
    version="v1",
    plural="endpointslices",
    kind="EndpointSlice",
    counts_generations=True,
    generation_counts=("labels",),
    blank={"addressType": "", "endpoints": None, "ports": None},
)
INGRESS = Kind(
    group=_NETWORKING,
    version="v1",
    plural="ingresses",
    kind="Ingress",
    short_names=("ing",),
    has_status=True,
    initial_status={"loadBalancer": {}},
    counts_generations=True,
    sections=("spec", "status"),
    blank={"spec": {}, "status": {"loadBalancer": {}}},
)
INGRESS_CLASS = Kind(
    group=_NETWORKING,
    version="v1",
    plural="ingressclasses",
    kind="IngressClass",
    namespaced=False,
    counts_generations=True,
    sections=("spec",),
    blank={"spec": {}},
)
NETWORK_POLICY = Kind(
    group=_NETWORKING,
    version="v1",
    plural="networkpolicies",
    kind="NetworkPolicy",
    short_names=("netpol",),
    counts_generations=True,
    sections=("spec",),
    blank={"spec": {"podSelector": {}}},
)
AUTOSCALER = Kind(
    group="autoscaling",
    version="v2",
    plural="horizontalpodautoscalers",
    kind="HorizontalPodAutoscaler",
    short_names=("hpa",),
    categories=("all",),
    has_status=True,
    initial_status={"desiredReplicas": 0},
    sections=("spec", "status"),
    blank={
        "spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0},
        "status": {"desiredReplicas": 0, "currentMetrics": None},
    },
)
RUNTIME_CLASS = Kind(
    group="node.k8s.io",
    version="v1",
    plural="runtimeclasses",
    kind="RuntimeClass",
    namespaced=False,
    put_creates=True,
    put_needs_version=True,
    blank={"handler": ""},
)
ALL = (
    *WORKLOAD_KINDS,
    SERVICE,
    ENDPOINTS,
    SECRET,
    SERVICE_ACCOUNT,
    VOLUME,
    REPLICATION_CONTROLLER,
    LIMIT_RANGE,
    RESOURCE_QUOTA,
    POD_TEMPLATE,
    CRON_JOB,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    PRIORITY_CLASS,
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
    CSI_NODE,
    CSI_DRIVER,
    CUSTOM_RESOURCE_DEFINITION,
    VALIDATING_WEBHOOKS,
    MUTATING_WEBHOOKS,
    VALIDATING_POLICY,
    VALIDATING_POLICY_BINDING,
    ENDPOINT_SLICE,
    INGRESS,
    INGRESS_CLASS,
    NETWORK_POLICY,
    AUTOSCALER,
    RUNTIME_CLASS,
)
