"""Says where an applied configuration does not fit the shape of its kind, in the words of structured-merge-diff.

The real server prints Go values into some of these messages, with the types that hold them; clients show them as they
are, so they are the same here.
"""

from collections.abc import Iterator
from typing import Any

from haulout_sandbox.apiserver.fields import plain, quoted
from haulout_sandbox.apiserver.fieldsets import NoElement, element, path_text
from haulout_sandbox.apiserver.shapes import ANY, Shape
from haulout_sandbox.apiserver.strategic import go_text, go_type


def problems(value: Any, shape: Shape) -> str:
    """Return what is wrong with `value`, or nothing."""
    found = [f"{path}: {message}" if path else message for path, message in _problems(value, shape, "")]
    return "\n  ".join(["errors:", *found]) if len(found) > 1 else "".join(found)


def _problems(value: Any, shape: Shape, path: str) -> Iterator[tuple[str, str]]:
    if value is None or shape.kind in ("any", "deduced"):
        return
    if shape.kind == "object":
        yield from _in_object(value, shape, path)
    elif shape.kind == "list":
        yield from _in_list(value, shape, path)
    else:
        message = _wrong_scalar(value, shape.kind)
        if message:
            yield path, message


def _in_object(value: Any, shape: Shape, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, f"expected map, got &{{{go_text(value)}}}"
        return
    for name, item in sorted(value.items()):
        field = shape.field(name)
        if field is None:
            yield f"{path}.{name}", "field not declared in schema"
            return
        yield from _problems(item, field, f"{path}.{name}")


def _in_list(value: Any, shape: Shape, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list):
        yield path, f"expected list, got &{{{go_text(value)}}}"
        return
    seen = set()
    for at, item in enumerate(value):
        name = f"[{at}]"
        if not shape.atomic:
            try:
                name = path_text((element(item, shape),))
            except NoElement as problem:
                yield path, f"element {at}: {problem}"
                return
            if name in seen:
                yield path, f"duplicate entries for key {name}"
            seen.add(name)
        yield from _problems(item, shape.items or ANY, path + name)


def _wrong_scalar(value: Any, kind: str) -> str:
    if kind == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
        return f"expected numeric (int or float), got {go_type(value)}"
    if kind == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
    if kind == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got &{{{go_text(value)}}}"
    if kind == "scalar" and isinstance(value, dict | list):
        return f"expected any scalar, got &{{{go_text(value)}}}"
    return ""


def _go_syntax(value: Any) -> str:
    """Return a JSON value as Go's %#v prints it."""
    if isinstance(value, dict):
        inner = ", ".join(f"{quoted(name)}:{_go_syntax(value[name])}" for name in sorted(value))
    elif isinstance(value, list):
        inner = ", ".join(map(_go_syntax, value))
    else:
        return quoted(value) if isinstance(value, str) else ("interface {}(nil)" if value is None else plain(value))
    return f"{go_type(value)}{{{inner}}}"
