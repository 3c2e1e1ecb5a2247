"""The sections of a kubeconfig: values with their line numbers.

People and many tools write kubeconfigs, so an error message must name the position: "line 14: users[2].user: expected
…". A `Section` keeps the YAML nodes of one mapping and decodes a value when it is read. Values that nobody reads and
unknown keys are never validated.

An absent key, null and an empty text are equivalent, as for kubectl.
"""

from pathlib import Path
from typing import Any

import yaml

from haulout.core import yaml_nodes
from haulout.core.yaml_nodes import describe, kind_of, line_of
from haulout.errors import KubeconfigError


def parse(data: bytes, *, file: str) -> "Section | None":
    """Return the mapping in `data`, or None if it is empty. Only the first document counts, as for kubectl."""
    node = yaml_nodes.compose_first(data, file=file, error=KubeconfigError)
    return None if node is None else Section(node, file=file, key="")


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


def _name(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
