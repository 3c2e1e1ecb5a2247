"""Who may do what in the sandbox, and how it says no; tests/cluster asks the real server the same."""

import time
from typing import Any

import pytest

from haulout_sandbox.apiserver.escalation import escalation_problem
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.rbac import (
    AUTHENTICATED,
    UNAUTHENTICATED,
    Attributes,
    Decision,
    Policy,
    User,
    account_user,
    aggregated,
    allowed,
    forbidden,
    request_attributes,
)
from haulout_sandbox.apiserver.rbac_defaults import default_cluster_role_bindings, default_cluster_roles

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
    told: JsonObject = {"verbs": verbs.split(), "apiGroups": groups.split(" "), "resources": resources.split()}
    return told | ({"resourceNames": names.split()} if names else {})


def user(name: str = "eve") -> JsonObject:
    return {"apiGroup": GROUP, "kind": "User", "name": name}


def group(name: str) -> JsonObject:
    return {"apiGroup": GROUP, "kind": "Group", "name": name}


def asking(verb: str, resource: str, *, who: User = EVE, **more: Any) -> Attributes:
    resource, _, subresource = resource.partition("/")
    return Attributes(user=who.name, groups=who.groups, verb=verb, resource=resource, subresource=subresource, **more)


@pytest.mark.parametrize(
    ("granted", "asked", "yes"),
    [
        (rule("get", "pods"), asking("get", "pods"), True),
        (rule("get", "pods"), asking("list", "pods"), False),
        (rule("*", "pods"), asking("list", "pods"), True),
        (rule("get", "pods"), asking("get", "pods", group="apps"), False),
        (rule("get", "pods", groups="*"), asking("get", "pods", group="apps"), True),
        (rule("get", "pods", groups=" apps"), asking("get", "pods"), True),
        (rule("get", "pods"), asking("get", "pods/status"), False),
        (rule("get", "pods/status"), asking("get", "pods/status"), True),
        (rule("get", "pods/status"), asking("get", "pods"), False),
        (rule("get", "*/status"), asking("get", "pods/status"), True),
        (rule("get", "*/status"), asking("get", "pods/log"), False),
        (rule("get", "pods/*"), asking("get", "pods/status"), False),
        (rule("get", "*"), asking("get", "pods/status"), True),
        (rule("get", "pods", names="a b"), asking("get", "pods", name="b"), True),
        (rule("get", "pods", names="a b"), asking("get", "pods", name="c"), False),
        (rule("*", "pods", names="a"), asking("list", "pods"), False),
        (rule("*", "pods", names="a"), asking("create", "pods"), False),
        (rule("*", "pods", names="a"), asking("deletecollection", "pods"), False),
        (rule("*", "pods", names="a"), asking("list", "pods", name="a"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/logs/*"]}, asking("get", "pods"), False),
    ],
)
def test_a_rule_allows_what_it_names(granted: JsonObject, asked: Attributes, *, yes: bool) -> None:
    assert allowed(asked, (), [a_role(granted)], (), [a_binding(user())]).allowed is yes


@pytest.mark.parametrize(
    ("url", "path", "yes"),
    [
        ("/metrics", "/metrics", True),
        ("/metrics", "/metrics/slis", False),
        ("/logs/*", "/logs/a/b", True),
        ("/logs/*", "/logs", False),
        ("/logs*", "/logs", True),
        ("*", "/anything", True),
    ],
)
def test_a_path_is_allowed_as_it_is_or_by_a_trailing_star(url: str, path: str, *, yes: bool) -> None:
    role = a_role({"verbs": ["get"], "nonResourceURLs": [url]})
    asked = Attributes(user="eve", verb="get", path=path, is_resource=False)
    assert allowed(asked, (), [role], (), [a_binding(user())]).allowed is yes


def test_a_role_in_a_namespace_counts_only_there() -> None:
    role, binding = a_role(rule("get", "pods"), namespace="shop"), a_binding(user(), namespace="shop")
    assert allowed(asking("get", "pods", namespace="shop"), [role], (), [binding]).allowed
    assert not allowed(asking("get", "pods", namespace="bank"), [role], (), [binding]).allowed
    assert not allowed(asking("get", "pods"), [role], (), [binding]).allowed


def test_a_cluster_role_bound_in_a_namespace_counts_only_there() -> None:
    role, binding = a_role(rule("get", "pods")), a_binding(user(), kind="ClusterRole", namespace="shop")
    assert allowed(asking("get", "pods", namespace="shop"), (), [role], [binding]).allowed
    assert not allowed(asking("get", "pods"), (), [role], [binding]).allowed


def test_the_reason_names_binding_role_and_the_first_subject_that_applies() -> None:
    role = a_role(rule("get", "pods"))
    asked = asking("get", "pods", namespace="shop")
    wide = a_binding(group("deck"), group("crew"), user(), name="everywhere")
    assert allowed(asked, (), [role], (), [wide]) == Decision(
        True, 'RBAC: allowed by ClusterRoleBinding "everywhere" of ClusterRole "r" to Group "crew"'
    )
    here = a_binding(user(), kind="ClusterRole", namespace="shop", name="here")
    assert allowed(asked, (), [role], [here]).reason == (
        'RBAC: allowed by RoleBinding "here/shop" of ClusterRole "r" to User "eve"'
    )
    robot = asking("get", "pods", namespace="shop", who=account_user("shop", "robot"))
    local = a_binding({"kind": "ServiceAccount", "name": "robot"}, kind="ClusterRole", namespace="shop", name="here")
    assert allowed(robot, (), [role], [local]).reason == (
        'RBAC: allowed by RoleBinding "here/shop" of ClusterRole "r" to ServiceAccount "robot/shop"'
    )


def test_a_service_account_is_its_user_and_its_groups() -> None:
    role = a_role(rule("get", "pods"))
    asked = asking("get", "pods", who=account_user("shop", "robot"))
    account = {"kind": "ServiceAccount", "name": "robot", "namespace": "shop"}
    for subject in (
        account,
        user("system:serviceaccount:shop:robot"),
        group("system:serviceaccounts"),
        group("system:serviceaccounts:shop"),
        group(AUTHENTICATED),
    ):
        assert allowed(asked, (), [role], (), [a_binding(subject)]).allowed
    for subject in (account | {"namespace": "bank"}, {"kind": "ServiceAccount", "name": "robot"}, group("robot")):
        assert not allowed(asked, (), [role], (), [a_binding(subject)]).allowed


def test_a_role_that_is_missing_is_passed_over_and_named_if_nothing_allows() -> None:
    lost = [a_binding(user(), name="lost", role="lost"), a_binding(user(), name="gone", role="gone")]
    asked = asking("get", "pods", namespace="shop")
    assert allowed(asked, (), [a_role(rule("get", "pods"))], (), [*lost, a_binding(user())]).allowed
    one = 'clusterrole.rbac.authorization.k8s.io "lost" not found'
    assert allowed(asked, (), (), (), lost[:1]) == Decision(False, f"RBAC: {one}")
    two = 'role.rbac.authorization.k8s.io "here" not found'
    local = a_binding(user(), role="here", namespace="shop")
    assert allowed(asked, (), (), [local], lost[:1]).reason == f"RBAC: [{one}, {two}]"


def test_masters_may_do_everything_without_a_reason() -> None:
    assert allowed(asking("delete", "nodes", who=User("root", ("system:masters",)))) == Decision(True)


def test_nothing_is_allowed_by_default() -> None:
    assert allowed(asking("get", "pods")) == Decision(False)


def test_gathered_roles_gather_through_others() -> None:
    policy = Policy(
        cluster_roles=default_cluster_roles(),
        role_bindings=[a_binding(user(), role="admin", kind="ClusterRole", namespace="shop")],
    )
    for verb, resource, api_group in (
        ("list", "pods", ""),
        ("create", "pods/eviction", ""),
        ("update", "roles", GROUP),
    ):
        assert policy.decide(asking(verb, resource, group=api_group, namespace="shop")).allowed
    assert not policy.decide(asking("list", "nodes", namespace="shop")).allowed


def test_a_gathering_role_gathers_what_others_bring_and_nothing_twice() -> None:
    labels = {"labels": {f"{GROUP}/aggregate-to-view": "true"}}
    ships = rule("get", "ships", groups="example.org")
    mine = [a_role(ships, ships, rule("get", "boats"), name="z", meta=labels), a_role(ships, name="a", meta=labels)]
    view = next(it for it in aggregated([*default_cluster_roles(), *mine]) if it["metadata"]["name"] == "view")
    assert view["rules"].count(ships) == 1
    assert view["rules"][0] == ships
    assert view["rules"][-1] == rule("get", "boats")


def test_a_gathering_role_keeps_nothing_of_its_own() -> None:
    gathers: JsonObject = {"clusterRoleSelectors": [{}]}
    (role, _) = aggregated([a_role(rule("get", "old"), aggregationRule=gathers), a_role(rule("get", "new"), name="n")])
    assert role["rules"] == [rule("get", "new")]


def test_roles_that_gather_each_other_do_no_harm() -> None:
    def gatherer(name: str, other: str) -> JsonObject:
        gathers = {"clusterRoleSelectors": [{"matchLabels": {"of": other}}]}
        return a_role(name=name, meta={"labels": {"of": name}}, aggregationRule=gathers)

    seed = a_role(rule("get", "pods"), name="seed", meta={"labels": {"of": "a"}})
    for role in aggregated([gatherer("a", "b"), gatherer("b", "a"), seed]):
        assert rule("get", "pods") in role["rules"]


def test_everybody_may_discover_and_ask_about_themselves() -> None:
    policy = Policy(cluster_roles=default_cluster_roles(), cluster_role_bindings=default_cluster_role_bindings())
    stranger = User("system:anonymous", (UNAUTHENTICATED,))
    assert policy.decide(request_attributes(EVE, "GET", "/apis/apps/v1")).allowed
    assert not policy.decide(request_attributes(stranger, "GET", "/apis/apps/v1")).allowed
    assert policy.decide(request_attributes(stranger, "GET", "/version")).allowed
    review = request_attributes(EVE, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    assert policy.decide(review).allowed


@pytest.mark.parametrize(
    ("method", "path", "query", "verb", "what"),
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
def test_a_request_says_by_its_path_what_it_wants(
    method: str, path: str, query: dict[str, str], verb: str, what: tuple[str, ...]
) -> None:
    asked = request_attributes(EVE, method, path, query)
    assert (asked.is_resource, asked.verb) == (True, verb)
    assert (asked.group, asked.resource, asked.subresource, asked.name, asked.namespace) == what


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1", "/apis/apps/v1", "/metrics", "/openapi/v3/apis/apps/v1"])
def test_other_paths_are_about_no_resource(path: str) -> None:
    asked = request_attributes(EVE, "GET", path)
    assert (asked.is_resource, asked.verb, asked.path) == (False, "get", path)


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
        ("GET", "/logs/<a>", 'forbidden: User "eve" cannot get path "/logs/&lt;a&gt;"'),
    ],
)
def test_a_refusal_says_who_cannot_do_what_where(method: str, path: str, message: str) -> None:
    status = forbidden(request_attributes(EVE, method, path))
    assert (status["code"], status["reason"], status["message"]) == (403, "Forbidden", message)
    assert forbidden(request_attributes(EVE, method, path), "RBAC: x")["message"] == f"{message}: RBAC: x"


OWN = a_role(
    rule("create update", "roles rolebindings clusterroles", groups=GROUP),
    rule("get", "pods */status"),
    rule("get", "secrets", names="mine"),
    {"verbs": ["get"], "nonResourceURLs": ["/logs/*"]},
    name="own",
)
POLICY = Policy(
    roles=[a_role(rule("*", "*"), name="strong", namespace="shop"), a_role(name="weak", namespace="shop")],
    cluster_roles=[OWN, a_role(rule("*", "*"), name="bindable")],
    cluster_role_bindings=[a_binding(user(), role="own")],
)


def problem(obj: JsonObject, *, old: JsonObject | None = None, who: User = EVE, policy: Policy = POLICY) -> str:
    namespace, plural = obj["metadata"].get("namespace"), f"{obj['kind'].lower()}s"
    path = f"/apis/{GROUP}/v1{f'/namespaces/{namespace}' if namespace else ''}/{plural}"
    name = f"/{obj['metadata']['name']}" if old else ""
    asked = request_attributes(who, "PUT" if old else "POST", f"{path}{name}")
    status = escalation_problem(policy, asked, obj, old=old)
    return status["message"] if status else ""


def test_a_role_may_grant_what_its_author_has() -> None:
    for granted in (
        rule("get", "pods"),
        rule("get", "pods", names="a"),
        rule("get", "nodes/status"),
        rule("get", "secrets", names="mine"),
    ):
        assert not problem(a_role(granted, namespace="shop"))
    assert not problem(a_role({"verbs": ["get"], "nonResourceURLs": ["/logs/a"]}))


def test_a_role_may_not_grant_what_its_author_lacks() -> None:
    assert problem(a_role(rule("get watch list", "pods nodes"), rule("get", "secrets"), namespace="shop")) == (
        'roles.rbac.authorization.k8s.io "r" is forbidden: user "eve" (groups=["crew" "system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["nodes"], Verbs:["get" "watch" "list"]}\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["watch" "list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    assert '{APIGroups:["apps"], Resources:["pods"], Verbs:["get"]}' in problem(
        a_role(rule("get", "pods", groups="apps"))
    )
    assert "NonResourceURLs" in problem(a_role({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}))


def test_who_gathers_rules_must_have_all_rights() -> None:
    gathers = a_role(aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})
    words = "must have cluster-admin privileges to use the aggregationRule"
    assert problem(gathers).endswith(words)
    assert problem(a_role(), old=gathers).endswith(words)


def test_masters_and_whoever_may_escalate_grant_anything() -> None:
    strong = a_role(rule("*", "*"), namespace="shop")
    assert not problem(strong, who=User("root", ("system:masters",)))
    may = Policy(
        cluster_roles=[a_role(rule("escalate", "roles", groups=GROUP, names="r"))],
        cluster_role_bindings=[a_binding(user())],
    )
    assert problem(strong, policy=may), "a POST has no name"
    assert not problem(strong, policy=may, old={**strong, "rules": []})


def test_a_binding_may_not_bind_more_than_its_author_has() -> None:
    assert not problem(a_binding(user("bob"), role="weak", namespace="shop"))
    refused = problem(a_binding(user("bob"), role="strong", namespace="shop"))
    assert refused.startswith('rolebindings.rbac.authorization.k8s.io "b" is forbidden: user "eve"')
    missing = problem(a_binding(user("bob"), role="missing", namespace="shop"))
    assert missing == 'rolebindings.rbac.authorization.k8s.io "missing" not found'


def test_who_may_bind_a_role_may_bind_it() -> None:
    may = Policy(
        cluster_roles=[
            a_role(rule("bind", "clusterroles", groups=GROUP, names="strong")),
            a_role(rule("*", "*"), name="strong"),
        ],
        cluster_role_bindings=[a_binding(user())],
    )
    assert not problem(a_binding(user("bob"), role="strong"), policy=may)
    assert problem(a_binding(user("bob"), role="r"), policy=Policy(cluster_roles=[a_role(rule("*", "*"))]))


def test_the_garbage_collector_may_let_go_of_any_role() -> None:
    strong = a_role(rule("*", "*"), namespace="shop", meta={"finalizers": ["x"]})
    released = {**strong, "metadata": {"name": "r", "namespace": "shop"}}
    assert not problem(released, old=strong)
    assert problem({**released, "rules": [rule("*", "*", groups="*")]}, old=strong)


def test_thousands_of_questions_take_a_moment() -> None:
    """A generous bound: it takes a tenth of it. Looking through all bindings for each question would take minutes."""
    roles = [a_role(*(rule("get", f"r{each}") for each in range(10)), name=f"r{number}") for number in range(200)]
    bindings = [a_binding(user(f"u{number}"), name=f"b{number}", role=f"r{number % 200}") for number in range(2000)]
    policy = Policy(cluster_roles=roles, cluster_role_bindings=bindings)
    started = time.process_time()
    for number in range(10_000):
        assert policy.decide(asking("get", "r9", who=User(f"u{number % 2000}"))).allowed
    assert time.process_time() - started < 2
