"""Access reviews and token reviews: objects that are posted as a question and returned with the answer in the status.

    subject_access_review(body, authorizer=policy)          # may that user do this?
    self_subject_access_review(body, caller, authorizer=policy)
    token_review(body, tokens=tokens, now=clock.now())      # whose token is this?

Nothing is stored.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

import msgspec

from haulout_sandbox.apiserver.auth.rbac import Attributes, User
from haulout_sandbox.apiserver.auth.tokens import ISSUER, InvalidToken, TokenAuthenticator, decode_spec
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.status import StatusError, bad_request, invalid, status_cause

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"

AUTHENTICATION_V1 = f"{AUTHENTICATION}/v1"
REVIEW_KINDS = tuple(
    Kind(
        group=group,
        version="v1",
        plural=f"{name.lower()}s",
        kind=name,
        namespaced=False,
        verbs=("create",),
    )
    for group, names in (
        (
            AUTHORIZATION,
            "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
        ),
        (AUTHENTICATION, "SelfSubjectReview TokenReview"),
    )
    for name in names.split()
)


class Authorizer(Protocol):
    """Decides about requests: an `rbac.Policy`, or `ALLOW_ALL`."""

    def allows(self, attributes: Attributes) -> bool: ...

    def rules_for(self, user: str, groups: Sequence[str], namespace: str) -> list[JsonObject]: ...


class AllowAll:
    """The authorizer of a cluster without authorization."""

    def allows(self, attributes: Attributes) -> bool:  # noqa: ARG002 - whatever it is
        return True

    def rules_for(self, user: str, groups: Sequence[str], namespace: str) -> list[JsonObject]:  # noqa: ARG002
        return [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]


ALLOW_ALL = AllowAll()


class _Resource(msgspec.Struct, omit_defaults=True, rename="camel"):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _Path(msgspec.Struct, omit_defaults=True):
    path: str = ""
    verb: str = ""


class _Access(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The spec of access reviews; those about the caller use only the first two fields."""

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


def handle_review(
    plural: str,
    body: JsonObject,
    *,
    caller: User,
    authorizer: Authorizer,
    tokens: TokenAuthenticator,
    now: datetime,
) -> JsonObject | None:
    """Return the response to a review posted to the collection `plural`, or None if that is no review."""
    match plural:
        case "subjectaccessreviews":
            return subject_access_review(body, authorizer=authorizer)
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
    spec = decode_spec(body, _Access)
    if not spec.user and not spec.groups:
        raise _invalid_review("spec.user", "at least one of user or group must be specified")
    return _access_review("SubjectAccessReview", spec, spec.user, spec.groups, authorizer)


def self_subject_access_review(body: JsonObject, caller: User, *, authorizer: Authorizer) -> JsonObject:
    sent = decode_spec(body, _Access)
    spec = _Access(sent.resource_attributes, sent.non_resource_attributes)
    return _access_review("SelfSubjectAccessReview", spec, caller.name, caller.groups, authorizer)


def self_subject_rules_review(body: JsonObject, caller: User, *, authorizer: Authorizer) -> JsonObject:
    namespace = decode_spec(body, _Rules).namespace
    if not namespace:
        raise bad_request("no namespace on request")
    rules = authorizer.rules_for(caller.name, caller.groups, namespace)
    status: JsonObject = {
        "resourceRules": [
            _select_fields(rule, "verbs", "apiGroups", "resources", "resourceNames")
            for rule in rules
            if rule.get("resources")
        ],
        "nonResourceRules": [
            _select_fields(rule, "verbs", "nonResourceURLs") for rule in rules if rule.get("nonResourceURLs")
        ],
        "incomplete": False,
    }
    return _type_meta("SelfSubjectRulesReview", AUTHORIZATION) | {"spec": {}, "status": status}


def self_subject_review(caller: User, *, now: datetime) -> JsonObject:
    head = _type_meta("SelfSubjectReview", AUTHENTICATION)
    head["metadata"] = {"creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return head | {"status": {"userInfo": user_info(caller)}}


def token_review(body: JsonObject, *, tokens: TokenAuthenticator, now: datetime) -> JsonObject:
    spec = decode_spec(body, _Token)
    if not spec.token:
        raise bad_request("token is required for TokenReview in authentication")
    status: JsonObject
    try:
        user, audiences = tokens.authenticate(spec.token, now=now, audiences=spec.audiences or [ISSUER])
        status = {"authenticated": True, "user": user_info(user), "audiences": audiences}
    except InvalidToken as error:
        status = {"user": {}, "error": str(error)}
    return _type_meta("TokenReview", AUTHENTICATION) | {"spec": msgspec.to_builtins(spec), "status": status}


def user_info(user: User) -> JsonObject:
    """Return a user as reviews show it."""
    info: JsonObject = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return {name: value for name, value in info.items() if value}


def _type_meta(kind: str, group: str) -> JsonObject:
    return {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}}


def _select_fields(rule: JsonObject, *names: str) -> JsonObject:
    return {name: rule[name] for name in names if rule.get(name)}


def _access_review(kind: str, spec: _Access, user: str, groups: Sequence[str], authorizer: Authorizer) -> JsonObject:
    resource, path = spec.resource_attributes, spec.non_resource_attributes
    base = Attributes(user=user, groups=tuple(groups), verb="")
    if path is not None and resource is None:
        attributes = replace(base, verb=path.verb, path=path.path, is_resource=False)
    elif resource is not None and path is None:
        attributes = replace(
            base,
            verb=resource.verb,
            group=resource.group,
            resource=resource.resource,
            subresource=resource.subresource,
            name=resource.name,
            namespace=resource.namespace,
        )
    else:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid_review("spec.resourceAttributes", detail)
    result = {"spec": msgspec.to_builtins(spec), "status": {"allowed": authorizer.allows(attributes)}}
    return _type_meta(kind, AUTHORIZATION) | result


def _invalid_review(field: str, detail: str) -> StatusError:
    return invalid(AUTHORIZATION, "", "", [status_cause("FieldValueInvalid", field, f"Invalid value: {detail}")])
