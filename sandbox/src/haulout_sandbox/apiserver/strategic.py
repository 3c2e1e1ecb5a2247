"""Strategic merge patch: a merge patch that knows which lists are sets and which are tables with a key.

Follows apimachinery's `util/strategicpatch`, directives included, down to the words of its errors. Those that it has
declared are a client's fault (400, 422); all others, a list item without its key for example, come out of the real
server as a plain 500 without a reason, and so they do here.

    $patch: replace | delete            on an object or a list item: take mine, or drop it
    $retainKeys: [names]                drop all other keys of this object
    $setElementOrder/<list>: [items]    the order of the items named; others keep their places among them
    $deleteFromPrimitiveList/<list>     drop these values
"""

import math
from collections import deque
from typing import Any

from haulout_sandbox.apiserver.fields import plain, quoted
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.shapes import Shape
from haulout_sandbox.apiserver.status import Refused, bad_request, failure, generic

STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

Identity = tuple[type, str]

_MARK = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder"
_DELETE = "$deleteFromPrimitiveList"
_BEYOND = math.inf
_GO_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64"}


def strategic_merge(obj: JsonObject, patch: JsonObject, shape: Shape) -> JsonObject:
    """Return what the patch makes of `obj`; both may be changed on the way."""
    return _merged(obj, patch, shape)


def go_text(value: Any) -> str:
    """Return a JSON value as Go's %v prints it."""
    if value is None:
        return "<nil>"
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{go_text(value[name])}' for name in sorted(value))}]"
    return f"[{' '.join(map(go_text, value))}]" if isinstance(value, list) else plain(value)


def go_type(value: Any) -> str:
    """Return the type that a JSON value has in Go."""
    if isinstance(value, dict | list):
        return "map[string]interface {}" if isinstance(value, dict) else "[]interface {}"
    return _GO_TYPES.get(type(value), "%!s(<nil>)")


def _merged(original: JsonObject, patch: JsonObject, shape: Shape) -> JsonObject:
    if _MARK in patch:
        return _directed(patch)
    _retain_keys(original, patch)
    _set_orders(original, patch, shape)
    for key, value in patch.items():
        deletes = key.startswith(_DELETE)
        name = _list_name(key, _DELETE) if deletes else key
        if value is None:
            original.pop(name, None)
        elif name in original and type(original[name]) is type(value):
            original[name] = _merged_value(original[name], value, shape, name=name, deletes=deletes)
        elif not deletes:
            _take(original, name, value)
    return original


def _merged_value(original: Any, value: Any, shape: Shape, *, name: str, deletes: bool) -> Any:
    if isinstance(value, dict):
        field = _field(shape, name)
        return _cleaned(value) if _strategy(field) == "replace" else _merged(original, value, field)
    if isinstance(value, list):
        field = _list_field(shape, name)
        if deletes or _strategy(field) == "merge":
            return _merged_list(original, value, field, deletes=deletes)
        return _cleaned(value)
    return value


def _directed(patch: JsonObject) -> JsonObject:
    match patch[_MARK]:
        case "replace":
            taken: JsonObject = _cleaned(patch)
            return taken
        case "delete":
            return {}
    raise _unknown_directive(patch)


def _retain_keys(original: JsonObject, patch: JsonObject) -> None:
    if _RETAIN not in patch:
        return
    retained = patch.pop(_RETAIN)
    directives = (_DELETE, _ORDER)
    wanted = {name for name, value in patch.items() if value is not None and not name.startswith(directives)}
    if not isinstance(retained, list) or any(name not in retained for name in wanted):
        raise bad_request("invalid patch format of retainKeys")
    for name in [name for name in original if name not in retained]:
        del original[name]


# Lists


def _merged_list(original: list[Any], patch: list[Any], field: Shape, *, deletes: bool) -> list[Any]:
    if not original and not patch:
        return original
    key = field.merge_key
    if not _are_objects(original, patch):
        if deletes:
            return _without(original, {_identity(value) for value in patch}, "")
        distinct = list({_identity(value): value for value in original + patch}.values())
        return _in_order(distinct, patch, original, "")
    if not key:
        raise _internal("cannot merge lists without merge key for struct")
    gone, replaces = _special_items(patch, key)
    patch = [item for item in patch if _MARK not in item]
    if replaces:
        taken = [_cleaned(item) for item in patch]
        return _in_order(taken, [], taken, key)
    original = _without(original, gone, key)
    return _in_order(_merged_items(list(original), patch, field), patch, original, key)


def _special_items(patch: list[Any], key: str) -> tuple[set[Identity], bool]:
    """Return which items the patch deletes, and whether it replaces the whole list."""
    gone, replaces = set(), False
    for item in patch:
        if _MARK not in item:
            continue
        match item[_MARK]:
            case "delete":
                gone.add(_item_identity(item, key))
            case "replace":
                replaces = True
            case "merge":
                raise _internal("merging lists cannot yet be specified in the patch")
            case _:
                raise _unknown_directive(item)
    return gone, replaces


def _merged_items(items: list[Any], patch: list[Any], field: Shape) -> list[Any]:
    shape, key = field.items, field.merge_key
    known = _positions([item for item in items if key in item], key)
    for item in patch:
        identity = _item_identity(item, key)
        if identity not in known:
            known[identity] = len(items)
            items.append(_cleaned(item))
        elif shape is not None:
            items[known[identity]] = _merged(items[known[identity]], dict(item), shape)
    return items


def _set_orders(original: JsonObject, patch: JsonObject, shape: Shape) -> None:
    """Follow the directives about order: they say so of lists that the patch may or may not change too."""
    for directive in [name for name in patch if name.startswith(_ORDER)]:
        order = _as_list(patch.pop(directive))
        name = _list_name(directive, _ORDER)
        live = _as_list(original[name]) if name in original else None
        changes = _as_list(patch[name]) if name in patch else None
        field = _list_field(shape, name)
        _check_order(changes or [], order, field.merge_key)
        if live is None and changes is None:
            continue
        places = _places(live or [], changes or [], field)
        if changes is None:
            merged = live or []
        elif live is None:
            merged = _cleaned(_without_directed(changes))
        elif _strategy(field) == "merge":
            merged = _merged_list(live, changes, field, deletes=False)
        else:
            merged = changes
        _are_objects(live or [], changes or [])
        original[name] = _in_order(merged, order, places, field.merge_key)
        patch.pop(name, None)


def _places(live: list[Any], changes: list[Any], field: Shape) -> list[Any]:
    """Return the live list by which items are placed.

    In the real server that is an array in which, meanwhile, items were deleted and new ones written to the room this
    gave. A new item then has a place among the live ones; kubectl's users see that, so it is the same here.
    """
    key = field.merge_key
    if not key or _strategy(field) != "merge" or not all(isinstance(item, dict) for item in changes):
        return live
    gone, replaces = _special_items(changes, key)
    kept = _without(live, gone, key)
    if replaces:
        return kept
    known = _positions(kept, key)
    new = [item for item in changes if _MARK not in item and _item_identity(item, key) not in known]
    return (kept + new)[: len(live)]


def _check_order(changes: list[Any], order: list[Any], key: str) -> None:
    """Refuse a patch whose items are not in the order that it asks for."""
    if not order or not changes:
        return
    items = [item for item in changes if not key or _as_object(item).get(_MARK) != "delete"]
    at = 0
    for each in order:
        while at < len(items) and _is_directed(items[at]):
            at += 1
        if at < len(items) and _item_identity(items[at], key) == _item_identity(each, key):
            at += 1
    if at < len(items):
        said = f"The order in patch list:\n{go_text(changes)}\n doesn't match {_ORDER} list:\n{go_text(order)}\n"
        raise _internal(said)


def _in_order(items: list[Any], order: list[Any], live: list[Any], key: str) -> list[Any]:
    """Return the items that `order` has in that order, and the others at the places that `live` gives them."""
    ranks, places = _positions(order, key), _positions(live, key)
    known = [(_item_identity(item, key), item) for item in items]
    named = _sorted([each for each in known if each[0] in ranks], ranks)
    others = deque(_sorted([each for each in known if each[0] not in ranks], places))
    result: list[Any] = []
    for identity, item in named:
        rank = places.get(identity, -1)
        while others and 0 <= places.get(others[0][0], -1) < rank:
            result.append(others.popleft()[1])
        result.append(item)
    return result + [item for _, item in others]


def _sorted(items: list[tuple[Identity, Any]], positions: dict[Identity, int]) -> list[tuple[Identity, Any]]:
    """Sort as Go's stable sort does with the comparison that the real server gives it.

    Items without a position are less than any other there, and than each other, which is no order; where they end up
    is a matter of how a short list is sorted: by insertion.
    """
    result: list[tuple[Identity, Any]] = []
    for item in items:
        rank, at = positions.get(item[0]), len(result)
        while at and (rank is None or rank < positions.get(result[at - 1][0], _BEYOND)):
            at -= 1
        result.insert(at, item)
    return result


def _positions(items: list[Any], key: str) -> dict[Identity, int]:
    """Return where each item is for the first time."""
    found: dict[Identity, int] = {}
    for at, item in enumerate(items):
        found.setdefault(_item_identity(item, key), at)
    return found


def _without(items: list[Any], gone: set[Identity], key: str) -> list[Any]:
    return [item for item in items if (key and key not in item) or _item_identity(item, key) not in gone]


def _are_objects(*lists: list[Any]) -> bool:
    """Tell what the lists hold; that must be one type of thing, and not a list."""
    items = [item for each in lists for item in each]
    if not items:
        raise _internal("no elements in any of the given slices")
    if isinstance(items[0], list):
        raise Refused(generic(422))
    if not all(type(item) is type(items[0]) for item in items):
        raise _internal(f"list element types are not identical: {go_text([list(each) for each in lists])}")
    return isinstance(items[0], dict)


def _item_identity(item: Any, key: str) -> Identity:
    """Return what tells an item from others: the item itself, or what it has under the merge key."""
    if not key:
        return _identity(item)
    if key not in _as_object(item):
        raise _internal(f"map: {go_text(item)} does not contain declared merge key: {key}")
    return _identity(item[key])


def _identity(value: Any) -> Identity:
    """Return what only an equal value has too; true is not 1."""
    return type(value), go_text(value)


# Values


def _take(original: JsonObject, name: str, value: Any) -> None:
    """Set what the original does not have; an object that is a directive has nothing to act on."""
    if _is_directed(value):
        original.pop(name, None)
    else:
        original[name] = _cleaned(_without_directed(value))


def _without_directed(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_directed(item) for item in value if not _is_directed(item)]
    if isinstance(value, dict):
        return {name: _without_directed(item) for name, item in value.items() if not _is_directed(item)}
    return value


def _is_directed(value: Any) -> bool:
    return isinstance(value, dict) and _MARK in value


def _cleaned(value: Any) -> Any:
    """Return `value` as the real server decodes it, which ignores nulls and what is no field of the type."""
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        kept = {name: item for name, item in value.items() if item is not None and not _is_directive(name)}
        return {name: _cleaned(item) for name, item in kept.items()}
    return value


def _is_directive(name: str) -> bool:
    return name in (_MARK, _RETAIN) or name.startswith((_ORDER, _DELETE))


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _internal(f"expected a []interface {{}}, but received a {go_type(value)}")
    return value


def _as_object(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise _internal(f"expected a map[string]interface {{}}, but received a {go_type(value)}")
    return value


# Shapes


def _field(shape: Shape, name: str) -> Shape:
    if shape.kind != "object" or not shape.declared:
        said = f"merging an object in json but data type is not struct, instead is: {_go_kind(shape)}"
        raise _internal(said)
    field = shape.field(name)
    if field is None:
        struct = shape.name.rpartition(".")[2]
        raise _internal(f"unable to find api field in struct {struct} for the json field {quoted(name)}")
    return field


def _list_field(shape: Shape, name: str) -> Shape:
    field = _field(shape, name)
    if field.kind != "list":
        raise _internal("expected slice or array type, but got: struct")
    return field


def _go_kind(shape: Shape) -> str:
    return {"object": "map", "list": "slice", "string": "string"}.get(shape.kind, "interface")


def _strategy(field: Shape) -> str:
    """Return the strategy besides retainKeys, which only tells clients to send the directive."""
    return ",".join(each for each in field.patch_strategy.split(",") if each != "retainKeys")


def _list_name(directive: str, prefix: str) -> str:
    found, slash, name = directive.partition("/")
    if not slash or found != prefix:
        kind = "primitive list" if prefix == _DELETE else "setElementOrder list"
        raise bad_request(f"invalid patch format of {kind}")
    return name


# Refusals


def _internal(message: str) -> Refused:
    return Refused(failure(500, "", message))


def _unknown_directive(item: JsonObject) -> Refused:
    return _internal(f"unknown patch type: {go_text(item[_MARK])} in map: {go_text(item)}")
