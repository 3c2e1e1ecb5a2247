"""The kinds that the server serves now, by path, by type and by name.

Built-in kinds and those added by tests stay. Kinds of custom resources come and go with their definitions. Such changes
are rare and lookups are frequent, so each change rebuilds the tables.
"""

from collections.abc import Iterable, Iterator

from haulout_sandbox.apiserver.kinds.kind import Kind


class RestMapper:
    """An ordered registry of kinds; of two kinds with the same name the first one is found."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: dict[Kind, None] = {}
        self.update(add=kinds)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds)

    def __contains__(self, kind: Kind) -> bool:
        return kind in self._kinds

    def update(self, *, remove: Iterable[Kind] = (), add: Iterable[Kind] = ()) -> None:
        for kind in remove:
            del self._kinds[kind]
        self._kinds |= dict.fromkeys(add)
        last_first = list(reversed(self._kinds))
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in last_first}
        self._by_type = {(kind.api_version, kind.kind): kind for kind in last_first}
        self._by_name = {name: kind for kind in last_first for name in (kind.resource, kind.plural)}
        self._groups = {kind.group for kind in last_first}
        self._builtin_groups = {kind.group for kind in last_first if not kind.is_custom}

    def kind_for_path(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_path.get((group, version, plural))

    def kind_for_type(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind for the apiVersion and kind of an object."""
        return self._by_type.get((api_version, kind))

    def kind_for_name(self, plural: str) -> Kind | None:
        """Return the kind with that plural, or with `plural.group` where the plural is ambiguous."""
        return self._by_name.get(plural)

    def has_group(self, group: str) -> bool:
        return group in self._groups

    def is_builtin_group(self, group: str) -> bool:
        """Return whether the group belongs to the server itself rather than to custom resources."""
        return group in self._builtin_groups
