"""JSON patch (RFC 6902) and merge patch (RFC 7386), as the real server applies them.

Its JSON patch library is looser than the RFC in one place, and so is this: `replace` of a key that an object does not
have sets it. A patch that does not apply, a failed `test` included, is always the same 422, which does not say why.
"""

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from haulout_sandbox.apiserver.bodies import decode
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.status import Refused, bad_request, failure, generic

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


class _DoesNotApply(Exception):
    pass


def same_json(left: Any, right: Any) -> bool:
    """Compare as JSON does: true is not 1, 1 is not 1.0, the order of keys is nothing."""
    if left is right:
        return True
    if left != right:  # what is the same as JSON is equal as Python, too, and this is found out much faster
        return False
    return msgspec.json.encode(left, order="sorted") == msgspec.json.encode(right, order="sorted")


def patched(obj: JsonObject, body: bytes, content_type: str) -> JsonObject:
    """Return what the patch makes of `obj`. A merge patch leaves that as it is, a JSON patch may change it."""
    kind = content_type.partition(";")[0]
    if kind not in (JSON_PATCH, MERGE_PATCH):
        raise Refused(failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {}))
    result = merged(obj, _merge_patch(body)) if kind == MERGE_PATCH else _json_patched(obj, _operations(body))
    if not isinstance(result, dict):
        raise Refused(generic(422))
    return result


def _merge_patch(body: bytes) -> JsonObject:
    patch = decode(body)
    if not isinstance(patch, dict):
        raise bad_request("a merge patch must be an object")
    return patch


def _operations(body: bytes) -> list[JsonObject]:
    """Return the operations of a JSON patch."""
    patch = decode(body)
    if not isinstance(patch, list) or not all(_is_operation(it) for it in patch):
        raise bad_request("a JSON patch must be a list of operations")
    return patch


def _is_operation(it: Any) -> bool:
    return isinstance(it, dict) and all(isinstance(it.get(name) or "", str) for name in ("op", "path", "from"))


def merged(target: Any, patch: Any) -> Any:
    """Return what a merge patch makes of `target`, sharing what it leaves alone."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value) if isinstance(value, dict) else value
    return result


def _json_patched(obj: JsonObject, operations: list[JsonObject]) -> Any:
    document = {"": obj}  # so that the whole document has a parent too
    try:
        for operation in operations:
            _OPERATIONS[operation["op"]](document, operation)
    except (_DoesNotApply, KeyError):
        raise Refused(generic(422)) from None
    return document[""]


def _place(document: JsonObject, pointer: str) -> tuple[Any, str]:
    """Return what holds the place that `pointer` names, and the place's name in it."""
    if pointer and not pointer.startswith("/"):
        raise _DoesNotApply
    *way, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/"))
    holder: Any = document
    for part in way:
        holder = _read(holder, part)
    if not isinstance(holder, dict | list):
        raise _DoesNotApply
    return holder, last


def _index(name: str, *, length: int) -> int:
    if not name.isdecimal() or int(name) >= length:
        raise _DoesNotApply
    return int(name)


def _read(holder: Any, name: str) -> Any:
    if isinstance(holder, list):
        return holder[_index(name, length=len(holder))]
    if not isinstance(holder, dict) or name not in holder:
        raise _DoesNotApply
    return holder[name]


def _add(document: JsonObject, pointer: str, value: Any) -> None:
    holder, name = _place(document, pointer)
    if isinstance(holder, dict):
        holder[name] = value
    elif name == "-":
        holder.append(value)
    else:
        holder.insert(_index(name, length=len(holder) + 1), value)


def _remove(document: JsonObject, pointer: str) -> Any:
    holder, name = _place(document, pointer)
    value = _read(holder, name)
    if isinstance(holder, dict):
        del holder[name]
    else:
        del holder[int(name)]
    return value


def _replace(document: JsonObject, pointer: str, value: Any) -> None:
    holder, name = _place(document, pointer)
    if isinstance(holder, dict):
        holder[name] = value
    else:
        holder[_index(name, length=len(holder))] = value


def _test(document: JsonObject, pointer: str, value: Any) -> None:
    holder, name = _place(document, pointer)
    found = holder.get(name) if isinstance(holder, dict) else _read(holder, name)
    if not same_json(found, value):
        raise _DoesNotApply


_OPERATIONS: dict[str, Callable[[JsonObject, JsonObject], object]] = {
    "add": lambda document, it: _add(document, it["path"], it.get("value")),
    "remove": lambda document, it: _remove(document, it["path"]),
    "replace": lambda document, it: _replace(document, it["path"], it.get("value")),
    "move": lambda document, it: _add(document, it["path"], _remove(document, it["from"])),
    "copy": lambda document, it: _add(document, it["path"], copy.deepcopy(_read(*_place(document, it["from"])))),
    "test": lambda document, it: _test(document, it["path"], it.get("value")),
}
