"""Kubeconfig files: found and merged as kubectl does.

The rules are those of client-go (tools/clientcmd/loader.go): an explicit file is used alone and must exist; otherwise
the files of $KUBECONFIG, some of which may be missing; otherwise ~/.kube/config. The first file with a context, cluster
or user of a name wins entirely: entries are never mixed. The first file with a current-context sets it.

This module does not interpret entries. A `Section` knows its file, so relative paths stay correct after a merge.

People and many tools write kubeconfigs, so an error message must name the position: "line 14: users[2].user: expected
…". A `Section` keeps the YAML nodes of one mapping and decodes a value when it is read. Values that nobody reads and
unknown keys are never validated.

An absent key, null and an empty text are equivalent, as for kubectl.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from haulout.core import yaml_nodes
from haulout.core.text import closest_match
from haulout.core.yaml_nodes import describe, kind_of, line_of
from haulout.errors import KubeconfigError

_MAX_NAMES = 10


class Section:
    """One mapping of a YAML file: the values of its keys, and their line numbers."""

    __slots__ = ("_fields", "_node", "file", "key")

    def __init__(self, node: yaml.Node, *, file: str, key: str) -> None:
        self.file = file
        self.key = key
        self._node = node
        if not isinstance(node, yaml.MappingNode):
            raise KubeconfigError(
                f"expected a mapping, found {describe(node)}", file=file, line=line_of(node), key=key or None
            )
        self._fields = {_name(name): value for name, value in yaml_nodes.entries_of(node) if kind_of(value) != "null"}

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def keys(self) -> list[str]:
        """Return the keys that have a value."""
        return list(self._fields)

    def text(self, key: str) -> str:
        """Return the text at `key`; empty if it is absent."""
        node = self._fields.get(key)
        return "" if node is None else self._text(node, key)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of texts at `key`; empty if it is absent."""
        return tuple(self._text(node, f"{key}[{at}]") for at, node in enumerate(self._list(key)))

    def flag(self, key: str) -> bool:
        """Return the boolean at `key`; False if it is absent."""
        node = self._fields.get(key)
        if node is None:
            return False
        if not isinstance(node, yaml.ScalarNode) or kind_of(node) != "bool":
            raise self._error(f"expected true or false, found {describe(node)}", key, node)
        return yaml_nodes.is_true(node)

    def path(self, key: str) -> Path | None:
        """Return the path at `key`, resolved relative to the folder of its file; None if it is absent."""
        text = self.text(key)
        return Path(self.file).absolute().parent / text if text else None

    def section(self, key: str) -> "Section":
        """Return the mapping at `key`; empty if it is absent."""
        node = self._fields.get(key) or yaml.MappingNode("", [], start_mark=self._node.start_mark)
        return Section(node, file=self.file, key=self._path_to(key))

    def sections(self, key: str) -> list["Section"]:
        """Return the list of mappings at `key`; empty if it is absent."""
        path = self._path_to(key)
        return [Section(node, file=self.file, key=f"{path}[{at}]") for at, node in enumerate(self._list(key))]

    def value(self, key: str) -> Any:
        """Return the value at `key` as plain Python values; None if it is absent."""
        node = self._fields.get(key)
        return None if node is None else yaml_nodes.to_plain(node)

    def error_at(self, problem: str, key: str = "") -> KubeconfigError:
        """Return an error about `key`, or about the whole section."""
        return self._error(problem, key, self._fields.get(key))

    def _list(self, key: str) -> list[yaml.Node]:
        node = self._fields.get(key)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(f"expected a list, found {describe(node)}", key, node)
        return list(node.value)

    def _text(self, node: yaml.Node, key: str) -> str:
        if kind_of(node) in yaml_nodes.TEXT_KINDS:
            return str(node.value)
        raise self._error(f"expected text, found {describe(node)}{yaml_nodes.quotes_hint(node)}", key, node)

    def _path_to(self, key: str) -> str:
        return ".".join(part for part in (self.key, key) if part)

    def _error(self, problem: str, key: str, node: yaml.Node | None) -> KubeconfigError:
        return KubeconfigError(
            problem, file=self.file, line=line_of(node or self._node), key=self._path_to(key) or None
        )


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The content of one file, or of several merged files."""

    files: tuple[str, ...]
    current_context: str
    contexts: Mapping[str, Section]
    clusters: Mapping[str, Section]
    users: Mapping[str, Section]

    @property
    def source(self) -> str:
        """The names of the files, for users."""
        return os.pathsep.join(self.files)

    @property
    def is_empty(self) -> bool:
        """Return whether it has nothing to connect with."""
        return not (self.current_context or self.contexts or self.clusters)

    def context(self, name: str) -> Section:
        """Return the context of this name. Raise `KubeconfigError` if there is none."""
        if name in self.contexts:
            return self.contexts[name]
        raise KubeconfigError(f"there is no context {name!r}{_suggestion(name, self.contexts)}", file=self.source)

    def cluster_of(self, context: Section) -> Section:
        """Return the cluster of `context`. Raise `KubeconfigError` if there is none."""
        name = context.text("cluster")
        if name in self.clusters:
            return self.clusters[name]
        problem = (
            f"there is no cluster {name!r}{_suggestion(name, self.clusters)}" if name else "expected a cluster's name"
        )
        raise context.error_at(problem, "cluster")

    def user_of(self, context: Section) -> Section | None:
        """Return the user of `context`, or None for a context without one.

        Raise `KubeconfigError` if it does not exist.
        """
        name = context.text("user")
        if not name or name in self.users:
            return self.users.get(name)
        raise context.error_at(f"there is no user {name!r}{_suggestion(name, self.users)}", "user")


def candidate_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the default files, for when none is given explicitly."""
    listed = environ.get("KUBECONFIG", "")
    if listed:
        # If the variable is set, it is complete: ~/.kube/config does not count then.
        return [Path(name) for name in dict.fromkeys(listed.split(os.pathsep)) if name]
    home = environ.get("HOME")
    return [(Path(home) if home else Path.home()) / ".kube" / "config"]


def read(path: Path) -> Kubeconfig:
    """Read one file. Raise `KubeconfigError` if it does not exist or cannot be read."""
    file = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"cannot read the kubeconfig: {error.strerror}", file=file) from None
    return parse(data, file=file)


def parse(data: bytes, *, file: str) -> Kubeconfig:
    """Parse a kubeconfig. Messages call it `file`."""
    section = parse_section(data, file=file)
    if section is None:
        return Kubeconfig((file,), "", {}, {}, {})
    if (kind := section.text("kind")) not in {"", "Config"}:
        article = "an" if kind[0] in "AEIOU" else "a"
        raise section.error_at(f"expected a kubeconfig, found {article} {kind}", "kind")
    return Kubeconfig(
        files=(file,),
        current_context=section.text("current-context"),
        contexts=_named(section, "contexts", "context"),
        clusters=_named(section, "clusters", "cluster"),
        users=_named(section, "users", "user"),
    )


def read_existing(paths: Iterable[Path]) -> Kubeconfig:
    """Read those of `paths` that exist, and merge them."""
    return merge([read(path) for path in paths if _exists(path)])


def merge(parts: Sequence[Kubeconfig]) -> Kubeconfig:
    """Merge kubeconfigs. The first one with an entry of a name wins."""
    return Kubeconfig(
        files=tuple(file for part in parts for file in part.files),
        current_context=next((part.current_context for part in parts if part.current_context), ""),
        contexts=_first_wins(part.contexts for part in parts),
        clusters=_first_wins(part.clusters for part in parts),
        users=_first_wins(part.users for part in parts),
    )


def format_names(names: Iterable[str]) -> str:
    """Return a list of names for users, shortened if there are many."""
    ordered = sorted(names)
    more = len(ordered) - _MAX_NAMES
    return ", ".join(ordered[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # reading it will report the error
    return True


def _named(section: Section, plural: str, singular: str) -> dict[str, Section]:
    found: dict[str, Section] = {}
    for entry in section.sections(plural):
        name = entry.text("name")
        if not name:
            raise entry.error_at("expected a name", "name")
        found.setdefault(name, entry.section(singular))
    return found


def _first_wins(parts: Iterable[Mapping[str, Section]]) -> dict[str, Section]:
    merged: dict[str, Section] = {}
    for part in parts:
        merged = {**part, **merged}
    return merged


def _suggestion(name: str, known: Mapping[str, Section]) -> str:
    if not known:
        return "; there are none at all, is the file cut off?"
    closest_name = closest_match(name, known)
    suggestion = f", did you mean {closest_name!r}?" if closest_name else ";"
    return f"{suggestion} there are: {format_names(known)}"


def parse_section(data: bytes, *, file: str) -> "Section | None":
    """Return the mapping in `data`, or None if it is empty. Only the first document counts, as for kubectl."""
    node = yaml_nodes.compose_first(data, file=file, error=KubeconfigError)
    return None if node is None else Section(node, file=file, key="")


def _name(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
