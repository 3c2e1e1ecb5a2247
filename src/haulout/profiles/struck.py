"""A configuration file as it may be shown: as it was typed, line by line, with secrets struck out.

    struck = strike(text, registries)
    struck.text                     # token: (hidden), or token: ${SLACK_TOKEN}
    struck.hide("expected a URL, found the text 'xoxb-1'")

What is secret is what plugins say (`haulout.profiles.hidden`), wherever it stands: behind an anchor, or at the top of
the file, from where a `${…}` takes it. Of options that nobody knows, those count whose name says so. `${NAME}` stays as
it was typed, and its default does not. What is struck out is struck out everywhere, in comments too.

A file that is no YAML is gone through line by line (`haulout.core.redaction`), and more is struck out of it than
need be: who typed it knows what it said. So are comments, and what follows the first document.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from haulout.core import marked
from haulout.core.redaction import (
    HIDDEN,
    RECOGNIZABLE,
    FileRedactor,
    is_secret_option,
    redact_recognizable,
    redact_values,
)
from haulout.errors import ConfigError
from haulout.profiles import interpolation
from haulout.profiles.config import Registries
from haulout.profiles.interpolation import Lookup, Pieces, SyntaxProblem
from haulout.profiles.options import Option, options_of

_MOST = 1_000  # secrets in a file: to look for each of them everywhere takes a while
_FAMILIES = {"check": "checks", "notify": "notifications", "trigger": "triggers"}


@dataclass(frozen=True, slots=True)
class Struck:
    """A text without secrets; `hide` does the same to what is said about it."""

    text: str
    _values: tuple[str, ...] = field(repr=False)

    def hide(self, text: str) -> str:
        """Return a text without the secrets that were struck out, and without what looks like one."""
        return redact_recognizable(redact_values(text, self._values))


def strike(text: str, registries: Registries, *, also: Iterable[str] = ()) -> Struck:
    """Return a file without secrets; `also` are secrets that are known from elsewhere."""
    text = text.removeprefix("\ufeff")
    try:
        root = _composed(marked.first_events(text, file=""))
    except (ConfigError, yaml.YAMLError, UnicodeEncodeError):
        root = None
    places = _Places(registries)
    if root is not None:
        places.look(root)
    shown, values = _without(text, places.found.values())
    # What follows the first document was not read, whatever it is.
    rest = 0 if root is None else root.end_mark.index + len(shown) - len(text)
    values |= {it for it in also if len(it) >= RECOGNIZABLE}
    lines = FileRedactor(_secret_keys(registries), values)
    shown = lines.redact_comments(shown[:rest]) + lines.redact(shown[rest:])
    found = tuple(values)
    if len(found) > _MOST:
        return Struck(f"# {HIDDEN}: there are more than {_MOST} secrets in this file\n", found)
    return Struck(Struck("", found).hide(shown), found)


def _composed(events: Iterable[yaml.Event]) -> yaml.Node | None:
    """Return the nodes of a document: the C library would make them all at once, and hold up everybody meanwhile."""
    anchors: dict[str, yaml.Node] = {}
    root: yaml.Node | None = None
    open_ones: list[tuple[Any, list[yaml.Node]]] = []
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            node, parts = open_ones.pop()
            node.end_mark = event.end_mark
            is_mapping = isinstance(node, yaml.MappingNode)
            node.value = [*zip(parts[::2], parts[1::2], strict=True)] if is_mapping else parts
            continue
        found = _begun(event, anchors)
        if found is None:
            continue
        if open_ones:
            open_ones[-1][1].append(found)
        root = root or found
        if isinstance(event, yaml.CollectionStartEvent):
            open_ones.append((found, []))
    return root


def _begun(event: Any, anchors: dict[str, yaml.Node]) -> yaml.Node | None:
    """Return the node that an event begins; None if it begins none."""
    if isinstance(event, yaml.AliasEvent):
        return anchors.get(event.anchor or "")
    place: tuple[Any, Any] = event.start_mark, event.end_mark
    if isinstance(event, yaml.ScalarEvent):
        node: yaml.Node = yaml.ScalarNode("", event.value, *place)
    elif isinstance(event, yaml.MappingStartEvent):
        node = yaml.MappingNode("", [], *place)
    elif isinstance(event, yaml.SequenceStartEvent):
        node = yaml.SequenceNode("", [], *place)
    else:
        return None
    if event.anchor:
        anchors[event.anchor] = node
    return node


# Where secrets stand in a file that can be read


class _Places:
    """The scalars of a file that are secret."""

    def __init__(self, registries: Registries) -> None:
        self.found: dict[int, yaml.ScalarNode] = {}
        self._registries = registries
        self._top: dict[str, yaml.Node] = {}
        self._seen: set[int] = set()

    def look(self, root: yaml.Node) -> None:
        """Find them all."""
        self._top = dict(_entries(root))
        families = dict(_entries(self._top.get("instances")))
        for key, family in _FAMILIES.items():
            for instance in _items(families.get(key)):
                self._look_at_instance(instance, getattr(self._registries, family))
        self._look_by_name(root)

    def _look_at_instance(self, instance: yaml.Node, classes: Mapping[str, type]) -> None:
        entries = dict(_entries(instance))
        plugin = entries.get("type")
        cls = classes.get(plugin.value) if isinstance(plugin, yaml.ScalarNode) else None
        if cls is None:
            return
        options = {it.key: it for it in options_of(cls)}
        secret = _secret_fields(cls)
        for name, value in _entries(entries.get("config")):
            known = options.get(name)
            if known is None:
                continue
            if known.field in secret:
                self._add(value)
            elif not _is_open(known):
                self._seen |= {id(value)}  # it says itself that it is none, whatever its name is

    def _look_by_name(self, node: yaml.Node) -> None:
        """Find what is called a secret where nobody says what it is."""
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        for name, value in _entries(node):
            if is_secret_option(name) and id(value) not in self._seen:
                self._add(value)
            self._look_by_name(value)
        for item in _items(node):
            self._look_by_name(item)

    def _add(self, node: yaml.Node) -> None:
        """Take a value for secret, and all that it is made of."""
        if id(node) in self.found:
            return
        if not isinstance(node, yaml.ScalarNode):
            for inner in (*(value for _, value in _entries(node)), *_items(node)):
                self._add(inner)
            return
        self.found[id(node)] = node
        for name in _names(_pieces(node.value)):
            if name in self._top:
                self._add(self._top[name])


def _entries(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """Return the keys and values of a mapping, with those that it merges; nothing for anything else."""
    if not isinstance(node, yaml.MappingNode):
        return []
    found: list[tuple[str, yaml.Node]] = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
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
    """Return what any plugin calls its secrets."""
    classes = [cls for family in _FAMILIES.values() for cls in getattr(registries, family).values()]
    return {it.key for cls in classes for it in options_of(cls) if it.field in _secret_fields(cls)}


def _secret_fields(cls: type) -> set[str]:
    return {it.name for it in dataclasses.fields(cls) if not it.repr} if dataclasses.is_dataclass(cls) else set()


def _is_open(option: Option) -> bool:
    """Tell whether anything may stand in it, so that names in it mean what they say."""
    return option.kind is not None or option.type not in (str, int, float, bool)


# How they are struck out


def _without(text: str, nodes: Iterable[yaml.ScalarNode]) -> tuple[str, set[str]]:
    """Return a text without these values, in as many lines, and the values."""
    values: set[str] = set()
    pieces: list[str] = []
    at = 0
    for node in sorted(nodes, key=lambda it: it.start_mark.index):
        start, end, shown = node.start_mark.index, node.end_mark.index, _shown(node.value)
        if shown == node.value:
            continue
        values |= set(_literals(node.value))
        pieces += [text[at:start], _written(shown, like=text[start:end]), "\n" * text.count("\n", start, end)]
        at = end
    return "".join((*pieces, text[at:])), values


def _shown(value: str) -> str:
    """Return what may be seen of a secret: the names in it."""
    pieces = _pieces(value)
    if pieces is None:
        return HIDDEN
    return "".join(HIDDEN if isinstance(it, str) else _shown_lookup(it) for it in pieces)


def _shown_lookup(lookup: Lookup) -> str:
    name = "".join(it if isinstance(it, str) else _shown_lookup(it) for it in lookup.name)
    other = f"{lookup.operation}{HIDDEN}" if lookup.operation and any(lookup.other) else lookup.operation
    return f"${{{name}{other}}}"


def _written(shown: str, *, like: str) -> str:
    """Return it with the anchor and in the quotes of what it stands for."""
    anchor = re.match(r"&\S+\s+", like)
    before = "" if anchor is None else anchor[0]
    quote = like[len(before) : len(before) + 1]
    return f"{before}{quote}{shown}{quote}" if quote in ('"', "'") else f"{before}{shown}"


def _literals(value: str) -> Iterator[str]:
    """Yield what is secret about a value: all of it that is no name, and its lines, as comments may repeat one."""
    pieces = _pieces(value)
    for text in [value] if pieces is None else _texts(pieces):
        for line in (text, *text.splitlines()):
            if len(line.strip()) >= RECOGNIZABLE:
                yield line.strip()


def _pieces(value: str) -> Pieces | None:
    try:
        return interpolation.parse(value)
    except SyntaxProblem:
        return None


def _texts(pieces: Pieces) -> Iterator[str]:
    for it in pieces:
        if isinstance(it, str):
            yield it
        else:
            yield from _texts(it.other)


def _names(pieces: Pieces | None) -> Iterator[str]:
    for it in pieces or ():
        if isinstance(it, Lookup):
            yield from (name for name in it.name if isinstance(name, str))
            yield from _names(it.name)
            yield from _names(it.other)
