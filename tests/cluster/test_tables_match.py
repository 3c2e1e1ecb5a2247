"""The sandbox's tables are those of the real server: the same columns, the same cells for the same objects."""

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.tables import Column, table, table_of
from support.asker import Asker

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
CLOCK = RealClock()
SPEC: JsonObject = {"containers": [{"name": "a", "image": "image-a"}, {"name": "b", "image": "image-b"}]}
LABELS = {"app": "shop", "tier": "front"}
SELECTOR: JsonObject = {
    "matchLabels": LABELS,
    "matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["b", "a"]},
        {"key": "canary", "operator": "DoesNotExist"},
        {"key": "era", "operator": "NotIn", "values": ["x"]},
        {"key": "name", "operator": "Exists"},
    ],
}
TEMPLATE: JsonObject = {"metadata": {"labels": {**LABELS, "zone": "a", "name": "n"}}, "spec": SPEC}
JOB: JsonObject = {"template": {"spec": SPEC | {"restartPolicy": "Never"}}}
OBJECT = {"kind": "Pod", "name": "cart-0", "fieldPath": "spec.containers{a}"}
METADATA: JsonObject = {}


@pytest.fixture
def asker(control_plane: ControlPlane) -> Iterator[Asker]:
    asker = Asker(control_plane)
    yield asker
    asker.close()


def get(asker: Asker, path: str, *, accept: str = "application/json") -> list[Any]:
    status, documents = asker.ask("GET", path, accept=accept)
    assert status == 200, documents
    return documents


@pytest.fixture
def name(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """Return a name for objects outside of namespaces, which are gone after the test."""
    yield namespace
    for path in (
        "api/v1/nodes",
        "api/v1/persistentvolumes",
        "apis/storage.k8s.io/v1/storageclasses",
        "apis/scheduling.k8s.io/v1/priorityclasses",
        "apis/rbac.authorization.k8s.io/v1/clusterroles",
        "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ):
        for item in control_plane.request("GET", f"/{path}").json()["items"]:
            if namespace in item["metadata"]["name"]:
                control_plane.request("DELETE", f"/{path}/{item['metadata']['name']}")


def ago(**past: float) -> str:
    return (CLOCK.now() - timedelta(**past)).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_ago(**past: float) -> str:
    return (CLOCK.now() - timedelta(**past)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def create(cluster: ControlPlane, collection: str, name: str, obj: JsonObject) -> None:
    obj = {**obj, "metadata": {**obj.get("metadata", {}), "name": name}}
    made = cluster.request("POST", collection, obj)
    assert made.status == 201, made.body
    if "status" in obj:
        done = cluster.request("PUT", f"{collection}/{name}/status", {**made.json(), "status": obj["status"]})
        assert done.status == 200, done.body


def assert_tables_match(asker: Asker, kind: Kind, path: str, columns: tuple[Column, ...] = ()) -> None:
    """Compare the list and each object; an age may be that of a moment before or after the request."""
    before = CLOCK.now()
    (real,) = get(asker, path, accept=TABLE)
    after = CLOCK.now()
    (listed,) = get(asker, path)
    assert listed["items"], "there is nothing to compare"
    mine = [
        table(kind, listed["items"], now=now, list_metadata=real["metadata"], columns=columns)
        for now in (before, after)
    ]
    assert_same(real, *mine)
    alone = listed["items"][0]
    where = f"{path.partition('?')[0]}/{alone['metadata']['name']}"
    for include in ("Object", "None"):
        before = CLOCK.now()
        (real,) = get(asker, f"{where}?includeObject={include}", accept=TABLE)
        nows = (before, CLOCK.now())
        assert_same(real, *(table_of(kind, alone, now=now, include=include, columns=columns) for now in nows))


def assert_same(real: JsonObject, *mine: JsonObject) -> None:
    for each in (real, *mine):
        for column in each["columnDefinitions"] or ():
            del column["description"]  # ours says nothing, or something else
        for condition in (it for row in each["rows"] for it in row.get("conditions", ())):
            condition.pop("message", None)
        for row in each["rows"]:
            # The server adds it when it converts a DaemonSet to v1, which it does not do for mere metadata.
            ((row["object"] or {}).get("metadata") or {}).pop("annotations", None)
    wrong = []
    for row, *ours in zip(real["rows"], *(it["rows"] for it in mine), strict=True):
        for at, (cell, *choices) in enumerate(zip(row.pop("cells"), *(it.pop("cells") for it in ours), strict=True)):
            if all(repr(cell) != repr(choice) for choice in choices):  # repr, since True and 1 differ here
                wrong.append((at, row["object"], f"really {cell!r}, not {choices[0]!r}"))
    assert not wrong
    assert real == mine[0]


def kind_of(path: str, kind: str, **options: Any) -> Kind:
    """Return the row of a kind by its place in the API, `apis/apps/v1/deployments`."""
    *_, group, version, plural = ("", *path.split("/")) if path.startswith("api/") else path.split("/")
    return Kind(group="" if group == "api" else group, version=version, plural=plural, kind=kind, **options)


IN_NAMESPACES: dict[tuple[str, str], list[JsonObject]] = {
    ("apis/apps/v1/deployments", "Deployment"): [
        {"spec": {"replicas": 3, "selector": SELECTOR, "template": TEMPLATE}},
        {
            "spec": {"selector": {"matchLabels": LABELS}, "template": TEMPLATE},
            "status": {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1},
        },
    ],
    ("apis/apps/v1/replicasets", "ReplicaSet"): [
        {
            "spec": {"replicas": 4, "selector": SELECTOR, "template": TEMPLATE},
            "status": {"replicas": 3, "readyReplicas": 2, "fullyLabeledReplicas": 2},
        }
    ],
    ("apis/apps/v1/statefulsets", "StatefulSet"): [
        {
            "spec": {"replicas": 4, "selector": {"matchLabels": LABELS}, "template": TEMPLATE, "serviceName": "s"},
            "status": {"replicas": 3, "readyReplicas": 2},
        }
    ],
    ("apis/apps/v1/daemonsets", "DaemonSet"): [
        {"spec": {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}},
        {
            "spec": {
                "selector": SELECTOR,
                "template": {**TEMPLATE, "spec": {**SPEC, "nodeSelector": {"zone": "a", "disk": "ssd"}}},
            },
            "status": {
                "desiredNumberScheduled": 5,
                "currentNumberScheduled": 4,
                "numberReady": 3,
                "updatedNumberScheduled": 2,
                "numberAvailable": 1,
                "numberMisscheduled": 0,
            },
        },
    ],
    ("apis/apps/v1/controllerrevisions", "ControllerRevision"): [
        {"revision": 3, "data": {}},
        {
            "revision": 2,
            "data": {},
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
                ]
            },
        },
    ],
    ("api/v1/replicationcontrollers", "ReplicationController"): [
        {"spec": {"replicas": 2, "selector": LABELS, "template": TEMPLATE}, "status": {"replicas": 1}}
    ],
    ("apis/batch/v1/jobs", "Job"): [
        {"spec": JOB},
        {"spec": {**JOB, "parallelism": 3}, "status": {"startTime": ago(hours=3, minutes=5), "active": 3}},
        {"spec": {**JOB, "completions": 5, "parallelism": 2}, "status": {"startTime": ago(days=9), "succeeded": 2}},
        {"spec": {**JOB, "suspend": True}, "status": {"conditions": [{"type": "Suspended", "status": "True"}]}},
    ],
    ("apis/batch/v1/cronjobs", "CronJob"): [
        {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": JOB}}},
        {
            "spec": {"schedule": "@daily", "timeZone": "Etc/UTC", "suspend": True, "jobTemplate": {"spec": JOB}},
            "status": {"lastScheduleTime": ago(hours=30), "active": [{"kind": "Job", "name": "j"}]},
        },
    ],
    ("apis/policy/v1/poddisruptionbudgets", "PodDisruptionBudget"): [
        {"spec": {"minAvailable": "50%", "selector": SELECTOR}},
        {
            "spec": {"maxUnavailable": 0},
            "status": {"disruptionsAllowed": 2, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        },
        {"spec": {}},
    ],
    ("api/v1/services", "Service"): [
        {
            "spec": {
                "ports": [{"name": "web", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}],
                "selector": LABELS,
            }
        },
        {"spec": {"ports": [{"port": 80}]} | {"clusterIP": "None", "externalIPs": ["9.9.9.9", "8.8.8.8"]}},
        {"spec": {"ports": [{"port": 80}], "type": "NodePort"}},
        {"spec": {"type": "ExternalName", "externalName": "example.org"}},
        {"spec": {"ports": [{"port": 80}], "type": "LoadBalancer"}},
        {
            "spec": {"ports": [{"port": 80}], "type": "LoadBalancer", "externalIPs": ["9.9.9.9"]},
            "status": {"loadBalancer": {"ingress": [{"hostname": "a-long-name.example.org"}, {"ip": "7.7.7.7"}]}},
        },
    ],
    ("api/v1/configmaps", "ConfigMap"): [
        {"data": {"a": "b", "c": "d"}, "binaryData": {"e": "Zg=="}},
        METADATA,
    ],
    ("api/v1/secrets", "Secret"): [
        {"stringData": {"a": "b"}},
        {"type": "kubernetes.io/basic-auth", "stringData": {"username": "b", "password": "x"}},
    ],
    ("api/v1/serviceaccounts", "ServiceAccount"): [METADATA],
    ("apis/coordination.k8s.io/v1/leases", "Lease"): [{"spec": {"holderIdentity": "me"}}, METADATA],
    ("apis/rbac.authorization.k8s.io/v1/roles", "Role"): [{"rules": []}],
    ("apis/rbac.authorization.k8s.io/v1/rolebindings", "RoleBinding"): [
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "User", "name": "eve"},
                {"kind": "User", "name": "bob"},
                {"kind": "Group", "name": "crew"},
                {"kind": "ServiceAccount", "name": "robot", "namespace": "x"},
            ],
        }
    ],
    ("api/v1/endpoints", "Endpoints"): [
        METADATA,
        {"subsets": [{"addresses": [{"ip": "10.1.0.1"}]}]},
        {
            "subsets": [
                {
                    "addresses": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}],
                    "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
                }
            ]
        },
    ],
    ("apis/discovery.k8s.io/v1/endpointslices", "EndpointSlice"): [
        {"addressType": "IPv4", "endpoints": []},
        {
            "addressType": "IPv4",
            "ports": [{"name": "a", "port": 80}, {"name": "b"}],
            "endpoints": [{"addresses": [f"10.1.0.{each}"]} for each in range(1, 6)],
        },
    ],
    ("apis/networking.k8s.io/v1/networkpolicies", "NetworkPolicy"): [
        {"spec": {"podSelector": SELECTOR}},
        {"spec": {"podSelector": {}}},
    ],
    ("api/v1/persistentvolumeclaims", "PersistentVolumeClaim"): [
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
        {
            "spec": {
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": "v",
                "storageClassName": "fast",
                "volumeMode": "Block",
            },
            "status": {
                "phase": "Bound",
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "capacity": {"storage": "2Gi"},
            },
        },
    ],
    ("api/v1/limitranges", "LimitRange"): [{"spec": {"limits": []}}],
}

OUTSIDE: dict[tuple[str, str], list[JsonObject]] = {
    ("api/v1/nodes", "Node"): [
        METADATA,
        {
            "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "addresses": [
                    {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "ExternalIP", "address": "9.9.9.9"},
                ],
                "nodeInfo": {
                    "kubeletVersion": "v1.36.3",
                    "osImage": "Debian",
                    "kernelVersion": "6.1",
                    "containerRuntimeVersion": "containerd://2",
                    "architecture": "arm64",
                    "bootID": "",
                    "kubeProxyVersion": "",
                    "machineID": "",
                    "operatingSystem": "",
                    "systemUUID": "",
                },
            },
        },
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    ],
    ("api/v1/persistentvolumes", "PersistentVolume"): [
        {"spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadOnlyMany"], "hostPath": {"path": "/x"}}},
        {
            "spec": {
                "capacity": {"storage": "1500M"},
                "accessModes": ["ReadWriteOncePod"],
                "hostPath": {"path": "/x"},
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "fast",
                "claimRef": {"namespace": "shop", "name": "cart"},
            },
            "status": {"phase": "Failed", "reason": "NoReason"},
        },
    ],
    ("apis/storage.k8s.io/v1/storageclasses", "StorageClass"): [
        {"provisioner": "example.org/p"},
        {
            "provisioner": "example.org/q",
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
            "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        },
    ],
    ("apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass"): [{"value": 7}],
    ("apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRole"): [{"rules": []}],
    ("apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "ClusterRoleBinding"): [
        {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}}
    ],
    ("apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", "ValidatingWebhookConfiguration"): [
        {
            "webhooks": [
                {
                    "name": "a.example.org",
                    "clientConfig": {"url": "https://localhost/"},
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ]
        }
    ],
    ("apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", "MutatingWebhookConfiguration"): [METADATA],
    ("api/v1/namespaces", "Namespace"): [],
}


def test_objects_in_namespaces_are_shown_alike(control_plane: ControlPlane, asker: Asker, namespace: str) -> None:
    for (path, kind), objects in IN_NAMESPACES.items():
        *root, plural = path.split("/")
        collection = f"/{'/'.join(root)}/namespaces/{namespace}/{plural}"
        for number, obj in enumerate(objects):
            create(control_plane, collection, f"o{number}", obj)
        assert_tables_match(asker, kind_of(path, kind), collection)


def test_objects_outside_of_namespaces_are_shown_alike(control_plane: ControlPlane, asker: Asker, name: str) -> None:
    for (path, kind), objects in OUTSIDE.items():
        for number, obj in enumerate(objects):
            create(control_plane, f"/{path}", f"{name}-{number}", obj)
        assert_tables_match(asker, kind_of(path, kind), f"/{path}")


def test_events_are_shown_alike_through_both_of_their_apis(
    control_plane: ControlPlane, asker: Asker, namespace: str
) -> None:
    old = f"/api/v1/namespaces/{namespace}/events"
    new = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    times = {"firstTimestamp": ago(hours=50), "lastTimestamp": ago(minutes=3, seconds=20)}
    about = {"involvedObject": {**OBJECT, "namespace": namespace}}
    told = {"reason": "Moved", "message": " it moved\n", "type": "Normal"}
    by = {"source": {"component": "mover", "host": "n1"}}
    create(control_plane, old, "o0", {**about, **told, **times, **by, "count": 7})
    create(control_plane, old, "o1", {"involvedObject": {"namespace": namespace}})
    reported = {"eventTime": micro_ago(days=2, hours=1), "action": "Move"}
    who = {"reportingController": "example.org/mover", "reportingInstance": "n2"}
    regarding = {"regarding": {**OBJECT, "namespace": namespace}, "reason": "Moved", "type": "Normal", "note": "x"}
    series = {"series": {"count": 3, "lastObservedTime": micro_ago(seconds=75)}}
    create(control_plane, new, "o2", {**reported, **who, **regarding})
    create(control_plane, new, "o3", {**reported, **who, **regarding, **series})
    assert_tables_match(asker, kind_of("api/v1/events", "Event"), old)
    assert_tables_match(asker, kind_of("apis/events.k8s.io/v1/events", "Event"), new)


def test_pods_are_shown_alike_in_every_state(
    control_plane: ControlPlane, asker: Asker, namespace: str, rng: random.Random
) -> None:
    collection = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(120):
        create(control_plane, collection, f"p{number}", a_random_pod(rng))
        if rng.random() < 0.2:
            control_plane.request("DELETE", f"{collection}/p{number}")
    assert_tables_match(asker, kind_of("api/v1/pods", "Pod"), collection)


def a_random_pod(rng: random.Random) -> JsonObject:
    init = [
        {"name": f"i{each}", "image": "x", **({"restartPolicy": "Always"} if rng.random() < 0.4 else {})}
        for each in range(rng.choice((0, 0, 1, 3)))
    ]
    containers = [{"name": f"c{each}", "image": "x"} for each in range(rng.choice((1, 2, 3)))]
    spec: JsonObject = {"containers": containers, "initContainers": init, "nodeName": "n1"}
    if rng.random() < 0.3:
        spec["readinessGates"] = [{"conditionType": "example.org/a"}, {"conditionType": "example.org/b"}]
    status: JsonObject = {
        "phase": rng.choice(("Pending", "Running", "Running", "Succeeded", "Failed", "Unknown")),
        "conditions": [
            {"type": kind, "status": rng.choice(("True", "False"))}
            for kind in ("Initialized", "Ready", "example.org/a", "example.org/b")
            if rng.random() < 0.6
        ],
        "initContainerStatuses": [a_random_container(rng, it["name"], init=True) for it in init],
        "containerStatuses": [a_random_container(rng, it["name"]) for it in containers],
    }
    if rng.random() < 0.2:
        status["reason"] = rng.choice(("NodeLost", "Evicted"))
    if rng.random() < 0.5:
        status["podIPs"] = [{"ip": "10.2.0.1"}, {"ip": "fd00::1"}]
    if rng.random() < 0.1:
        status["conditions"].append({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"})
    return {"spec": spec, "status": status}


def a_random_container(rng: random.Random, name: str, *, init: bool = False) -> JsonObject:
    state: JsonObject = {
        "waiting": {"reason": rng.choice(("CrashLoopBackOff", "PodInitializing", ""))},
        "running": {"startedAt": ago(hours=1)},
        "terminated": {
            "exitCode": rng.choice((0, 0, 1)),
            "signal": rng.choice((0, 9)),
            "reason": rng.choice(("", "Error", "Completed", "Completed", "OOMKilled")),
        },
    }
    weights = (1, 1, 4) if init else (1, 3, 2)
    (chosen,) = rng.choices(list(state), weights)
    status: JsonObject = {
        "name": name,
        "image": "x",
        "imageID": "",
        "ready": rng.random() < 0.7,
        "started": rng.random() < 0.7,
        "restartCount": rng.choice((0, 0, 1, 12)),
        "state": {chosen: state[chosen]},
    }
    if status["restartCount"] and rng.random() < 0.8:
        status["lastState"] = {"terminated": {"exitCode": 1, "finishedAt": ago(minutes=rng.randrange(3, 3000))}}
    return status


COLUMNS = (
    Column("Text", "string", ".spec.text"),
    Column("Count", "integer", ".spec.count"),
    Column("Share", "number", ".spec.share", 1),
    Column("On", "boolean", ".spec.on"),
    Column("When", "date", ".spec.when"),
    Column("Words", "string", ".spec.words"),
    Column("Share as text", "string", ".spec.share"),
    Column("On as number", "integer", ".spec.on"),
    Column("Count as text", "string", ".spec.count", 0, "byte"),
    Column("Missing", "string", ".spec.nothing.here"),
)


def test_custom_resources_are_shown_alike(control_plane: ControlPlane, asker: Asker, name: str) -> None:
    group = f"{name}.example.org"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions: list[JsonObject] = [
        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}},
        {"name": "v2", "served": True, "storage": False, "schema": {"openAPIV3Schema": anything}},
    ]
    versions[0]["additionalPrinterColumns"] = [
        {"name": it.name, "type": it.type, "jsonPath": it.json_path, "priority": it.priority}
        | ({"format": it.format} if it.format else {})
        for it in COLUMNS
    ]
    names = {"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    create(control_plane, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", f"ships.{group}", {"spec": spec})
    control_plane.kubectl("wait", f"crd/ships.{group}", "--for=condition=Established", "--timeout=60s")
    values: list[JsonObject] = [
        {"text": "a", "count": 3, "share": 0.25, "on": True, "when": ago(days=400), "words": ["b", "a"]},
        {"text": {"z": 1, "a": "<&>"}, "count": 2.5, "share": 4.0, "on": False, "when": "yesterday", "words": None},
        {"text": 7, "count": "3", "share": 1e21, "when": "", "words": True},
        {"share": 12345678.9, "on": 1, "when": 5},
        {"share": 0.00000123, "count": 123456.5},
        {"share": 0.00012, "count": 1234567.5},
        {"share": 1e19, "text": 1e18},
    ]
    collection = f"/apis/{group}/v1/namespaces/{name}/ships"
    for number, value in enumerate(values):
        create(control_plane, collection, f"o{number}", {"apiVersion": f"{group}/v1", "kind": "Ship", "spec": value})
    shown = kind_of(f"apis/{group}/v1/ships", "Ship", custom=True)
    assert_tables_match(asker, shown, collection, COLUMNS)
    plain = kind_of(f"apis/{group}/v2/ships", "Ship", custom=True)
    assert_tables_match(asker, plain, collection.replace("/v1/", "/v2/"))


def test_a_watch_describes_its_columns_once(control_plane: ControlPlane, asker: Asker, namespace: str) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    create(control_plane, collection, "o0", METADATA)
    create(control_plane, collection, "o1", METADATA)
    before = CLOCK.now()
    events = get(asker, f"{collection}?watch=1&timeoutSeconds=1", accept=TABLE)
    after = CLOCK.now() + timedelta(seconds=1)
    (listed,) = get(asker, collection)
    kind = kind_of("api/v1/configmaps", "ConfigMap")
    assert len(events) == 2
    for number, (event, obj) in enumerate(zip(events, listed["items"], strict=True)):
        mine = [
            table_of(kind, obj, now=now, headers=not number) for now in (before, before + timedelta(seconds=1), after)
        ]
        assert_same(event["object"], *mine)


def test_an_empty_list_is_answered_alike(asker: Asker, namespace: str) -> None:
    for path, kind in (("api/v1/limitranges", "LimitRange"), ("api/v1/pods", "Pod")):
        *root, plural = path.split("/")
        (real,) = get(asker, f"/{'/'.join(root)}/namespaces/{namespace}/{plural}", accept=TABLE)
        mine = table(kind_of(path, kind), [], now=CLOCK.now(), list_metadata=real["metadata"])
        assert real["rows"] == mine["rows"]
