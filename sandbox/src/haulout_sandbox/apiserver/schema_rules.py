"""The rules of a schema (`x-kubernetes-validations`): evaluated at every place of an object that has some.

A rule that reads `oldSelf` is about a change, and runs only where there is a before. Rules see times and durations as
such, where a format says that a text is one.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from haulout.core import duration
from haulout_sandbox.apiserver import fields
from haulout_sandbox.apiserver.cel import CelError
from haulout_sandbox.apiserver.cel.functions import instant
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.schema_nodes import Node, Rule


def causes(node: Node | None, value: Any, old: Any, path: str = "") -> list[JsonObject]:
    """Return what the rules have against a value, or against a change of it, as causes of an Invalid."""
    if node is None or value is None or not _has_rules(node):
        return []
    found = _here(node, value, old, path)
    if isinstance(value, list):
        for at, item in enumerate(value):
            found += causes(node.items, item, node.same_item(item, old), f"{path}[{at}]")
    elif isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name in sorted(value):
            found += causes(node.below(name), value[name], before.get(name), fields.child(path, name))
    return found


@lru_cache(maxsize=10_000)
def _has_rules(node: Node) -> bool:
    below = (*node.properties.values(), node.items, node.additional)
    return bool(node.rules) or any(isinstance(each, Node) and _has_rules(each) for each in below)


def _here(node: Node, value: Any, old: Any, path: str) -> list[JsonObject]:
    if not node.rules:
        return []
    variables = {"self": as_cel(value, node), "oldSelf": as_cel(old, node)}
    rules = [rule for rule in node.rules if old is not None or not rule.compares]
    problems = [problem for rule in rules if (problem := _problem(rule, variables))]
    shown = fields.OMIT if isinstance(value, dict | list) else value
    return [fields.invalid(path, shown, problem) for problem in problems]


def _problem(rule: Rule, variables: JsonObject) -> str:
    try:
        is_kept = rule.program.evaluate(variables) is True
    except CelError as error:
        return f"the rule {rule.rule} cannot be evaluated: {error}"
    return "" if is_kept else rule.message or f"failed rule: {rule.rule}"


def as_cel(value: Any, node: Node | None) -> Any:
    """Return a JSON value as rules see it."""
    if value is None or node is None:
        return value
    if isinstance(value, dict):
        return {name: as_cel(item, node.below(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [as_cel(item, node.items) for item in value]
    if node.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _text(value, node.format) if isinstance(value, str) and node.format else value


def _text(value: str, form: str) -> Any:
    try:
        match form:
            case "date-time":
                return instant(value)
            case "date":
                return datetime.fromisoformat(value).replace(tzinfo=UTC)
            case "duration":
                return duration.parse(value)
    except ValueError:
        pass  # what was wrong before stays a text
    return value
