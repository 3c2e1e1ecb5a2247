"""Builds histories of writes by hand, each write with its author.

history = WriteHistory()
history.put(a_node("n1").ready())
history.put(a_node("n1").ready().cordoned(), by="operator")
history.advance(seconds=5)
history.delete("nodes", "n1")
"""

from datetime import datetime, timedelta
from typing import Self

from haulout.api.objects import RawObject
from haulout_sandbox.apiserver import Kind, Write
from haulout_sandbox.apiserver.kinds.builtin import BUILTIN_KINDS
from haulout_sandbox.apiserver.kinds.kind import CORE_KINDS
from haulout_sandbox.event_loops.virtual_time import EPOCH

_KNOWN = {(kind.api_version, kind.kind): kind for kind in (*CORE_KINDS, *BUILTIN_KINDS)}


def kind_of(obj: RawObject) -> Kind:
    """Return the kind of an object; one that is not built in is custom, in no namespace, and named by its plural."""
    known = _KNOWN.get((obj["apiVersion"], obj["kind"]))
    if known is not None:
        return known
    group, _, version = obj["apiVersion"].rpartition("/")
    plural = f"{obj['kind'].lower()}s"
    return Kind(group=group, version=version, plural=plural, kind=obj["kind"], namespaced=False, is_custom=True)


class WriteHistory(list[Write]):
    """A list of writes that grows call by call."""

    def __init__(self, start: datetime = EPOCH) -> None:
        super().__init__()
        self.now = start
        self._objects: dict[tuple[str, str], tuple[Kind, RawObject]] = {}

    def advance(self, **duration: float) -> Self:
        """Let time pass."""
        self.now += timedelta(**duration)
        return self

    def put(self, obj: RawObject, *, by: str = "people", verb: str = "patch", revision: int | None = None) -> Self:
        """Write an object; metadata that is not given stays as it is."""
        kind = kind_of(obj)
        key = kind.key_of(obj)
        known = self._objects.get((kind.plural, key))
        if known is not None:
            kind, obj = known[0], {**obj, "metadata": {**known[1]["metadata"], **obj["metadata"]}}
        obj = {**obj, "metadata": {"uid": f"uid-{len(self)}", **obj["metadata"]}}
        self._objects[kind.plural, key] = kind, obj
        return self._append(kind, key, known and known[1], obj, by=by, verb=verb, revision=revision)

    def delete(self, plural: str, key: str, *, by: str = "people", revision: int | None = None) -> Self:
        """Delete an object."""
        kind, before = self._objects.pop((plural, key))
        return self._append(kind, key, before, None, by=by, verb="delete", revision=revision)

    def _append(
        self,
        kind: Kind,
        key: str,
        before: RawObject | None,
        after: RawObject | None,
        *,
        by: str,
        verb: str,
        revision: int | None,
    ) -> Self:
        self.append(
            Write(
                revision=len(self) + 1 if revision is None else revision,
                written_at=self.now,
                username=by,
                verb=verb,
                kind=kind,
                key=key,
                before=before,
                after=after,
            )
        )
        return self
