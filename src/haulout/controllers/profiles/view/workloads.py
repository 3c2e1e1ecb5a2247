"""What checks see of the workloads on a node, and who is woken when one of them changes.

How they were before a node was drained stands on the node (`haulout.api.workloads`), from the write on that cordons
it. Here is only which nodes wait for which workloads.
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
    """Which nodes wait for which workloads; `publish` hears topics."""

    def __init__(self, publish: Callable[[frozenset[str]], object]) -> None:
        self._publish = publish
        self._workloads: dict[str, tuple[WorkloadReference, ...]] = {}  # by node
        self._nodes: dict[WorkloadReference, dict[str, None]] = {}

    def subscribe(self, node: str, record: WorkloadRecord | None) -> None:
        """Take note of the workloads that a node waits for; None: for none."""
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
        """Tell if a workload changed that a node waits for."""
        workload = new or old
        if workload is None or (
            old is not None and new is not None and (old.spec, old.status) == (new.spec, new.status)
        ):
            return
        nodes = self._nodes.get(WorkloadReference(kind, workload.key), {})
        if nodes:
            self._publish(frozenset(map(topics.evicted, nodes)))

    def clear(self) -> None:
        """Forget all."""
        self._workloads.clear()
        self._nodes.clear()


def workloads_of(pods: Iterable[RawObject], find: FindWorkload) -> WorkloadRecord:
    """Return the workloads of the pods on a node, as they are now."""
    return workloads.record_workloads(map(_controlled, pods), find)


def evicted_workloads(node: Node | None, pods: Iterable[RawObject], find: FindWorkload) -> Collection[EvictedWorkload]:
    """Return the workloads that have lost a pod on a node since it was cordoned; `pods` are those on it now.

    Raises `UnreadableRecord`.
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
