"""Label and field selectors of the sandbox's API server.

Labels: equality (`a=b`, `a==b`, `a!=b`), sets (`a in (x,y)`, `a notin (x)`), existence (`a`, `!a`), order (`a>1`,
`a<1`), and the structured form of PodDisruptionBudgets. Fields: equality on the fields the kind's row names.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from haulout.sandbox.apiserver.kinds import EVENT, NAMESPACE, NODE, POD, JsonObject, Kind
from haulout.sandbox.apiserver.status import bad_request

Labels = Mapping[str, str]
Test = Callable[[Labels], bool]

_COMMA = re.compile(r",(?![^(]*\))")  # not those inside parentheses
_KEY = r"(?P<key>[A-Za-z0-9][\w./-]*)"
_EXISTS = re.compile(rf"(?P<absent>!?)\s*{_KEY}")
_COMPARES = re.compile(rf"{_KEY}\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>[\w.-]*)")
_SET = re.compile(rf"{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[\w.,\s-]*)\)")
_FIELD = re.compile(r"(?P<field>[^=!]*)(?P<operator>==|=|!=)(?P<value>.*)")
_WITH_OWN_FIELDS = (POD, NODE, NAMESPACE, EVENT)  # their unknown fields are refused in other words


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects of a kind a request is about."""

    kind: Kind
    namespace: str = ""  # "": all
    labels: tuple[Test, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()  # field, equal or not, value

    @property
    def selects(self) -> bool:
        """Tell whether labels or fields narrow it."""
        return bool(self.labels or self.fields)

    def matches(self, obj: JsonObject) -> bool:
        """Tell whether `obj` is meant."""
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        labels = meta.get("labels", {})
        return all(test(labels) for test in self.labels) and all(
            (_value(self.kind, obj, field) == value) is equal for field, equal, value in self.fields
        )


def selection(kind: Kind, namespace: str, *, labels: str = "", fields: str = "") -> Selection:
    """Return what the selectors of a request select; refuses what the server would."""
    tests = tuple(_label_test(part.strip()) for part in _COMMA.split(labels)) if labels.strip() else ()
    terms = tuple(_field_term(kind, part) for part in fields.split(",") if part)
    return Selection(kind=kind, namespace=namespace, labels=tests, fields=terms)


def structured(selector: JsonObject | None) -> Test:
    """Return the meaning of a LabelSelector object: null selects nothing, an empty one everything."""
    if selector is None:
        return lambda _: False
    tests = [_any_of(key, [value], wanted=True) for key, value in selector.get("matchLabels", {}).items()]
    tests += [_expression(it) for it in selector.get("matchExpressions", [])]
    return lambda labels: all(test(labels) for test in tests)


def _expression(it: JsonObject) -> Test:
    key, operator = it["key"], it["operator"]
    match operator:
        case "In" | "NotIn":
            return _any_of(key, it["values"], wanted=operator == "In")
        case "Exists" | "DoesNotExist":
            return lambda labels: (key in labels) is (operator == "Exists")
        case _:
            return lambda _: False


def _label_test(text: str) -> Test:
    if found := _EXISTS.fullmatch(text):
        key, present = found["key"], not found["absent"]
        return lambda labels: (key in labels) is present
    if found := _SET.fullmatch(text):
        values = [value.strip() for value in found["values"].split(",")]
        return _any_of(found["key"], values, wanted=found["operator"] == "in")
    if (found := _COMPARES.fullmatch(text)) and found["operator"] in "<>":
        return _ordered(found["key"], found["operator"], found["value"])
    if found:
        return _any_of(found["key"], [found["value"]], wanted=found["operator"] != "!=")
    raise bad_request(f"unable to parse requirement: {text}")


def _any_of(key: str, values: Sequence[str], *, wanted: bool) -> Test:
    return lambda labels: (key in labels and labels[key] in values) is wanted


def _ordered(key: str, operator: str, bound: str) -> Test:
    if not bound.isdecimal():
        raise bad_request(f"values[0][{key}]: Invalid value: \"{bound}\": for 'Gt', 'Lt' operators, must be an integer")

    def test(labels: Labels) -> bool:
        value = labels.get(key, "")
        return value.isdecimal() and (int(value) > int(bound) if operator == ">" else int(value) < int(bound))

    return test


def _field_term(kind: Kind, text: str) -> tuple[str, bool, str]:
    found = _FIELD.fullmatch(text)
    if not found:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    field = found["field"]
    if field not in kind.fields:
        known = 'only "metadata.name", "metadata.namespace"'
        raise bad_request(
            f"field label not supported: {field}"
            if kind in _WITH_OWN_FIELDS or kind.rules
            else f'"{field}" is not a known field selector: {known}'
        )
    return field, found["operator"] != "!=", found["value"]


def _value(kind: Kind, obj: JsonObject, field: str) -> str:
    value: object = obj
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        value = kind.field_defaults.get(field, "")
    return str(value).lower() if isinstance(value, bool) else str(value)
