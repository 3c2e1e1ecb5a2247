"""What the sandbox's API server writes into objects where their authors said nothing."""

import copy
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.apiserver.kinds.builtin import BUILTIN_KINDS, CUSTOM_RESOURCE_DEFINITION, DEPLOYMENT, SECRET
from haulout_sandbox.apiserver.kinds.kind import CORE_KINDS, EVENT, EVENTS_V1_EVENT, POD, JsonObject, Kind
from haulout_sandbox.apiserver.registry.defaults import with_defaults
from haulout_sandbox.apiserver.registry.pod_defaults import pull_policy
from haulout_sandbox.apiserver.registry.strategy import qos_class
from support.apiserver.requests import merge, request_json
from support.builders import samples

PODS = "/api/v1/namespaces/shop/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TITLES = [f"{it['kind']} {it['metadata']['name']}" for it in samples.ALL]


def kind_of(obj: JsonObject) -> Kind:
    return next(
        kind
        for kind in (*CORE_KINDS, *BUILTIN_KINDS)
        if (kind.api_version, kind.kind) == (obj["apiVersion"], obj["kind"])
    )


def a_pod(name: str = "p", **spec: Any) -> JsonObject:
    return samples.sample("v1", "Pod", name, spec=samples.pod_spec(**spec))


@pytest.mark.parametrize("obj", samples.ALL, ids=TITLES)
def test_defaults_are_written_once_and_the_given_object_stays_as_it_is(obj: JsonObject) -> None:
    before = copy.deepcopy(obj)
    once = with_defaults(kind_of(obj), obj)
    assert obj == before
    assert with_defaults(kind_of(obj), once) == once


@pytest.mark.parametrize("kind", [*CORE_KINDS, *BUILTIN_KINDS], ids=lambda it: it.resource)
@pytest.mark.parametrize(
    "nonsense", [{}, {"spec": "x"}, {"spec": {"template": 1, "containers": [1]}}, {"metadata": [], "spec": [None]}]
)
def test_parts_of_the_wrong_type_are_left_alone(kind: Kind, nonsense: JsonObject) -> None:
    assert with_defaults(kind, nonsense).get("metadata") == nonsense.get("metadata")


def test_explicit_values_are_kept() -> None:
    spec = {"replicas": 0, "strategy": {"type": "Recreate"}, "revisionHistoryLimit": 0, "template": samples.template()}
    made = with_defaults(DEPLOYMENT, {"spec": spec})["spec"]
    assert (made["replicas"], made["strategy"], made["revisionHistoryLimit"]) == (0, {"type": "Recreate"}, 0)
    assert made["template"]["spec"]["terminationGracePeriodSeconds"] == 30


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("r:5000/a", "Always"),
        ("r:5000/a:1", "IfNotPresent"),
        ("a@sha256:0", "IfNotPresent"),
        ("a:latest@sha256:0", "Always"),
    ],
)
def test_an_image_with_a_mutable_tag_is_always_pulled(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


def test_limits_are_requests_in_a_pod_but_not_in_a_template() -> None:
    spec = samples.pod_spec()
    spec["containers"][0]["resources"] = {"limits": {"cpu": 1, "memory": "1024Mi"}, "requests": {"cpu": "500m"}}
    pod = with_defaults(POD, {"spec": spec})["spec"]["containers"][0]["resources"]
    assert pod == {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}
    template = with_defaults(DEPLOYMENT, {"spec": {"template": {"spec": spec}}})["spec"]["template"]
    assert template["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m"}


def test_plain_text_in_a_secret_is_stored_encoded() -> None:
    secret = with_defaults(SECRET, {"stringData": {"a": "b"}, "data": {"c": "ZA=="}})
    assert secret == {"type": "Opaque", "data": {"a": "Yg==", "c": "ZA=="}}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"requests": {"cpu": "0"}}, "BestEffort"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}, "Burstable"),
        ({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_a_pod_is_guaranteed_what_it_limits_itself_to(resources: JsonObject, expected: str) -> None:
    assert qos_class({"containers": [{"resources": resources}]}) == expected


# Through the server


async def test_a_pod_stays_five_minutes_on_a_node_that_fails_unless_it_says_otherwise(api: InProcessTransport) -> None:
    _, created = await request_json(api, "POST", PODS, a_pod("usual"))
    assert {(toleration["key"], toleration["tolerationSeconds"]) for toleration in created["spec"]["tolerations"]} == {
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    }
    _, anywhere = await request_json(api, "POST", PODS, a_pod("anywhere", tolerations=[{"operator": "Exists"}]))
    assert anywhere["spec"]["tolerations"] == [{"operator": "Exists"}]


async def test_a_priority_comes_from_the_class(api: InProcessTransport) -> None:
    _, created = await request_json(api, "POST", PODS, a_pod("usual"))
    assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    await request_json(
        api, "POST", CLASSES, samples.sample("scheduling.k8s.io/v1", "PriorityClass", "high", value=1000)
    )
    _, high = await request_json(api, "POST", PODS, a_pod("high", priorityClassName="high"))
    assert high["spec"]["priority"] == 1000
    code, refused = await request_json(api, "POST", PODS, a_pod("lost", priorityClassName="nowhere"))
    assert code == 403
    assert refused["message"] == 'pods "lost" is forbidden: no PriorityClass with name nowhere was found'
    code, refused = await request_json(api, "POST", PODS, a_pod("sly", priority=7))
    assert code == 403
    assert "(7) must not be provided in pod spec; priority admission controller computed 0" in refused["message"]


async def test_the_class_for_all_others_is_used(api: InProcessTransport) -> None:
    global_default = samples.sample("scheduling.k8s.io/v1", "PriorityClass", "usual", value=5, globalDefault=True)
    await request_json(api, "POST", CLASSES, global_default)
    _, pod = await request_json(api, "POST", PODS, a_pod())
    assert (pod["spec"]["priority"], pod["spec"]["priorityClassName"]) == (5, "usual")


async def test_a_new_node_gets_no_pods_until_it_is_ready(api: InProcessTransport) -> None:
    _, node = await request_json(api, "POST", "/api/v1/nodes", samples.sample("v1", "Node", "n1"))
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    _, node = await merge(api, "/api/v1/nodes/n1", spec={"taints": None})
    assert "taints" not in node["spec"]


async def test_a_namespace_has_its_name_label_and_its_finalizer(api: InProcessTransport) -> None:
    _, made = await request_json(api, "POST", "/api/v1/namespaces", samples.sample("v1", "Namespace", "bank"))
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "bank"}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    _, kept = await merge(api, "/api/v1/namespaces/bank", spec={"finalizers": None})
    assert kept["spec"] == {"finalizers": ["kubernetes"]}


async def test_a_job_finds_its_pods_by_its_uid(api: InProcessTransport) -> None:
    job = samples.sample("batch/v1", "Job", "j", spec={"template": samples.template(restartPolicy="Never")})
    _, made = await request_json(api, "POST", "/apis/batch/v1/namespaces/shop/jobs", job)
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert made["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert made["metadata"]["labels"] == made["spec"]["template"]["metadata"]["labels"]


async def test_sending_an_object_again_without_its_defaults_changes_nothing(
    cluster: ApiServer, api: InProcessTransport
) -> None:
    deployment = samples.sample(
        "apps/v1", "Deployment", "d", spec={"selector": samples.APP, "template": samples.template()}
    )
    _, made = await request_json(api, "POST", DEPLOYMENTS, deployment)
    code, again = await request_json(api, "PUT", f"{DEPLOYMENTS}/d", deployment)
    assert (code, again) == (200, made)
    assert cluster.revision == int(made["metadata"]["resourceVersion"])


async def test_a_server_without_defaulting_adds_nothing(clock: Clock) -> None:
    api = ApiServer(clock, defaulting=False, namespaces=["shop"]).transport()
    _, pod = await request_json(api, "POST", PODS, a_pod())
    assert pod["spec"] == samples.pod_spec()
    assert pod["status"] == {"phase": "Pending"}


def test_there_is_a_sample_of_every_kind_but_events_and_definitions() -> None:
    assert {*CORE_KINDS, *BUILTIN_KINDS} - {kind_of(item) for item in samples.ALL} == {
        EVENT,
        EVENTS_V1_EVENT,
        CUSTOM_RESOURCE_DEFINITION,
    }
