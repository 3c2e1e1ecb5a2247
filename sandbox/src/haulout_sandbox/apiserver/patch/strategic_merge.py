"""Strategic merge patch: a merge patch that distinguishes atomic lists, sets and lists with a merge key.

Follows apimachinery's `util/strategicpatch`, directives included:

    $patch: replace | delete            on an object or a list item: replace or remove it
    $retainKeys: [names]                remove all other keys of this object
    $setElementOrder/<list>: [items]    the order of these items; others keep their place after their predecessor
    $deleteFromPrimitiveList/<list>     remove these values
"""

from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.patch.merge_schema import DEDUCED, MergeSchema
from haulout_sandbox.apiserver.status import StatusError, bad_request, failure_status

STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

_PATCH, _RETAIN = "$patch", "$retainKeys"
_ORDER, _DELETE = "$setElementOrder/", "$deleteFromPrimitiveList/"
_DIRECTIVES = (_PATCH, _RETAIN, _ORDER, _DELETE)


def strategic_merge(obj: JsonObject, patch: JsonObject, schema: MergeSchema) -> JsonObject:
    """Return `obj` with the patch applied; `obj` itself is not changed."""
    directive = patch.get(_PATCH)
    if directive not in (None, "replace", "delete"):
        raise bad_request(f"unknown directive {_PATCH}: {directive}")
    if directive:
        return _without_directives(patch) if directive == "replace" else {}
    result = dict(obj)
    if _RETAIN in patch:
        result = {name: value for name, value in result.items() if name in _require_list(patch[_RETAIN])}
    for name, deleted in _directive_lists(patch, _DELETE):
        if isinstance(result.get(name), list):
            result[name] = [item for item in result[name] if item not in deleted]
    for name, value in patch.items():
        if not name.startswith(_DIRECTIVES):
            result[name] = _merge_value(result.get(name), value, schema.field(name) or DEDUCED)
    for name, order in _directive_lists(patch, _ORDER):
        if isinstance(result.get(name), list):
            result[name] = _reorder(result[name], order, (schema.field(name) or DEDUCED).merge_key)
    return {name: value for name, value in result.items() if value is not None}


def _directive_lists(patch: JsonObject, directive: str) -> list[tuple[str, list[Any]]]:
    """Return the lists that a directive names, each with the directive's value."""
    return [
        (name.removeprefix(directive), _require_list(value))
        for name, value in patch.items()
        if name.startswith(directive)
    ]


def _merge_value(live: Any, patch: Any, schema: MergeSchema) -> Any:
    is_merged = "merge" in schema.patch_strategy.split(",")
    if isinstance(patch, dict):
        if isinstance(live, dict) and "replace" not in schema.patch_strategy.split(","):
            return strategic_merge(live, patch, schema)
        return None if _is_deletion(patch) else _without_directives(patch)
    if isinstance(patch, list) and is_merged:
        return _merge_list(live if isinstance(live, list) else [], patch, schema)
    return _without_directives(patch)


def _merge_list(live: list[Any], patch: list[Any], schema: MergeSchema) -> list[Any]:
    key = schema.merge_key
    if not key:
        return live + [item for item in patch if item not in live]
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" for item in patch):
        return [_without_directives(item) for item in patch if _PATCH not in item]
    items = list(live)
    for item in patch:
        item_key = _item_key(item, key)
        # Ports of two protocols share a merge key: the first one is merged, and a delete removes all.
        index = next((index for index, existing in enumerate(items) if _item_key(existing, key) == item_key), None)
        if item.get(_PATCH) == "delete":
            items = [existing for existing in items if _item_key(existing, key) != item_key]
        elif index is None:
            items.append(_without_directives(item))
        else:
            items[index] = strategic_merge(items[index], item, schema.items or DEDUCED)
    return items


def _reorder(items: list[Any], order: list[Any], key: str) -> list[Any]:
    """Return the items that `order` names in that order; each other item stays after its current predecessor."""
    ranks = {_item_key(item, key): rank for rank, item in reversed(list(enumerate(order)))}
    groups: list[tuple[int, list[Any]]] = [(-1, [])]
    for item in items:
        rank = ranks.get(_item_key(item, key))
        if rank is None:
            groups[-1][1].append(item)
        else:
            groups.append((rank, [item]))
    return [item for _, group in sorted(groups, key=lambda group: group[0]) for item in group]


def _item_key(item: Any, key: str) -> str:
    """Return the identity of an item: the item itself, or its value of the merge key."""
    if key and (not isinstance(item, dict) or key not in item):
        raise StatusError(failure_status(500, "", f"a list item does not contain its merge key: {key}"))
    return msgspec.json.encode(item[key] if key else item, order="sorted").decode()


def _without_directives(value: Any) -> Any:
    """Return a part of the patch with no counterpart in the object, without nulls and directives."""
    if isinstance(value, list):
        return [_without_directives(item) for item in value if not _is_deletion(item)]
    if isinstance(value, dict):
        fields = {name: item for name, item in value.items() if item is not None and not name.startswith(_DIRECTIVES)}
        return {name: _without_directives(item) for name, item in fields.items() if not _is_deletion(item)}
    return value


def _is_deletion(value: Any) -> bool:
    return isinstance(value, dict) and value.get(_PATCH) == "delete"


def _require_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request("a directive of the patch is no list")
    return value
