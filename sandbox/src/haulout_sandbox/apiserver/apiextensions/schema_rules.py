"""Evaluation of a schema's CEL rules (`x-kubernetes-validations`) at every node of an object that has rules.

A rule that reads `oldSelf` is a transition rule and runs only if there is an old value. Rules see strings of the
formats date-time and duration as CEL timestamps and durations.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from haulout.core import duration
from haulout_sandbox.apiserver import field_errors
from haulout_sandbox.apiserver.apiextensions.cel import CelError, compile_rule
from haulout_sandbox.apiserver.apiextensions.schema_nodes import Node, Rule, parse_timestamp
from haulout_sandbox.apiserver.kinds.kind import JsonObject


def rule_causes(node: Node | None, value: Any, old: Any, path: str = "") -> list[JsonObject]:
    """Return the failures of rules for a value or a change, as causes of an Invalid error."""
    if node is None or value is None or not _has_rules(node):
        return []
    result = _node_causes(node, value, old, path)
    if isinstance(value, list):
        for index, item in enumerate(value):
            result += rule_causes(node.items, item, node.matching_item(item, old), f"{path}[{index}]")
    elif isinstance(value, dict):
        old_fields = old if isinstance(old, dict) else {}
        for name in sorted(value):
            result += rule_causes(
                node.property_node(name), value[name], old_fields.get(name), field_errors.child_path(path, name)
            )
    return result


@lru_cache(maxsize=10_000)
def _has_rules(node: Node) -> bool:
    children = (*node.properties.values(), node.items, node.additional)
    return bool(node.rules) or any(isinstance(child, Node) and _has_rules(child) for child in children)


def _node_causes(node: Node, value: Any, old: Any, path: str) -> list[JsonObject]:
    if not node.rules:
        return []
    variables = {"self": to_cel(value, node), "oldSelf": to_cel(old, node)}
    rules = [rule for rule in node.rules if old is not None or not rule.is_transition_rule]
    problems = [problem for rule in rules if (problem := _rule_problem(rule, variables))]
    shown_value = field_errors.OMITTED if isinstance(value, dict | list) else value
    return [field_errors.invalid(path, shown_value, problem) for problem in problems]


def _rule_problem(rule: Rule, variables: JsonObject) -> str:
    evaluate = compile_rule(rule.rule)
    try:
        is_satisfied = evaluate is None or evaluate(variables) is True
    except CelError as error:
        return f"the rule {rule.rule} cannot be evaluated: {error}"
    return "" if is_satisfied else rule.message or f"failed rule: {rule.rule}"


def to_cel(value: Any, node: Node | None) -> Any:
    """Return a JSON value as a CEL value."""
    if value is None or node is None:
        return value
    if isinstance(value, dict):
        return {name: to_cel(item, node.property_node(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [to_cel(item, node.items) for item in value]
    if node.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _parse_text(value, node.format) if isinstance(value, str) and node.format else value


def _parse_text(value: str, string_format: str) -> Any:
    try:
        match string_format:
            case "date-time":
                return parse_timestamp(value)
            case "date":
                return datetime.fromisoformat(value).replace(tzinfo=UTC)
            case "duration":
                return duration.parse(value)
    except ValueError:
        pass  # an invalid time stays a string; schema validation has reported it
    return value
