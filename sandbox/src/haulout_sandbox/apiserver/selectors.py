"""Label and field selectors, as text and as the LabelSelector of PodDisruptionBudgets.

Field selectors support equality on the fields that the kind names.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from haulout_sandbox.apiserver.kinds.kind import EVENT, JsonObject, Kind
from haulout_sandbox.apiserver.object_names import label_value_problems, qualified_name_problems
from haulout_sandbox.apiserver.status import bad_request

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]

_TOKEN = r"[^\s=!(),<>]+"  # noqa: S105 - a pattern
_COMMA = re.compile(r",(?![^()]*\))")  # outside of parentheses
_REQUIREMENT = re.compile(
    rf"\s*(?P<absent>!\s*)?(?P<key>{_TOKEN})"
    rf"(?:\s*(?P<operator>==?|!=|<|>)\s*(?P<value>{_TOKEN})?|\s+(?P<set>in|notin)\s*\((?P<values>[^()=!<>]*)\))?\s*"
)
_FIELD = re.compile(r"(?P<field>.*?)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The objects of a kind that a request selects."""

    kind: Kind
    namespace: str = ""  # "": all namespaces
    labels: tuple[LabelTest, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()  # field, whether it must be equal, value

    @property
    def has_selectors(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, obj: JsonObject) -> bool:
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        if not self.labels and not self.fields:
            return True
        labels = meta.get("labels", {})
        return all(test(labels) for test in self.labels) and all(
            (_field_value(self.kind, obj, field) == value) is equal for field, equal, value in self.fields
        )


def selection(kind: Kind, namespace: str, *, labels: str = "", fields: str = "") -> Selection:
    """Return the selection of a request; refuse an invalid selector."""
    label_tests = parse_label_selector(labels) if labels else ()
    terms = tuple(_field_term(kind, term) for term in fields.split(",") if term)
    return Selection(kind=kind, namespace=namespace, labels=label_tests, fields=terms)


def from_label_selector(selector: JsonObject | None) -> LabelTest:
    """Return the test of a LabelSelector object: null matches nothing, an empty one matches everything."""
    if selector is None:
        return lambda _: False
    tests = [label_in(key, [value], expected=True) for key, value in selector.get("matchLabels", {}).items()]
    tests += [_expression(expression) for expression in selector.get("matchExpressions", [])]
    return lambda labels: all(test(labels) for test in tests)


def _expression(expression: JsonObject) -> LabelTest:
    key, operator = expression["key"], expression["operator"]
    match operator:
        case "In" | "NotIn":
            return label_in(key, expression["values"], expected=operator == "In")
        case "Exists" | "DoesNotExist":
            return label_exists(key, expected=operator == "Exists")
        case _:
            return lambda _: False


def parse_label_selector(text: str) -> tuple[LabelTest, ...]:
    """Return the tests of a label selector in text form; refuse an invalid one."""
    return tuple(_requirement(part, selector=text) for part in _COMMA.split(text)) if text.strip() else ()


def _requirement(text: str, *, selector: str) -> LabelTest:
    match = _REQUIREMENT.fullmatch(text)
    if not match or (match["absent"] and (match["operator"] or match["set"])):
        raise bad_request(f"unable to parse label selector '{selector}' at '{text}'")
    key, operator, value = match["key"], match["operator"] or match["set"], match["value"] or ""
    values = [value] if match["set"] is None else [item.strip() for item in match["values"].split(",")]
    if operator in ("<", ">"):
        return _label_compares(key, operator, value)
    problems = qualified_name_problems(key) + [problem for item in values for problem in label_value_problems(item)]
    if problems:
        raise bad_request(f"unable to parse label selector '{selector}': {'; '.join(problems)}")
    if operator is None:
        return label_exists(key, expected=not match["absent"])
    return label_in(key, values, expected=operator in ("=", "==", "in"))


def _label_compares(key: str, operator: str, bound_text: str) -> LabelTest:
    try:
        limit = int(bound_text)
    except ValueError:
        raise bad_request(f"unable to parse label selector: {key}{operator} needs an integer") from None

    def compare(labels: Labels) -> bool:
        value = labels.get(key, "")
        if not value.lstrip("+-").isdecimal():
            return False
        return int(value) > limit if operator == ">" else int(value) < limit

    return compare


def label_in(key: str, values: Sequence[str], *, expected: bool) -> LabelTest:
    """Return the test that a label has one of the values or, if not `expected`, none of them."""
    return lambda labels: (key in labels and labels[key] in values) is expected


def label_exists(key: str, *, expected: bool) -> LabelTest:
    """Return the test that a label exists or, if not `expected`, does not."""
    return lambda labels: (key in labels) is expected


def _field_term(kind: Kind, text: str) -> tuple[str, bool, str]:
    match = _FIELD.fullmatch(text)
    if not match:
        raise bad_request(f"invalid field selector: can't understand '{text}'")
    if match["field"] not in kind.selectable_fields:
        raise bad_request(f"field label not supported: {match['field']}")
    return match["field"], match["operator"] != "!=", match["value"]


def _field_value(kind: Kind, obj: JsonObject, field: str) -> str:
    if kind is EVENT and field == "source":
        return str(obj["source"].get("component") or obj["reportingComponent"])
    value: object = obj
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        value = kind.field_defaults.get(field, "")
    return str(value).lower() if isinstance(value, bool) else str(value)
