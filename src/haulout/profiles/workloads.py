"""What checks see of the workloads on a node, and who is woken when one of them changes.

How they were before a node was drained stands on the node (`haulout.drain.workloads`), from the write on that cordons
it. Here is only which nodes wait for which workloads.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from haulout.drain import workloads
from haulout.drain.workloads import Controlled, Find, Record, Reference, Scaled, Workload
from haulout.kube.objects import Node, RawObject
from haulout.profiles import topics


class Interest:
    """Which nodes wait for which workloads; `tell` hears topics."""

    def __init__(self, tell: Callable[[frozenset[str]], object]) -> None:
        self._tell = tell
        self._workloads: dict[str, tuple[Reference, ...]] = {}  # by node
        self._nodes: dict[Reference, dict[str, None]] = {}

    def note_node(self, node: str, record: Record | None) -> None:
        """Take note of the workloads that a node waits for; None: for none."""
        wanted = () if record is None else tuple(it.reference for it in record.workloads)
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

    def note_workload(self, old: Scaled | None, new: Scaled | None, *, kind: str) -> None:
        """Tell if a workload changed that a node waits for."""
        seen = new or old
        if seen is None or (old is not None and new is not None and (old.spec, old.status) == (new.spec, new.status)):
            return
        nodes = self._nodes.get(Reference(kind, seen.key), {})
        if nodes:
            self._tell(frozenset(map(topics.evicted, nodes)))

    def clear(self) -> None:
        """Forget all."""
        self._workloads.clear()
        self._nodes.clear()


def recorded(pods: Iterable[RawObject], find: Find) -> Record:
    """Return the workloads of the pods on a node, as they are now."""
    return workloads.record(map(_controlled, pods), find)


def evicted(node: Node | None, pods: Iterable[RawObject], find: Find) -> Collection[Workload]:
    """Return the workloads that have lost a pod on a node since it was cordoned; `pods` are those on it now.

    Raises `UnreadableRecord`.
    """
    before = None if node is None else workloads.read(node)
    if before is None:
        return ()
    there = [str(it["metadata"].get("uid", "")) for it in pods if "deletionTimestamp" not in it["metadata"]]
    return tuple(workloads.evicted_of(before, present=there, find=find))


def _controlled(pod: RawObject) -> Controlled:
    metadata: Mapping[str, object] = pod["metadata"]
    return Controlled(str(metadata.get("uid", "")), _controller(pod))


def _controller(pod: RawObject) -> Reference | None:
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return Reference(owner["kind"], f"{metadata['namespace']}/{owner['name']}")
    return None
