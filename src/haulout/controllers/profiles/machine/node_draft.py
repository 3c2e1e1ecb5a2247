"""A node in the making: the changes that one step makes to it, which go to the server as one write.

    draft = Draft.of(node, now=now)
    draft = draft.having(SetLabel("a", "b"), owner="profile/os")
    draft.change()                             # a merge patch with uid and resourceVersion, or None

Later plugins of the same step see what earlier ones changed. A cordon is kept by `haulout.drain.cordon`: so several
profiles, and maintenances on a person's order, can hold one node, and a node that a person had cordoned stays cordoned.
A node without any mark that is to be uncordoned is: that is what the file says, and who cordoned it left no word.
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


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """A node as it was read, and as it is to be."""

    before: Node
    node: Node
    now: datetime

    @classmethod
    def of(cls, node: Node, *, now: datetime) -> "NodeDraft":
        """Return a draft without changes."""
        return cls(node, node, now)

    def with_action(self, action: Action, *, owner: str, is_adopting: bool = False) -> "NodeDraft":
        """Return it with one more change; effects on anything but the node are none of its business.

        With `is_adopting`, a cordon without a mark was made in the name of `owner`, and goes when `owner` lets go.
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
        """Return it with the mark of the cordon that `owners` hold, if somebody has removed or edited that."""
        try:
            return self._with_patch(cordon.repair(self.node, owners, copy=copy))
        except InvalidCordonAnnotation:  # no backup, and no copy: whoever needs the mark says so
            return self

    def cordon_owners(self) -> Collection[str] | None:
        """Return the owners of the node's cordon; None if they cannot be read."""
        try:
            mark = cordon.cordon_of(self.node)
        except InvalidCordonAnnotation:
            return None
        return () if mark is None else mark.owners.keys()

    def with_labels(self, labels: Mapping[str, str | None]) -> "NodeDraft":
        """Return it with these labels; None takes one off."""
        return self._with_metadata(labels=_merged(self.node.metadata.labels, labels))

    def with_annotations(self, annotations: Mapping[str, str | None]) -> "NodeDraft":
        """Return it with these annotations; None takes one off."""
        return self._with_metadata(annotations=_merged(self.node.metadata.annotations, annotations))

    def patch(self) -> RawObject | None:
        """Return the merge patch that makes it so; None if nothing changes."""
        change: RawObject = difference(_mutable_fields(self.before), _mutable_fields(self.node))
        if not change:
            return None
        precondition = {"uid": self.before.uid, "resourceVersion": self.before.resource_version}
        return change | {"metadata": change.get("metadata", {}) | precondition}

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
        """Return it after a merge patch of `haulout.drain.cordon`."""
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
    """Return what a step may change of a node, as it stands on the server."""
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
