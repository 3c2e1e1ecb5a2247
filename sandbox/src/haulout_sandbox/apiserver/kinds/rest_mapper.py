"""Which kinds the server serves now, found by path, by type and by name.

Built-in kinds and those that a test made known stay; those of custom resources come, change and go with their
definitions. That is rare, and looking one up is not: each change makes the tables anew.
"""

from collections.abc import Iterable, Iterator

from haulout_sandbox.apiserver.kinds.kind import Kind


class RestMapper:
    """The kinds there are, in the order in which they came; of two with the same name the first is meant."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: dict[Kind, None] = {}
        self.update(add=kinds)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds)

    def __contains__(self, kind: Kind) -> bool:
        return kind in self._kinds

    def update(self, *, remove: Iterable[Kind] = (), add: Iterable[Kind] = ()) -> None:
        """Serve other kinds from now on."""
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
        """Return the kind at a path."""
        return self._by_path.get((group, version, plural))

    def kind_for_type(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind that an object says it is of."""
        return self._by_type.get((api_version, kind))

    def kind_for_name(self, plural: str) -> Kind | None:
        """Return the kind with that plural, or `plural.group` where it is not unique."""
        return self._by_name.get(plural)

    def has_group(self, group: str) -> bool:
        """Tell whether anything is served in the group."""
        return group in self._groups

    def is_builtin_group(self, group: str) -> bool:
        """Tell whether it is a group of the server itself, rather than one that is there because of a definition."""
        return group in self._builtin_groups
