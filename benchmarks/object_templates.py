"""What a pod and a node of a large cluster look like, with gaps for what differs from one to the next.

They are what an API server sends for pods that kubelets run: containers with environment, probes and mounts, volumes,
conditions, container statuses and, a large part of most objects, managedFields. A `<gap>` is filled by `fleet`.
"""

from typing import Any

Json = dict[str, Any]

_CREATED = "2026-03-02T07:14:09Z"
_STARTED = "2026-03-02T07:14:31Z"


def pod(containers: int) -> Json:
    names = ["main", "proxy", "exporter"][:containers]
    volumes = [
        {"name": "config", "configMap": {"name": "<app>-config", "defaultMode": 420}},
        {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}},
        _token_volume(),
    ]
    return {
        "metadata": {
            "name": "<name>",
            "generateName": "<owner_name>-",
            "namespace": "<namespace>",
            "uid": "<uid>",
            "resourceVersion": "<revision>",
            "generation": 1,
            "creationTimestamp": _CREATED,
            "labels": {
                "app.kubernetes.io/name": "<app>",
                "app.kubernetes.io/instance": "<app>",
                "app.kubernetes.io/version": "4.11.2",
                "app.kubernetes.io/managed-by": "Helm",
                "pod-template-hash": "<hash>",
            },
            "annotations": {
                "checksum/config": "<digest>",
                "prometheus.io/scrape": "true",
                "prometheus.io/port": "9090",
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "<owner>",
                    "name": "<owner_name>",
                    "uid": "<owner_uid>",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": _pod_managers(names),
        },
        "spec": {
            "volumes": volumes,
            "containers": [_container(name) for name in names],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "<app>",
            "serviceAccount": "<app>",
            "nodeName": "<node>",
            "securityContext": {"runAsNonRoot": True, "fsGroup": 10001},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "observedGeneration": 1,
            "phase": "Running",
            "conditions": [
                {
                    "type": kind,
                    "observedGeneration": 1,
                    "status": "True",
                    "lastProbeTime": None,
                    "lastTransitionTime": _STARTED,
                }
                for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "hostIP": "<host_ip>",
            "hostIPs": [{"ip": "<host_ip>"}],
            "podIP": "<pod_ip>",
            "podIPs": [{"ip": "<pod_ip>"}],
            "startTime": _CREATED,
            "containerStatuses": [_container_status(name) for name in names],
            "qosClass": "Burstable",
        },
    }


def _token_volume() -> Json:
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
            }
        },
    ]
    return {"name": "kube-api-access", "projected": {"sources": sources, "defaultMode": 420}}


def _container(name: str) -> Json:
    field = {"apiVersion": "v1", "fieldPath": "metadata.name"}
    return {
        "name": name,
        "image": f"registry.example.com/platform/<app>-{name}:4.11.2",
        "args": ["--config=/etc/app/config.yaml", "--log-level=info", "--listen=:8080"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": field}},
            {"name": "SERVICE", "value": "<app>"},
            {"name": "DATABASE_URL", "value": "postgres://<app>.<namespace>.svc.cluster.local:5432/app"},
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector.observability.svc.cluster.local:4317"},
        ],
        "resources": {
            "limits": {"memory": "512Mi"},
            "requests": {"cpu": "100m", "memory": "256Mi"},
        },
        "volumeMounts": [
            {"name": "config", "readOnly": True, "mountPath": "/etc/app"},
            {"name": "cache", "mountPath": "/var/cache/app"},
            {
                "name": "kube-api-access",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "livenessProbe": _probe("/healthz"),
        "readinessProbe": _probe("/readyz"),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False},
    }


def _probe(path: str) -> Json:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def _container_status(name: str) -> Json:
    return {
        "name": name,
        "state": {"running": {"startedAt": _STARTED}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": f"registry.example.com/platform/<app>-{name}:4.11.2",
        "imageID": f"registry.example.com/platform/<app>-{name}@sha256:<digest>",
        "containerID": "containerd://<container>",
        "started": True,
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
        "user": {"linux": {"uid": 10001, "gid": 10001, "supplementalGroups": [10001]}},
    }


def _pod_managers(containers: list[str]) -> list[Json]:
    """Return who wrote which field: the controller the spec, the kubelet the status."""
    container = _owned(
        ".", "args", "image", "imagePullPolicy", "name", "resources", "securityContext", "terminationMessagePath"
    )
    container["f:env"] = {
        f'k:{{"name":"{name}"}}': _owned(".", "name", "value")
        for name in ("DATABASE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT", "POD_NAME", "SERVICE")
    }
    spec = _owned("dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName", "securityContext")
    spec["f:containers"] = {f'k:{{"name":"{name}"}}': container for name in containers}
    metadata = {
        "f:annotations": _owned(".", "checksum/config", "prometheus.io/port", "prometheus.io/scrape"),
        "f:generateName": {},
        "f:labels": _owned(".", "app.kubernetes.io/instance", "app.kubernetes.io/name", "pod-template-hash"),
        "f:ownerReferences": {".": {}, 'k:{"uid":"<owner_uid>"}': {}},
    }
    conditions = {
        f'k:{{"type":"{kind}"}}': _owned(".", "lastProbeTime", "lastTransitionTime", "observedGeneration", "status")
        for kind in ("ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready")
    }
    status = _owned("containerStatuses", "hostIP", "hostIPs", "observedGeneration", "phase", "podIP", "startTime")
    status["f:conditions"] = conditions
    return [
        _manager("kube-controller-manager", _CREATED, {"f:metadata": metadata, "f:spec": spec}),
        _manager("kubelet", _STARTED, {"f:status": status}, subresource="status"),
    ]


def node() -> Json:
    images = [
        {
            "names": [
                f"registry.example.com/platform/service-{number:05d}@sha256:{number * 0x9E3779B97F4A7C15:064x}",
                f"registry.example.com/platform/service-{number:05d}:4.11.{number}",
            ],
            "sizeBytes": 250_000_000 - number * 1_000_003,
        }
        for number in range(50)  # what a kubelet reports at most by default
    ]
    capacity = {
        "cpu": "32",
        "ephemeral-storage": "209702892Ki",
        "hugepages-1Gi": "0",
        "memory": "131889152Ki",
        "pods": "110",
    }
    return {
        "metadata": {
            "name": "<name>",
            "uid": "<uid>",
            "resourceVersion": "<revision>",
            "creationTimestamp": _CREATED,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": "<name>",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "standard-32",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": "<zone>",
                "pool.example.com/name": "general",
            },
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": '{"csi.example.com":"<machine>"}',
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": _node_managers(),
        },
        "spec": {
            "podCIDR": "10.244.0.0/24",
            "podCIDRs": ["10.244.0.0/24"],
            "providerID": "example:///<zone>/<machine>",
        },
        "status": {
            "capacity": capacity,
            "allocatable": capacity | {"cpu": "31850m", "memory": "128743424Ki"},
            "conditions": [_node_condition(*condition) for condition in _NODE_CONDITIONS],
            "addresses": [{"type": "InternalIP", "address": "<ip>"}, {"type": "Hostname", "address": "<name>"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": "<machine>",
                "systemUUID": "<uid>",
                "bootID": "<uid>",
                "kernelVersion": "6.12.38-generic",
                "osImage": "Example Linux 13",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": images,
        },
    }


_NODE_CONDITIONS = (
    ("NetworkUnavailable", "False", "RouteCreated", "the network agent is running on this node"),
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


def _node_condition(kind: str, status: str, reason: str, message: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": _STARTED,
        "lastTransitionTime": _STARTED,
        "reason": reason,
        "message": message,
    }


def _node_managers() -> list[Json]:
    conditions = {
        f'k:{{"type":"{kind}"}}': _owned("lastHeartbeatTime", "lastTransitionTime", "message", "reason", "status")
        for kind, *_ in _NODE_CONDITIONS
    }
    labels = _owned(
        ".", "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname"
    )
    return [
        _manager("kubelet", _CREATED, {"f:metadata": {"f:annotations": _owned("."), "f:labels": labels}}),
        _manager("cloud-controller-manager", _CREATED, {"f:spec": _owned("podCIDR", "podCIDRs", "providerID")}),
        _manager("kubelet", _STARTED, {"f:status": {"f:conditions": conditions, "f:images": {}}}, subresource="status"),
    ]


def _owned(*fields: str) -> Json:
    return {field if field == "." else f"f:{field}": {} for field in fields}


def _manager(name: str, time: str, fields: Json, *, subresource: str = "") -> Json:
    entry = {
        "manager": name,
        "operation": "Update",
        "apiVersion": "v1",
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return entry | ({"subresource": subresource} if subresource else {})
