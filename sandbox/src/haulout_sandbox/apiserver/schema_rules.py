"""The rules of a schema (`x-kubernetes-validations`): evaluated at every place of an object that has some.

Follows `apiextensions-apiserver/pkg/apiserver/schema/cel` of Kubernetes 1.36. A rule that reads `oldSelf` is about a
change, and runs only where there is a before, unless it says `optionalOldSelf`. A rule that does not read it lets pass
what has not changed. Costs are not counted: no rule runs out of budget here.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from haulout.core import duration
from haulout_sandbox.apiserver import cel, fields, structural
from haulout_sandbox.apiserver.cel_functions import instant
from haulout_sandbox.apiserver.cel_values import CelError, MapList, Maybe, SetList
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.structural import Node, Pair

_LONGEST_MESSAGE = 5120
_PATH_STEP = re.compile(r"\.([^.\[\]']+)|\['((?:[^'\\]|\\.)*)'\]")


@dataclass(frozen=True, slots=True, eq=False)
class _Rule:
    raw: JsonObject
    program: cel.Program
    message: cel.Program | None
    path: str  # below the place of the rule: what the error is about

    @property
    def compares(self) -> bool:
        return "oldSelf" in self.program.names

    @property
    def words(self) -> str:
        return str(self.raw.get("message") or self.raw["rule"]).strip()


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """The rules at one place and below it."""

    node: Node
    here: tuple[_Rule, ...]
    properties: dict[str, "Rules"]
    additional: "Rules | None"
    items: "Rules | None"


@dataclass(frozen=True, slots=True)
class _Before:
    """What a place was before: by the nearest ancestor that has a before, if it has none of its own."""

    here: Pair | None = None
    above: Pair | None = None

    def key(self, name: str) -> "_Before":
        if self.here is None:
            return self
        if self.above is None and name in ("apiVersion", "kind"):
            return _Before()
        return _Before(self.here.key(name), self.here)

    def index(self, at: int) -> "_Before":
        return self if self.here is None else _Before(self.here.index(at), self.here)

    @property
    def unchanged(self) -> bool:
        nearest = self.here or self.above
        return nearest is not None and nearest.unchanged


def rules_of(node: Node, *, root: bool = True) -> Rules | None:
    """Return the compiled rules of a schema, None if it has none; raise `CelSyntaxError` for a wrong one."""
    if root or node.embedded:
        node = structural.with_resource_meta(node)
    properties = {name: rules_of(below, root=False) for name, below in node.properties.items()}
    rules = Rules(
        node,
        tuple(_compiled(raw, node) for raw in node.rules),
        {name: below for name, below in properties.items() if below},
        rules_of(node.additional, root=False) if node.additional else None,
        rules_of(node.items, root=False) if node.items else None,
    )
    return rules if rules.here or rules.properties or rules.additional or rules.items else None


def _compiled(raw: JsonObject, node: Node) -> _Rule:
    variables = {"self": node, "oldSelf": None if raw.get("optionalOldSelf") else node}
    message = raw.get("messageExpression")
    return _Rule(
        raw,
        cel.compiled(raw["rule"], variables),
        cel.compiled(message, variables) if message else None,
        field_path(raw.get("fieldPath", ""), node) or "",
    )


def causes(rules: Rules | None, value: JsonObject, old: JsonObject | None) -> list[JsonObject]:
    """Return what the rules have against an object, or against a change of it."""
    if rules is None:
        return []
    before = _Before(Pair(value, old, rules.node)) if old is not None else _Before()
    return _below(rules, value, old, "", before)


def field_path(text: str, node: Node) -> str | None:
    """Return a rule's `fieldPath` (`.spec['a.b']`) as errors print paths; None if the schema has no such field."""
    at, result = 0, ""
    while at < len(text):
        step = _PATH_STEP.match(text, at)
        name = (step[1] or step[2]) if step else ""
        if step is None or not (node.properties or node.additional):
            return None
        below = node.properties.get(name) if node.properties else node.additional
        if below is None:
            return None
        result = fields.child(result, name) if node.properties else f"{result}[{name}]"
        node, at = below, step.end()
    return result


def _below(rules: Rules | None, value: Any, old: Any, path: str, before: _Before) -> list[JsonObject]:
    if rules is None or value is None:
        return []
    found = _here(rules, value, old, path, before)
    if isinstance(value, list):
        for at, item in enumerate(value):
            earlier = structural.same_item(rules.node, item, old if isinstance(old, list) else None)
            found += _below(rules.items, item, earlier, f"{path}[{at}]", before.index(at))
    if isinstance(value, dict):
        known = old if isinstance(old, dict) else {}
        for name in sorted(value):
            step = (value[name], known.get(name))
            if name in rules.properties:
                found += _below(rules.properties[name], *step, fields.child(path, name), before.key(name))
            elif name not in rules.node.properties:
                found += _below(rules.additional, *step, f"{path}[{name}]", before.key(name))
    return found


def _here(rules: Rules, value: Any, old: Any, path: str, before: _Before) -> list[JsonObject]:
    node = rules.node
    if not rules.here:
        return []
    variables = {"self": as_cel(value, node)}
    earlier = None if old is None else as_cel(old, node)
    found = []
    for rule in rules.here:
        optional = bool(rule.raw.get("optionalOldSelf"))
        if rule.compares and old is None and not optional:
            continue
        variables["oldSelf"] = (Maybe() if old is None else Maybe(earlier)) if optional else earlier
        try:
            if rule.program.evaluate(variables) is True:
                continue
        except CelError as error:
            found.append(fields.invalid(path, node.type, _failure(str(error), rule)))
            continue
        if rule.compares or not before.unchanged:
            shown = fields.OMIT if node.type in ("object", "array") else value
            found.append(_violation(rule, variables, fields.child(path, rule.path) if rule.path else path, shown))
    return found


def _failure(error: str, rule: _Rule) -> str:
    if error.startswith("no such overload"):
        why = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{error}': {why}: {rule.words}"
    return f"{error} evaluating rule: {rule.words}"


def _violation(rule: _Rule, variables: JsonObject, path: str, value: Any) -> JsonObject:
    plain = rule.words if rule.raw.get("message") else f"failed rule: {rule.words}"
    detail = _message(rule.message, variables) or plain
    match rule.raw.get("reason"):
        case "FieldValueForbidden":
            return fields.forbidden(path, detail)
        case "FieldValueRequired":
            return fields.required(path, detail)
        case "FieldValueDuplicate":
            return fields.duplicate(path, value)
    return fields.invalid(path, value, detail)


def _message(program: cel.Program | None, variables: JsonObject) -> str:
    if program is None:
        return ""
    try:
        text = program.evaluate(variables)
    except CelError:
        return ""
    text = text.strip() if isinstance(text, str) else ""
    return "" if "\n" in text or len(text.encode()) > _LONGEST_MESSAGE else text


# From JSON to CEL


def as_cel(value: Any, node: Node | None) -> Any:
    """Return a JSON value as rules see it: formats become times and bytes, names are escaped, the unknown is hidden."""
    if value is None or node is None:
        return value
    if isinstance(value, dict):
        return _object(value, node)
    if isinstance(value, list):
        return _list([as_cel(item, node.items) for item in value], node)
    if isinstance(value, str) and node.type == "string":
        return _text(value, node.raw.get("format", ""))
    if node.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _object(value: JsonObject, node: Node) -> JsonObject:
    if node.embedded:
        node = structural.with_resource_meta(node)
    if node.properties:
        known = {name: below for name, below in node.properties.items() if name in value}
        return {cel.escaped(name): as_cel(value[name], below) for name, below in known.items()}
    return {name: as_cel(item, node.additional) for name, item in value.items()} if node.additional else {}


def _list(items: list[Any], node: Node) -> list[Any]:
    if node.list_type == "set":
        return SetList(items)
    if node.list_type == "map":
        keyed = MapList(items)
        keyed.keys = tuple(cel.escaped(key) for key in node.list_keys)
        return keyed
    return items


def _text(value: str, form: str) -> Any:
    try:
        match form:
            case "date-time":
                return instant(value)
            case "date":
                return datetime.fromisoformat(value).replace(tzinfo=UTC)
            case "duration":
                return duration.parse(value)
            case "byte":
                return base64.b64decode(value)
    except (CelError, ValueError, binascii.Error):
        pass  # the format was checked; what Go reads and this does not stays a text
    return value
