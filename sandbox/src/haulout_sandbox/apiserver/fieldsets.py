"""Sets of fields, the currency of server-side apply: which fields a value has, in which two values differ.

A field is a path of elements written as in `managedFields`: `f:name` a key, `k:{"name":"c"}` the item of a list with
keys, `v:"x"` the item of a set. A set of fields is a plain set of such tuples, so that union, difference and
intersection are Python's. A leaf is one value, or a list or an object that its shape says is one piece.

Follows structured-merge-diff, the library behind the real server's field manager.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from haulout_sandbox.apiserver.fields import as_json, plain, quoted
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.shapes import ANY, DEDUCED, Shape

Path = tuple[str, ...]
Fields = set[Path]

_ITSELF = "."
_ABSENT: Any = object()


class NoElement(Exception):
    """An item cannot be told from others in its list."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """In which fields a new value differs from an old one."""

    removed: Fields = field(default_factory=set)
    modified: Fields = field(default_factory=set)
    added: Fields = field(default_factory=set)

    def without(self, prefixes: Iterable[Path]) -> "Comparison":
        """Return the comparison without some fields and all that is below them."""
        sets = (self.removed, self.modified, self.added)
        return Comparison(*(without_prefixes(each, prefixes) for each in sets))


def without_prefixes(fields: Fields, prefixes: Iterable[Path]) -> Fields:
    """Return `fields` without those that are, or are below, one of `prefixes`."""
    return {path for path in fields if not any(path[: len(prefix)] == prefix for prefix in prefixes)}


def fields_of(value: Any, shape: Shape) -> Fields:
    """Return every leaf and every list item that `value` has."""
    found: Fields = set()
    _collect(value, shape, (), found)
    return found


def _collect(value: Any, shape: Shape, path: Path, found: Fields) -> None:
    if _is_leaf(shape, value):
        found.add(path)
    elif isinstance(value, list):
        counts = Counter(element(item, shape) for item in value)
        for item in value:
            name = element(item, shape)
            found.add((*path, name))
            if counts[name] == 1:
                _collect(item, _items(shape), (*path, name), found)
    elif isinstance(value, dict):
        for name, item in value.items():
            below = (*path, f"f:{name}")
            _collect(item, _field(shape, name), below, found)
            if item is None or item == {} or name not in shape.declared:
                found.add(below)


def compared(old: Any, new: Any, shape: Shape) -> Comparison:
    """Return in which fields `new` differs from `old`."""
    result = Comparison()
    _compare(old, new, shape, (), result)
    return result


def _compare(old: Any, new: Any, shape: Shape, path: Path, result: Comparison) -> None:
    if old is new or (type(old) is type(new) and old == new):
        return
    if _parts_differ(old, new, shape):
        result.modified.add(path)
        for before, after in ((old, _ABSENT), (_ABSENT, new)):
            if isinstance(before, dict) or isinstance(after, dict):
                _compare_members(before, after, shape, path, result)
    elif _is_leaf(shape, old if new is _ABSENT else new) or (_is_empty(old) and _is_empty(new)):
        _note(old, new, path, result, modified=True)
    else:
        if shape.kind == "list":
            _compare_items(old, new, shape, path, result)
        else:
            _compare_members(old, new, shape, path, result)
        _note(old, new, path, result, modified=False)


def _note(old: Any, new: Any, path: Path, result: Comparison, *, modified: bool) -> None:
    if old is _ABSENT:
        result.added.add(path)
    elif new is _ABSENT:
        result.removed.add(path)
    elif modified:
        result.modified.add(path)


def _compare_members(old: Any, new: Any, shape: Shape, path: Path, result: Comparison) -> None:
    before, after = _as_object(old), _as_object(new)
    for name in before | after:
        pair = before.get(name, _ABSENT), after.get(name, _ABSENT)
        _compare(*pair, _field(shape, name), (*path, f"f:{name}"), result)


def _compare_items(old: Any, new: Any, shape: Shape, path: Path, result: Comparison) -> None:
    before, after, items = _by_element(old, shape), _by_element(new, shape), _items(shape)
    for name in before | after:
        lefts, rights, below = before.get(name, []), after.get(name, []), (*path, name)
        left, right = (each[0] if each else _ABSENT for each in (lefts, rights))
        if len(lefts) <= 1 and len(rights) <= 1:
            _compare(left, right, items, below, result)
        elif len(lefts) > 1 and len(rights) > 1:  # items that are there twice are one piece
            if lefts != rights:
                result.modified.add(below)
        elif len(lefts) > 1:
            _compare(_ABSENT, right, items, below, result)
            result.removed.add(below)
        else:
            _compare(left, _ABSENT, items, below, result)
            result.added.add(below)


def merged(live: Any, applied: Any, shape: Shape) -> Any:
    """Return `live` with all that `applied` says; nothing is removed."""
    if _is_leaf(shape, applied) or (_is_empty(live) and _is_empty(applied)):
        return applied
    if shape.kind == "list":
        return _merged_items(_as_list(live), _as_list(applied), shape)
    before, after = _as_object(live), _as_object(applied)
    return before | {
        name: merged(before[name], value, _field(shape, name)) if name in before else value
        for name, value in after.items()
    }


def _merged_items(live: list[Any], applied: list[Any], shape: Shape) -> list[Any]:
    """Return the items of both: applied ones in their order, others where they were among those.

    The order of what both have is that of `applied`. Between two of these come first the live items that followed the
    one before, then the new ones.
    """
    new = {element(item, shape): item for item in applied}
    old = _by_element(live, shape)
    left, right = [(element(item, shape), item) for item in live], list(new)
    shared = [name for name in right if name in old]
    done: set[str] = set()
    result: list[Any] = []
    while left or right:
        if left and right:
            if left[0][0] == right[0]:
                left.pop(0)
                shared = shared[1:]
                result.append(_merged_item(right.pop(0), old, new, shape, done))
                continue
            if left[0][0] in new and shared and shared[0] != left[0][0]:
                left.pop(0)  # it comes when it is its turn
                continue
        if left and left[0][0] not in new:
            result.append(left.pop(0)[1])
            continue
        if left and left[0][0] in done:
            left.pop(0)
        if right:
            shared = shared[1:] if shared[:1] == right[:1] else shared
            result.append(_merged_item(right.pop(0), old, new, shape, done))
    return result


def _merged_item(name: str, old: dict[str, list[Any]], new: dict[str, Any], shape: Shape, done: set[str]) -> Any:
    done.add(name)
    alike = old.get(name, [])
    return merged(alike[0], new[name], _items(shape)) if len(alike) == 1 else new[name]


def without(value: Any, fields: Fields, shape: Shape) -> Any:
    """Return `value` without `fields`; None if nothing is left."""
    return _without(value, encoded(fields), shape) if fields else value


def _without(value: Any, tree: JsonObject, shape: Shape) -> Any:
    if _is_leaf(shape, value):
        return None if isinstance(value, list | dict) else value
    if isinstance(value, list):
        kept = [(element(item, shape), item) for item in value]
        return [_less(item, tree, name, _items(shape)) for name, item in kept if not _has(tree, name)] or None
    return {
        name: _less(item, tree, f"f:{name}", _field(shape, name))
        for name, item in _as_object(value).items()
        if not _has(tree, f"f:{name}")
    } or None


def _less(value: Any, tree: JsonObject, name: str, shape: Shape) -> Any:
    below = tree.get(name)
    return _without(value, below, shape) if below else value


def _has(tree: JsonObject, name: str) -> bool:
    return name in tree and (not tree[name] or _ITSELF in tree[name])


def with_parents(fields: Fields, shape: Shape) -> Fields:
    """Return `fields` and the declared fields that they are in: who owns all of a field may remove the field."""
    found = set(fields)
    _add_parents(encoded(fields), shape, (), found)
    return found


def _add_parents(tree: JsonObject, shape: Shape, path: Path, found: Fields) -> None:
    for name, below in tree.items():
        if not below.keys() - {_ITSELF}:
            continue
        if name.startswith("f:"):
            if name[2:] in shape.declared:
                found.add((*path, name))
            _add_parents(below, _field(shape, name[2:]), (*path, name), found)
        else:
            _add_parents(below, _items(shape), (*path, name), found)


# On the wire


def encoded(fields: Fields) -> JsonObject:
    """Return a set of fields as FieldsV1: a tree in which `.` says that the node itself is a member too."""
    tree: JsonObject = {}
    for path in sorted(fields):
        node = tree
        for name in path:
            node = node.setdefault(name, {})
        node[_ITSELF] = {}
    return _trimmed(tree)


def _trimmed(tree: JsonObject) -> JsonObject:
    return {name: {} if below.keys() == {_ITSELF} else _trimmed(below) for name, below in tree.items()}


def decoded(tree: JsonObject) -> Fields:
    """Return the set of fields that FieldsV1 says."""
    return set(_paths(tree, ()))


def _paths(tree: JsonObject, path: Path) -> Iterator[Path]:
    if path and (not tree or _ITSELF in tree):
        yield path
    for name, below in tree.items():
        if name != _ITSELF:
            yield from _paths(below, (*path, _as_we_write_it(name)))


@functools.lru_cache(maxsize=4096)
def _as_we_write_it(name: str) -> str:
    kind, _, rest = name.partition(":")
    return f"{kind}:{as_json(msgspec.json.decode(rest))}" if kind in ("k", "v") else name


def in_order(fields: Fields) -> list[Path]:
    """Return the fields in the order in which the real server names them: what ends at a node before what goes on."""
    return sorted(fields, key=lambda path: [(at + 1 < len(path), name) for at, name in enumerate(path)])


def path_text(path: Path) -> str:
    """Return a field as messages name it: `.spec.containers[name="c"].image`."""
    return "".join(map(_element_text, path))


def _element_text(name: str) -> str:
    kind, _, rest = name.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = sorted(msgspec.json.decode(rest).items())
        return f"[{','.join(f'{key}={_value_text(value)}' for key, value in keys)}]"
    return f"[={_value_text(msgspec.json.decode(rest))}]"


def _value_text(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else plain(value)


def element(item: Any, shape: Shape) -> str:
    """Return the path element of an item of a list, or say why it has none."""
    if not shape.map_keys:
        return f"v:{as_json(_checked_value(item))}"
    if not isinstance(item, dict):
        what = "a null element" if item is None else "non-map elements"
        raise NoElement(f"associative list with keys may not have {what}")
    items = _items(shape)
    given = {key: item[key] if key in item else items.default(key) for key in shape.map_keys}
    keys = {key: value for key, value in given.items() if value is not None or key in item}
    if not keys:
        listed = " ".join(map(quoted, shape.map_keys))
        raise NoElement(
            f"associative list with keys has an element that omits all key fields [{listed}] "
            "(and doesn't have default values for any key fields)"
        )
    return f"k:{as_json(keys)}"


def _checked_value(item: Any) -> Any:
    if isinstance(item, dict):
        raise NoElement("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise NoElement("not supported: associative list with lists as elements")
    if item is None:
        raise NoElement("associative list without keys has an element that's an explicit null")
    return item


def _by_element(value: Any, shape: Shape) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in _as_list(value):
        found.setdefault(element(item, shape), []).append(item)
    return found


# Values and shapes


def _is_leaf(shape: Shape, value: Any) -> bool:
    if shape.atomic:
        return True
    if shape.kind == "deduced":
        return not isinstance(value, dict)
    return shape.kind not in ("object", "list")


def _parts_differ(old: Any, new: Any, shape: Shape) -> bool:
    if shape.kind != "deduced" or old is _ABSENT or new is _ABSENT:
        return False
    return _is_leaf(shape, old) != _is_leaf(shape, new)


def _is_empty(value: Any) -> bool:
    return value is _ABSENT or value is None or value in ({}, [])


def _as_object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _field(shape: Shape, name: str) -> Shape:
    return shape.field(name) or DEDUCED  # a field that no shape knows is an old one, or one not pruned


def _items(shape: Shape) -> Shape:
    return shape.items or ANY
