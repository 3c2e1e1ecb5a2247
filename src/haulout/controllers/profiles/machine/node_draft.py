"""A node with pending changes: all changes of a reconcile, which go to the API server as one write.

    draft = NodeDraft.of(node, now=now)
    draft = draft.with_action(SetLabel("a", "b"), owner="profile/os")
    draft.patch()  # a merge patch with uid and resourceVersion, or None

Later plugins of a reconcile see the changes of earlier ones. `haulout.drain.cordon` manages cordons, so that several
profiles and NodeMaintenances can own the cordon of a node, and a node that a person had cordoned stays cordoned. A
cordoned node without our annotation is uncordoned if the configuration says so, since its cordon has no known owner.

`problem_with_action` validates labels, annotations and finalizers before the write, as the API server does. All changes
of a reconcile are one write, so an invalid name in one profile would block the other profiles of the node.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from haulout.api.objects import Node, RawObject, Taint
from haulout.controllers.profiles.plugin import Action, Cordon, SetAnnotation, SetFinalizer, SetLabel, Uncordon
from haulout.drain import cordon
from haulout.drain.cordon import CordonRequest, InvalidCordonAnnotation
from haulout.kube.patches import difference
from haulout.kube.selectors import is_label_value, is_qualified_name

_VALUE = "at most 63 letters, digits, '-', '_' and '.', that begin and end with a letter or a digit"


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """A node as read, and as it will be written."""

    before: Node
    node: Node
    now: datetime

    @classmethod
    def of(cls, node: Node, *, now: datetime) -> "NodeDraft":
        return cls(node, node, now)

    def with_action(self, action: Action, *, owner: str, is_adopting: bool = False) -> "NodeDraft":
        """Return the draft with one more action applied; actions on other objects do not change it.

        With `is_adopting`, a cordon without our annotation counts as owned by `owner`, and ends when `owner` releases
        it.
        """
        match action:
            case SetLabel(key, value):
                return self.with_labels({key: value})
            case SetAnnotation(key, value):
                return self.with_annotations({key: value})
            case SetFinalizer(name, present):
                return self._with_finalizer(name, present=present)
            case Cordon():
                return self._with_patch(
                    cordon.acquire(self.node, owner, CordonRequest(), now=self.now, adopting=is_adopting)
                )
            case Uncordon():
                return self._without_cordon(owner)
        return self

    def with_repaired_cordon(self, owners: Collection[str], *, copy: cordon.Cordon | None = None) -> "NodeDraft":
        """Return the draft with the cordon annotation of `owners` restored if another writer removed or edited it."""
        try:
            return self._with_patch(cordon.repair(self.node, owners, copy=copy))
        except InvalidCordonAnnotation:  # no backup and no copy; whatever needs the annotation reports the error
            return self

    def cordon_owners(self) -> Collection[str] | None:
        """Return the owners of the node's cordon; None if the annotation cannot be read."""
        try:
            mark = cordon.cordon_of(self.node)
        except InvalidCordonAnnotation:
            return None
        return () if mark is None else mark.owners.keys()

    def with_labels(self, labels: Mapping[str, str | None]) -> "NodeDraft":
        """Return the draft with these labels; a value of None removes one."""
        return self._with_metadata(labels=_merged(self.node.metadata.labels, labels))

    def with_annotations(self, annotations: Mapping[str, str | None]) -> "NodeDraft":
        """Return the draft with these annotations; a value of None removes one."""
        return self._with_metadata(annotations=_merged(self.node.metadata.annotations, annotations))

    def patch(self) -> RawObject | None:
        """Return a merge patch with all changes; None if nothing changes."""
        change: RawObject = difference(_mutable_fields(self.before), _mutable_fields(self.node))
        if not change:
            return None
        # A merge patch replaces whole lists, such as taints. Without the resourceVersion it would undo what others have
        # added since.
        return change | {"metadata": change.get("metadata", {}) | self.before.preconditions}

    def _with_finalizer(self, name: str, *, present: bool) -> "NodeDraft":
        known = self.node.metadata.finalizers
        if (name in known) == present:
            return self
        return self._with_metadata(
            finalizers=(*known, name) if present else tuple(finalizer for finalizer in known if finalizer != name)
        )

    def _without_cordon(self, owner: str) -> "NodeDraft":
        if cordon.cordon_of(self.node) is not None:
            return self._with_patch(cordon.release(self.node, owner))
        return self._with_patch(cordon.clear_cordon(self.node))

    def _with_patch(self, change: RawObject | None) -> "NodeDraft":
        """Return the draft with a merge patch of `haulout.drain.cordon` applied."""
        if change is None:
            return self
        metadata, spec = change.get("metadata", {}), change.get("spec", {})
        draft = self.with_labels(metadata.get("labels", {})).with_annotations(metadata.get("annotations", {}))
        fields: dict[str, Any] = {}
        if "unschedulable" in spec:
            fields["unschedulable"] = bool(spec["unschedulable"])
        if "taints" in spec:
            fields["taints"] = msgspec.convert(spec["taints"] or (), tuple[Taint, ...])
        changed = msgspec.structs.replace(draft.node.spec, **fields)
        return replace(draft, node=msgspec.structs.replace(draft.node, spec=changed))

    def _with_metadata(self, **fields: Any) -> "NodeDraft":
        metadata = msgspec.structs.replace(self.node.metadata, **fields)
        return replace(self, node=msgspec.structs.replace(self.node, metadata=metadata))


def _merged(known: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    both = {**known, **changes}
    return {key: value for key, value in both.items() if value is not None}


def _mutable_fields(node: Node) -> RawObject:
    """Return the fields of a node that a reconcile may change, as the API server has them."""
    metadata = node.metadata
    written: RawObject = {
        "metadata": {"labels": metadata.labels, "annotations": metadata.annotations},
        "spec": {},
    }
    if metadata.finalizers:
        written["metadata"]["finalizers"] = list(metadata.finalizers)
    if node.spec.unschedulable:
        written["spec"]["unschedulable"] = True
    if node.spec.taints:
        written["spec"]["taints"] = msgspec.to_builtins(node.spec.taints)
    return written


def key_problem(key: str) -> str:
    """Return what is wrong with a key; empty if it is valid."""
    return "" if is_qualified_name(key) else f"found {key!r}, expected a name such as ready or example.com/ready"


def value_problem(value: str) -> str:
    """Return what is wrong with the value of a label; empty if it is valid."""
    return "" if is_label_value(value) else f"found {value!r}, expected {_VALUE}"


def problem_with_action(action: object) -> str:
    """Return why the API server would reject an action; empty if it would not. Removing an invalid key is harmless."""
    match action:
        case SetLabel(key, str() as value):
            return key_problem(key) or value_problem(value)
        case SetAnnotation(key, str()) | SetFinalizer(key, True):
            return key_problem(key)
    return ""
