"""YAML that remembers where it was written, so that a complaint can name file and line.

PyYAML's nodes carry marks: whoever reads them, instead of the values they stand for, can say where each stands and what
it looks like. JSON is YAML, so it passes the same way. Dates are text, as to Kubernetes.
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
# What a plain scalar looks like to YAML, in words.
_DESCRIPTIONS = {
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "null": "nothing",
    "binary": "binary data",
}


def compose_first(data: bytes, *, file: str, error: type[ConfigError] = ConfigError) -> yaml.Node | None:
    """Return the first document that `data` holds, or None if it holds nothing; raises `error`."""
    text = decode_text(data, file=file, error=error)
    try:
        for _ in first_document_events(text, file=file, error=error):
            pass  # only to be sure of the depth
        loader = JsonLoader(text)
        node = loader.get_node() if loader.check_node() else None
    except yaml.YAMLError as problem:
        raise parse_error(problem, text, file=file, error=error) from None
    return None if node is None or kind_of(node) == "null" else node


def decode_text(data: bytes, *, file: str, error: type[ConfigError] = ConfigError) -> str:
    """Return the text that a file holds; raises `error`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise error("expected YAML or JSON, found bytes that are no text", file=file, line=line) from None


def first_document_events(text: str, *, file: str, error: type[ConfigError] = ConfigError) -> Iterator[yaml.Event]:
    """Yield the first document in `text` as events, if it is not nested too deep; raises `error` and YAMLError.

    The C library composes nodes by recursion: what is nested deep enough would end the process.
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
    """Return the line that it begins in."""
    return int(node.start_mark.line) + 1


def kind_of(node: yaml.Node) -> str:
    """Return what YAML takes it for, such as map, seq, str, int or bool."""
    return str(node.tag).removeprefix(_TAG)


def describe(node: yaml.Node) -> str:
    """Return what it is, for people."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    kind = kind_of(node)
    return _DESCRIPTIONS.get(kind) or ("text" if kind in TEXT_KINDS else f"a value tagged {kind}")


def quotes_hint(node: yaml.Node) -> str:
    """Return the advice for what YAML does not take for the text that it may have been meant as."""
    is_plain = isinstance(node, yaml.ScalarNode) and kind_of(node) in _DESCRIPTIONS
    return f"; if it is meant as text, put it in quotes: '{node.value}'" if is_plain else ""


def entries_of(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    """Return the keys and values of a mapping, with those that it merges (`<<: *defaults`)."""
    SafeConstructor().flatten_mapping(node)
    return list(node.value)


def is_true(node: yaml.ScalarNode) -> bool:
    """Return the truth value that a node of kind bool stands for."""
    return bool(SafeConstructor.bool_values[node.value.lower()])


def to_plain(node: yaml.Node) -> Any:
    """Return what it stands for as plain values, such as JSON has."""
    return SafeConstructor().construct_document(node)


def lines_of(node: yaml.Node) -> dict[str, int]:
    """Return by key, such as `pools[0].name`, the line that each value begins in; of an alias only where it stands."""
    lines: dict[str, int] = {}
    visited: set[int] = set()

    def record(child: yaml.Node, key: str) -> None:
        lines[key] = line_of(child)
        if id(child) in visited:  # an alias, which may even lead back to where it stands
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
    """Return the line of what stands at `key`, or above it."""
    while key and key not in lines:
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return lines.get(key) if key else None


class JsonLoader(yaml.CSafeLoader):
    """Reads YAML as JSON has it: what looks like a date is a text."""


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def parse_error(
    problem: yaml.YAMLError, text: str, *, file: str, error: type[ConfigError] = ConfigError
) -> ConfigError:
    """Return what PyYAML says about a file as an error of ours."""
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
