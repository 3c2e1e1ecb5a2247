"""JSON patch (RFC 6902) and merge patch (RFC 7386), as the real server applies them.

Its JSON patch library deviates from the RFC in one point, and so does this: `replace` of a key that an object does not
have sets it. A patch that does not apply, a failed `test` included, always gets the same 422, which does not say why.
"""

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.serializer.request_body import decode_json
from haulout_sandbox.apiserver.status import StatusError, bad_request, failure_status, generic_status

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


class _DoesNotApply(Exception):
    pass


def equal_json(left: Any, right: Any) -> bool:
    """Compare as JSON: true is not 1, 1 is not 1.0, and the order of keys does not matter."""
    if left is right:
        return True
    if left != right:  # values equal as JSON are equal in Python, which is much faster to compare
        return False
    return msgspec.json.encode(left, order="sorted") == msgspec.json.encode(right, order="sorted")


def apply_patch(obj: JsonObject, body: bytes, content_type: str) -> JsonObject:
    """Return `obj` with the patch applied. A merge patch does not change `obj`, a JSON patch may."""
    media_type = content_type.partition(";")[0]
    if media_type not in (JSON_PATCH, MERGE_PATCH):
        raise StatusError(failure_status(415, "UnsupportedMediaType", "415: Unsupported Media Type", {}))
    result = (
        apply_merge_patch(obj, _decode_merge_patch(body))
        if media_type == MERGE_PATCH
        else _apply_json_patch(obj, _decode_operations(body))
    )
    if not isinstance(result, dict):
        raise StatusError(generic_status(422))
    return result


def _decode_merge_patch(body: bytes) -> JsonObject:
    patch = decode_json(body)
    if not isinstance(patch, dict):
        raise bad_request("a merge patch must be an object")
    return patch


def _decode_operations(body: bytes) -> list[JsonObject]:
    patch = decode_json(body)
    if not isinstance(patch, list) or not all(_is_operation(operation) for operation in patch):
        raise bad_request("a JSON patch must be a list of operations")
    return patch


def _is_operation(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name) or "", str) for name in ("op", "path", "from"))


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """Return the result of a merge patch; it shares unchanged parts with `target`."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value) if isinstance(value, dict) else value
    return result


def _apply_json_patch(obj: JsonObject, operations: list[JsonObject]) -> Any:
    root = {"": obj}  # gives the whole document a parent, too
    try:
        for operation in operations:
            _OPERATIONS[operation["op"]](root, operation)
    except (_DoesNotApply, KeyError):
        raise StatusError(generic_status(422)) from None
    return root[""]


def _resolve_pointer(document: JsonObject, pointer: str) -> tuple[Any, str]:
    """Return the container that `pointer` refers into, and the key in it."""
    if pointer and not pointer.startswith("/"):
        raise _DoesNotApply
    *parents, name = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/"))
    container: Any = document
    for part in parents:
        container = _get(container, part)
    if not isinstance(container, dict | list):
        raise _DoesNotApply
    return container, name


def _index(name: str, *, length: int) -> int:
    if not name.isdecimal() or int(name) >= length:
        raise _DoesNotApply
    return int(name)


def _get(container: Any, name: str) -> Any:
    if isinstance(container, list):
        return container[_index(name, length=len(container))]
    if not isinstance(container, dict) or name not in container:
        raise _DoesNotApply
    return container[name]


def _add(document: JsonObject, pointer: str, value: Any) -> None:
    container, name = _resolve_pointer(document, pointer)
    if isinstance(container, dict):
        container[name] = value
    elif name == "-":
        container.append(value)
    else:
        container.insert(_index(name, length=len(container) + 1), value)


def _remove(document: JsonObject, pointer: str) -> Any:
    container, name = _resolve_pointer(document, pointer)
    value = _get(container, name)
    if isinstance(container, dict):
        del container[name]
    else:
        del container[int(name)]
    return value


def _replace(document: JsonObject, pointer: str, value: Any) -> None:
    container, name = _resolve_pointer(document, pointer)
    if isinstance(container, dict):
        container[name] = value
    else:
        container[_index(name, length=len(container))] = value


def _test(document: JsonObject, pointer: str, value: Any) -> None:
    container, name = _resolve_pointer(document, pointer)
    current = container.get(name) if isinstance(container, dict) else _get(container, name)
    if not equal_json(current, value):
        raise _DoesNotApply


_OPERATIONS: dict[str, Callable[[JsonObject, JsonObject], object]] = {
    "add": lambda document, it: _add(document, it["path"], it.get("value")),
    "remove": lambda document, it: _remove(document, it["path"]),
    "replace": lambda document, it: _replace(document, it["path"], it.get("value")),
    "move": lambda document, it: _add(document, it["path"], _remove(document, it["from"])),
    "copy": lambda document, it: _add(
        document, it["path"], copy.deepcopy(_get(*_resolve_pointer(document, it["from"])))
    ),
    "test": lambda document, it: _test(document, it["path"], it.get("value")),
}
