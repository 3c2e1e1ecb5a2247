"""Authentication and RBAC: the sandbox allows what the real server allows, and refuses with the same code.

Both get the same users, roles and bindings; then the same requests are made of both.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout_sandbox.apiserver import ApiServer, User
from support.servers.listening_sandbox import a_listening_sandbox
from support.servers.raw_http_client import RawClient, RawResponse

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
SHOP = "/api/v1/namespaces/shop"
ROLES, BINDINGS = f"{RBAC}/namespaces/shop/roles", f"{RBAC}/namespaces/shop/rolebindings"
PEOPLE = {"eve": ("crew",), "bob": ("solo",), "carol": ("ops",), "dave": ("solo",)}
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


def rule(verbs: str, resources: str, *, groups: str = "", names: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {"verbs": verbs.split(), "apiGroups": groups.split(" "), "resources": resources.split()}
    return fields | ({"resourceNames": names.split()} if names else {})


def role(name: str, *rules: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **meta}, "rules": list(rules)}


def binding(name: str, to: str, *subjects: dict[str, Any], kind: str = "ClusterRole") -> dict[str, Any]:
    reference = {"apiGroup": GROUP, "kind": kind, "name": to}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": list(subjects)}


def subject(name: str, kind: str = "User", **more: str) -> dict[str, Any]:
    return {"kind": kind, "name": name, **({} if kind == "ServiceAccount" else {"apiGroup": GROUP}), **more}


ROBOT = subject("robot", "ServiceAccount", namespace="shop")
CREATED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/api/v1/namespaces", {"metadata": {"name": "shop"}}),
    (f"{SHOP}/serviceaccounts", {"metadata": {"name": "robot"}}),
    (f"{SHOP}/configmaps", {"metadata": {"name": "one"}}),
    ("/api/v1/nodes", {"metadata": {"name": "n1"}}),
    (
        f"{RBAC}/clusterroles",
        role(
            "crew",
            rule("get list watch", "nodes"),
            rule("patch", "nodes/status"),
            {"verbs": ["get"], "nonResourceURLs": ["/logs/*"]},
        ),
    ),
    (
        ROLES,
        role(
            "keeper",
            rule("get update patch", "configmaps", names="one"),
            rule("create get update patch", "roles rolebindings", groups=GROUP),
            rule("list", "pods"),
            rule("patch update get", "leases", groups="coordination.k8s.io"),
        ),
    ),
    (f"{RBAC}/clusterroles", role("swap", rule("impersonate", "users", names="dave"), rule("impersonate", "groups"))),
    (
        f"{RBAC}/clusterroles",
        role(
            "constrained",
            rule("impersonate:user-info", "users", groups="authentication.k8s.io", names="dave"),
            rule("impersonate-on:user-info:list", "nodes"),
        ),
    ),
    (f"{RBAC}/clusterrolebindings", binding("crew", "crew", subject("crew", "Group"))),
    (f"{RBAC}/clusterrolebindings", binding("swap", "swap", subject("eve"))),
    (f"{RBAC}/clusterrolebindings", binding("constrained", "constrained", subject("bob"))),
    (f"{RBAC}/clusterrolebindings", binding("missing", "no-such-role", subject("carol"))),
    (BINDINGS, binding("keeper", "keeper", subject("bob"), ROBOT, kind="Role")),
    (BINDINGS, binding("viewer", "view", subject("ops", "Group"))),
    (BINDINGS, binding("deputy", "edit", subject("dave"))),
)


class ComparedCluster:
    """One of the two."""

    def __init__(self, client: RawClient, tokens: dict[str, str]) -> None:
        self.client, self.tokens = client, tokens
        for path, body in CREATED:
            made = self.request("admin", "POST", path, body)
            assert made.code == 201, made
        self._wait_until_authorized()

    def request(self, user: str, method: str, path: str, body: Any = None, **more: Any) -> RawResponse:
        """Send a request as a user."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.request(method, path, content, token=self.tokens.get(user, user), **more)

    def review(self, user: str, kind: str, spec: dict[str, Any], **more: Any) -> Any:
        """Post a review as a user; return what comes back."""
        group = "authentication" if kind in ("SelfSubjectReview", "TokenReview") else "authorization"
        path = f"/apis/{group}.k8s.io/v1/{kind.lower()}s"
        response: Any = json.loads(self.request(user, "POST", path, {"spec": spec} if spec else {}, **more).body)
        return response

    def _wait_until_authorized(self) -> None:
        """Wait until the server's authorizer, which follows its store, has seen the last of them."""
        review = {"user": "dave", "resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "shop"}}
        for _ in range(1000):
            if self.review("admin", "SubjectAccessReview", review)["status"]["allowed"]:
                return
        pytest.fail("the server does not come to see what it stored")


@pytest.fixture(scope="module")
def real() -> Iterator[ComparedCluster]:
    with ControlPlane(users=PEOPLE) as plane:
        plane.start_controllers(("clusterrole-aggregation-controller",), scheduler=False)
        tokens = {user: plane.token(user) for user in (*PEOPLE, "admin")}
        client = RawClient(plane.server, plane.ca)
        yield ComparedCluster(client, tokens)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComparedCluster]:
    users = {name: User(name, groups, name) for name, groups in PEOPLE.items()}
    users["admin"] = User("admin", ("system:masters",), "admin")
    folder = tmp_path_factory.mktemp("sandbox")

    def fill(api: ApiServer) -> None:
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})

    tokens = {f"token-of-{name}": user for name, user in users.items()}
    with a_listening_sandbox(folder, tokens=tokens, rbac=True, fill=fill) as client:
        yield ComparedCluster(client, {name: f"token-of-{name}" for name in users})


Both = tuple[ComparedCluster, ComparedCluster]


@pytest.fixture
def both(real: ComparedCluster, sandbox: ComparedCluster) -> Both:
    return real, sandbox


def compare(both: Both, requests: Sequence[tuple[Any, ...]], **more: Any) -> None:
    """Make the requests of both, and compare the codes of the answers."""
    differences = []
    for each in requests:
        real_response, sandbox_response = (cluster.request(*each, **more) for cluster in both)
        if real_response.code != sandbox_response.code:
            differences.append(f"{each}\nreal:    {real_response}\nsandbox: {sandbox_response}")
    assert not differences, "\n".join(differences)


def test_requests_are_allowed_or_refused_identically(both: Both) -> None:
    one = f"{SHOP}/configmaps/one"
    reads = ("/api/v1/nodes", "/api/v1/nodes/n1", "/api/v1/nodes/n1/status", f"{SHOP}/configmaps", one, f"{SHOP}/pods")
    other_paths = (
        "/api/v1/nodes?fieldSelector=metadata.name%3Dn1",
        f"{SHOP}/configmaps?fieldSelector=metadata.name%3Done",
        f"{SHOP}/configmaps?fieldSelector=metadata.name%3Dtwo",
        "/api/v1/pods",
        "/api/v1/namespaces/shop",
        "/api/v1/namespaces",
        "/apis/apps/v1/namespaces/shop/deployments",
        "/apis/nope.example.org/v1/things",
        "/logs/a",
        "/nosuch",
        "/version",
        "/api",
        "/apis/apps/v1",
        f"{SHOP}/secrets",
    )
    compare(both, [(user, "GET", path) for user in (*PEOPLE, "", "admin") for path in (*reads, *other_paths)])
    compare(both, [("dave", "GET", f"{SHOP}/secrets?watch={value}") for value in ("0", "false")])
    compare(both, [("carol", "GET", f"{SHOP}/secrets?watch={value}") for value in ("1", "true", "foo", "")])
    compare(both, [("eve", method, "/api/v1/nodes/n1") for method in ("DELETE", "PUT")])
    writes = [
        ("DELETE", f"{SHOP}/configmaps"),
        ("POST", f"{SHOP}/configmaps", {"metadata": {"name": "two"}}),
        ("PUT", f"{SHOP}/configmaps/two", {"metadata": {"name": "two"}}),
        ("POST", f"{SHOP}/pods/p/eviction", {}),
        ("POST", f"{SHOP}/serviceaccounts/robot/token", {}),
    ]
    compare(both, [(user, *each) for user in ("eve", "bob", "carol", "") for each in writes])
    compare(both, [("bob", "PATCH", one, {}), ("eve", "PATCH", one, {})], content_type=MERGE)
    compare(both, [("eve", "PATCH", "/api/v1/nodes/n1/status", {})], content_type=MERGE)
    compare(both, [("eve", "PATCH", "/api/v1/nodes/n1", {})], content_type=MERGE)


def test_an_update_that_would_create_needs_the_create_permission(both: Both) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    compare(both, [("bob", "PUT", f"{leases}/l?dryRun=All", lease), ("dave", "PUT", f"{leases}/l?dryRun=All", lease)])
    compare(both, [("bob", "PATCH", f"{leases}/l?dryRun=All&fieldManager=m", lease)], content_type=APPLY)


def test_unknown_users_are_unauthorized_identically(both: Both) -> None:
    compare(both, [("nonsense", "GET", path) for path in ("/version", "/api/v1/nodes")])
    compare(
        both, [("", "GET", path) for path in ("/version", "/livez", "/readyz", "/healthz", "/", "/api", "/openapi/v3")]
    )
    header = "Authorization"
    for value in ("Basic YTpi", "Bearer", "Bearer ", "bearer x", "Bearer  x", "Token x"):
        compare(both, [("", "GET", "/api")], headers=[(header, value)])


def headers(user: str = "", *, groups: Sequence[str] = (), uid: str = "", **extra: str) -> list[tuple[str, str]]:
    found = [("Impersonate-User", user)] if user else []
    found += [("Impersonate-Group", group) for group in groups]
    found += [("Impersonate-Uid", uid)] if uid else []
    return found + [(f"Impersonate-Extra-{name}", value) for name, value in extra.items()]


WANTED = (
    headers("jane"),
    headers("dave"),
    headers("jane", groups=("a", "b")),
    headers("dave", groups=("a",)),
    headers("dave", groups=("system:masters",)),
    headers("dave", groups=("system:authenticated",)),
    headers("dave", groups=("system:unauthenticated",)),
    headers("dave", groups=("",)),
    headers("dave", uid="7"),
    headers("dave", Scopes="x"),
    headers("system:serviceaccount:shop:robot"),
    headers("system:serviceaccount:shop:robot", groups=("g",)),
    headers("system:serviceaccount:shop"),
    headers("system:anonymous"),
    headers("system:node:n1"),
    headers("system:node:n1", groups=("g",)),
    headers(groups=("a",)),
    headers(uid="7"),
    headers(a="b"),
)


def test_impersonation_is_allowed_or_refused_identically(both: Both) -> None:
    for wanted in WANTED:
        for user in ("admin", "eve", "bob", ""):
            compare(both, [(user, "GET", "/api/v1/nodes")], headers=wanted)


def test_access_reviews_follow_the_same_policy(both: Both) -> None:
    questions: list[dict[str, Any]] = [
        {"verb": verb, "resource": resource, "namespace": namespace, "name": name}
        for verb in ("get", "list")
        for resource in ("nodes", "configmaps")
        for namespace in ("", "shop")
        for name in ("", "one")
    ]
    for user in (*PEOPLE, "admin"):
        for attributes in questions:
            spec = {"resourceAttributes": attributes}
            answers = [item.review(user, "SelfSubjectAccessReview", spec)["status"]["allowed"] for item in both]
            assert answers[0] == answers[1], (user, attributes)
    subjects: tuple[dict[str, Any], ...] = (
        {"user": "dave", "groups": ["crew"]},
        {"groups": ["ops"]},
        {"user": "system:serviceaccount:shop:robot"},
    )
    for named in subjects:
        review = named | {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "shop"}}
        real_answer, sandbox_answer = (
            item.review("admin", "SubjectAccessReview", review)["status"]["allowed"] for item in both
        )
        assert real_answer == sandbox_answer, named
