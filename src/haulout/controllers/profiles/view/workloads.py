"""Workloads of the pods on a node, and subscriptions of nodes to their changes.

The state of the workloads before a drain is in an annotation of the node (`haulout.api.workloads`), written together
with the cordon. This module keeps only which nodes subscribe to which workloads.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from haulout.api import workloads
from haulout.api.objects import Node, RawObject
from haulout.api.workloads import (
    ControlledPod,
    EvictedWorkload,
    FindWorkload,
    ScaledWorkload,
    WorkloadRecord,
    WorkloadReference,
)
from haulout.controllers.profiles.view import topics


class WorkloadSubscriptions:
    """Maps workloads to the nodes that subscribe to them. `publish` is called with the topics of changes."""

    def __init__(self, publish: Callable[[frozenset[str]], object]) -> None:
        self._publish = publish
        self._workloads: dict[str, tuple[WorkloadReference, ...]] = {}  # by node
        self._nodes: dict[WorkloadReference, dict[str, None]] = {}

    def subscribe(self, node: str, record: WorkloadRecord | None) -> None:
        """Replace the subscriptions of a node by the workloads in a record; None: none."""
        wanted = () if record is None else tuple(workload.reference for workload in record.workloads)
        known = self._workloads.get(node, ())
        if wanted == known:
            return
        for reference in known:
            self._nodes[reference].pop(node, None)
            if not self._nodes[reference]:
                del self._nodes[reference]
        for reference in wanted:
            self._nodes.setdefault(reference, {})[node] = None
        if wanted:
            self._workloads[node] = wanted
        else:
            self._workloads.pop(node, None)

    def on_workload(self, old: ScaledWorkload | None, new: ScaledWorkload | None, *, kind: str) -> None:
        """Publish the topics of the nodes that subscribe to a changed workload."""
        workload = new or old
        if workload is None or (
            old is not None and new is not None and (old.spec, old.status) == (new.spec, new.status)
        ):
            return
        nodes = self._nodes.get(WorkloadReference(kind, workload.key), {})
        if nodes:
            self._publish(frozenset(map(topics.evicted, nodes)))

    def clear(self) -> None:
        self._workloads.clear()
        self._nodes.clear()


def workloads_of(pods: Iterable[RawObject], find: FindWorkload) -> WorkloadRecord:
    """Return a record of the workloads that the pods on a node belong to."""
    return workloads.record_workloads(map(_controlled, pods), find)


def evicted_workloads(node: Node | None, pods: Iterable[RawObject], find: FindWorkload) -> Collection[EvictedWorkload]:
    """Return the workloads that lost a pod on a node since it was cordoned; `pods` are those on the node now.

    Raise `InvalidWorkloadRecord` if the annotation cannot be decoded.
    """
    before = None if node is None else workloads.decode_annotation(node)
    if before is None:
        return ()
    present = [str(pod["metadata"].get("uid", "")) for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return tuple(workloads.evicted_workloads(before, present=present, find=find))


def _controlled(pod: RawObject) -> ControlledPod:
    metadata: Mapping[str, object] = pod["metadata"]
    return ControlledPod(str(metadata.get("uid", "")), _controller(pod))


def _controller(pod: RawObject) -> WorkloadReference | None:
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return WorkloadReference(owner["kind"], f"{metadata['namespace']}/{owner['name']}")
    return None
