"""Who may do what in the sandbox, and how it says no; tests/cluster asks the real server the same."""

import time
from collections.abc import Iterable
from typing import Any

import pytest

from haulout_sandbox.apiserver.auth.bootstrap_policy import default_cluster_role_bindings, default_cluster_roles
from haulout_sandbox.apiserver.auth.rbac import (
    AUTHENTICATED,
    UNAUTHENTICATED,
    Attributes,
    Policy,
    User,
    forbidden_status,
    request_attributes,
    service_account_user,
)
from haulout_sandbox.apiserver.kinds.kind import JsonObject

GROUP = "rbac.authorization.k8s.io"
EVE = User("eve", ("crew", AUTHENTICATED))


def a_role(*rules: JsonObject, name: str = "r", namespace: str = "", **more: Any) -> JsonObject:
    meta: JsonObject = {"name": name} | ({"namespace": namespace} if namespace else {})
    kind = "Role" if namespace else "ClusterRole"
    return {"kind": kind, "metadata": meta | more.pop("meta", {}), "rules": list(rules), **more}


def a_binding(
    *subjects: JsonObject, name: str = "b", role: str = "r", kind: str = "", namespace: str = ""
) -> JsonObject:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    reference = {"apiGroup": GROUP, "kind": kind or ("Role" if namespace else "ClusterRole"), "name": role}
    bound = "RoleBinding" if namespace else "ClusterRoleBinding"
    return {"kind": bound, "metadata": meta, "roleRef": reference, "subjects": list(subjects)}


def rule(verbs: str, resources: str, *, groups: str = "", names: str = "") -> JsonObject:
    result: JsonObject = {"verbs": verbs.split(), "apiGroups": groups.split(" "), "resources": resources.split()}
    return result | ({"resourceNames": names.split()} if names else {})


def user(name: str = "eve") -> JsonObject:
    return {"apiGroup": GROUP, "kind": "User", "name": name}


def group(name: str) -> JsonObject:
    return {"apiGroup": GROUP, "kind": "Group", "name": name}


def allowed(
    attributes: Attributes,
    roles: Iterable[JsonObject] = (),
    cluster_roles: Iterable[JsonObject] = (),
    role_bindings: Iterable[JsonObject] = (),
    cluster_role_bindings: Iterable[JsonObject] = (),
) -> bool:
    policy = Policy(
        roles=roles,
        cluster_roles=cluster_roles,
        role_bindings=role_bindings,
        cluster_role_bindings=cluster_role_bindings,
    )
    return policy.allows(attributes)


def attributes_of(verb: str, resource: str, *, subject_user: User = EVE, **more: Any) -> Attributes:
    resource, _, subresource = resource.partition("/")
    return Attributes(
        user=subject_user.name,
        groups=subject_user.groups,
        verb=verb,
        resource=resource,
        subresource=subresource,
        **more,
    )


@pytest.mark.parametrize(
    ("granted", "attributes", "is_allowed"),
    [
        (rule("get", "pods"), attributes_of("get", "pods"), True),
        (rule("get", "pods"), attributes_of("list", "pods"), False),
        (rule("*", "pods"), attributes_of("list", "pods"), True),
        (rule("get", "pods"), attributes_of("get", "pods", group="apps"), False),
        (rule("get", "pods", groups="*"), attributes_of("get", "pods", group="apps"), True),
        (rule("get", "pods", groups=" apps"), attributes_of("get", "pods"), True),
        (rule("get", "pods"), attributes_of("get", "pods/status"), False),
        (rule("get", "pods/status"), attributes_of("get", "pods/status"), True),
        (rule("get", "pods/status"), attributes_of("get", "pods"), False),
        (rule("get", "*/status"), attributes_of("get", "pods/status"), True),
        (rule("get", "*/status"), attributes_of("get", "pods/log"), False),
        (rule("get", "pods/*"), attributes_of("get", "pods/status"), False),
        (rule("get", "*"), attributes_of("get", "pods/status"), True),
        (rule("get", "pods", names="a b"), attributes_of("get", "pods", name="b"), True),
        (rule("get", "pods", names="a b"), attributes_of("get", "pods", name="c"), False),
        (rule("*", "pods", names="a"), attributes_of("list", "pods"), False),
        (rule("*", "pods", names="a"), attributes_of("create", "pods"), False),
        (rule("*", "pods", names="a"), attributes_of("deletecollection", "pods"), False),
        (rule("*", "pods", names="a"), attributes_of("list", "pods", name="a"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/logs/*"]}, attributes_of("get", "pods"), False),
    ],
)
def test_a_rule_allows_what_it_names(granted: JsonObject, attributes: Attributes, *, is_allowed: bool) -> None:
    assert allowed(attributes, (), [a_role(granted)], (), [a_binding(user())]) is is_allowed


@pytest.mark.parametrize(
    ("url", "path", "is_allowed"),
    [
        ("/metrics", "/metrics", True),
        ("/metrics", "/metrics/slis", False),
        ("/logs/*", "/logs/a/b", True),
        ("/logs/*", "/logs", False),
        ("/logs*", "/logs", True),
        ("*", "/anything", True),
    ],
)
def test_a_path_is_allowed_as_it_is_or_by_a_trailing_star(url: str, path: str, *, is_allowed: bool) -> None:
    role = a_role({"verbs": ["get"], "nonResourceURLs": [url]})
    attributes = Attributes(user="eve", verb="get", path=path, is_resource=False)
    assert allowed(attributes, (), [role], (), [a_binding(user())]) is is_allowed


def test_a_role_in_a_namespace_counts_only_there() -> None:
    role, binding = a_role(rule("get", "pods"), namespace="shop"), a_binding(user(), namespace="shop")
    assert allowed(attributes_of("get", "pods", namespace="shop"), [role], (), [binding])
    assert not allowed(attributes_of("get", "pods", namespace="bank"), [role], (), [binding])
    assert not allowed(attributes_of("get", "pods"), [role], (), [binding])


def test_a_cluster_role_bound_in_a_namespace_counts_only_there() -> None:
    role, binding = a_role(rule("get", "pods")), a_binding(user(), kind="ClusterRole", namespace="shop")
    assert allowed(attributes_of("get", "pods", namespace="shop"), (), [role], [binding])
    assert not allowed(attributes_of("get", "pods"), (), [role], [binding])


def test_a_service_account_is_its_user_and_its_groups() -> None:
    role = a_role(rule("get", "pods"))
    attributes = attributes_of("get", "pods", subject_user=service_account_user("shop", "robot"))
    account = {"kind": "ServiceAccount", "name": "robot", "namespace": "shop"}
    for subject in (
        account,
        user("system:serviceaccount:shop:robot"),
        group("system:serviceaccounts"),
        group("system:serviceaccounts:shop"),
        group(AUTHENTICATED),
    ):
        assert allowed(attributes, (), [role], (), [a_binding(subject)])
    for subject in (account | {"namespace": "bank"}, {"kind": "ServiceAccount", "name": "robot"}, group("robot")):
        assert not allowed(attributes, (), [role], (), [a_binding(subject)])


def test_a_role_that_is_missing_is_passed_over() -> None:
    lost = [a_binding(user(), name="lost", role="lost")]
    attributes = attributes_of("get", "pods", namespace="shop")
    assert allowed(attributes, (), [a_role(rule("get", "pods"))], (), [*lost, a_binding(user())])
    assert not allowed(attributes, (), (), (), lost)


def test_masters_may_do_everything() -> None:
    assert allowed(attributes_of("delete", "nodes", subject_user=User("root", ("system:masters",))))


def test_nothing_is_allowed_by_default() -> None:
    assert not allowed(attributes_of("get", "pods"))


def test_an_admin_has_the_rules_of_view_and_edit() -> None:
    policy = Policy(
        cluster_roles=default_cluster_roles(),
        role_bindings=[a_binding(user(), role="admin", kind="ClusterRole", namespace="shop")],
    )
    for verb, resource, api_group in (
        ("list", "pods", ""),
        ("create", "pods/eviction", ""),
        ("update", "roles", GROUP),
    ):
        assert policy.allows(attributes_of(verb, resource, group=api_group, namespace="shop"))
    assert not policy.allows(attributes_of("list", "nodes", namespace="shop"))


def test_everybody_may_discover_and_ask_about_themselves() -> None:
    policy = Policy(cluster_roles=default_cluster_roles(), cluster_role_bindings=default_cluster_role_bindings())
    stranger = User("system:anonymous", (UNAUTHENTICATED,))
    assert policy.allows(request_attributes(EVE, "GET", "/apis/apps/v1"))
    assert not policy.allows(request_attributes(stranger, "GET", "/apis/apps/v1"))
    assert policy.allows(request_attributes(stranger, "GET", "/version"))
    review = request_attributes(EVE, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    assert policy.allows(review)


@pytest.mark.parametrize(
    ("method", "path", "query", "verb", "expected"),
    [
        ("GET", "/api/v1/pods", {}, "list", ("", "pods", "", "", "")),
        ("GET", "/api/v1/pods", {"watch": "true"}, "watch", ("", "pods", "", "", "")),
        ("GET", "/api/v1/nodes", {"fieldSelector": "metadata.name=n1"}, "list", ("", "nodes", "", "n1", "")),
        ("GET", "/api/v1/nodes", {"fieldSelector": "metadata.name!=n1"}, "list", ("", "nodes", "", "", "")),
        ("GET", "/api/v1/namespaces/x", {}, "get", ("", "namespaces", "", "x", "x")),
        ("PUT", "/api/v1/namespaces/x/finalize", {}, "update", ("", "namespaces", "finalize", "x", "x")),
        ("DELETE", "/api/v1/namespaces/x/pods", {}, "deletecollection", ("", "pods", "", "", "x")),
        ("DELETE", "/api/v1/namespaces/x/pods/a", {}, "delete", ("", "pods", "", "a", "x")),
        ("POST", "/api/v1/namespaces/x/pods/a/eviction", {}, "create", ("", "pods", "eviction", "a", "x")),
        ("PATCH", "/apis/apps/v1/namespaces/x/deployments/d", {}, "patch", ("apps", "deployments", "", "d", "x")),
    ],
)
def test_the_path_of_a_request_determines_its_attributes(
    method: str, path: str, query: dict[str, str], verb: str, expected: tuple[str, ...]
) -> None:
    attributes = request_attributes(EVE, method, path, query)
    assert (attributes.is_resource, attributes.verb) == (True, verb)
    assert (
        attributes.group,
        attributes.resource,
        attributes.subresource,
        attributes.name,
        attributes.namespace,
    ) == expected


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1", "/apis/apps/v1", "/metrics", "/openapi/v3/apis/apps/v1"])
def test_other_paths_are_about_no_resource(path: str) -> None:
    attributes = request_attributes(EVE, "GET", path)
    assert (attributes.is_resource, attributes.verb, attributes.path) == (False, "get", path)


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        (
            "GET",
            "/api/v1/namespaces/x/pods",
            'pods is forbidden: User "eve" cannot list resource "pods" in API group "" in the namespace "x"',
        ),
        (
            "DELETE",
            "/api/v1/nodes/n1",
            'nodes "n1" is forbidden: User "eve" cannot delete resource "nodes" in API group "" at the cluster scope',
        ),
        (
            "PUT",
            "/apis/apps/v1/namespaces/x/deployments/d/scale",
            (
                'deployments.apps "d" is forbidden: User "eve" cannot update resource "deployments/scale" '
                'in API group "apps" in the namespace "x"'
            ),
        ),
        ("GET", "/logs/a", 'forbidden: User "eve" cannot get path "/logs/a"'),
    ],
)
def test_a_refusal_names_user_verb_resource_and_namespace(method: str, path: str, message: str) -> None:
    status = forbidden_status(request_attributes(EVE, method, path))
    assert (status["code"], status["reason"], status["message"]) == (403, "Forbidden", message)


def test_thousands_of_questions_take_a_moment() -> None:
    """A generous bound: it takes a tenth of it. Looking through all bindings for each question would take minutes."""
    roles = [a_role(*(rule("get", f"r{each}") for each in range(10)), name=f"r{number}") for number in range(200)]
    bindings = [a_binding(user(f"u{number}"), name=f"b{number}", role=f"r{number % 200}") for number in range(2000)]
    policy = Policy(cluster_roles=roles, cluster_role_bindings=bindings)
    started = time.process_time()
    for number in range(10_000):
        assert policy.allows(attributes_of("get", "r9", subject_user=User(f"u{number % 2000}")))
    assert time.process_time() - started < 2
