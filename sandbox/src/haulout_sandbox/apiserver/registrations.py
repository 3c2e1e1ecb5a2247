"""Is a webhook configuration or an admission policy one? What is wrong with it, in the words of the real server.

Follows `pkg/apis/admissionregistration/validation` of Kubernetes 1.36. What is accepted here can be put in force
without a further look. Expressions are compiled without types.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from haulout_sandbox.apiserver.admission_cel import Expression, failed_compilation
from haulout_sandbox.apiserver.cel import CelSyntaxError
from haulout_sandbox.apiserver.fields import duplicate, forbidden, invalid, not_supported, required, too_many
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.names import label_problems, subdomain_problems
from haulout_sandbox.apiserver.status import invalid as refused

Problems = Iterator[JsonObject]

_GROUP = "admissionregistration.k8s.io"
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_VERSIONS = ("v1", "v1beta1")
_HARMLESS = ("None", "NoneOnDryRun")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_URL_FORM = "; desired format: https://host[/path]"
_LEAST_SEGMENTS = 3
_LONGEST_TIMEOUT = 30
_LARGEST_PORT = 65535
_MOST_CONDITIONS = 64


def check(kind: Kind, obj: JsonObject) -> None:
    """Refuse a configuration, policy or binding that is wrong; other kinds are not looked at."""
    find = _FINDERS.get(kind.kind) if kind.group == _GROUP else None
    if find is None:
        return
    causes = list(find(obj))
    if causes:
        raise refused(kind.group, kind.kind, obj["metadata"].get("name", ""), causes)


def _validating(obj: JsonObject) -> Problems:
    yield from _configuration(obj, mutating=False)


def _mutating(obj: JsonObject) -> Problems:
    yield from _configuration(obj, mutating=True)


def _configuration(obj: JsonObject, *, mutating: bool) -> Problems:
    seen: set[str] = set()
    for index, hook in enumerate(obj.get("webhooks") or ()):
        path = f"webhooks[{index}]"
        yield from _webhook(hook, path, mutating=mutating)
        yield from _review_versions(hook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions")
        name = hook.get("name")
        if name and name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)


def _webhook(hook: JsonObject, path: str, *, mutating: bool) -> Problems:
    yield from _qualified(hook.get("name") or "", f"{path}.name")
    for index, rule in enumerate(hook.get("rules") or ()):
        yield from _rule(rule, f"{path}.rules[{index}]")
    yield from _one_of(hook, "failurePolicy", ("Fail", "Ignore"), path)
    yield from _one_of(hook, "matchPolicy", ("Equivalent", "Exact"), path)
    if hook.get("sideEffects") is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(_HARMLESS)}")
    else:
        yield from _one_of(hook, "sideEffects", _HARMLESS, path)
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= _LONGEST_TIMEOUT:
        yield invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    for name in ("namespaceSelector", "objectSelector"):
        yield from _selector(hook.get(name) or {}, f"{path}.{name}")
    if mutating:
        yield from _one_of(hook, "reinvocationPolicy", ("IfNeeded", "Never"), path)
    yield from _client_config(hook.get("clientConfig") or {}, f"{path}.clientConfig")
    yield from _conditions(hook.get("matchConditions") or (), f"{path}.matchConditions", params=False)


def _qualified(name: str, path: str) -> Problems:
    if not name:
        yield required(path)
        return
    if found := subdomain_problems(name):
        yield invalid(path, name, ",".join(found))
        return
    if len(name.split(".")) < _LEAST_SEGMENTS:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _one_of(obj: JsonObject, name: str, supported: Sequence[str], path: str) -> Problems:
    value = obj.get(name)
    if value is not None and value not in supported:
        yield not_supported(f"{path}.{name}", value, supported)


def _rule(rule: JsonObject, path: str) -> Problems:
    yield from _filled(rule, "operations", "operations", path)
    for index, operation in enumerate(rule.get("operations") or ()):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    yield from _filled(rule, "apiGroups", "API groups", path)
    yield from _filled(rule, "apiVersions", "API versions", path)
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            yield required(f"{path}.apiVersions[{index}]")
    yield from _resources(rule.get("resources") or [], f"{path}.resources")
    yield from _one_of(rule, "scope", ("*", "Cluster", "Namespaced"), path)


def _filled(rule: JsonObject, name: str, words: str, path: str) -> Problems:
    items = rule.get(name) or []
    if not items:
        yield required(f"{path}.{name}")
    if len(items) > 1 and "*" in items:
        yield invalid(f"{path}.{name}", items, f"if '*' is present, must not specify other {words}")


def _resources(resources: Sequence[str], path: str) -> Problems:
    if not resources:
        yield required(path)
    whole, everywhere = set[str](), set[str]()  # x/* and */x
    has_plain = False
    for index, resource in enumerate(resources):
        if not resource:
            yield required(f"{path}[{index}]")
            continue
        name, slash, sub = resource.partition("/")
        if not slash:
            has_plain = resource != "*"
            continue
        if name in whole:
            yield invalid(f"{path}[{index}]", resource, f"if '{name}/*' is present, must not specify {resource}")
        if sub in everywhere:
            yield invalid(f"{path}[{index}]", resource, f"if '*/{sub}' is present, must not specify {resource}")
        whole |= {name} if sub == "*" else set()
        everywhere |= {sub} if name == "*" else set()
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, list(resources), "if '*/*' is present, must not specify other resources")
    if has_plain and "*" in resources:
        why = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, list(resources), why)


def _selector(selector: JsonObject, path: str) -> Problems:
    for index, it in enumerate(selector.get("matchExpressions") or ()):
        at, operator, values = f"{path}.matchExpressions[{index}]", it.get("operator"), it.get("values")
        if operator in ("In", "NotIn"):
            if not values:
                yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator not in ("Exists", "DoesNotExist"):
            yield invalid(f"{at}.operator", operator or "", "not a valid selector operator")


def _client_config(config: JsonObject, path: str) -> Problems:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url(url, f"{path}.url")
    elif service is not None:
        yield from _service(service, f"{path}.service")


def _url(url: str, path: str) -> Problems:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not parts.netloc:
        yield invalid(path, "", f"host must be specified{_URL_FORM}")
    if "@" in parts.netloc:
        yield invalid(path, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def _service(service: JsonObject, path: str) -> Problems:
    # The real server mixes the two up, and names the other one.
    for name, other in (("namespace", "name"), ("name", "namespace")):
        if not service.get(name):
            yield required(f"{path}.{other}")
    port = service.get("port", 0)
    if not 1 <= port <= _LARGEST_PORT:
        yield invalid(f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    place = service.get("path") or "/"
    if place == "/":
        return
    if not place.startswith("/"):
        yield invalid(f"{path}.path", place, "must start with a '/'")
    for index, step in enumerate(place[1:].removesuffix("/").split("/")):
        for problem in subdomain_problems(step) if step else ():
            yield invalid(f"{path}.path", place, f"segment[{index}]: {problem}")
        if not step:
            yield invalid(f"{path}.path", place, f"segment[{index}] may not be empty")


def _review_versions(versions: Sequence[str], path: str) -> Problems:
    if not versions:
        yield required(path, f"must specify one of {', '.join(_VERSIONS)}")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid(f"{path}[{index}]", version, "duplicate version")
        else:
            yield from (invalid(f"{path}[{index}]", version, problem) for problem in label_problems(version))
    if not set(versions) & set(_VERSIONS):
        yield invalid(path, list(versions), f"must include at least one of {', '.join(_VERSIONS)}")


def _conditions(conditions: Sequence[JsonObject], path: str, *, params: bool) -> Problems:
    seen: set[str] = set()
    if len(conditions) > _MOST_CONDITIONS:
        yield too_many(path, len(conditions), _MOST_CONDITIONS)
    for index, condition in enumerate(conditions):
        yield from _expression(condition, "expression", f"{path}[{index}]", params=params)
        name = condition.get("name") or ""
        if not name:
            yield required(f"{path}[{index}].name")
        elif name in seen:
            yield duplicate(f"{path}[{index}].name", name)
        seen.add(name)


def _expression(
    obj: JsonObject,
    name: str,
    path: str,
    *,
    params: bool,
    variables: tuple[str, ...] = (),
    missing: str = "",
    kind: str = "bool",
) -> Problems:
    source = obj.get(name) or ""
    if not source.strip():
        yield required(f"{path}.{name}", missing)
        return
    expression = Expression(source, variables, params)
    try:
        expression.program()
        if kind and expression.has_no_type:
            yield invalid(f"{path}.{name}", source, f"must evaluate to {kind} but got dyn")
    except CelSyntaxError as error:
        yield invalid(f"{path}.{name}", source, failed_compilation(error, source))


# Policies


def _policy(obj: JsonObject) -> Problems:
    spec = obj.get("spec") or {}
    params = bool(spec.get("paramKind"))
    yield from _one_of(spec, "failurePolicy", ("Fail", "Ignore"), "spec")
    for name in ("apiVersion", "kind") if params else ():
        if not spec["paramKind"].get(name):
            yield required(f"spec.paramKind.{name}")
    if spec.get("matchConstraints") is None:
        yield required("spec.matchConstraints")
    else:
        yield from _match_resources(spec["matchConstraints"], "spec.matchConstraints")
        if not spec["matchConstraints"].get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
    yield from _conditions(spec.get("matchConditions") or (), "spec.matchConditions", params=params)
    yield from _rules_of_policy(spec, params=params)


def _rules_of_policy(spec: JsonObject, *, params: bool) -> Problems:
    known: tuple[str, ...] = ()
    for index, variable in enumerate(spec.get("variables") or ()):
        path, name = f"spec.variables[{index}]", variable.get("name") or ""
        if not name.strip():
            yield required(f"{path}.name", "name is not specified")
        elif not name.isidentifier():
            yield invalid(f"{path}.name", name, "must be a valid CEL identifier")
        missing = "expression is not specified"
        yield from _expression(variable, "expression", path, params=params, variables=known, missing=missing, kind="")
        known = (*known, name)
    validations = spec.get("validations") or ()
    if not validations and not spec.get("auditAnnotations"):
        for name in ("validations", "auditAnnotations"):
            yield required(f"spec.{name}", "validations or auditAnnotations must contain at least one item")
    for index, validation in enumerate(validations):
        yield from _validation(validation, f"spec.validations[{index}]", params=params, variables=known)


def _validation(validation: JsonObject, path: str, *, params: bool, variables: tuple[str, ...]) -> Problems:
    missing = "expression is not specified"
    yield from _expression(validation, "expression", path, params=params, variables=variables, missing=missing)
    for name in ("messageExpression", "message"):
        text = validation.get(name) or ""
        if text and not text.strip():
            yield invalid(f"{path}.{name}", text, "must be non-empty if specified")
        elif name == "messageExpression" and text:
            yield from _expression(validation, name, path, params=params, variables=variables, kind="string")
        elif "\n" in text.strip():
            yield invalid(f"{path}.{name}", text, "must not contain line breaks")
    yield from _one_of(validation, "reason", _REASONS, path)


def _match_resources(part: JsonObject, path: str) -> Problems:
    yield from _one_of(part, "matchPolicy", ("Equivalent", "Exact"), path)
    for name in ("namespaceSelector", "objectSelector"):
        yield from _selector(part.get(name) or {}, f"{path}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(part.get(name) or ()):
            at = f"{path}.{name}[{index}]"
            names = rule.get("resourceNames") or []
            for place, it in enumerate(names):
                if it in names[:place]:
                    yield duplicate(f"{at}.resourceNames[{place}]", it)
            yield from _rule(rule, at)


def _binding(obj: JsonObject) -> Problems:
    spec = obj.get("spec") or {}
    if not spec.get("policyName"):
        yield required("spec.policyName")
    else:
        yield from (invalid("spec.policyName", spec["policyName"], it) for it in subdomain_problems(spec["policyName"]))
    if spec.get("paramRef") is not None:
        yield from _param_ref(spec["paramRef"], "spec.paramRef")
    if spec.get("matchResources") is not None:
        yield from _match_resources(spec["matchResources"], "spec.matchResources")
    actions = spec.get("validationActions") or []
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(f"spec.validationActions[{index}]", action, _ACTIONS)
        if action in actions[:index]:
            yield duplicate(f"spec.validationActions[{index}]", action)
    if {"Deny", "Warn"} <= set(actions):
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        yield invalid("spec.validationActions", actions, why)
    if not actions:
        yield required("spec.validationActions", "at least one validation action is required")


def _param_ref(reference: JsonObject, path: str) -> Problems:
    name, selector = reference.get("name"), reference.get("selector")
    both = name and selector is not None
    if both:
        yield forbidden(f"{path}.name", "name and selector are mutually exclusive")
    if selector is not None:
        yield from _selector(selector, f"{path}.selector")
    if both:
        yield forbidden(f"{path}.selector", "name and selector are mutually exclusive")
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    if action is None:
        yield required(f"{path}.parameterNotFoundAction")
    elif action not in ("Allow", "Deny"):
        yield not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow"))


_FINDERS: dict[str, Callable[[Any], Problems]] = {
    "ValidatingWebhookConfiguration": _validating,
    "MutatingWebhookConfiguration": _mutating,
    "ValidatingAdmissionPolicy": _policy,
    "ValidatingAdmissionPolicyBinding": _binding,
}
