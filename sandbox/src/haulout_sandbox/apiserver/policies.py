"""ValidatingAdmissionPolicies: rules in CEL about changes of objects, and bindings that put them in force.

Follows `apiserver/pkg/admission/plugin/policy` of Kubernetes 1.36. A policy without a binding does nothing. Its first
denial is the answer; a binding may have it as a warning instead. Audit annotations are not kept, since there is no
audit log.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from haulout_sandbox.apiserver.admission_cel import Expression, ExpressionError, Variables, scope_of
from haulout_sandbox.apiserver.builtin_kinds import VALIDATING_POLICY, VALIDATING_POLICY_BINDING
from haulout_sandbox.apiserver.changes import Change
from haulout_sandbox.apiserver.kinds import NAMESPACE, JsonObject, Kind
from haulout_sandbox.apiserver.matching import Conditions, ConditionsFailed, Criteria
from haulout_sandbox.apiserver.rbac import refusal
from haulout_sandbox.apiserver.selectors import structured
from haulout_sandbox.apiserver.status import Refused
from haulout_sandbox.apiserver.store import Store

_LONGEST_MESSAGE = 5120
_CODES = {"Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413, "Unauthorized": 401}
_USUAL_REASON = "Invalid"


class _Misconfigured(Exception):
    """A policy or a binding that cannot be applied."""


class _UnknownParams(_Misconfigured):
    """It is the policy itself: there is no such kind of parameters."""


@dataclass(frozen=True, slots=True)
class _Denial:
    by: str
    message: str
    reason: str = _USUAL_REASON
    is_final: bool = False  # whatever the binding says should be done about denials


class Policies:
    """The policies in a store."""

    def __init__(self, store: Store, kinds: Callable[[], Iterable[Kind]]) -> None:
        self._store = store
        self._kinds = kinds
        self._parsed: dict[str, _Policy] = {}  # by resourceVersion, which no two objects share

    @property
    def in_force(self) -> bool:
        """Tell whether there is any that is bound."""
        return bool(self._store.current(VALIDATING_POLICY_BINDING))

    def check(self, change: Change, namespace: JsonObject | None) -> list[str]:
        """Refuse if a policy does; return the warnings that others give."""
        warnings: list[str] = []
        refusals: list[_Denial] = []
        for policy, binding in self._bound():
            actions = binding["spec"].get("validationActions") or ()
            for denial in self._denials(policy, binding, change, namespace):
                if "Deny" in actions or denial.is_final:
                    refusals.append(denial)
                elif "Warn" in actions:
                    warnings.append(f"Validation failed for {denial.by}: {denial.message}")
        if refusals:
            raise _refused(change, refusals[0])
        return warnings

    def _denials(
        self, policy: "_Policy", binding: JsonObject, change: Change, namespace: JsonObject | None
    ) -> Iterator[_Denial]:
        seen = policy.criteria.seen(change, namespace, self._kinds())
        narrowed = Criteria(binding["spec"].get("matchResources") or {})
        if seen is None or narrowed.seen(change, namespace, self._kinds()) is None:
            return
        alone = f"ValidatingAdmissionPolicy '{policy.name}'"
        title = f"{alone} with binding '{binding['metadata']['name']}'"
        try:
            params = self._params(policy, binding, change)
        except _UnknownParams as problem:
            found = [_Denial(alone, f"failed to configure policy: {problem}", is_final=True)]
            yield from () if policy.fails_open else found
            return
        except _Misconfigured as problem:
            found = [_Denial(title, f"failed to configure binding: {problem}", is_final=True)]
            yield from () if policy.fails_open else found
            return
        shown = None if change.kind is NAMESPACE else namespace
        for it in params:
            for message, reason in policy.denials(change, seen, namespace=shown, params=it):
                yield _Denial(title, message, reason)

    def _bound(self) -> Iterator[tuple["_Policy", JsonObject]]:
        policies, bindings = (self._store.current(kind) for kind in (VALIDATING_POLICY, VALIDATING_POLICY_BINDING))
        for name in sorted(policies):
            raw = policies[name]
            bound = [it for _, it in sorted(bindings.items()) if it["spec"].get("policyName") == name]
            if bound:
                policy = self._policy(raw)
                yield from ((policy, binding) for binding in bound)

    def _policy(self, raw: JsonObject) -> "_Policy":
        version = raw["metadata"]["resourceVersion"]
        if version not in self._parsed:
            outdated = [it for it, known in self._parsed.items() if known.name == raw["metadata"]["name"]]
            for it in outdated:
                del self._parsed[it]
            self._parsed[version] = _Policy(raw)
        return self._parsed[version]

    def _params(self, policy: "_Policy", binding: JsonObject, change: Change) -> list[JsonObject | None]:
        """Return the parameters: the policy is evaluated with each of them."""
        wanted, reference = policy.spec.get("paramKind"), binding["spec"].get("paramRef")
        if not wanted or not reference:
            return [None]
        kind = next((it for it in self._kinds() if (it.api_version, it.kind) == _type(wanted)), None)
        if kind is None:
            raise _UnknownParams(f"failed to find resource referenced by paramKind: '{_told(wanted)}'")
        found = self._referenced(kind, reference, _place(kind, reference, change))
        if not found and reference.get("parameterNotFoundAction") != "Allow":
            raise _Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
        return list(found)

    def _referenced(self, kind: Kind, reference: JsonObject, namespace: str) -> list[JsonObject]:
        if name := reference.get("name"):
            found = self._store.get(kind, kind.key(namespace, name))
            return [] if found is None else [found]
        selects = structured(reference.get("selector"))
        inside = [
            obj
            for obj in self._store.at(kind, self._store.revision).values()
            if not kind.namespaced or obj["metadata"]["namespace"] == namespace
        ]
        return [obj for obj in inside if selects(obj["metadata"].get("labels") or {})]


class _Policy:
    """One policy, ready to be evaluated."""

    def __init__(self, raw: JsonObject) -> None:
        self.name: str = raw["metadata"]["name"]
        self.spec: JsonObject = raw["spec"]
        self.fails_open = self.spec.get("failurePolicy") == "Ignore"
        self.criteria = Criteria({"resourceRules": []} | (self.spec.get("matchConstraints") or {}))

    @cached_property
    def _variables(self) -> Mapping[str, Expression]:
        known: dict[str, Expression] = {}
        for it in self.spec.get("variables") or ():
            known[it["name"]] = Expression(it["expression"], tuple(known), self._has_params)
        return known

    @property
    def _has_params(self) -> bool:
        return bool(self.spec.get("paramKind"))

    def denials(
        self, change: Change, seen: Change, *, namespace: JsonObject | None, params: JsonObject | None
    ) -> Iterator[tuple[str, str]]:
        """Yield what the policy has against a change: messages, and the reason of each."""
        scope = scope_of(change, seen, namespace=namespace, params=params)
        scope["variables"] = Variables(self._variables, scope)
        conditions = [
            Expression(it["expression"], (), self._has_params) for it in self.spec.get("matchConditions") or ()
        ]
        try:
            if not Conditions(conditions, fails_open=self.fails_open).hold(scope):
                return
        except ConditionsFailed as problem:
            yield str(problem), _USUAL_REASON
            return
        for validation in self.spec.get("validations") or ():
            try:
                if self._expression(validation["expression"]).evaluate(scope) is not True:
                    yield self._message(validation, scope), validation.get("reason") or _USUAL_REASON
            except ExpressionError as error:
                if not self.fails_open:
                    yield str(error), _USUAL_REASON

    def _expression(self, source: str) -> Expression:
        return Expression(source, tuple(self._variables), self._has_params)

    def _message(self, validation: JsonObject, scope: JsonObject) -> str:
        said: Any = ""
        if source := validation.get("messageExpression"):
            try:
                said = self._expression(source).evaluate(scope)
            except ExpressionError:
                said = ""
        said = said.strip() if isinstance(said, str) else ""
        if "\n" in said or len(said.encode()) > _LONGEST_MESSAGE:
            said = ""
        own: str = validation.get("message", "").strip()
        return said or own or f"failed expression: {validation['expression'].strip()}"


def _type(param_kind: JsonObject) -> tuple[str, str]:
    return param_kind["apiVersion"], param_kind["kind"]


def _told(param_kind: JsonObject) -> str:
    return f"{param_kind['apiVersion']}, Kind={param_kind['kind']}"


def _place(kind: Kind, reference: JsonObject, change: Change) -> str:
    """Return the namespace in which to look for parameters."""
    named: str = reference.get("namespace") or ""
    if not kind.namespaced:
        if named:
            raise _Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        return ""
    if not named and (not change.namespace or change.kind is NAMESPACE):
        raise _Misconfigured("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    return named or change.namespace


def _refused(change: Change, denial: _Denial) -> Refused:
    message = f"{denial.by} denied request: {denial.message}"
    said = refusal(change.kind.group, change.kind.plural, change.name, message)
    details = said["details"] | {"causes": [{"message": message}]}
    return Refused(said | {"reason": denial.reason, "details": details, "code": _CODES.get(denial.reason, 422)})
