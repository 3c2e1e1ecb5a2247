"""Label and field selectors of the sandbox's API server.

Labels: as text (`label_syntax`), and the structured form of PodDisruptionBudgets. Fields: equality on the fields the
kind's row names.
"""

import re
from dataclasses import dataclass

from haulout_sandbox.apiserver.kinds import EVENT, NAMESPACE, NEW_EVENT, NODE, POD, JsonObject, Kind
from haulout_sandbox.apiserver.label_syntax import Test, any_of, exists, label_tests
from haulout_sandbox.apiserver.status import bad_request, quoted

_TERM = re.compile(r"(?:\\.|[^,\\])+\\?|\\$", re.DOTALL)  # up to a comma that no backslash precedes
_FIELD = re.compile(r"(?P<field>.*?)(?P<operator>!=|==|=)(?P<value>.*)", re.DOTALL)
_NOTHING = ("=", "==", "!=")
_ESCAPED = re.compile(r"\\(.?)|([,=])", re.DOTALL)
_WITH_OWN_FIELDS = (POD, NODE, NAMESPACE, EVENT, NEW_EVENT)  # their unknown fields are refused in other words


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
    terms = tuple(
        _field_term(kind, part, whole=fields) for part in sorted(_TERM.findall(fields)) if part not in _NOTHING
    )
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


def _field_term(kind: Kind, text: str, *, whole: str) -> tuple[str, bool, str]:
    found = _FIELD.fullmatch(text)
    if not found:
        raise bad_request(f"invalid selector: '{whole}'; can't understand '{text}'")
    field, value = found["field"], _ESCAPED.sub(_unescaped, found["value"])
    if field not in kind.fields:
        raise bad_request(_unknown(kind, field))
    return field, found["operator"] != "!=", value


def _unknown(kind: Kind, field: str) -> str:
    if kind in _WITH_OWN_FIELDS or kind.rules:
        return f"field label not supported: {field}"
    if kind.resource == "jobs.batch":
        return f"field label {quoted(field)} not supported for Job"
    return f'{quoted(field)} is not a known field selector: only "metadata.name", "metadata.namespace"'


def _unescaped(found: re.Match[str]) -> str:
    escaped, plain = found.groups()
    if plain:
        raise bad_request(f"invalid field selector: unescaped character in value: {ord(plain)}")
    if not escaped or escaped not in "\\,=":
        raise bad_request(f"invalid field selector: invalid escape sequence: {found[0]}")
    return str(escaped)


def _value(kind: Kind, obj: JsonObject, field: str) -> str:
    if kind is EVENT and field == "source":
        return str(obj["source"].get("component") or obj["reportingComponent"])
    value: object = obj
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        value = kind.field_defaults.get(field, "")
    return str(value).lower() if isinstance(value, bool) else str(value)
