"""Does a value fit its schema? The answer in the words and the order of the real server.

Follows `kube-openapi/pkg/validation/validate` of Kubernetes 1.36, odd corners included, since clients and people match
on its words: `anyOf` and `oneOf` show the errors of the branch in which most checks were made, a whole number is
compared with a limit cut to a whole number, and a list passes for a string that has a format. Where the real server
goes through a Go map, in no order, this goes by name.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from haulout_sandbox.apiserver import fields, formats
from haulout_sandbox.apiserver.fields import plain
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.structural import Node, Pair

_INT32 = range(-(1 << 31), 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_MOST_FLOAT32 = 3.4028235677973366e38
_MOST_EXACT = 1 << 53


class _Problem(NamedTuple):
    """One finding; `message` is also its identity, the same is not told twice."""

    sort: str
    name: str
    message: str
    value: Any = None
    limit: Any = None

    def cause(self, at: str) -> JsonObject:
        """Return it as a cause of an Invalid, for a value that lies `at` a path of the object."""
        name = self.name.removeprefix(".")
        path = fields.child(at, name) if name else at
        match self.sort:
            case "required":
                cause = fields.required(path)
            case "enum":
                supported = [each if isinstance(each, str) else fields.as_json(each) for each in self.limit]
                cause = fields.not_supported(path, self.value, supported)
            case "too long":
                cause = fields.too_long(path, self.limit)
            case "too many":
                cause = fields.too_many(path, self.value, self.limit)
            case "type":
                cause = fields.type_invalid(path, self.value, self.message)
            case "composite":  # the real server forgets where
                cause = fields.invalid(at, "", self.message)
            case _:
                cause = fields.invalid(path, "" if self.value is None else self.value, self.message)
        return cause


@dataclass(slots=True)
class _Result:
    problems: dict[str, _Problem] = field(default_factory=dict)
    checks: int = 0  # how many were made; decides which branch of an anyOf is shown

    def add(self, problem: _Problem | None) -> None:
        if problem is not None:
            self.problems.setdefault(problem.message, problem)

    def merge(self, other: "_Result") -> None:
        for problem in other.problems.values():
            self.add(problem)
        self.checks += other.checks


_Check = Callable[[Node, Any, str, Pair | None], _Result]


def causes(node: Node, value: Any, *, at: str = "", pair: Pair | None = None) -> list[JsonObject]:
    """Return what is wrong with `value`, which lies `at` a path; with a `pair`, what was wrong before is let pass."""
    found = _ratcheted(node, value, "", pair)
    return [problem.cause(at) for problem in found.problems.values()]


def _ratcheted(node: Node, value: Any, path: str, pair: Pair | None) -> _Result:
    result = _checked(node, value, path, pair)
    if result.problems and pair is not None and pair.unchanged:
        return _Result(checks=result.checks)
    return result


def _checked(node: Node, value: Any, path: str, pair: Pair | None) -> _Result:
    result = _Result()
    if value is None:
        result.merge(_type(node, value, path, pair))
        result.merge(_enum(node, value, path, pair))
        return result
    for check in _checks(node, value):
        result.merge(check(node, value, path, pair))
        result.checks += 1
    result.checks += 1
    return result


def _checks(node: Node, value: Any) -> Iterable[_Check]:
    if node.types or node.format:
        yield _type
    yield _composition
    if isinstance(value, str):
        yield _string
        if node.format and formats.known(node.format):
            yield _format
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield _number
    if isinstance(value, list):
        yield _list
    yield _enum
    if isinstance(value, dict):
        yield _object


# Types


def _type(node: Node, value: Any, path: str, _: Pair | None) -> _Result:
    if value is None:
        if node.types and not node.nullable:
            return _one(_mistyped(path, ",".join(node.types), "null"))
        return _Result(checks=1)
    kind, width = _go_type(value)
    fits = kind in node.types or _fits_as_number(node, value)
    if not isinstance(value, str | list) and node.format and not (fits or width == node.format):
        return _one(_mistyped(path, node.format, width))
    if isinstance(value, str | list) and node.format and not {"number", "integer"}.intersection(node.types):
        return _Result(checks=1)
    return _Result(checks=1) if fits else _one(_mistyped(path, ",".join(node.types), kind))


def _fits_as_number(node: Node, value: Any) -> bool:
    if isinstance(value, float):
        return "integer" in node.types and value.is_integer() and abs(value) < _MOST_EXACT
    return isinstance(value, int) and not isinstance(value, bool) and "number" in node.types


def _go_type(value: Any) -> tuple[str, str]:
    match value:
        case bool():
            return "boolean", ""
        case str():
            return "string", ""
        case int():
            return "integer", "int64"
        case float():
            return "number", "float64"
        case list():
            return "array", ""
        case _:
            return "object", ""


def _format(node: Node, value: Any, path: str, _: Pair | None) -> _Result:
    return _Result() if formats.matches(node.format, value) else _one(_mistyped(path, node.format, value))


def _mistyped(path: str, expected: str, found: str) -> _Problem:
    message = f"{path} in body must be of type {expected}: {fields.quoted(found)}"
    return _Problem("type", path, message, found)


def _enum(node: Node, value: Any, path: str, _: Pair | None) -> _Result:
    allowed = node.raw.get("enum") or []
    if not allowed or any(_same(value, each) for each in allowed if each is not None):
        return _Result()
    message = f"{path} in body should be one of {fields.as_json(allowed)}"
    return _one(_Problem("enum", path, message, value, allowed))


def _same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


# Strings and numbers


def _string(node: Node, value: Any, path: str, _: Pair | None) -> _Result:
    longest, shortest, shape = (node.raw.get(name) for name in ("maxLength", "minLength", "pattern"))
    if longest is not None and len(value) > longest:
        message = f"{path} in body should be at most {longest} chars long"
        return _one(_Problem("too long", path, message, value, longest))
    if shortest is not None and len(value) < shortest:
        return _one(_Problem("", path, f"{path} in body should be at least {shortest} chars long", value))
    if shape:
        try:
            if formats.pattern(shape).search(value):
                return _Result()
        except formats.PatternError as error:
            shape = f"{shape}, but pattern is invalid: {error}"
        return _one(_Problem("", path, f"{path} in body should match '{shape}'", value))
    return _Result()


def _number(node: Node, value: Any, path: str, _: Pair | None) -> _Result:
    result = _Result(checks=1)
    result.add(_out_of_range(node, value, "Checked", path))
    for name, title, check in (
        ("multipleOf", "MultipleOf", _multiple),
        ("minimum", "Minimum boundary", _minimum),
        ("maximum", "Maximum boundary", _maximum),
    ):
        limit = node.raw.get(name)
        if limit is None:
            continue
        misfit = _out_of_range(node, limit, title, path)
        result.add(misfit)
        whole = isinstance(value, int) and misfit is None
        result.add(check(node, value if whole else float(value), math.trunc(limit) if whole else float(limit), path))
    return result


def _out_of_range(node: Node, number: float, title: str, path: str) -> _Problem | None:
    if node.types == ("integer",):
        fits = float(number).is_integer() and int(number) in (_INT32 if node.format == "int32" else _INT64)
    else:
        fits = node.types != ("number",) or node.format != "float" or abs(number) <= _MOST_FLOAT32
    if fits:
        return None
    form = f"with format {node.format}" if node.format else "(default format)"
    return _Problem("composite", path, f"{title} value must be of type {node.types[0]} {form} in {path}")


def _multiple(_: Node, value: float, factor: float, path: str) -> _Problem | None:
    if factor <= 0:
        message = f"factor MultipleOf declared for {path} must be positive: {plain(factor)}"
        return _Problem("", path, message, factor)
    if isinstance(value, int) and isinstance(factor, int):
        fits = value % factor == 0
    else:
        fits = float(1 / factor * value if factor < 1 else value / factor).is_integer()
    return None if fits else _Problem("", path, f"{path} in body should be a multiple of {plain(factor)}", value)


def _minimum(node: Node, value: float, limit: float, path: str) -> _Problem | None:
    exclusive = bool(node.raw.get("exclusiveMinimum"))
    if value > limit or (value == limit and not exclusive):
        return None
    words = "greater than" if exclusive else "greater than or equal to"
    return _Problem("", path, f"{path} in body should be {words} {plain(limit)}", value)


def _maximum(node: Node, value: float, limit: float, path: str) -> _Problem | None:
    exclusive = bool(node.raw.get("exclusiveMaximum"))
    if value < limit or (value == limit and not exclusive):
        return None
    words = "less than" if exclusive else "less than or equal to"
    return _Problem("", path, f"{path} in body should be {words} {plain(limit)}", value)


# Lists and objects


def _list(node: Node, value: Any, path: str, pair: Pair | None) -> _Result:
    result = _Result(checks=1)
    if node.items is not None:
        for at, item in enumerate(value):
            result.merge(_ratcheted(node.items, item, f"{path}[{at}]", pair.index(at) if pair else None))
    least, most = node.raw.get("minItems"), node.raw.get("maxItems")
    if least is not None and len(value) < least:
        result.add(_Problem("", path, f"{path} in body should have at least {least} items", len(value)))
    if most is not None and len(value) > most:
        message = f"{path} in body should have at most {most} items"
        result.add(_Problem("too many", path, message, len(value), most))
    if node.raw.get("uniqueItems") and any(_same(one, other) for at, one in enumerate(value) for other in value[:at]):
        result.add(_Problem("", path, f"{path} in body shouldn't contain duplicates"))
    return result


def _object(node: Node, value: Any, path: str, pair: Pair | None) -> _Result:
    result = _object_size(node, value, path)
    unknown = [name for name in sorted(value) if name not in node.properties]
    if node.raw.get("additionalProperties") is False:
        for name in unknown:
            result.add(_Problem("", path, f"{path}.{name} in body is a forbidden property", name))
    elif node.additional is not None:
        for name in unknown:
            result.merge(_ratcheted(node.additional, value[name], f"{path}.{name}", _pair_of(pair, path, name)))
    for name, below in sorted(node.properties.items()):
        if name in value:
            where = f"{path}.{name}" if path else name
            result.merge(_ratcheted(below, value[name], where, _pair_of(pair, path, name)))
    for name in node.raw.get("required") or ():
        if name not in value:
            result.add(_Problem("required", f"{path}.{name}", f"{path}.{name} in body is required"))
    return result


def _object_size(node: Node, value: JsonObject, path: str) -> _Result:
    result = _Result()
    least, most = node.raw.get("minProperties"), node.raw.get("maxProperties")
    if least is not None and len(value) < least:
        result.add(_Problem("", path, f"{path} in body should have at least {least} properties", len(value)))
    if most is not None and len(value) > most:
        message = f"{path} in body should have at most {most} properties"
        result.add(_Problem("too many", path, message, len(value), most))
    return result


def _pair_of(pair: Pair | None, path: str, name: str) -> Pair | None:
    if pair is None or (not path and name in ("kind", "apiVersion")):
        return None
    return pair.key(name)


# Branches


def _composition(node: Node, value: Any, path: str, pair: Pair | None) -> _Result:
    result = _Result(checks=1)
    if node.any_of:
        result.merge(_any_of(node, value, path, pair))
    if node.one_of:
        result.merge(_one_of(node, value, path, pair))
    if node.all_of:
        result.merge(_all_of(node, value, path, pair))
    if node.negated is not None and not _checked(node.negated, value, path, pair).problems:
        result.add(_composite(path, "must not validate the schema (not)"))
    return result


def _any_of(node: Node, value: Any, path: str, pair: Pair | None) -> _Result:
    failures: list[_Result] = []
    for branch in node.any_of:
        found = _checked(branch, value, path, pair)
        if not found.problems:
            return found
        failures.append(found)
    return _with_best(_one(_composite(path, "must validate at least one schema (anyOf)")), failures)


def _one_of(node: Node, value: Any, path: str, pair: Pair | None) -> _Result:
    found = [_checked(branch, value, path, pair) for branch in node.one_of]
    valid = [each for each in found if not each.problems]
    if len(valid) == 1:
        return valid[0]
    said = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
    result = _one(_composite(path, f"must validate one and only one schema (oneOf). {said}"))
    return result if valid else _with_best(result, found)


def _with_best(result: _Result, failures: list[_Result]) -> _Result:
    result.merge(max(failures, key=lambda each: each.checks))
    return result


def _all_of(node: Node, value: Any, path: str, pair: Pair | None) -> _Result:
    result = _Result()
    found = [_checked(branch, value, path, pair) for branch in node.all_of]
    for each in found:
        result.merge(each)
    if result.problems:
        none = all(each.problems for each in found)
        result.add(_composite(path, f"must validate all the schemas (allOf){'. None validated' if none else ''}"))
    return result


def _composite(path: str, rule: str) -> _Problem:
    return _Problem("composite", path, f"{fields.quoted(path)} {rule}")


def _one(problem: _Problem) -> _Result:
    return _Result({problem.message: problem})
