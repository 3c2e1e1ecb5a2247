"""The sandbox decides about access as the real server does, and says it in the same words."""

import json
import random
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane import ControlPlane
from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import reviews
from haulout_sandbox.apiserver.escalation import escalation_problem
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.rbac import (
    AUTHENTICATED,
    Attributes,
    Policy,
    User,
    account_user,
    aggregated,
    forbidden,
    request_attributes,
)
from haulout_sandbox.apiserver.rbac_defaults import default_cluster_role_bindings, default_cluster_roles
from haulout_sandbox.apiserver.status import Refused
from haulout_sandbox.apiserver.tokens import ISSUER, Tokens, issue
from support.asker import Asker

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
REVIEWS = {"SelfSubjectReview": "authentication.k8s.io", "TokenReview": "authentication.k8s.io"}
KINDS = {
    "roles": "Role",
    "clusterroles": "ClusterRole",
    "rolebindings": "RoleBinding",
    "clusterrolebindings": "ClusterRoleBinding",
}


@pytest.fixture
def asker(control_plane: ControlPlane) -> Iterator[Asker]:
    asker = Asker(control_plane)
    yield asker
    asker.close()


class Rights:
    """Roles and bindings of one test; those outside of namespaces have its mark in their names and go with it."""

    def __init__(self, asker: Asker, namespace: str) -> None:
        self.namespace, self.mark = namespace, secrets.token_hex(4)
        self._asker = asker

    def make(self, plural: str, name: str, body: JsonObject, *, namespace: str = "") -> None:
        """Create a role or a binding."""
        where = f"{RBAC}/namespaces/{namespace}/{plural}" if namespace else f"{RBAC}/{plural}"
        meta = {**body.get("metadata", {}), "name": name if namespace else self.named(name)}
        status, said = self._asker.ask("POST", where, {**body, "metadata": meta})
        assert status == 201, said

    def bind(self, name: str, role: str, *subjects: JsonObject, kind: str = "ClusterRole", namespace: str = "") -> None:
        """Create a binding of a role to subjects."""
        role = role if kind == "Role" else self.named(role)
        body = {"roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": list(subjects)}
        plural = "rolebindings" if namespace else "clusterrolebindings"
        self.make(plural, name, body, namespace=namespace)

    def named(self, name: str) -> str:
        """Return a name that no other test uses."""
        return f"{name}-{self.mark}"

    def objects(self, plural: str) -> list[JsonObject]:
        """Return all there are in the cluster, other tests' too: they count as well."""
        _, (listed,) = self._asker.ask("GET", f"{RBAC}/{plural}")
        return [{**item, "kind": KINDS[plural]} for item in listed["items"]]

    def everything(self) -> dict[str, list[JsonObject]]:
        """Return all roles and bindings, as a `Policy` takes them."""
        names = ("roles", "cluster_roles", "role_bindings", "cluster_role_bindings")
        return dict(zip(names, (self.objects(plural) for plural in KINDS), strict=True))

    def settle(self) -> None:
        """Wait until the server's own view of roles and bindings, which follows its store, has come this far."""
        rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["settled"]}]
        probe = {"kind": "User", "name": f"probe-{secrets.token_hex(4)}", "apiGroup": GROUP}
        name, here = f"settled-{secrets.token_hex(4)}", self.namespace
        self.make("clusterroles", name, {"rules": rules})
        self.make("roles", name, {"rules": rules}, namespace=here)
        self.bind(name, name, probe)
        self.bind(name, name, {**probe, "name": f"{probe['name']}-here"}, kind="Role", namespace=here)
        asked = {"verb": "get", "resource": "settled", "namespace": here}
        for user in (probe["name"], f"{probe['name']}-here"):
            body = {"spec": {"user": user, "resourceAttributes": asked}}
            until(self._is_allowed, body)

    def _is_allowed(self, body: JsonObject) -> bool:
        return bool(ask_review(self._asker, "SubjectAccessReview", body)[1]["status"]["allowed"])

    def clean(self) -> None:
        """Delete what no namespace's end takes along."""
        for plural in ("clusterrolebindings", "clusterroles"):
            for obj in self.objects(plural):
                if obj["metadata"]["name"].endswith(self.mark):
                    self._asker.ask("DELETE", f"{RBAC}/{plural}/{obj['metadata']['name']}")


def until(done: Callable[..., bool], *about: JsonObject) -> None:
    """Ask the server until it agrees; it does within milliseconds, or some seconds on a busy machine."""
    for _ in range(10_000):
        if done(*about):
            return
    pytest.fail("the server does not come to see what it stored")


@pytest.fixture
def rights(asker: Asker, namespace: str) -> Iterator[Rights]:
    rights = Rights(asker, namespace)
    yield rights
    rights.clean()


def ask_review(asker: Asker, kind: str, body: JsonObject, *, namespace: str = "", user: str = "") -> tuple[int, Any]:
    group = REVIEWS.get(kind, "authorization.k8s.io")
    where = f"/namespaces/{namespace}" if namespace else ""
    body = {"apiVersion": f"{group}/v1", "kind": kind, **body}
    status, (said,) = asker.ask("POST", f"/apis/{group}/v1{where}/{kind.lower()}s", body, user=user)
    if status == 201:
        said["metadata"].pop("managedFields", None)
    return status, said


def test_the_roles_of_every_cluster_are_the_real_ones(rights: Rights) -> None:
    for plural, mine in (
        ("clusterroles", default_cluster_roles()),
        ("clusterrolebindings", default_cluster_role_bindings()),
    ):
        real = {obj["metadata"]["name"]: obj for obj in rights.objects(plural)}
        for obj in mine:
            found = real[obj["metadata"]["name"]]
            found["metadata"] = {name: found["metadata"][name] for name in ("name", "labels", "annotations")}
            if "aggregationRule" in obj:
                found["rules"] = obj["rules"] = []
            assert {**found, "apiVersion": f"{GROUP}/v1"} == obj


def test_gathered_rules_are_those_that_the_controller_writes(control_plane: ControlPlane, rights: Rights) -> None:
    control_plane.start_controllers(("clusterrole-aggregation-controller",), scheduler=False)
    try:
        marked = {"metadata": {"labels": {f"{GROUP}/aggregate-to-view": "true"}}}
        ships = [{"verbs": ["get"], "apiGroups": ["example.org"], "resources": ["ships"]}]
        rights.make("clusterroles", "ship-viewer", marked | {"rules": ships})

        def gathered(roles: list[JsonObject]) -> dict[str, Any]:
            return {it["metadata"]["name"]: it["rules"] for it in roles if it.get("aggregationRule")}

        until(lambda: ships[0] in (gathered(rights.objects("clusterroles"))["admin"] or ()))
        real = rights.objects("clusterroles")
    finally:
        control_plane.stop_controllers()
    stripped = [{**role, "rules": None} if role.get("aggregationRule") else role for role in real]
    assert gathered(aggregated(stripped)) == gathered(real)


VERBS = ("get", "list", "create", "delete", "deletecollection", "*")
GROUPS = ("", "apps", "example.org", "*")
RESOURCES = ("pods", "pods/status", "pods/*", "*/status", "nodes", "deployments", "deployments/scale", "*")
NAMES = ("a", "b")
URLS = ("/api", "/apis/*", "/metrics", "/logs/*", "*")
PATHS = ("/api", "/api/v1", "/apis/", "/apis/apps", "/metrics", "/metrics/slis", "/logs", "/logs/x")


def some(rng: random.Random, values: tuple[str, ...], most: int = 2) -> list[str]:
    return rng.sample(values, rng.randint(1, most))


def a_random_role(rng: random.Random, *, urls: bool) -> JsonObject:
    rules: list[JsonObject] = []
    for _ in range(rng.randint(1, 2)):
        if urls and rng.random() < 0.3:
            rules.append({"verbs": some(rng, ("get", "post", "*")), "nonResourceURLs": some(rng, URLS)})
            continue
        rule = {"verbs": some(rng, VERBS), "apiGroups": some(rng, GROUPS), "resources": some(rng, RESOURCES)}
        rules.append(rule | ({"resourceNames": some(rng, NAMES)} if rng.random() < 0.3 else {}))
    return {"rules": rules}


def random_subjects(rng: random.Random, namespace: str, mark: str) -> list[JsonObject]:
    user = {
        "apiGroup": GROUP,
        "kind": "User",
        "name": rng.choice(("eve", "bob", f"system:serviceaccount:{mark}:robot")),
    }
    group = {"apiGroup": GROUP, "kind": "Group", "name": rng.choice(("crew", "deck", "system:serviceaccounts"))}
    robot = {"kind": "ServiceAccount", "name": "robot", "namespace": rng.choice((namespace, mark))}
    subjects = rng.sample([user, group, robot], rng.randint(1, 2))
    return [
        it | {"name": f"{it['name']}-{mark}"} if it["name"] in ("eve", "bob", "crew", "deck") else it for it in subjects
    ]


def a_random_question(rng: random.Random, namespace: str, mark: str) -> Attributes:
    people = [
        User(f"eve-{mark}", (f"crew-{mark}", AUTHENTICATED)),
        User(f"bob-{mark}", (f"deck-{mark}", f"crew-{mark}")),
        account_user(namespace, "robot"),
        account_user(mark, "robot"),
        User(f"stranger-{mark}", ("system:masters",) if rng.random() < 0.1 else ()),
    ]
    who = rng.choice(people)
    if rng.random() < 0.2:
        path, verb = rng.choice(PATHS), rng.choice(("get", "post"))
        return Attributes(user=who.name, groups=who.groups, verb=verb, path=path, is_resource=False)
    resource, _, subresource = rng.choice(("pods", "pods/status", "pods/log", "nodes", "deployments/scale")).partition(
        "/"
    )
    return Attributes(
        user=who.name,
        groups=who.groups,
        verb=rng.choice(VERBS[:-1]),
        group=rng.choice(GROUPS[:-1]),
        resource=resource,
        subresource=subresource,
        name=rng.choice(("", "a", "c")),
        namespace=rng.choice(("", namespace, "elsewhere")),
    )


def question(asked: Attributes) -> JsonObject:
    spec: JsonObject = {"user": asked.user, "groups": list(asked.groups)}
    if not asked.is_resource:
        return {"spec": spec | {"nonResourceAttributes": {"path": asked.path, "verb": asked.verb}}}
    names = ("verb", "group", "resource", "subresource", "name", "namespace")
    return {"spec": spec | {"resourceAttributes": {name: getattr(asked, name) for name in names}}}


def test_the_same_is_allowed_for_the_same_reason(asker: Asker, rights: Rights, rng: random.Random) -> None:
    here, mark = rights.namespace, rights.mark
    for number in range(8):
        rights.make("clusterroles", f"r{number}", a_random_role(rng, urls=True))
        rights.make("roles", f"r{number}", a_random_role(rng, urls=False), namespace=here)
    for number in range(8):
        role = f"r{rng.randrange(9)}"  # the ninth is missing
        rights.bind(f"b{number}", role, *random_subjects(rng, here, mark))
        rights.bind(f"b{number}", role, *random_subjects(rng, here, mark), kind="Role", namespace=here)
        rights.bind(f"c{number}", role, *random_subjects(rng, here, mark), namespace=here)
    rights.settle()
    objects = rights.everything()
    policy, alone = Policy(**objects), policies_of_one_binding(objects)
    answers = []
    for _ in range(250):
        asked = a_random_question(rng, here, mark)
        _, said = ask_review(asker, "SubjectAccessReview", question(asked))
        mine, real, reason = policy.decide(asked), said["status"], said["status"].get("reason", "")
        answers.append(mine.allowed)
        assert mine.allowed == real["allowed"], asked
        if mine.allowed:  # for any of the reasons there are: the real server asks bindings in no order
            reasons = [decision.reason for it in alone if (decision := it.decide(asked)).allowed]
            assert {mine.reason, reason} <= set(reasons), asked
        else:
            assert problems(mine.reason) == problems(reason), asked
    assert 0.2 < sum(answers) / len(answers) < 0.8, "the questions do not tell good from bad"


def problems(reason: str) -> set[str]:
    return set(reason.removeprefix("RBAC: ").strip("[]").split(", "))


def policies_of_one_binding(objects: dict[str, list[JsonObject]]) -> list[Policy]:
    roles = {"roles": objects["roles"], "cluster_roles": objects["cluster_roles"]}
    bindings = [(kind, it) for kind in ("role_bindings", "cluster_role_bindings") for it in objects[kind]]
    return [Policy(**roles, **{kind: [binding]}) for kind, binding in bindings]


REQUESTS = (
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/nodes?watch=1"),
    ("GET", "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Dn1"),
    ("GET", "/api/v1/namespaces"),
    ("GET", "/api/v1/namespaces/x"),
    ("PUT", "/api/v1/namespaces/x/status"),
    ("PUT", "/api/v1/namespaces/x/finalize"),
    ("GET", "/api/v1/namespaces/x/pods"),
    ("GET", "/api/v1/namespaces/x/pods?fieldSelector=metadata.name=a,spec.nodeName=b"),
    ("GET", "/api/v1/namespaces/x/pods/a"),
    ("GET", "/api/v1/namespaces/x/pods/a/log"),
    ("POST", "/api/v1/namespaces/x/pods/a/eviction"),
    ("DELETE", "/api/v1/namespaces/x/pods/a"),
    ("DELETE", "/api/v1/namespaces/x/pods"),
    ("POST", "/apis/apps/v1/namespaces/x/deployments"),
    ("PATCH", "/apis/apps/v1/namespaces/x/deployments/d/scale"),
    ("PUT", "/apis/apps/v1/namespaces/x/deployments/d"),
    ("GET", "/apis/nothing.example.org/v1/ships/one"),
    ("GET", "/api/v1/watch/namespaces/x/pods"),
    ("GET", "/metrics"),
    ("GET", "/logs/a&b"),
    ("POST", "/api/v1"),
    ("PATCH", "/apis/apps/v1"),
    ("DELETE", "/"),
)


def test_a_request_is_refused_in_the_same_words(asker: Asker) -> None:
    policy = Policy(cluster_roles=default_cluster_roles(), cluster_role_bindings=default_cluster_role_bindings())
    for method, path in REQUESTS:
        status, (real,) = asker.ask(method, path, user="stowaway", groups=("crew",))
        bare, _, rest = path.partition("?")
        query = dict(term.replace("%3D", "=").split("=", 1) for term in rest.split("&") if term)
        asked = request_attributes(User("stowaway", ("crew", AUTHENTICATED)), method, bare, query)
        assert not policy.decide(asked).allowed
        assert (status, forbidden(asked, policy.decide(asked).reason)) == (403, real), path


def test_nobody_grants_what_they_lack(asker: Asker, rights: Rights) -> None:
    here, mark = rights.namespace, rights.mark
    eve = User(f"eve-{mark}", ("crew", AUTHENTICATED))
    subject = {"apiGroup": GROUP, "kind": "User", "name": eve.name}
    rights.make(
        "clusterroles",
        "eves",
        {
            "rules": [
                {"verbs": ["create", "update"], "apiGroups": [GROUP], "resources": list(KINDS)},
                {"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods", "*/status"]},
                {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"]},
                {"verbs": ["get"], "nonResourceURLs": ["/logs/*"]},
                {"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["view"]},
            ]
        },
    )
    rights.bind("eves", "eves", subject)
    rights.make("roles", "strong", {"rules": [rule(["*"], resources=["*"])]}, namespace=here)
    rights.make("roles", "weak", {"rules": [rule(["get"])]}, namespace=here)
    rights.settle()
    policy = Policy(**rights.everything())
    refused = 0
    for plural, body in attempts(rights):
        where = f"/namespaces/{here}" if plural in ("roles", "rolebindings") else ""
        path, obj = f"{RBAC}{where}/{plural}", {"kind": KINDS[plural], "apiVersion": f"{GROUP}/v1", **body}
        status, (real,) = asker.ask("POST", f"{path}?dryRun=All", obj, user=eve.name, groups=eve.groups[:1])
        mine = escalation_problem(policy, request_attributes(eve, "POST", path), obj)
        refused += mine is not None
        assert (real if status != 201 else None) == mine, obj
    assert refused == 9


def rule(verbs: list[str], *, resources: list[str] | None = None, names: list[str] | None = None) -> JsonObject:
    told: JsonObject = {"verbs": verbs, "apiGroups": ["", "apps"], "resources": resources or ["pods"]}
    return told | ({"resourceNames": names} if names else {})


def attempts(rights: Rights) -> Iterator[tuple[str, JsonObject]]:
    """Yield roles and bindings that eve tries to create, some within her rights."""
    roles: list[list[JsonObject]] = [
        [rule(["get"])],
        [rule(["get"], names=["a"])],
        [rule(["get"], resources=["deployments/status", "pods/status"])],
        [rule(["get", "watch", "delete"], resources=["pods", "nodes"])],
        [rule(["get"], resources=["secrets"])],
        [{**rule(["get"], resources=["secrets"], names=["mine", "yours"]), "apiGroups": [""]}],
        [rule(["*"])],
    ]
    for number, rules in enumerate(roles):
        yield "roles", {"metadata": {"name": f"e{number}"}, "rules": rules}
    urls = {"verbs": ["get", "post"], "nonResourceURLs": ["/logs/a", "/metrics"]}
    yield "clusterroles", {"metadata": {"name": rights.named("e")}, "rules": [urls]}
    gathers = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    yield "clusterroles", {"metadata": {"name": rights.named("e")}, "rules": [], "aggregationRule": gathers}
    for kind, name in (
        ("Role", "weak"),
        ("Role", "strong"),
        ("ClusterRole", "view"),
        ("ClusterRole", "cluster-admin"),
        ("ClusterRole", "missing"),
    ):
        role = {"apiGroup": GROUP, "kind": kind, "name": name}
        yield "rolebindings", {"metadata": {"name": "e"}, "roleRef": role, "subjects": []}


RESOURCE = {"verb": "list", "resource": "pods", "namespace": "x"}
QUESTIONS: tuple[tuple[str, JsonObject, str], ...] = (
    ("SubjectAccessReview", {"spec": {"user": "eve", "resourceAttributes": RESOURCE}}, ""),
    ("SubjectAccessReview", {"spec": {"groups": ["system:masters"], "resourceAttributes": RESOURCE}}, ""),
    (
        "SubjectAccessReview",
        {
            "metadata": {"creationTimestamp": None},
            "spec": {"groups": [AUTHENTICATED], "nonResourceAttributes": {"path": "/apis/x", "verb": "get"}},
        },
        "",
    ),
    (
        "SubjectAccessReview",
        {
            "spec": {
                "user": "eve",
                "uid": "7",
                "extra": {"a": ["b"]},
                "resourceAttributes": {**RESOURCE, "namespace": "", "unknown": 1, "labelSelector": None},
            }
        },
        "",
    ),
    ("SubjectAccessReview", {"spec": {"resourceAttributes": RESOURCE}}, ""),
    ("SubjectAccessReview", {"spec": {"user": "eve"}}, ""),
    ("SubjectAccessReview", {"spec": {}}, ""),
    (
        "SubjectAccessReview",
        {"spec": {"user": "e", "resourceAttributes": {}, "nonResourceAttributes": {"path": "/"}}},
        "",
    ),
    ("SelfSubjectAccessReview", {"spec": {"resourceAttributes": RESOURCE}}, ""),
    ("SelfSubjectAccessReview", {"spec": {"user": "x", "nonResourceAttributes": {"path": "/api", "verb": "get"}}}, ""),
    ("SelfSubjectAccessReview", {"spec": {}}, ""),
    ("LocalSubjectAccessReview", {"spec": {"user": "eve", "resourceAttributes": RESOURCE}}, "x"),
    ("LocalSubjectAccessReview", {"metadata": {"namespace": "x"}, "spec": {"user": "eve"}}, "x"),
    ("LocalSubjectAccessReview", {"metadata": {"namespace": "y"}, "spec": {"user": "eve"}}, "x"),
    ("LocalSubjectAccessReview", {"spec": {"user": "eve", "resourceAttributes": {"verb": "get"}}}, "x"),
    ("LocalSubjectAccessReview", {"spec": {"user": "eve", "nonResourceAttributes": {"path": "/"}}}, "x"),
    ("SelfSubjectRulesReview", {"spec": {"namespace": "x"}}, ""),
    ("SelfSubjectRulesReview", {"spec": {}}, ""),
    ("SelfSubjectReview", {}, ""),
    ("TokenReview", {"spec": {}}, ""),
    ("TokenReview", {"spec": {"token": "nonsense"}}, ""),
    ("TokenReview", {"spec": {"token": "no.nonsense.either", "audiences": ["somebody"]}}, ""),
)


def test_reviews_are_answered_alike(asker: Asker) -> None:
    roles, bindings = default_cluster_roles(), default_cluster_role_bindings()
    policy = Policy(cluster_roles=roles, cluster_role_bindings=bindings)
    tokens = Tokens(secret=b"any", find_account=lambda *_: None)
    for kind, body, namespace in QUESTIONS:
        status, real = ask_review(asker, kind, body, namespace=namespace, user="eve" if kind.startswith("Self") else "")
        mine = answer_or_refusal(
            reviews.answer,
            f"{kind.lower()}s",
            body,
            caller=User("eve", (AUTHENTICATED,)),
            authorizer=policy,
            tokens=tokens,
            now=RealClock().now(),
            namespace=namespace,
        )
        assert comparable(mine) == comparable(real), body
        assert mine.get("code", 201) == status


def answer_or_refusal(answer: Callable[..., JsonObject | None], *about: Any, **more: Any) -> JsonObject:
    try:
        answered = answer(*about, **more)
    except Refused as refused:
        return refused.status
    assert answered is not None
    return answered


def comparable(answer: JsonObject) -> JsonObject:
    """Return an answer without what differs each time: instants, tokens, and the order of rules."""
    answer["metadata"].pop("managedFields", None)
    if answer["metadata"].get("creationTimestamp"):
        answer["metadata"]["creationTimestamp"] = "now"
    if answer["kind"] == "SelfSubjectRulesReview":
        for rules in ("resourceRules", "nonResourceRules"):
            answer["status"][rules].sort(key=json.dumps)
    if answer["kind"] in ("TokenRequest", "TokenReview"):
        for part in (answer["spec"], answer["status"]):
            part.update({name: "some" for name in ("token", "expirationTimestamp") if name in part})
        if extra := answer["status"].get("user", {}).get("extra"):
            extra["authentication.kubernetes.io/credential-id"] = ["some"]
    return answer


def test_a_service_account_gets_a_token_and_is_known_by_it(asker: Asker, namespace: str) -> None:
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    _, (account,) = asker.ask("POST", accounts, {"metadata": {"name": "robot"}})
    tokens = Tokens(secret=b"any", find_account=lambda *_: account)
    now = RealClock().now()
    bodies: list[JsonObject] = [
        {"spec": {}},
        {"spec": {"audiences": [ISSUER, "other"], "expirationSeconds": 601}},
        {"spec": {"expirationSeconds": 599}},
        {"spec": {"expirationSeconds": 2**32 + 1}},
        {"metadata": {"name": "other"}, "spec": {}},
        {"metadata": {"namespace": "other"}, "spec": {}},
        {"metadata": {"uid": "other"}, "spec": {}},
    ]
    for body in bodies:
        status, (real,) = asker.ask("POST", f"{accounts}/robot/token", body)
        mine = answer_or_refusal(issue, tokens, account, body, now=now, token_id="1")
        if status == 201:
            for audiences in ([], ["other"], ["third", ISSUER]):
                spec = {"audiences": audiences, "token": mine["status"]["token"]}
                known = reviews.token_review({"spec": spec}, tokens=tokens, now=now)
                spec["token"] = real["status"]["token"]
                assert comparable(known) == comparable(ask_review(asker, "TokenReview", {"spec": spec})[1])
        assert comparable(mine) == comparable(real), body
