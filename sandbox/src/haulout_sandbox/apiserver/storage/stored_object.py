"""Objects as values: what is in the store is never changed, so its JSON is made once, for all who read it.

Whoever wants to change something changes a copy. `copy.deepcopy` of a stored object is a plain object, and takes a
fraction of the usual time: it is made from the JSON.
"""

from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject


class StoredObject(dict[str, Any]):
    """An object as the store keeps it; it remembers its JSON, its copies do not."""

    __slots__ = ("_json",)

    _json: bytes

    @property
    def json(self) -> bytes:
        """Return its JSON."""
        try:
            return self._json
        except AttributeError:
            self._json = msgspec.json.encode(self)
            return self._json

    def drop_json(self) -> None:
        """Free the memory that its JSON takes: it is not the latest state any more, which is what most ask for."""
        if hasattr(self, "_json"):
            del self._json

    def __deepcopy__(self, _: object) -> JsonObject:
        copied: JsonObject = msgspec.json.decode(self.json)
        return copied

    def __reduce__(self) -> tuple[type[JsonObject], tuple[JsonObject]]:
        return dict, (dict(self),)


class PartPool:
    """Lets objects that are alike share their parts, as the replicas of a workload do: values may be shared."""

    def __init__(self, *, limit: int = 20_000) -> None:
        self._limit = limit
        self._parts: dict[bytes, Any] = {}

    def share_parts(self, obj: JsonObject) -> JsonObject:
        """Return an object that is the same; what is in its sections may be in other objects, too."""
        return {
            name: {inner: self._share(part) for inner, part in section.items()}
            if isinstance(section, dict)
            else section
            for name, section in obj.items()
        }

    def _share(self, part: Any) -> Any:
        if not isinstance(part, dict | list):
            return part
        if len(self._parts) >= self._limit:
            self._parts.clear()
        return self._parts.setdefault(msgspec.json.encode(part), part)


def encode_json(obj: Any) -> bytes:
    """Return the JSON of anything."""
    return obj.json if isinstance(obj, StoredObject) else msgspec.json.encode(obj)
