"""YAML nodes with positions, so that an error can name file and line.

PyYAML's nodes have marks, from which an error message gets the position and the kind of a value. JSON is valid YAML, so
it is read in the same way. Dates are text, as in Kubernetes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from haulout.errors import ConfigError

TEXT_KINDS = {"str", "value"}
_MAX_DEPTH = 100
_UNEXPECTED_CHARACTER = "cannot start any token"
_TAG = "tag:yaml.org,2002:"
# The names of YAML kinds in messages.
_DESCRIPTIONS = {
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "null": "nothing",
    "binary": "binary data",
}


def compose_first(data: bytes, *, file: str, error: type[ConfigError] = ConfigError) -> yaml.Node | None:
    """Return the first document in `data`, or None if it is empty. Raise `error`."""
    text = decode_text(data, file=file, error=error)
    try:
        for _ in first_document_events(text, file=file, error=error):
            pass  # checks the nesting depth
        loader = JsonLoader(text)
        node = loader.get_node() if loader.check_node() else None
    except yaml.YAMLError as problem:
        raise parse_error(problem, text, file=file, error=error) from None
    return None if node is None or kind_of(node) == "null" else node


def decode_text(data: bytes, *, file: str, error: type[ConfigError] = ConfigError) -> str:
    """Return the text of a file. Raise `error` if it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise error("expected YAML or JSON, found bytes that are no text", file=file, line=line) from None


def first_document_events(text: str, *, file: str, error: type[ConfigError] = ConfigError) -> Iterator[yaml.Event]:
    """Yield the events of the first document in `text`. Raise `error` if it is nested too deep, or YAMLError.

    The C library composes nodes recursively: deep nesting would crash the process.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        yield event
        if isinstance(event, yaml.DocumentEndEvent):
            return
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            problem = f"expected at most {_MAX_DEPTH} values inside each other, found more"
            raise error(problem, file=file, line=event.start_mark.line + 1 if event.start_mark else None)


def line_of(node: yaml.Node) -> int:
    """Return the line number, from 1, at which the node begins."""
    return int(node.start_mark.line) + 1


def kind_of(node: yaml.Node) -> str:
    """Return the YAML kind of a node, such as map, seq, str, int or bool."""
    return str(node.tag).removeprefix(_TAG)


def describe(node: yaml.Node) -> str:
    """Return the kind of a node for users."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    kind = kind_of(node)
    return _DESCRIPTIONS.get(kind) or ("text" if kind in TEXT_KINDS else f"a value tagged {kind}")


def quotes_hint(node: yaml.Node) -> str:
    """Return advice to quote a value that YAML does not read as text; empty if that does not apply."""
    is_plain = isinstance(node, yaml.ScalarNode) and kind_of(node) in _DESCRIPTIONS
    return f"; if it is meant as text, put it in quotes: '{node.value}'" if is_plain else ""


def entries_of(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the keys and values of a mapping, including merged ones (`<<: *defaults`)."""
    # It changes the node in place, so a second call finds nothing left to merge.
    SafeConstructor().flatten_mapping(node)
    return list(node.value)


def is_true(node: yaml.ScalarNode) -> bool:
    return bool(SafeConstructor.bool_values[node.value.lower()])


def to_plain(node: yaml.Node) -> Any:
    """Return the value of a node as plain Python values, as JSON has them."""
    return SafeConstructor().construct_document(node)


def lines_of(node: yaml.Node) -> dict[str, int]:
    """Return the line of each value by key, such as `pools[0].name`.

    The content of an alias has no lines of its own.
    """
    lines: dict[str, int] = {}
    visited: set[int] = set()

    def record(child: yaml.Node, key: str) -> None:
        lines[key] = line_of(child)
        if id(child) in visited:  # an alias, which may even contain itself
            return
        visited.add(id(child))
        if isinstance(child, yaml.MappingNode):
            for name, value in entries_of(child):
                record(value, f"{key}.{name.value}" if key else str(name.value))
        elif isinstance(child, yaml.SequenceNode):
            for at, value in enumerate(child.value):
                record(value, f"{key}[{at}]")

    record(node, "")
    return lines


def line_at(lines: Mapping[str, int], key: str) -> int | None:
    """Return the line of the value at `key`, or of its nearest parent."""
    while key and key not in lines:
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return lines.get(key) if key else None


class JsonLoader(yaml.CSafeLoader):
    """Loads YAML with the types of JSON: a date is text."""


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def parse_error(
    problem: yaml.YAMLError, text: str, *, file: str, error: type[ConfigError] = ConfigError
) -> ConfigError:
    mark = getattr(problem, "problem_mark", None)
    message_text = getattr(problem, "problem", None) or getattr(problem, "reason", None) or "it cannot be parsed"
    if _UNEXPECTED_CHARACTER in message_text and mark:
        message_text = _invalid_character(_character(text, mark))
    truncated_hint = "; the file seems to be cut off" if "end" in message_text and "stream" in message_text else ""
    message = f"expected YAML or JSON: {' '.join(message_text.split())}{truncated_hint}"
    return error(message, file=file, line=mark.line + 1 if mark else None)


def _character(text: str, mark: yaml.Mark) -> str:
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    return line[mark.column : mark.column + 1]


def _invalid_character(character: str) -> str:
    if character == "\t":
        return "found a tab, expected spaces; YAML does not allow tabs at the beginning of a line"
    return f"found {character!r}, with which no value begins; put the value in quotes"
