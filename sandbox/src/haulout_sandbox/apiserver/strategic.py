"""Strategic merge patch: a merge patch that knows which lists are sets and which have items with a key.

Follows apimachinery's `util/strategicpatch`, directives included:

    $patch: replace | delete            on an object or a list item: take mine, or drop it
    $retainKeys: [names]                drop all other keys of this object
    $setElementOrder/<list>: [items]    the order of the items named; others stay behind the items that they follow
    $deleteFromPrimitiveList/<list>     drop these values
"""

from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.shapes import DEDUCED, Shape
from haulout_sandbox.apiserver.status import Refused, bad_request, failure

STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

_PATCH, _RETAIN = "$patch", "$retainKeys"
_ORDER, _DELETE = "$setElementOrder/", "$deleteFromPrimitiveList/"
_DIRECTIVES = (_PATCH, _RETAIN, _ORDER, _DELETE)


def strategic_merge(obj: JsonObject, patch: JsonObject, shape: Shape) -> JsonObject:
    """Return what the patch makes of `obj`, which stays as it is."""
    directive = patch.get(_PATCH)
    if directive not in (None, "replace", "delete"):
        raise bad_request(f"unknown directive {_PATCH}: {directive}")
    if directive:
        return _new(patch) if directive == "replace" else {}
    result = dict(obj)
    if _RETAIN in patch:
        result = {name: value for name, value in result.items() if name in _checked_list(patch[_RETAIN])}
    for name, gone in _directed(patch, _DELETE):
        if isinstance(result.get(name), list):
            result[name] = [item for item in result[name] if item not in gone]
    for name, value in patch.items():
        if not name.startswith(_DIRECTIVES):
            result[name] = _value(result.get(name), value, shape.field(name) or DEDUCED)
    for name, order in _directed(patch, _ORDER):
        if isinstance(result.get(name), list):
            result[name] = _in_order(result[name], order, (shape.field(name) or DEDUCED).merge_key)
    return {name: value for name, value in result.items() if value is not None}


def _directed(patch: JsonObject, directive: str) -> list[tuple[str, list[Any]]]:
    """Return the lists that a directive is about, and what it says of each."""
    return [
        (name.removeprefix(directive), _checked_list(value))
        for name, value in patch.items()
        if name.startswith(directive)
    ]


def _value(live: Any, patch: Any, field: Shape) -> Any:
    merges = "merge" in field.patch_strategy.split(",")
    if isinstance(patch, dict):
        if isinstance(live, dict) and "replace" not in field.patch_strategy.split(","):
            return strategic_merge(live, patch, field)
        return None if _deletes(patch) else _new(patch)
    if isinstance(patch, list) and merges:
        return _merged_list(live if isinstance(live, list) else [], patch, field)
    return _new(patch)


def _merged_list(live: list[Any], patch: list[Any], field: Shape) -> list[Any]:
    key = field.merge_key
    if not key:
        return live + [item for item in patch if item not in live]
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in patch):
        return [_new(item) for item in patch if _PATCH not in item]
    items = list(live)
    for item in patch:
        identity = _identity(item, key)
        # Ports of two protocols have the same key: the first is meant, and all are deleted.
        at = next((at for at, it in enumerate(items) if _identity(it, key) == identity), None)
        if item.get(_PATCH) == "delete":
            items = [it for it in items if _identity(it, key) != identity]
        elif at is None:
            items.append(_new(item))
        else:
            items[at] = strategic_merge(items[at], item, field.items or DEDUCED)
    return items


def _in_order(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """Return the items that `order` has in that order; each of the others follows the one that it follows now."""
    ranks = {_identity(item, key): rank for rank, item in reversed(list(enumerate(order)))}
    groups: list[tuple[int, list[Any]]] = [(-1, [])]
    for item in items:
        rank = ranks.get(_identity(item, key))
        if rank is None:
            groups[-1][1].append(item)
        else:
            groups.append((rank, [item]))
    return [item for _, group in sorted(groups, key=lambda group: group[0]) for item in group]


def _identity(item: Any, key: str) -> str:
    """Return what tells an item from others: the item itself, or what it has under the merge key."""
    if key and (not isinstance(item, dict) or key not in item):
        raise Refused(failure(500, "", f"a list item does not contain its merge key: {key}"))
    return msgspec.json.encode(item[key] if key else item, order="sorted").decode()


def _new(value: Any) -> Any:
    """Return a part of the patch that there is nothing to merge with: without nulls and directives."""
    if isinstance(value, list):
        return [_new(item) for item in value if not _deletes(item)]
    if isinstance(value, dict):
        kept = {name: item for name, item in value.items() if item is not None and not name.startswith(_DIRECTIVES)}
        return {name: _new(item) for name, item in kept.items() if not _deletes(item)}
    return value


def _deletes(value: Any) -> bool:
    return isinstance(value, dict) and value.get(_PATCH) == "delete"


def _checked_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request("a directive of the patch is no list")
    return value
