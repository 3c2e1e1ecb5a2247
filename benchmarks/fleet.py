"""The objects of a large cluster, as JSON, made fast enough to have 150,000 of them in a second or two.

A pod takes about eight kilobytes, a node about fourteen. There are services of 25 replicas in 200 namespaces, and
daemons on every node. Nothing is left to chance, so that every run measures the same objects.

An object is rendered from its kind's shape (`shapes`): the JSON is encoded once, with gaps, and `bytes %` fills the
gaps of each object. It comes without its opening brace, because an API server sends objects in lists without `kind` and
`apiVersion`, and those in watches with them: whoever sends it puts the right beginning before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import msgspec

import object_templates
from object_templates import Json

REVISION_DIGITS = 10
FIRST_REVISION = 1_000_000_000  # all have the same number of digits, so that another one fits into the same place
PODS_PER_NODE = 30

_DAEMONS = (b"node-agent", b"log-shipper", b"csi-driver", b"network-agent")
_REPLICAS = 25
_NAMESPACES = 200


@dataclass(frozen=True, slots=True)
class Fleet:
    """All objects of a cluster, rendered, each without its opening brace."""

    pods: list[bytes]
    nodes: list[bytes]


def fleet(pods: int, nodes: int | None = None) -> Fleet:
    """Return a cluster of so many pods and nodes; by default a node for each thirty pods."""
    nodes = nodes or max(pods // PODS_PER_NODE, 1)
    return Fleet(pods=list(_pods(pods, nodes)), nodes=list(_nodes(nodes)))


def to_create(tail: bytes) -> Json:
    """Return a rendered object as one would create it: without what only a server writes."""
    body: Json = msgspec.json.decode(b"{" + tail)
    for key in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences"):
        body["metadata"].pop(key, None)
    return body


def _pods(count: int, nodes: int) -> Iterator[bytes]:
    """Yield pods: four of each node's are a daemon's, the others replicas that are spread over all nodes."""
    templates = [_render(object_templates.pod(containers)) for containers in (1, 2)]
    daemon_pods = min(nodes * len(_DAEMONS), count // 4)
    for number in range(count):
        if number < daemon_pods:
            workload, node = _daemon(number // nodes), number % nodes
        else:
            workload, node = _service((number - daemon_pods) // _REPLICAS), number * 7919 % nodes
        yield templates[workload.number % len(templates)] % {
            b"name": b"%b-%05x" % (workload.owner_name, number),
            b"namespace": workload.namespace,
            b"app": workload.app,
            b"hash": workload.hash,
            b"uid": _uid(1, number),
            b"owner": workload.owner,
            b"owner_name": workload.owner_name,
            b"owner_uid": _uid(2, workload.number),
            b"node": _node_name(node),
            b"host_ip": _address(10, node),
            b"pod_ip": _address(100, number),
            b"digest": b"%064x" % (workload.number * 0x9E3779B97F4A7C15),
            b"container": b"%064x" % ((number + 1) * 0xD1B54A32D192ED03),
            b"revision": b"%010d" % (FIRST_REVISION + number),
        }


class _Workload(NamedTuple):
    number: int
    app: bytes
    namespace: bytes
    owner: bytes
    owner_name: bytes
    hash: bytes


@cache
def _daemon(number: int) -> _Workload:
    app = _DAEMONS[number % len(_DAEMONS)]
    return _Workload(number, app, b"kube-system", b"DaemonSet", app, _hash(number))


@cache
def _service(number: int) -> _Workload:
    app, number = b"service-%05d" % number, number + len(_DAEMONS)
    own_hash = _hash(number)
    return _Workload(
        number, app, b"team-%03d" % (number % _NAMESPACES), b"ReplicaSet", b"%b-%b" % (app, own_hash), own_hash
    )


def _hash(number: int) -> bytes:
    return b"%09x" % (number * 2654435761 % 2**36)


def _nodes(count: int) -> Iterator[bytes]:
    shape = _render(object_templates.node())
    for number in range(count):
        yield shape % {
            b"name": _node_name(number),
            b"uid": _uid(3, number),
            b"ip": _address(10, number),
            b"zone": b"zone-%d" % (number % 3),
            b"machine": b"%032x" % (number * 0x9E3779B97F4A7C15),
            b"revision": b"%010d" % (FIRST_REVISION + number),
        }


def _uid(kind: int, number: int) -> bytes:
    return b"%08x-%04x-4c1e-9d3a-%012x" % (number * 2654435761 % 2**32, kind, number)


def _node_name(number: int) -> bytes:
    return b"worker-%05d.region-1.example.internal" % number


def _address(first: int, number: int) -> bytes:
    return b"%d.%d.%d.%d" % (first, number >> 16 & 255, number >> 8 & 255, number & 255)


def _render(shape: Json) -> bytes:
    """Return the JSON of `shape` as a `bytes %` template: each `<gap>` in it becomes a `%(gap)s`."""
    template = msgspec.json.encode(shape).replace(b"%", b"%%")
    return template.removeprefix(b"{").replace(b"<", b"%(").replace(b">", b")s")
