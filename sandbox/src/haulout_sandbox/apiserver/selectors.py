"""Label and field selectors of requests, and the LabelSelectors of PodDisruptionBudgets and webhooks.

Field selectors support equality on the fields that the kind names.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from haulout.kube import selectors
from haulout_sandbox.apiserver.kinds.kind import EVENT, JsonObject, Kind
from haulout_sandbox.apiserver.status import bad_request

LabelTest = Callable[[Mapping[str, str]], bool]

_FIELD = re.compile(r"(?P<field>.*?)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The objects of a kind that a request selects."""

    kind: Kind
    namespace: str = ""  # "": all namespaces
    labels: LabelTest | None = None
    fields: tuple[tuple[str, bool, str], ...] = ()  # field, whether it must be equal, value

    @property
    def has_selectors(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, obj: JsonObject) -> bool:
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        return (self.labels is None or self.labels(meta.get("labels", {}))) and all(
            (_field_value(self.kind, obj, field) == value) is equal for field, equal, value in self.fields
        )


def selection(kind: Kind, namespace: str, *, labels: str = "", fields: str = "") -> Selection:
    """Return the selection of a request; refuse an invalid selector."""
    label_test = parse_label_selector(labels) if labels.strip() else None
    terms = tuple(_field_term(kind, term) for term in fields.split(",") if term)
    return Selection(kind=kind, namespace=namespace, labels=label_test, fields=terms)


def from_label_selector(selector: JsonObject | None) -> LabelTest:
    """Return the test of a LabelSelector object: null matches nothing, an empty one matches everything."""
    return (lambda _: False) if selector is None else selectors.from_label_selector(selector).matches


def parse_label_selector(text: str) -> LabelTest:
    """Return the test of a label selector in text form; refuse an invalid one."""
    try:
        return selectors.parse(text).matches
    except selectors.SelectorError as error:
        raise bad_request(f"unable to parse label selector '{text}': {error}") from None


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
