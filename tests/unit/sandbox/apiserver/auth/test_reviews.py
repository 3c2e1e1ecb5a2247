"""The questions that clients post about access and identity, and the tokens behind them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haulout_sandbox.apiserver.auth.rbac import AUTHENTICATED, Policy, User
from haulout_sandbox.apiserver.auth.reviews import (
    ALLOW_ALL,
    handle_review,
    self_subject_access_review,
    self_subject_review,
    self_subject_rules_review,
    subject_access_review,
    token_review,
)
from haulout_sandbox.apiserver.auth.tokens import ISSUER, TokenAuthenticator, issue_token
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.status import StatusError

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
EVE = User("eve", (AUTHENTICATED,))
LIST_PODS = {"verb": "list", "resource": "pods", "namespace": "shop"}
POLICY = Policy(
    cluster_roles=[
        {
            "metadata": {"name": "r"},
            "rules": [
                {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
                {"verbs": ["get"], "nonResourceURLs": ["/logs/*"]},
            ],
        }
    ],
    cluster_role_bindings=[
        {
            "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "eve"}],
        }
    ],
)


def test_a_review_returns_its_spec_and_the_answer() -> None:
    body = {"metadata": {"creationTimestamp": None}, "spec": {"user": "eve", "resourceAttributes": LIST_PODS}}
    assert subject_access_review(body, authorizer=POLICY) == {
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {"user": "eve", "resourceAttributes": LIST_PODS},
        "status": {"allowed": True},
    }
    body["spec"] = {"user": "bob", "resourceAttributes": LIST_PODS}
    assert subject_access_review(body, authorizer=POLICY)["status"] == {"allowed": False}


def test_a_self_review_is_about_the_caller_whatever_its_spec_has() -> None:
    body = {"spec": {"user": "bob", "nonResourceAttributes": {"path": "/logs/a", "verb": "get"}}}
    answered = self_subject_access_review(body, EVE, authorizer=POLICY)
    assert answered["status"] == {"allowed": True}
    assert "user" not in answered["spec"]


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"spec": {"resourceAttributes": LIST_PODS}}, 422, "at least one of user or group must be specified"),
        ({"spec": {"user": "eve"}}, 422, "exactly one of nonResourceAttributes or resourceAttributes"),
        ({}, 422, "at least one of user or group must be specified"),
        (
            {"spec": {"user": "eve", "resourceAttributes": LIST_PODS, "nonResourceAttributes": {"path": "/a"}}},
            422,
            "exactly one of nonResourceAttributes or resourceAttributes",
        ),
        ({"spec": {"user": 7}}, 400, "cannot be handled: spec: Expected `str`, got `int`"),
        ({"spec": [1]}, 400, "cannot be handled: spec"),
    ],
)
def test_an_invalid_review_is_refused(body: JsonObject, code: int, message: str) -> None:
    with pytest.raises(StatusError) as raised:
        subject_access_review(body, authorizer=POLICY)
    assert raised.value.status["code"] == code
    assert message in raised.value.status["message"]


def test_a_rules_review_lists_the_permissions_in_a_namespace() -> None:
    status = self_subject_rules_review({"spec": {"namespace": "shop"}}, EVE, authorizer=POLICY)["status"]
    assert status == {
        "resourceRules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/logs/*"]}],
        "incomplete": False,
    }
    with pytest.raises(StatusError, match="no namespace on request"):
        self_subject_rules_review({"spec": {}}, EVE, authorizer=POLICY)


def test_without_authorization_everything_is_allowed() -> None:
    body = {"spec": {"resourceAttributes": LIST_PODS}}
    assert self_subject_access_review(body, EVE, authorizer=ALLOW_ALL)["status"] == {"allowed": True}
    status = self_subject_rules_review({"spec": {"namespace": "shop"}}, EVE, authorizer=ALLOW_ALL)["status"]
    assert status["nonResourceRules"] == [{"verbs": ["*"], "nonResourceURLs": ["*"]}]


def test_a_self_subject_review_returns_the_caller() -> None:
    caller = User("eve", ("crew",), uid="7", extra={"from": ["afar"]})
    assert self_subject_review(caller, now=NOW) == {
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": "2026-01-05T09:00:00Z"},
        "status": {"userInfo": {"username": "eve", "uid": "7", "groups": ["crew"], "extra": {"from": ["afar"]}}},
    }


ACCOUNT: JsonObject = {"metadata": {"name": "robot", "namespace": "shop", "uid": "u-1"}}
TOKENS = TokenAuthenticator(
    secret=b"s", find_service_account=lambda *_: ACCOUNT, static_tokens={"open-sesame": User("eve", ("crew",))}
)


def a_token(*, tokens: TokenAuthenticator = TOKENS, **spec: Any) -> str:
    issued = issue_token(tokens, ACCOUNT, {"spec": spec}, now=NOW, token_id="t-1")
    return str(issued["status"]["token"])


def review_token(token: str, *, tokens: TokenAuthenticator = TOKENS, now: datetime = NOW, **spec: Any) -> JsonObject:
    status: JsonObject = token_review({"spec": {"token": token, **spec}}, tokens=tokens, now=now)["status"]
    return status


def test_a_given_token_is_known_and_its_holder_is_authenticated() -> None:
    assert review_token("open-sesame") == {
        "authenticated": True,
        "user": {"username": "eve", "groups": ["crew", AUTHENTICATED]},
        "audiences": [ISSUER],
    }
    assert review_token("open-sesame", audiences=["other"]) == {"user": {}, "error": "invalid bearer token"}


def test_a_service_account_is_known_by_the_token_it_was_issued() -> None:
    assert review_token(a_token()) == {
        "authenticated": True,
        "user": {
            "username": "system:serviceaccount:shop:robot",
            "uid": "u-1",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:shop", AUTHENTICATED],
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=t-1"]},
        },
        "audiences": [ISSUER],
    }


def test_a_token_request_is_answered_with_the_token_and_its_end() -> None:
    body = {"spec": {"expirationSeconds": 600, "audiences": ["a"]}}
    issued = issue_token(TOKENS, ACCOUNT, body, now=NOW, token_id="t-1")
    assert issued["metadata"] == {**ACCOUNT["metadata"], "creationTimestamp": "2026-01-05T09:00:00Z"}
    assert issued["spec"] == {"audiences": ["a"], "expirationSeconds": 600, "boundObjectRef": None}
    assert issued["status"]["expirationTimestamp"] == "2026-01-05T09:10:00Z"


def test_a_token_expires_with_a_minute_of_leeway() -> None:
    token = a_token(expirationSeconds=600)
    assert review_token(token, now=NOW + timedelta(minutes=11))["authenticated"]
    late = review_token(token, now=NOW + timedelta(minutes=11, seconds=1))
    assert late == {"user": {}, "error": "[invalid bearer token, service account token has expired]"}


def test_a_token_for_others_is_refused() -> None:
    token = a_token(audiences=["other", "third"])
    assert review_token(token)["error"] == "[invalid bearer token, the token is not meant for these audiences]"
    assert review_token(token, audiences=["third", "fourth"])["audiences"] == ["third"]


def test_a_token_ends_with_its_account() -> None:
    gone = TokenAuthenticator(secret=b"s", find_service_account=lambda *_: None)
    message = "[invalid bearer token, its service account is gone]"
    assert review_token(a_token(), tokens=gone)["error"] == message
    again = TokenAuthenticator(secret=b"s", find_service_account=lambda *_: {"metadata": {"uid": "u-2"}})
    assert review_token(a_token(), tokens=again)["error"] == message


@pytest.mark.parametrize("token", ["nonsense", "a.b.c", "..", "ä.ö.ü", ""])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    assert TOKENS.static_tokens.get(token) is None
    if token:
        assert review_token(token) == {"user": {}, "error": "invalid bearer token"}
        return
    with pytest.raises(StatusError, match="token is required for TokenReview"):
        review_token(token)


def test_a_token_signed_by_another_sandbox_is_refused() -> None:
    other = TokenAuthenticator(secret=b"other", find_service_account=lambda *_: ACCOUNT)
    assert review_token(a_token(tokens=other)) == {"user": {}, "error": "invalid bearer token"}


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"spec": {"expirationSeconds": 599}}, 422, "599: may not specify a duration less than 10 minutes"),
        ({"spec": {"expirationSeconds": "long"}}, 400, "Expected `int`, got `str`"),
    ],
)
def test_an_invalid_token_request_is_refused(body: JsonObject, code: int, message: str) -> None:
    with pytest.raises(StatusError) as raised:
        issue_token(TOKENS, ACCOUNT, body, now=NOW, token_id="t-1")
    assert raised.value.status["code"] == code
    assert message in raised.value.status["message"]


@pytest.mark.parametrize(
    ("plural", "spec", "kind"),
    [
        ("subjectaccessreviews", {"user": "eve", "resourceAttributes": LIST_PODS}, "SubjectAccessReview"),
        ("selfsubjectaccessreviews", {"resourceAttributes": LIST_PODS}, "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", {"namespace": "shop"}, "SelfSubjectRulesReview"),
        ("selfsubjectreviews", {}, "SelfSubjectReview"),
        ("tokenreviews", {"token": "open-sesame"}, "TokenReview"),
    ],
)
def test_each_review_is_answered_at_its_place(plural: str, spec: JsonObject, kind: str) -> None:
    answered = handle_review(plural, {"spec": spec}, caller=EVE, authorizer=POLICY, tokens=TOKENS, now=NOW)
    assert answered is not None
    assert answered["kind"] == kind


def test_other_objects_are_no_reviews() -> None:
    assert handle_review("pods", {}, caller=EVE, authorizer=POLICY, tokens=TOKENS, now=NOW) is None
