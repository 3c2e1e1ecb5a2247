"""YAML that remembers where it was written, so that a complaint can name file, line and key.

A kubeconfig is read by people and written by a dozen tools; when something in it is wrong, "line 14: users[2].user:
expected …" saves the reader an hour. PyYAML's nodes carry marks, so a `Section` keeps the nodes of one mapping and
decodes a value at the moment it is asked for: what nobody asks for cannot be wrong, and unknown keys are simply
never asked for.

JSON is YAML, so kubeconfigs in JSON pass the same way. An absent key, a null and an empty text mean the same, as they
do to kubectl.
"""

from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from haulout.errors import KubeconfigError

_TAG = "tag:yaml.org,2002:"
# What a plain scalar looks like to YAML, in words. Dates are text to kubectl, so they are to us.
_KINDS = {"bool": "true or false", "int": "a number", "float": "a number", "null": "nothing", "binary": "binary data"}
_TEXTS = {"str", "timestamp", "value"}


def parse(data: bytes, *, file: str) -> "Section | None":
    """Return the mapping that `data` holds, or None if it holds nothing.

    Only the first document counts, as for kubectl.
    """
    try:
        loader = yaml.CSafeLoader(data.decode("utf-8-sig"))
        node = loader.get_node() if loader.check_node() else None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise KubeconfigError("expected YAML or JSON, found bytes that are no text", file=file, line=line) from None
    except yaml.YAMLError as error:
        raise _unreadable(error, file) from None
    if node is None or _kind(node) == "null":
        return None
    return Section(node, file=file, key="")


class Section:
    """One mapping of a YAML file: gives the values of its keys, and says where they stand."""

    __slots__ = ("_fields", "_node", "file", "key")

    def __init__(self, node: yaml.Node, *, file: str, key: str) -> None:
        self.file = file
        self.key = key
        self._node = node
        if not isinstance(node, yaml.MappingNode):
            raise KubeconfigError(
                f"expected a mapping, found {_described(node)}", file=file, line=_line(node), key=key or None
            )
        SafeConstructor().flatten_mapping(node)  # "<<: *defaults"
        self._fields = {_name(name): value for name, value in node.value if _kind(value) != "null"}

    def __contains__(self, key: str) -> bool:
        return key in self._fields

    def keys(self) -> list[str]:
        """Return the keys that have a value."""
        return list(self._fields)

    def text(self, key: str) -> str:
        """Return the text at `key`, empty if it is absent."""
        node = self._fields.get(key)
        return "" if node is None else self._text(node, key)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of texts at `key`, empty if it is absent."""
        return tuple(self._text(node, f"{key}[{at}]") for at, node in enumerate(self._list(key)))

    def flag(self, key: str) -> bool:
        """Return the truth value at `key`, False if it is absent."""
        node = self._fields.get(key)
        if node is None:
            return False
        if _kind(node) != "bool":
            raise self._error(f"expected true or false, found {_described(node)}", key, node)
        return bool(SafeConstructor.bool_values[node.value.lower()])

    def path(self, key: str) -> Path | None:
        """Return the path at `key`, which is relative to the folder of the file it is written in."""
        text = self.text(key)
        return Path(self.file).absolute().parent / text if text else None

    def section(self, key: str) -> "Section":
        """Return the mapping at `key`, an empty one if it is absent."""
        node = self._fields.get(key) or yaml.MappingNode("", [], start_mark=self._node.start_mark)
        return Section(node, file=self.file, key=self._path_to(key))

    def sections(self, key: str) -> list["Section"]:
        """Return the list of mappings at `key`, empty if it is absent."""
        path = self._path_to(key)
        return [Section(node, file=self.file, key=f"{path}[{at}]") for at, node in enumerate(self._list(key))]

    def plain(self, key: str) -> Any:
        """Return whatever is at `key` as plain Python values, None if it is absent."""
        node = self._fields.get(key)
        return None if node is None else SafeConstructor().construct_document(node)

    def wrong(self, problem: str, key: str = "") -> KubeconfigError:
        """Return the complaint about `key`, or about the whole section."""
        return self._error(problem, key, self._fields.get(key))

    def _list(self, key: str) -> list[yaml.Node]:
        node = self._fields.get(key)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(f"expected a list, found {_described(node)}", key, node)
        return list(node.value)

    def _text(self, node: yaml.Node, key: str) -> str:
        if _kind(node) in _TEXTS:
            return str(node.value)
        quotes = f"; if it is meant as text, put it in quotes: '{node.value}'" if _kind(node) in _KINDS else ""
        raise self._error(f"expected text, found {_described(node)}{quotes}", key, node)

    def _path_to(self, key: str) -> str:
        return ".".join(part for part in (self.key, key) if part)

    def _error(self, problem: str, key: str, node: yaml.Node | None) -> KubeconfigError:
        return KubeconfigError(problem, file=self.file, line=_line(node or self._node), key=self._path_to(key) or None)


def _name(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _kind(node: yaml.Node) -> str:
    return str(node.tag).removeprefix(_TAG)


def _described(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return _KINDS.get(_kind(node), "text")


def _unreadable(error: yaml.YAMLError, file: str) -> KubeconfigError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
    cut = "; the file seems to be cut off" if "end" in problem and "stream" in problem else ""
    text = f"expected YAML or JSON: {' '.join(problem.split())}{cut}"
    return KubeconfigError(text, file=file, line=mark.line + 1 if mark else None)
