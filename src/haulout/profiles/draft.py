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

from haulout.drain import cordon
from haulout.drain.cordon import BadMark, Wishes
from haulout.kube.objects import Node, RawObject, Taint
from haulout.kube.patches import difference
from haulout.profiles.plugin import Cordon, Effect, SetAnnotation, SetFinalizer, SetLabel, Uncordon


@dataclass(frozen=True, slots=True)
class Draft:
    """A node as it was read, and as it is to be."""

    before: Node
    node: Node
    now: datetime

    @classmethod
    def of(cls, node: Node, *, now: datetime) -> "Draft":
        """Return a draft without changes."""
        return cls(node, node, now)

    def having(self, effect: Effect, *, owner: str, adopting: bool = False) -> "Draft":
        """Return it with one more change; effects on anything but the node are none of its business.

        With `adopting`, a cordon without a mark was made in the name of `owner`, and goes when `owner` lets go.
        """
        match effect:
            case SetLabel(key, value):
                return self.labelled({key: value})
            case SetAnnotation(key, value):
                return self.annotated({key: value})
            case SetFinalizer(name, present):
                return self._with_finalizer(name, present=present)
            case Cordon():
                return self._patched(cordon.acquire(self.node, owner, Wishes(), now=self.now, adopting=adopting))
            case Uncordon():
                return self._uncordoned(owner)
        return self

    def repaired(self, owners: Collection[str], *, copy: cordon.Cordon | None = None) -> "Draft":
        """Return it with the mark of the cordon that `owners` hold, if somebody has removed or edited that."""
        try:
            return self._patched(cordon.repaired(self.node, owners, copy=copy))
        except BadMark:  # no backup, and no copy: whoever needs the mark says so
            return self

    def cordon_owners(self) -> Collection[str] | None:
        """Return the owners of the node's cordon; None if they cannot be read."""
        try:
            mark = cordon.cordon_of(self.node)
        except BadMark:
            return None
        return () if mark is None else mark.owners.keys()

    def labelled(self, labels: Mapping[str, str | None]) -> "Draft":
        """Return it with these labels; None takes one off."""
        return self._with_metadata(labels=_merged(self.node.metadata.labels, labels))

    def annotated(self, annotations: Mapping[str, str | None]) -> "Draft":
        """Return it with these annotations; None takes one off."""
        return self._with_metadata(annotations=_merged(self.node.metadata.annotations, annotations))

    def change(self) -> RawObject | None:
        """Return the merge patch that makes it so; None if nothing changes."""
        change: RawObject = difference(_written(self.before), _written(self.node))
        if not change:
            return None
        basis = {"uid": self.before.uid, "resourceVersion": self.before.resource_version}
        return change | {"metadata": change.get("metadata", {}) | basis}

    def _with_finalizer(self, name: str, *, present: bool) -> "Draft":
        known = self.node.metadata.finalizers
        if (name in known) == present:
            return self
        return self._with_metadata(finalizers=(*known, name) if present else tuple(it for it in known if it != name))

    def _uncordoned(self, owner: str) -> "Draft":
        if cordon.cordon_of(self.node) is not None:
            return self._patched(cordon.release(self.node, owner))
        return self._patched(cordon.forget(self.node))

    def _patched(self, change: RawObject | None) -> "Draft":
        """Return it after a merge patch of `haulout.drain.cordon`."""
        if change is None:
            return self
        metadata, spec = change.get("metadata", {}), change.get("spec", {})
        draft = self.labelled(metadata.get("labels", {})).annotated(metadata.get("annotations", {}))
        fields: dict[str, Any] = {}
        if "unschedulable" in spec:
            fields["unschedulable"] = bool(spec["unschedulable"])
        if "taints" in spec:
            fields["taints"] = msgspec.convert(spec["taints"] or (), tuple[Taint, ...])
        changed = msgspec.structs.replace(draft.node.spec, **fields)
        return replace(draft, node=msgspec.structs.replace(draft.node, spec=changed))

    def _with_metadata(self, **fields: Any) -> "Draft":
        metadata = msgspec.structs.replace(self.node.metadata, **fields)
        return replace(self, node=msgspec.structs.replace(self.node, metadata=metadata))


def _merged(known: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    both = {**known, **changes}
    return {key: value for key, value in both.items() if value is not None}


def _written(node: Node) -> RawObject:
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
