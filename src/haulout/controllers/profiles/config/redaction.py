"""Redacts the secrets in a configuration file, and keeps everything else as written, line by line.

    redacted = redact_config(text, registries)
    redacted.text  # token: (hidden), or token: ${SLACK_TOKEN}
    redacted.redact("expected a URL, found the text 'xoxb-1'")

Plugins declare which options are secret (`haulout.controllers.profiles.config.options`). Their values are found
wherever they are defined: behind an anchor, or at the top of the file, where a `${…}` refers to. Unknown options are
secret if their names suggest it. `${NAME}` is kept, its default is redacted. A secret is redacted wherever it occurs,
including comments.

A file that is not YAML is redacted line by line (`haulout.core.redaction`), and rather too much than too little: its
author knows what it contained. The same applies to comments and to everything after the first document.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from haulout.compat.ucfg import interpolation
from haulout.compat.ucfg.interpolation import InterpolationSyntaxError, Lookup, Pieces
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.options import Option, options_of
from haulout.core import yaml_nodes
from haulout.core.redaction import (
    MIN_VALUE_LENGTH,
    REDACTED,
    FileRedactor,
    is_secret_option,
    redact_known_patterns,
    redact_values,
)
from haulout.errors import ConfigError

_MAX_SECRETS = 1_000  # per file; each is searched in the whole text, which takes time
_FAMILIES = {"check": "checks", "notify": "notifications", "trigger": "triggers"}


@dataclass(frozen=True, slots=True)
class RedactedConfig:
    """A text without secrets. `redact` removes the same secrets from messages about the file."""

    text: str
    _values: tuple[str, ...] = field(repr=False)

    def redact(self, text: str) -> str:
        """Redact the secrets of the file in a text, and what looks like a secret."""
        return redact_known_patterns(redact_values(text, self._values))


def redact_config(text: str, registries: Registries, *, also: Iterable[str] = ()) -> RedactedConfig:
    """Return a file without secrets; `also` are secrets known from elsewhere."""
    text = text.removeprefix("\ufeff")
    try:
        root = _compose(yaml_nodes.first_document_events(text, file=""))
    except (ConfigError, yaml.YAMLError, UnicodeEncodeError):
        root = None
    finder = _SecretFinder(registries)
    if root is not None:
        finder.find(root)
    shown, values = _redact_nodes(text, finder.secrets.values())
    # Everything after the first document was not parsed, whatever it is.
    rest = 0 if root is None else root.end_mark.index + len(shown) - len(text)
    values |= {secret for secret in also if len(secret) >= MIN_VALUE_LENGTH}
    line_redactor = FileRedactor(_secret_keys(registries), values)
    shown = line_redactor.redact_comments(shown[:rest]) + line_redactor.redact(shown[rest:])
    found = tuple(values)
    # Without this limit, a crafted file would block the event loop: each secret is searched in the whole text.
    if len(found) > _MAX_SECRETS:
        return RedactedConfig(f"# {REDACTED}: there are more than {_MAX_SECRETS} secrets in this file\n", found)
    return RedactedConfig(RedactedConfig("", found).redact(shown), found)


def _compose(events: Iterable[yaml.Event]) -> yaml.Node | None:
    """Return the root node. The C library would compose all nodes in one call and block the event loop meanwhile."""
    anchors: dict[str, yaml.Node] = {}
    root: yaml.Node | None = None
    open_nodes: list[tuple[Any, list[yaml.Node]]] = []
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            node, parts = open_nodes.pop()
            node.end_mark = event.end_mark
            is_mapping = isinstance(node, yaml.MappingNode)
            node.value = [*zip(parts[::2], parts[1::2], strict=True)] if is_mapping else parts
            continue
        found = _start_node(event, anchors)
        if found is None:
            continue
        if open_nodes:
            open_nodes[-1][1].append(found)
        root = root or found
        if isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((found, []))
    return root


def _start_node(event: Any, anchors: dict[str, yaml.Node]) -> yaml.Node | None:
    """Return the node that an event starts, or the aliased one; None for other events."""
    if isinstance(event, yaml.AliasEvent):
        return anchors.get(event.anchor or "")
    marks: tuple[Any, Any] = event.start_mark, event.end_mark
    if isinstance(event, yaml.ScalarEvent):
        node: yaml.Node = yaml.ScalarNode("", event.value, *marks)
    elif isinstance(event, yaml.MappingStartEvent):
        node = yaml.MappingNode("", [], *marks)
    elif isinstance(event, yaml.SequenceStartEvent):
        node = yaml.SequenceNode("", [], *marks)
    else:
        return None
    if event.anchor:
        anchors[event.anchor] = node
    return node


# Find secrets in a valid file


class _SecretFinder:
    """Finds the scalars of a file that are secret."""

    def __init__(self, registries: Registries) -> None:
        self.secrets: dict[int, yaml.ScalarNode] = {}
        self._registries = registries
        self._top: dict[str, yaml.Node] = {}
        self._visited: set[int] = set()

    def find(self, root: yaml.Node) -> None:
        self._top = dict(_entries(root))
        families = dict(_entries(self._top.get("instances")))
        for key, family in _FAMILIES.items():
            for instance in _items(families.get(key)):
                self._find_in_instance(instance, getattr(self._registries, family))
        self._find_by_name(root)

    def _find_in_instance(self, instance: yaml.Node, classes: Mapping[str, type]) -> None:
        entries = dict(_entries(instance))
        plugin = entries.get("type")
        cls = classes.get(plugin.value) if isinstance(plugin, yaml.ScalarNode) else None
        if cls is None:
            return
        options = {item.key: item for item in options_of(cls)}
        secret = _secret_fields(cls)
        for name, value in _entries(entries.get("config")):
            known = options.get(name)
            if known is None:
                continue
            if known.field in secret:
                self._add(value)
            elif not _accepts_any_value(known):
                self._visited |= {id(value)}  # the plugin declares it as not secret, whatever its name is

    def _find_by_name(self, node: yaml.Node) -> None:
        """Find options with names of secrets where no plugin declares what they are."""
        if id(node) in self._visited:
            return
        self._visited.add(id(node))
        for name, value in _entries(node):
            if is_secret_option(name) and id(value) not in self._visited:
                self._add(value)
            self._find_by_name(value)
        for item in _items(node):
            self._find_by_name(item)

    def _add(self, node: yaml.Node) -> None:
        """Mark a value as secret, with everything that it consists of or refers to."""
        if id(node) in self.secrets:
            return
        if not isinstance(node, yaml.ScalarNode):
            for inner in (*(value for _, value in _entries(node)), *_items(node)):
                self._add(inner)
            return
        self.secrets[id(node)] = node
        for name in _names(_pieces(node.value)):
            if name in self._top:
                self._add(self._top[name])


def _entries(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """Return the keys and values of a mapping, including merged ones; empty for other nodes."""
    if not isinstance(node, yaml.MappingNode):
        return []
    found: list[tuple[str, yaml.Node]] = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        # `<<: *alias` merges another mapping (https://yaml.org/type/merge.html). A mapping may refer to itself.
        if key.value == "<<" and value is not node:
            for merged in (value, *_items(value)):
                found += [] if merged is node else _own_entries(merged)
        else:
            found.append((str(key.value), value))
    return found


def _own_entries(node: yaml.Node) -> list[tuple[str, yaml.Node]]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return [(str(key.value), value) for key, value in pairs if isinstance(key, yaml.ScalarNode)]


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _secret_keys(registries: Registries) -> set[str]:
    """Return the keys of all secret options of plugins."""
    classes = [cls for family in _FAMILIES.values() for cls in getattr(registries, family).values()]
    return {option.key for cls in classes for option in options_of(cls) if option.field in _secret_fields(cls)}


def _secret_fields(cls: type) -> set[str]:
    return (
        {field.name for field in dataclasses.fields(cls) if not field.repr} if dataclasses.is_dataclass(cls) else set()
    )


def _accepts_any_value(option: Option) -> bool:
    """Return whether the option accepts arbitrary values, so that names of secrets in it count."""
    return option.kind is not None or option.type not in (str, int, float, bool)


# Redact


def _redact_nodes(text: str, nodes: Iterable[yaml.ScalarNode]) -> tuple[str, set[str]]:
    """Return a text in which these scalars are redacted, with the same number of lines, and their secret values."""
    values: set[str] = set()
    pieces: list[str] = []
    at = 0
    for node in sorted(nodes, key=lambda scalar: scalar.start_mark.index):
        start, end, shown = node.start_mark.index, node.end_mark.index, _visible_part(node.value)
        if shown == node.value:
            continue
        values |= set(_secret_texts(node.value))
        pieces += [text[at:start], _in_original_style(shown, like=text[start:end]), "\n" * text.count("\n", start, end)]
        at = end
    return "".join((*pieces, text[at:])), values


def _visible_part(value: str) -> str:
    """Return what may be shown of a secret: the variable names in it."""
    pieces = _pieces(value)
    if pieces is None:
        return REDACTED
    return "".join(REDACTED if isinstance(piece, str) else _visible_lookup(piece) for piece in pieces)


def _visible_lookup(lookup: Lookup) -> str:
    name = "".join(piece if isinstance(piece, str) else _visible_lookup(piece) for piece in lookup.name)
    other = f"{lookup.operation}{REDACTED}" if lookup.operation and any(lookup.other) else lookup.operation
    return f"${{{name}{other}}}"


def _in_original_style(shown: str, *, like: str) -> str:
    """Return the text with the anchor and in the quotes of the original."""
    anchor = re.match(r"&\S+\s+", like)
    before = "" if anchor is None else anchor[0]
    quote = like[len(before) : len(before) + 1]
    return f"{before}{quote}{shown}{quote}" if quote in ('"', "'") else f"{before}{shown}"


def _secret_texts(value: str) -> Iterator[str]:
    """Yield the secret parts of a value: all but names, as a whole and by line, as comments may repeat a line."""
    pieces = _pieces(value)
    for text in [value] if pieces is None else _texts(pieces):
        for line in (text, *text.splitlines()):
            if len(line.strip()) >= MIN_VALUE_LENGTH:
                yield line.strip()


def _pieces(value: str) -> Pieces | None:
    try:
        return interpolation.parse(value)
    except InterpolationSyntaxError:
        return None


def _texts(pieces: Pieces) -> Iterator[str]:
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
        else:
            yield from _texts(piece.other)


def _names(pieces: Pieces | None) -> Iterator[str]:
    for piece in pieces or ():
        if isinstance(piece, Lookup):
            yield from (name for name in piece.name if isinstance(name, str))
            yield from _names(piece.name)
            yield from _names(piece.other)
