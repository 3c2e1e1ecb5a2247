"""The workload kinds of the sandbox's API server: one row for each, to be told by `ApiServer.know`.

    for kind in WORKLOAD_KINDS:
        cluster.know(kind)

The facts are those of Kubernetes 1.36 (`pkg/registry/{apps,batch,core}/*/strategy.go`), the blanks are what its watches
show in bookmarks.
"""

from haulout_sandbox.apiserver.kinds import JsonObject, Kind, ScalePaths

_TEMPLATE: JsonObject = {"metadata": {}, "spec": {"containers": None}}
_DAEMON_COUNTS = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")

DEPLOYMENT = Kind(
    group="apps",
    version="v1",
    plural="deployments",
    kind="Deployment",
    short_names=("deploy",),
    categories=("all",),
    has_status=True,
    scale=ScalePaths(),
    initial_status={},
    counts_generations=True,
    generation_counts=("annotations",),  # they are copied to its ReplicaSets
    status_keeps=("labels",),
    sections=("spec", "status"),
    sparse=("status",),
    blank={"spec": {"replicas": 0, "selector": None, "template": _TEMPLATE, "strategy": {}}, "status": {}},
)
REPLICA_SET = Kind(
    group="apps",
    version="v1",
    plural="replicasets",
    kind="ReplicaSet",
    short_names=("rs",),
    categories=("all",),
    has_status=True,
    scale=ScalePaths(),
    initial_status={"replicas": 0},
    counts_generations=True,
    sections=("spec", "status"),
    sparse=("status",),
    blank={"spec": {"replicas": 0, "selector": None, "template": _TEMPLATE}, "status": {"replicas": 0}},
)
STATEFUL_SET = Kind(
    group="apps",
    version="v1",
    plural="statefulsets",
    kind="StatefulSet",
    short_names=("sts",),
    categories=("all",),
    has_status=True,
    scale=ScalePaths(),
    initial_status={"replicas": 0, "availableReplicas": 0},
    counts_generations=True,
    sections=("spec", "status"),
    sparse=("status",),
    blank={
        "spec": {"replicas": 0, "selector": None, "template": _TEMPLATE, "serviceName": "", "updateStrategy": {}},
        "status": {"replicas": 0, "availableReplicas": 0},
    },
)
DAEMON_SET = Kind(
    group="apps",
    version="v1",
    plural="daemonsets",
    kind="DaemonSet",
    short_names=("ds",),
    categories=("all",),
    has_status=True,
    initial_status=dict.fromkeys(_DAEMON_COUNTS, 0),
    counts_generations=True,
    sections=("spec", "status"),
    sparse=("status",),
    blank={
        "spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}},
        "status": dict.fromkeys(_DAEMON_COUNTS, 0),
    },
)
CONTROLLER_REVISION = Kind(
    group="apps",
    version="v1",
    plural="controllerrevisions",
    kind="ControllerRevision",
    blank={"data": None, "revision": 0},
)
JOB = Kind(
    group="batch",
    version="v1",
    plural="jobs",
    kind="Job",
    categories=("all",),
    has_status=True,
    initial_status={},
    counts_generations=True,
    orphans=True,
    fields=("metadata.name", "metadata.namespace", "status.successful"),
    sections=("spec", "status"),
    blank={"spec": {"template": _TEMPLATE}, "status": {}},
)
CLAIM = Kind(
    group="",
    version="v1",
    plural="persistentvolumeclaims",
    kind="PersistentVolumeClaim",
    short_names=("pvc",),
    has_status=True,
    initial_status={"phase": "Pending"},
    delete_answers_object=True,
    sections=("spec", "status"),
    sparse=("status",),
    blank={"spec": {"resources": {}}, "status": {}},
)
WORKLOAD_KINDS = (DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET, CONTROLLER_REVISION, JOB, CLAIM)
