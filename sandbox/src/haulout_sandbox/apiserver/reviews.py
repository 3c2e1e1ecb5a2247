"""Reviews: objects that are posted as a question and come back with the answer in their status.

    subject_access_review(body, authorizer=policy)          # may that user do this?
    self_subject_access_review(body, caller, authorizer=policy)
    token_review(body, tokens=tokens, now=clock.now())      # who holds this token?

Nothing is stored and nothing looked up but through what is given. Bodies come as they were sent; answers, and the words
of refusals, are those of `pkg/registry/authorization` and `pkg/registry/authentication`.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.posted import metadata_of, spec_of
from haulout_sandbox.apiserver.rbac import Attributes, Decision, User
from haulout_sandbox.apiserver.status import bad_request, field_error, invalid
from haulout_sandbox.apiserver.tokens import ISSUER, BadToken, Tokens

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"

AUTHENTICATION_V1 = f"{AUTHENTICATION}/v1"
KINDS = tuple(
    Kind(
        group=group,
        version="v1",
        plural=f"{name.lower()}s",
        kind=name,
        namespaced=name.startswith("Local"),
        verbs=("create",),
    )
    for group, names in (
        (
            AUTHORIZATION,
            "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
        ),
        (AUTHENTICATION, "SelfSubjectReview TokenReview"),
    )
    for name in names.split()
)

_OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"


class Authorizer(Protocol):
    """Whoever decides: an `rbac.Policy`, or `ALLOW_ALL`."""

    def decide(self, attributes: Attributes) -> Decision:
        """Tell whether it is allowed, and why."""
        ...

    def rules_for(self, user: str, groups: Sequence[str], namespace: str) -> tuple[list[JsonObject], str]:
        """Return the rules that apply to a user in a namespace, and what could not be looked up."""
        ...


class AllowAll:
    """A cluster without authorization."""

    def decide(self, attributes: Attributes) -> Decision:  # noqa: ARG002 - whatever it is
        """Allow it."""
        return Decision(True)

    def rules_for(self, user: str, groups: Sequence[str], namespace: str) -> tuple[list[JsonObject], str]:  # noqa: ARG002
        """Return the rules that allow everything."""
        everything: list[JsonObject] = [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]
        return everything, ""


ALLOW_ALL = AllowAll()


class _Resource(msgspec.Struct, omit_defaults=True, rename="camel"):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    field_selector: dict[str, Any] | None = None
    label_selector: dict[str, Any] | None = None


class _Path(msgspec.Struct, omit_defaults=True):
    path: str = ""
    verb: str = ""


class _Access(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The spec of the access reviews; those about oneself have only the first two."""

    resource_attributes: _Resource | None = None
    non_resource_attributes: _Path | None = None
    user: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    uid: str = ""


class _Rules(msgspec.Struct):
    namespace: str = ""


class _Token(msgspec.Struct, omit_defaults=True):
    token: str = ""
    audiences: list[str] = []


def answer(  # noqa: PLR0911 - one for each review
    plural: str,
    body: JsonObject,
    *,
    caller: User,
    authorizer: Authorizer,
    tokens: Tokens,
    now: datetime,
    namespace: str = "",
) -> JsonObject | None:
    """Answer what was posted to the collection `plural`; None if that is no review."""
    match plural:
        case "subjectaccessreviews":
            return subject_access_review(body, authorizer=authorizer)
        case "localsubjectaccessreviews":
            return local_subject_access_review(body, authorizer=authorizer, namespace=namespace)
        case "selfsubjectaccessreviews":
            return self_subject_access_review(body, caller, authorizer=authorizer)
        case "selfsubjectrulesreviews":
            return self_subject_rules_review(body, caller, authorizer=authorizer)
        case "selfsubjectreviews":
            return self_subject_review(caller, now=now)
        case "tokenreviews":
            return token_review(body, tokens=tokens, now=now)
    return None


def subject_access_review(body: JsonObject, *, authorizer: Authorizer) -> JsonObject:
    """Tell whether the user that the body names may do something."""
    spec = spec_of(body, _Access)
    _refuse([*_access_problems(spec), *_user_problems(spec), *_metadata_problems(metadata_of(body))])
    return _answered("SubjectAccessReview", spec, _attributes(spec, spec.user, spec.groups), authorizer)


def local_subject_access_review(body: JsonObject, *, authorizer: Authorizer, namespace: str) -> JsonObject:
    """Tell whether the user that the body names may do something in the namespace of the request."""
    spec, metadata = spec_of(body, _Access), metadata_of(body)
    if metadata.pop("namespace", namespace) != namespace:
        raise bad_request(_OTHER_NAMESPACE)
    problems = [*_access_problems(spec), *_user_problems(spec)]
    problems += _metadata_problems(metadata, rule="must be empty except for namespace")
    if spec.resource_attributes and spec.resource_attributes.namespace != namespace:
        said = f'"{spec.resource_attributes.namespace}": must match metadata.namespace'
        problems.append(_wrong("spec.resourceAttributes.namespace", said))
    if spec.non_resource_attributes:
        said = f"{_go_path(spec.non_resource_attributes)}: disallowed on this kind of request"
        problems.append(_wrong("spec.nonResourceAttributes", said))
    _refuse(problems)
    attributes = _attributes(spec, spec.user, spec.groups)
    answered = _answered("LocalSubjectAccessReview", spec, attributes, authorizer)
    return answered | {"metadata": {"namespace": namespace}}


def self_subject_access_review(body: JsonObject, caller: User, *, authorizer: Authorizer) -> JsonObject:
    """Tell whether the caller may do something."""
    sent = spec_of(body, _Access)
    spec = _Access(sent.resource_attributes, sent.non_resource_attributes)
    _refuse([*_access_problems(spec), *_metadata_problems(metadata_of(body))])
    return _answered("SelfSubjectAccessReview", spec, _attributes(spec, caller.name, caller.groups), authorizer)


def self_subject_rules_review(body: JsonObject, caller: User, *, authorizer: Authorizer) -> JsonObject:
    """Tell all that the caller may do in a namespace."""
    namespace = spec_of(body, _Rules).namespace
    if not namespace:
        raise bad_request("no namespace on request")
    rules, problem = authorizer.rules_for(caller.name, caller.groups, namespace)
    status: JsonObject = {
        "resourceRules": [
            _only(rule, "verbs", "apiGroups", "resources", "resourceNames") for rule in rules if rule.get("resources")
        ],
        "nonResourceRules": [_only(rule, "verbs", "nonResourceURLs") for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
    if problem:
        status["evaluationError"] = problem
    return _head("SelfSubjectRulesReview", AUTHORIZATION) | {"spec": {}, "status": status}


def self_subject_review(caller: User, *, now: datetime) -> JsonObject:
    """Tell the caller who they are."""
    head = _head("SelfSubjectReview", AUTHENTICATION)
    head["metadata"] = {"creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return head | {"status": {"userInfo": user_info(caller)}}


def token_review(body: JsonObject, *, tokens: Tokens, now: datetime) -> JsonObject:
    """Tell who holds a token."""
    spec = spec_of(body, _Token)
    if not spec.token:
        raise bad_request("token is required for TokenReview in authentication")
    status: JsonObject
    try:
        holder, audiences = tokens.holder(spec.token, now=now, audiences=spec.audiences or [ISSUER])
        status = {"authenticated": True, "user": user_info(holder), "audiences": audiences}
    except BadToken as problem:
        status = {"user": {}, "error": str(problem)}
    return _head("TokenReview", AUTHENTICATION) | {"spec": msgspec.to_builtins(spec), "status": status}


def user_info(user: User) -> JsonObject:
    """Return a user as reviews show one."""
    told: JsonObject = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    told["extra"] = {name: list(values) for name, values in user.extra.items()}
    return {name: value for name, value in told.items() if value}


def _head(kind: str, group: str) -> JsonObject:
    return {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}}


def _only(rule: JsonObject, *names: str) -> JsonObject:
    return {name: rule[name] for name in names if rule.get(name)}


def _attributes(spec: _Access, user: str, groups: Sequence[str]) -> Attributes:
    if path := spec.non_resource_attributes:
        return Attributes(user=user, groups=tuple(groups), verb=path.verb, path=path.path, is_resource=False)
    asked = spec.resource_attributes or _Resource()
    return Attributes(
        user=user,
        groups=tuple(groups),
        verb=asked.verb,
        group=asked.group,
        resource=asked.resource,
        subresource=asked.subresource,
        name=asked.name,
        namespace=asked.namespace,
    )


def _answered(kind: str, spec: _Access, attributes: Attributes, authorizer: Authorizer) -> JsonObject:
    decision = authorizer.decide(attributes)
    status: JsonObject = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return _head(kind, AUTHORIZATION) | {"spec": msgspec.to_builtins(spec), "status": status}


# What is wrong with a question


def _access_problems(spec: _Access) -> list[JsonObject]:
    resource, path = spec.resource_attributes, spec.non_resource_attributes
    if resource and path:
        said = f"{_go_path(path)}: cannot be specified in combination with resourceAttributes"
        return [_wrong("spec.nonResourceAttributes", said)]
    if not resource and not path:
        said = "null: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [_wrong("spec.resourceAttributes", said)]
    return []


def _user_problems(spec: _Access) -> list[JsonObject]:
    if spec.user or spec.groups:
        return []
    return [_wrong("spec.user", '"": at least one of user or group must be specified')]


def _metadata_problems(metadata: JsonObject, *, rule: str = "must be empty") -> list[JsonObject]:
    return [_wrong("metadata", f"{msgspec.json.encode(metadata).decode()}: {rule}")] if metadata else []


def _wrong(field: str, said: str) -> JsonObject:
    return field_error("FieldValueInvalid", field, f"Invalid value: {said}")


def _go_path(path: _Path) -> str:
    return msgspec.json.encode({"Path": path.path, "Verb": path.verb}).decode()


def _refuse(problems: list[JsonObject]) -> None:
    if problems:
        raise invalid(AUTHORIZATION, "", "", problems)
