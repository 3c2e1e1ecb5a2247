"""Whether a webhook or a policy is about a change: rules, selectors, and conditions in CEL.

Follows `apiserver/pkg/admission/plugin/webhook/{predicates,matchconditions}` and `…/plugin/policy/matching` of
Kubernetes 1.36. With the match policy Equivalent a rule about one version of a kind also catches changes that are made
through another, and shows them in its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from haulout_sandbox.apiserver.admission_cel import Expression, ExpressionError, Scope
from haulout_sandbox.apiserver.changes import Change
from haulout_sandbox.apiserver.kinds import NAMESPACE, JsonObject, Kind
from haulout_sandbox.apiserver.selectors import Labels, structured


@dataclass(frozen=True, slots=True, eq=False)
class Criteria:
    """What a webhook, a policy or a binding is about.

    `raw` names its rules `rules` or `resourceRules`; a binding without any does not narrow its policy.
    """

    raw: JsonObject

    def seen(self, change: Change, namespace: JsonObject | None, kinds: Iterable[Kind]) -> Change | None:
        """Return the change as it is to be seen, None if this is not about it."""
        if not (self._selects_namespace(namespace) and self._selects_object(change)):
            return None
        others = () if self._is_exact(change) else [it for it in kinds if _is_other_version(it, change.kind)]
        excluded = self.raw.get("excludeResourceRules") or ()
        if any(_matches(rule, change, kind) for rule in excluded for kind in (change.kind, *others)):
            return None
        rules = self.raw.get("rules", self.raw.get("resourceRules"))
        if rules is None or any(_matches(rule, change, change.kind) for rule in rules):
            return change
        return next((change.seen_as(it) for rule in rules for it in others if _matches(rule, change, it)), None)

    def _is_exact(self, change: Change) -> bool:
        return self.raw.get("matchPolicy") == "Exact" or change.object_kind != change.kind.kind

    def _selects_namespace(self, namespace: JsonObject | None) -> bool:
        selector = self.raw.get("namespaceSelector")
        return not selector or namespace is None or structured(selector)(_labels(namespace))

    def _selects_object(self, change: Change) -> bool:
        selector = self.raw.get("objectSelector")
        if not selector:
            return True
        selects = structured(selector)
        return any(obj is not None and selects(_labels(obj)) for obj in (change.obj, change.old))


class ConditionsFailed(Exception):
    """A condition could not be evaluated, and the author wants that to count."""


@dataclass(frozen=True, slots=True, eq=False)
class Conditions:
    """The `matchConditions` of a webhook or a policy."""

    expressions: Sequence[Expression]
    fails_open: bool

    def hold(self, scope: Scope) -> bool:
        """Tell whether all hold; one that does not settles the matter, whatever fails. Raises `ConditionsFailed`."""
        problems: list[str] = []
        for expression in self.expressions:
            try:
                if expression.evaluate(scope) is False:
                    return False
            except ExpressionError as error:
                problems.append(str(error))
        if not problems:
            return True
        if self.fails_open:
            return False
        raise ConditionsFailed(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


def _labels(obj: JsonObject) -> Labels:
    labels = obj["metadata"].get("labels")
    return labels if isinstance(labels, dict) else {}


def _is_other_version(kind: Kind, of: Kind) -> bool:
    return kind is not of and (kind.group, kind.plural) == (of.group, of.plural)


def _matches(rule: JsonObject, change: Change, kind: Kind) -> bool:
    names = rule.get("resourceNames") or ()
    return (
        _in_scope(rule.get("scope", "*"), change)
        and _has(rule.get("operations"), change.operation)
        and _has(rule.get("apiGroups"), kind.group)
        and _has(rule.get("apiVersions"), kind.version)
        and any(_covers(it, kind.plural, change.subresource) for it in rule.get("resources") or ())
        and (not names or change.name in names)
    )


def _in_scope(scope: str, change: Change) -> bool:
    if scope == "*":
        return True
    in_namespace = bool(change.namespace) and change.kind is not NAMESPACE
    return in_namespace is (scope == "Namespaced")


def _has(items: Sequence[str] | None, wanted: str) -> bool:
    return items is not None and ("*" in items or wanted in items)


def _covers(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, sub = pattern.partition("/")
    return resource in ("*", plural) and sub in ("*", subresource)
