"""Writes that an admission policy or webhook of the cluster refuses are shown as that, and tried again.

The sandbox has no admission policies: there an injected response imitates the API server.
"""

from pathlib import Path
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.errors import AdmissionDenied, AdmissionWebhookUnavailable
from haulout.kube.patches import merge_patch
from support.builders.objects import a_pod
from support.clusters.cluster_plan import PlanFactory
from support.clusters.live_cluster import RESOURCES, LiveCluster, SandboxCluster
from support.operators.admission_webhook import deny_by_policy
from support.operators.nodemaintenance import (
    condition_of,
    create_maintenance,
    end_maintenance,
    event_reasons,
    is_released,
    last_error,
    run_controller,
    status,
    wait_for_success,
    with_operator_rbac,
)
from support.operators.profiles import (
    ANNOTATION_CONFIGURATION,
    a_configuration_file,
    annotate,
    operator_with_profiles,
    set_profiles,
    state,
)

GROUP = "admissionregistration.k8s.io/v1"
NODES = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"]}
EVICTIONS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"], "operations": ["CREATE"]}


def a_policy(rule: RawObject) -> tuple[RawObject, RawObject]:
    """Return a policy that denies all requests that match the rule, and its binding."""
    denies = [{"expression": "false", "message": "not in December"}]
    spec: RawObject = {"matchConstraints": {"resourceRules": [rule]}, "validations": denies}
    policy = {"apiVersion": GROUP, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "freeze"}, "spec": spec}
    bound: RawObject = {"policyName": "freeze", "validationActions": ["Deny"]}
    kind = "ValidatingAdmissionPolicyBinding"
    return policy, {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "all"}, "spec": bound}


def an_unserved_webhook(rule: RawObject) -> RawObject:
    """Return the configuration of an unreachable webhook."""
    hook: RawObject = {
        "name": "guard.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/guard"},
        "rules": [{**rule, "scope": "*"}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 2,
    }
    kind = "ValidatingWebhookConfiguration"
    return {"apiVersion": GROUP, "kind": kind, "metadata": {"name": "guard"}, "webhooks": [hook]}


async def refuse(cluster: LiveCluster, mechanism: str, rule: RawObject) -> None:
    """Refuse writes, and wait until that takes effect."""
    if mechanism == "policy" and isinstance(cluster, SandboxCluster):
        deny_by_policy(cluster.transport(), rule, policy="freeze", binding="all", message="not in December")
        return
    await cluster.create(*(a_policy(rule) if mechanism == "policy" else (an_unserved_webhook(rule),)))
    await cluster.eventually(lambda: _is_refused(cluster, rule))


async def _is_refused(cluster: LiveCluster, rule: RawObject) -> bool:
    try:
        if rule is NODES:
            await cluster.admin.patch(RESOURCES["nodes"], "n1", merge_patch({"metadata": {"labels": {"try": "1"}}}))
            await cluster.admin.patch(RESOURCES["nodes"], "n1", merge_patch({"metadata": {"labels": {"try": None}}}))
        else:
            await cluster.admin.evict("probe", namespace="shop", uid="none")
    except (AdmissionDenied, AdmissionWebhookUnavailable):
        return True
    except Exception:  # noqa: BLE001 - anything else the server says
        return False
    return False


async def allow(cluster: LiveCluster, mechanism: str) -> None:
    if mechanism == "policy" and isinstance(cluster, SandboxCluster):
        cluster.transport().faults.clear()
    elif mechanism == "policy":
        await cluster.delete("validatingadmissionpolicybindings", "all")
        await cluster.delete("validatingadmissionpolicies", "freeze")
    else:
        await cluster.delete("validatingwebhookconfigurations", "guard")


REFUSALS = [
    ("policy", "AdmissionDenied", "ValidatingAdmissionPolicy freeze", "not in December"),
    ("webhook", "AdmissionWebhookUnavailable", "webhook guard.example.com", "does not answer"),
]


@pytest.mark.parametrize(("mechanism", "reason", "refused_by", "explanation"), REFUSALS, ids=["policy", "webhook"])
async def test_refused_cordon_names_the_policy_or_webhook_and_is_retried(
    a_cluster: PlanFactory, mechanism: str, reason: str, refused_by: str, explanation: str
) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        await refuse(cluster, mechanism, NODES)
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: condition_of(cluster, "Drained"), becomes=("False", reason))
        blocker: dict[str, Any] = status(cluster)["blockers"][0]
        assert (blocker["kind"], blocker["object"]) == (reason, refused_by)
        assert explanation in blocker["reason"]
        assert blocker["remedy"]
        assert refused_by.split()[1] in last_error(cluster)
        await cluster.eventually(lambda: reason in event_reasons(cluster))
        await allow(cluster, mechanism)
        await wait_for_success(cluster)
        assert not status(cluster).get("blockers")
        await end_maintenance(cluster)
        assert is_released(cluster, "n1")


KINDS = [("policy", "AdmissionPolicy"), ("webhook", "AdmissionWebhookUnavailable")]


@pytest.mark.parametrize(("mechanism", "kind"), KINDS, ids=["policy", "webhook"])
async def test_refused_eviction_names_the_policy_or_webhook(a_cluster: PlanFactory, mechanism: str, kind: str) -> None:
    pods = [a_pod("shop/cart", on="n1"), a_pod("shop/probe", on="n2")]
    async with with_operator_rbac(a_cluster()).with_nodes(2).with_objects(*pods).running() as cluster:
        await refuse(cluster, mechanism, EVICTIONS)
        cluster.run(run_controller)
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: kind in [blocker["kind"] for blocker in status(cluster).get("blockers", ())])
        await allow(cluster, mechanism)
        await wait_for_success(cluster)


@pytest.mark.parametrize(("mechanism", "reason", "refused_by", "explanation"), REFUSALS, ids=["policy", "webhook"])
async def test_refused_profile_write_names_the_policy_or_webhook_and_is_retried(
    a_cluster: PlanFactory, tmp_path: Path, mechanism: str, reason: str, refused_by: str, explanation: str
) -> None:
    async with with_operator_rbac(a_cluster()).with_nodes(1).running() as cluster:
        operator = cluster.run(operator_with_profiles(a_configuration_file(tmp_path, ANNOTATION_CONFIGURATION)))
        await set_profiles(cluster, "n1", "os")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="operational")
        operator.kill()
        await annotate(cluster, "n1", "wanted", "yes")
        await refuse(cluster, mechanism, NODES)
        operator.start()
        await cluster.eventually(lambda: reason in event_reasons(cluster, "n1", kind="Node"))
        refusal_event = next(event for event in cluster.by_key("events").values() if event["reason"] == reason)
        note = refusal_event.get("note") or refusal_event["message"]
        assert refused_by.split()[1] in note
        assert explanation.rsplit(maxsplit=1)[-1] in note or mechanism == "webhook"
        await allow(cluster, mechanism)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes="in-maintenance")
