"""Label and field selectors: as text, and the structured form of PodDisruptionBudgets.

Fields: equality on the fields that the kind's row names.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from haulout_sandbox.apiserver.kinds import EVENT, JsonObject, Kind
from haulout_sandbox.apiserver.names import label_value_problems, qualified_problems
from haulout_sandbox.apiserver.status import bad_request

Labels = Mapping[str, str]
Test = Callable[[Labels], bool]

_WORD = r"[^\s=!(),<>]+"
_BETWEEN = re.compile(r",(?![^()]*\))")  # not inside of parentheses
_REQUIREMENT = re.compile(
    rf"\s*(?P<absent>!\s*)?(?P<key>{_WORD})"
    rf"(?:\s*(?P<operator>==?|!=|<|>)\s*(?P<value>{_WORD})?|\s+(?P<set>in|notin)\s*\((?P<values>[^()=!<>]*)\))?\s*"
)
_FIELD = re.compile(r"(?P<field>.*?)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)


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
        if not self.labels and not self.fields:
            return True
        labels = meta.get("labels", {})
        return all(test(labels) for test in self.labels) and all(
            (_value(self.kind, obj, field) == value) is equal for field, equal, value in self.fields
        )


def selection(kind: Kind, namespace: str, *, labels: str = "", fields: str = "") -> Selection:
    """Return what the selectors of a request select; refuses what the server would."""
    tests = label_tests(labels) if labels else ()
    terms = tuple(_field_term(kind, term) for term in fields.split(",") if term)
    return Selection(kind=kind, namespace=namespace, labels=tests, fields=terms)


def structured(selector: JsonObject | None) -> Test:
    """Return the meaning of a LabelSelector object: null selects nothing, an empty one everything."""
    if selector is None:
        return lambda _: False
    tests = [any_of(key, [value], wanted=True) for key, value in selector.get("matchLabels", {}).items()]
    tests += [_expression(it) for it in selector.get("matchExpressions", [])]
    return lambda labels: all(test(labels) for test in tests)


def _expression(it: JsonObject) -> Test:
    key, operator = it["key"], it["operator"]
    match operator:
        case "In" | "NotIn":
            return any_of(key, it["values"], wanted=operator == "In")
        case "Exists" | "DoesNotExist":
            return exists(key, wanted=operator == "Exists")
        case _:
            return lambda _: False


def label_tests(text: str) -> tuple[Test, ...]:
    """Return what labels must pass; refuses what is no selector."""
    return tuple(_requirement(part, whole=text) for part in _BETWEEN.split(text)) if text.strip() else ()


def _requirement(text: str, *, whole: str) -> Test:
    found = _REQUIREMENT.fullmatch(text)
    if not found or (found["absent"] and (found["operator"] or found["set"])):
        raise bad_request(f"unable to parse label selector '{whole}' at '{text}'")
    key, operator, value = found["key"], found["operator"] or found["set"], found["value"] or ""
    values = [value] if found["set"] is None else [it.strip() for it in found["values"].split(",")]
    if operator in ("<", ">"):
        return _ordered(key, operator, value)
    problems = qualified_problems(key) + [problem for it in values for problem in label_value_problems(it)]
    if problems:
        raise bad_request(f"unable to parse label selector '{whole}': {'; '.join(problems)}")
    if operator is None:
        return exists(key, wanted=not found["absent"])
    return any_of(key, values, wanted=operator in ("=", "==", "in"))


def _ordered(key: str, operator: str, bound: str) -> Test:
    try:
        limit = int(bound)
    except ValueError:
        raise bad_request(f"unable to parse label selector: {key}{operator} needs an integer") from None

    def test(labels: Labels) -> bool:
        value = labels.get(key, "")
        if not value.lstrip("+-").isdecimal():
            return False
        return int(value) > limit if operator == ">" else int(value) < limit

    return test


def any_of(key: str, values: Sequence[str], *, wanted: bool) -> Test:
    """Return the test that a label has one of the values, or, if not `wanted`, that it has none of them."""
    return lambda labels: (key in labels and labels[key] in values) is wanted


def exists(key: str, *, wanted: bool) -> Test:
    """Return the test that there is such a label, or none."""
    return lambda labels: (key in labels) is wanted


def _field_term(kind: Kind, text: str) -> tuple[str, bool, str]:
    found = _FIELD.fullmatch(text)
    if not found:
        raise bad_request(f"invalid field selector: can't understand '{text}'")
    if found["field"] not in kind.fields:
        raise bad_request(f"field label not supported: {found['field']}")
    return found["field"], found["operator"] != "!=", found["value"]


def _value(kind: Kind, obj: JsonObject, field: str) -> str:
    if kind is EVENT and field == "source":
        return str(obj["source"].get("component") or obj["reportingComponent"])
    value: object = obj
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        value = kind.field_defaults.get(field, "")
    return str(value).lower() if isinstance(value, bool) else str(value)
