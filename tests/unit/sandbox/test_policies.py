"""What the sandbox promises about ValidatingAdmissionPolicies: they are in force, and say why they refuse."""

from typing import Any

import pytest

from haulout_sandbox.apiserver import ApiServer, InProcessTransport, JsonObject
from support.asking import MAPS, PODS, a_map, a_node, a_pod, an_eviction, ask, merge, send
from support.webhooks import rule

GROUP = "admissionregistration.k8s.io/v1"
ABOUT_NODES = rule("nodes", group="")


def a_policy(*expressions: str | JsonObject, rules: Any = (ABOUT_NODES,), **spec: Any) -> JsonObject:
    validations = [{"expression": it} if isinstance(it, str) else it for it in expressions]
    spec = {"matchConstraints": {"resourceRules": list(rules)}, "validations": validations} | spec
    return {"apiVersion": GROUP, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "policy"}, "spec": spec}


def a_binding(*actions: str, **spec: Any) -> JsonObject:
    spec = {"policyName": "policy", "validationActions": list(actions or ("Deny",))} | spec
    kind = "ValidatingAdmissionPolicyBinding"
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "binding"}, "spec": spec}


async def test_a_bound_policy_refuses_and_says_why(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_policy({"expression": "object.metadata.name != 'n1'", "message": "not this one"}))
    assert (await ask(api, "POST", "/api/v1/nodes", a_node(), dryRun="All"))[0] == 201
    cluster.put(a_binding())
    code, said = await ask(api, "POST", "/api/v1/nodes", a_node())
    assert (code, said["reason"]) == (422, "Invalid")
    denial = "ValidatingAdmissionPolicy 'policy' with binding 'binding' denied request: not this one"
    assert said["message"] == f'nodes "n1" is forbidden: {denial}'
    assert not cluster.has("nodes", "n1")


async def test_a_policy_can_bind_an_agent_to_its_own_node(cluster: ApiServer) -> None:
    """What Haulout's agents run under: each may change only the node that it runs on."""
    own = "request.userInfo.username != 'agent-n1' || request.name == 'n1'"
    cluster.put(a_policy({"expression": own, "reason": "Forbidden"}, rules=(rule("nodes", "nodes/status"),)))
    cluster.put(a_binding())
    for name in ("n1", "n2"):
        cluster.put(a_node(name))
    agent, admin = cluster.transport("agent-n1"), cluster.transport("admin")
    paths = ("/api/v1/nodes/n1", "/api/v1/nodes/n2", "/api/v1/nodes/n2/status")
    assert [(await merge(agent, path, metadata={"labels": {"a": "b"}}))[0] for path in paths] == [200, 403, 403]
    assert (await merge(admin, "/api/v1/nodes/n2", metadata={"labels": {"a": "b"}}))[0] == 200


async def test_a_policy_can_warn_instead(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_policy("false"))
    cluster.put(a_binding("Warn", "Audit"))
    answer = await send(api, "POST", "/api/v1/nodes", a_node())
    assert answer.status == 201
    assert answer.headers["warning"] == (
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'policy' with binding 'binding': "
        'failed expression: false"'
    )


async def test_a_policy_sees_evictions_before_the_budget_does(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_pod())
    cluster.put(a_policy("has(object.deleteOptions)", rules=(rule("pods/eviction"),)))
    cluster.put(a_binding())
    body = an_eviction()
    del body["deleteOptions"]
    assert (await ask(api, "POST", f"{PODS}/cart-0/eviction", body))[0] == 422
    assert (await ask(api, "POST", f"{PODS}/cart-0/eviction", an_eviction(gracePeriodSeconds=1)))[0] == 201


async def test_what_is_excluded_is_not_asked_about(cluster: ApiServer, api: InProcessTransport) -> None:
    excluded = [ABOUT_NODES | {"resourceNames": ["n1"]}]
    constraints = {"resourceRules": [ABOUT_NODES], "excludeResourceRules": excluded}
    cluster.put(a_policy("false", matchConstraints=constraints))
    cluster.put(a_binding())
    codes = [(await ask(api, "POST", "/api/v1/nodes", a_node(name)))[0] for name in ("n1", "n2")]
    assert codes == [201, 422]


async def test_a_policy_follows_its_parameters(cluster: ApiServer, api: InProcessTransport) -> None:
    kind, reference = {"apiVersion": "v1", "kind": "ConfigMap"}, {"name": "limits", "namespace": "shop"}
    allowed = "size(object.spec.taints) <= int(params.data.most)"
    cluster.put(a_policy(f"!has(object.spec.taints) || {allowed}", paramKind=kind))
    cluster.put(a_binding(paramRef=reference | {"parameterNotFoundAction": "Deny"}))
    taints = [{"key": it, "effect": "NoSchedule"} for it in "ab"]
    answers = [await ask(api, "POST", "/api/v1/nodes", a_node(taints=taints))]
    for most in ("1", "5"):
        await ask(
            api, "PUT" if most == "5" else "POST", f"{MAPS}/limits" if most == "5" else MAPS, a_map("limits", most=most)
        )
        answers.append(await ask(api, "POST", "/api/v1/nodes", a_node(taints=taints)))
    assert [code for code, _ in answers] == [422, 422, 201]
    assert "no params found for policy binding with `Deny` parameterNotFoundAction" in answers[0][1]["message"]
    assert answers[1][1]["message"].endswith(f"failed expression: !has(object.spec.taints) || {allowed}")


async def test_an_unknown_kind_of_parameters_fails_as_its_author_wants(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    kind = {"apiVersion": "example.com/v1", "kind": "Limit"}
    cluster.put(a_binding(paramRef={"name": "x", "parameterNotFoundAction": "Allow"}))
    codes = []
    for policy in ("Fail", "Ignore"):
        cluster.put(a_policy("true", paramKind=kind, failurePolicy=policy))
        codes.append((await ask(api, "POST", "/api/v1/nodes", a_node(), dryRun="All"))[0])
    assert codes == [422, 201]


@pytest.mark.parametrize(("policy", "code"), [("Fail", 422), ("Ignore", 201)])
async def test_an_expression_without_a_value_fails_as_its_author_wants(
    cluster: ApiServer, api: InProcessTransport, policy: str, code: int
) -> None:
    cluster.put(a_policy("object.no.such == 1", failurePolicy=policy))
    cluster.put(a_binding())
    found, said = await ask(api, "POST", "/api/v1/nodes", a_node())
    assert found == code
    if policy == "Fail":
        assert "expression 'object.no.such == 1' resulted in error: no such key: no" in said["message"]


async def test_a_changed_policy_is_in_force_at_once(cluster: ApiServer, api: InProcessTransport) -> None:
    cluster.put(a_binding())
    codes = []
    for expression in ("false", "true"):
        cluster.put(a_policy(expression))
        codes.append((await ask(api, "POST", "/api/v1/nodes", a_node(), dryRun="All"))[0])
    assert codes == [422, 201]
