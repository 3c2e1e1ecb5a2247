"""Label selectors as text: what they mean, and what the real server says about those that mean nothing.

Follows the lexer and parser of `apimachinery/pkg/labels/selector.go`.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from haulout_sandbox.apiserver import fields
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.names import label_value_problems, qualified_problems
from haulout_sandbox.apiserver.status import Refused, bad_request

Labels = Mapping[str, str]
Test = Callable[[Labels], bool]

_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+|$)")
_SYMBOLS = frozenset(("==", "!=", "=", "!", "(", ")", ",", "<", ">", ""))
_COMPARES = ("in", "notin", "=", "==", "!=", "gt", "lt")  # as the server lists them
_INTEGER = re.compile(r"[+-]?[0-9]+")


def label_tests(text: str) -> tuple[Test, ...]:
    """Return what labels must pass; refuses what is no selector."""
    return tuple(_Parser(text).tests())


def any_of(key: str, values: Sequence[str], *, wanted: bool) -> Test:
    """Return the test that a label has one of the values, or, if not `wanted`, that it has none of them."""
    return lambda labels: (key in labels and labels[key] in values) is wanted


def exists(key: str, *, wanted: bool) -> Test:
    """Return the test that there is such a label, or none."""
    return lambda labels: (key in labels) is wanted


def _is_identifier(token: str) -> bool:
    return token not in _SYMBOLS


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [found[1] for found in _TOKEN.finditer(text.partition("\0")[0])]
        if self._tokens[-1]:
            self._tokens.append("")

    def tests(self) -> list[Test]:
        tests: list[Test] = []
        while first := self._tokens[0]:
            if first != "!" and not _is_identifier(first):
                raise bad_request(f"found '{first}', expected: !, identifier, or 'end of string'")
            try:
                tests.append(self._requirement())
            except Refused as refused:
                raise bad_request(f"unable to parse requirement: {refused}") from None
            after = self._take()
            if after == "," and self._tokens[0] != "!" and not _is_identifier(self._tokens[0]):
                raise bad_request(f"found '{self._tokens[0]}', expected: identifier after ','")
            if after not in (",", ""):
                raise bad_request(f"found '{after}', expected: ',' or 'end of string'")
            if not after:
                break
        return tests

    def _take(self) -> str:
        return self._tokens.pop(0) if self._tokens[0] else ""

    def _requirement(self) -> Test:
        absent = self._tokens[0] == "!"
        if absent:
            self._take()
        key = self._identifier()
        _refuse("", key, qualified_problems(key))
        if absent or self._tokens[0] in ("", ","):
            return exists(key, wanted=not absent)
        operator = self._take()
        if operator in ("in", "notin"):
            values = self._values()
            _check_values(key, values)
            return any_of(key, values, wanted=operator == "in")
        if operator not in ("=", "==", "!=", "<", ">"):
            raise bad_request(f"found '{operator}', expected: {', '.join(_COMPARES)}")
        value = "" if self._tokens[0] in ("", ",") else self._identifier()
        if operator in "<>":
            return _ordered(key, operator, value)
        _check_values(key, [value])
        return any_of(key, [value], wanted=operator != "!=")

    def _identifier(self) -> str:
        token = self._take()
        if not _is_identifier(token):
            raise bad_request(f"found '{token}', expected: identifier")
        return token

    def _values(self) -> list[str]:
        if (opening := self._take()) != "(":
            raise bad_request(f"found '{opening}' expected: '('")
        first = self._tokens[0]
        if first not in (")", ",") and not _is_identifier(first):
            raise bad_request(f"found '{first}', expected: ',', ')' or identifier")
        values = [""]  # what stands between two commas, or beside one, may be nothing
        while (next_one := self._take()) != ")":
            if next_one == ",":
                values.append("")
            elif not _is_identifier(next_one):
                raise bad_request(f"found '{next_one}', expected: ',', or identifier")
            else:
                values[-1] = next_one
                if self._tokens[0] not in (",", ")"):
                    raise bad_request(f"found '{self._tokens[0]}', expected: ',' or ')'")
        return sorted(set(values))


def _ordered(key: str, operator: str, bound: str) -> Test:
    if not _INTEGER.fullmatch(bound):
        rule = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise bad_request(_said(fields.invalid("values[0]", bound, rule)))

    def test(labels: Labels) -> bool:
        value = labels.get(key, "")
        if not _INTEGER.fullmatch(value):
            return False
        return int(value) > int(bound) if operator == ">" else int(value) < int(bound)

    return test


def _check_values(key: str, values: Sequence[str]) -> None:
    for number, value in enumerate(values):
        _refuse(f"values[{number}][{key}]", value, label_value_problems(value))


def _refuse(path: str, value: str, problems: Sequence[str]) -> None:
    if problems:
        raise bad_request(_said(fields.invalid(path, value, "; ".join(problems))))


def _said(cause: JsonObject) -> str:
    return f"{cause['field']}: {cause['message']}"
