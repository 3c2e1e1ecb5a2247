"""The Helm chart, as the real helm renders it."""

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from haulout.api.objects import RawObject
from haulout.app import permissions
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.controllers.esx.component import Esx
from haulout.controllers.kubernikus.component import Kubernikus
from haulout.controllers.kubernikus.settings import KubernikusSettings, SecretKey
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.config.profiles_file import DEFAULT_PATH
from haulout.controllers.profiles.plugins.registry import registries
from haulout.providers.aws.component import AwsEvents
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.oci.component import OciEvents
from haulout.providers.oci.settings import OciSettings
from support.packaging.helm import (
    ALL_VALUES,
    BUDGET,
    CHART,
    MINIMAL_VALUES,
    NAMESPACE,
    REPOSITORY,
    HelmFailed,
    allowed_verbs,
    granted_permissions,
    helm,
    only_object,
    operator_roles,
    render_chart,
    values_file,
)

pytestmark = pytest.mark.real_time  # it starts helm

COOKBOOK = REPOSITORY / "examples" / "cookbook"
RECIPES = sorted(it.stem for it in COOKBOOK.glob("*.yaml") if "agent" not in it.stem)
OTHERS = """
intervals: {requeue: 60s}
budget: [{max: 2}]
instances:
  check:
  - {type: stagger, name: turn, config: {duration: 1s, leaseName: turn, leaseNamespace: kube-public, parallel: 2}}
  - {type: stagger, name: own, config: {duration: 1s, leaseName: own, leaseNamespace: ops}}
  - {type: checkHypervisor, name: evicted, config: {evicted: true}}
  - {type: hypervisorCondition, name: ready, config: {type: Ready, status: "True"}}
  - type: kubernikusCount
    name: complete
    config: {cluster: shop, cloudProviderSecret: {name: cloud, namespace: kube-public}}
  trigger:
  - {type: alterHypervisor, name: evacuate, config: {maintenance: manual}}
  - {type: replaceMachine, name: replace}
  notify:
  - type: slackThread
    name: told
    config:
      {token: xoxb-1, channel: c, title: t, message: m, leaseName: thread, leaseNamespace: chat, period: 24h}
    schedule: {type: periodic, config: {interval: 24h}}
profiles:
- name: os
  operational:
    transitions: [{check: turn && own && ready && complete, trigger: evacuate, next: maintenance-required}]
  maintenance-required:
    notify: told
    transitions: [{check: evicted, trigger: replace, next: in-maintenance}]
"""
QUIET = """
intervals: {requeue: 60s}
instances:
  check: [{type: hasLabel, name: wanted, config: {key: patch}}]
profiles:
- {name: os, operational: {transitions: [{check: wanted, next: maintenance-required}]}}
"""


KUBERNIKUS_SETTINGS = KubernikusSettings(secret=SecretKey(namespace="cloud", name="conf"))


def configuration(text: str) -> Configuration:
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)", text), "https://example.com/x")
    return loader.load(text.encode(), registries(), variables, file="maintenance.yaml").configuration


def container(objects: list[RawObject]) -> RawObject:
    (found,) = only_object("Deployment", objects)["spec"]["template"]["spec"]["containers"]
    return dict(found)


# Rendering


@pytest.mark.parametrize("values", [{}, ALL_VALUES, MINIMAL_VALUES], ids=["defaults", "everything", "least"])
def test_helm_lint_finds_no_problems(values: Mapping[str, Any]) -> None:
    with values_file(values) as file:
        assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART), "--values", str(file))


@pytest.mark.parametrize("values", [{}, ALL_VALUES, MINIMAL_VALUES], ids=["defaults", "everything", "least"])
def test_rendered_objects_are_unique_and_labelled(values: Mapping[str, Any]) -> None:
    objects = render_chart(values, definitions=not values)
    keys = [(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in objects]
    assert len(set(keys)) == len(keys)
    for obj in objects:
        labels = obj["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "haulout"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_default_chart_installs_the_same_objects_as_the_plain_manifests() -> None:
    """Except for what the chart adds: labels, and values."""
    plain = operator_manifests.all_objects(Installation(image="x", namespace=NAMESPACE))
    rendered = render_chart(definitions=True)
    ours, theirs = only_object("Deployment", plain)["spec"], only_object("Deployment", rendered)["spec"]
    pod, their_pod = (copy.deepcopy(item["template"]["spec"]) for item in (ours, theirs))
    added = {"image", "imagePullPolicy", "args"}
    for item in (pod, their_pod):
        item["containers"] = [{key: value for key, value in item["containers"][0].items() if key not in added}]
    assert their_pod == pod
    assert (theirs["replicas"], theirs["selector"]) == (ours["replicas"], ours["selector"])
    keys = {(item["kind"], item["metadata"]["name"]) for item in rendered}
    wanted = {(item["kind"], item["metadata"]["name"]) for item in plain if item["kind"] not in ("Role", "RoleBinding")}
    assert wanted - keys == {("Namespace", NAMESPACE)}, "which helm creates"
    for kind in ("Service", "CustomResourceDefinition", "PodDisruptionBudget", "ClusterRole"):
        for item in plain:
            if item["kind"] == kind and item["metadata"]["name"] != "haulout":
                same = only_object(kind, rendered, name=item["metadata"]["name"])
                assert {**same, "metadata": ""} == {**item, "metadata": ""}


def test_services_budgets_and_policies_select_the_pods() -> None:
    objects = render_chart()
    labels = only_object("Deployment", objects)["spec"]["template"]["metadata"]["labels"]
    ports = {item["name"]: item["containerPort"] for item in container(objects)["ports"]}
    for service in (item for item in objects if item["kind"] == "Service"):
        assert service["spec"]["selector"].items() <= labels.items()
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in (*ports, *ports.values())
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        spec = only_object(kind, objects)["spec"]
        assert (spec.get("selector") or spec["podSelector"])["matchLabels"].items() <= labels.items()


def test_runbook_url_of_alerts_is_configurable() -> None:
    values = {"prometheusRule": {"enabled": True, "runbookUrl": "https://docs.example/alerts.html"}}
    [group] = only_object("PrometheusRule", render_chart({"metrics": values}))["spec"]["groups"]
    leads = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in group["rules"]}
    assert leads == {name: f"https://docs.example/alerts.html#{name.lower()}" for name in leads}
    assert "HauloutAbsent" in leads


def test_history_retention_values_become_flags_only_if_set() -> None:
    values = {"history": {"retention": "0", "deletedNodes": 5000}}
    flags = ["--history-retention=0", "--history-deleted-nodes=5000"]
    assert [argument for argument in container(render_chart(values))["args"] if argument in flags] == flags
    assert not any(argument.startswith("--history") for argument in container(render_chart())["args"])


def test_lease_duration_values_become_flags_only_if_set() -> None:
    values = {"leaderElection": {"leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s"}}
    flags = ["--lease-duration=15s", "--renew-deadline=10s", "--retry-period=2s"]
    assert [argument for argument in container(render_chart(values))["args"] if argument in flags] == flags
    assert not any(argument.startswith("--lease-duration") for argument in container(render_chart())["args"])


def test_chart_values_are_applied_to_their_objects() -> None:
    objects = render_chart(ALL_VALUES)
    deployment, runs = only_object("Deployment", objects), container(objects)
    pod = deployment["spec"]["template"]["spec"]
    assert runs["image"] == "registry.example/team/haulout:1-oci"
    args = ["--webhook=folder:/certificates", "--no-quorum-check", "--dashboard-auth=token"]
    args.append("--dashboard-host=m.example.com")
    assert runs["args"] == ["run", *args, "--kubernikus=/kubernikus/kubernikus.yaml", "--log-format=text"]
    env = {item["name"]: item.get("value") for item in runs["env"]}
    assert {"HAULOUT_AWS_SECRET", "WD_NAMESPACE", "HAULOUT_MACHINES_LEAD", "HAULOUT_MACHINES_SURGE", "TZ"} <= set(env)
    assert [item["secretRef"]["name"] for item in runs["envFrom"] if "secretRef" in item] == ["tokens", "aws-keys"]
    assert pod["serviceAccountName"] == only_object("ServiceAccount", objects)["metadata"]["name"] == "sailor"
    assert pod["affinity"] == {"nodeAffinity": {}}
    assert deployment["metadata"]["labels"]["cost"] == "shared"
    assert deployment["spec"]["template"]["metadata"]["labels"]["team"] == "sre"
    assert only_object("ConfigMap", objects, name="haulout-clouds")["data"] == {"QUEUE_URL": "https://sqs.example/1/q"}
    assert only_object("ServiceMonitor", objects)["metadata"]["labels"]["release"] == "prometheus"
    policy = only_object("NetworkPolicy", objects)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [len(item.get("from", ())) for item in policy["ingress"]] == [0, 2, 1]
    (rule,) = only_object("Ingress", objects)["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "haulout", "port": {"number": 8080}}
    (reader,) = only_object("ClusterRoleBinding", objects, name="haulout-metrics-readers")["subjects"]
    assert reader == {"kind": "ServiceAccount", "namespace": "monitoring", "name": "prometheus-k8s"}


@pytest.mark.parametrize(
    ("auth", "wanted"),
    [
        pytest.param(None, "token", id="not set"),
        pytest.param("", "token", id="as values of an older release have it"),
        pytest.param("proxy", "proxy", id="a proxy in front"),
        pytest.param("off", "off", id="turned off"),
    ],
)
def test_dashboard_requires_authentication_unless_turned_off(auth: str | None, wanted: str) -> None:
    objects = render_chart({} if auth is None else {"dashboard": {"auth": auth}})
    assert f"--dashboard-auth={wanted}" in container(objects)["args"]


@pytest.mark.parametrize("acts", ["constrained", "unrestricted"])
def test_only_the_dashboard_account_impersonates_and_only_behind_a_proxy(acts: str) -> None:
    def impersonating(objects: list[RawObject], account: str) -> bool:
        granted = granted_permissions(operator_roles(objects, account=account))
        return any(verb.startswith("impersonate") for item in granted for verb in item.verbs)

    behind = render_chart({"dashboard": {"auth": "proxy", "actions": acts}})
    assert only_object("ServiceAccount", behind, name="haulout-dashboard")
    assert impersonating(behind, "haulout-dashboard")
    assert not impersonating(behind, "haulout")
    (tokens,) = [
        permission
        for permission in granted_permissions(operator_roles(behind))
        if permission.resource == "serviceaccounts/token"
    ]
    assert (tokens.verbs, tokens.namespace, tokens.names) == (("create",), NAMESPACE, ("haulout-dashboard",))
    assert not [
        permission for permission in render_chart({"dashboard": {"actions": acts}}) if "impersonate" in str(permission)
    ]


def test_image_digest_takes_precedence_over_the_tag() -> None:
    digest = f"sha256:{'0' * 64}"
    assert container(render_chart({"image": {"digest": digest}}))["image"] == f"haulout@{digest}"


@pytest.mark.parametrize("value", [QUIET, yaml.safe_load(QUIET)], ids=["as a text", "as an object"])
def test_configuration_is_mounted_at_the_default_path(value: Any) -> None:
    objects = render_chart({"profiles": {"config": value}})
    file = only_object("ConfigMap", objects)
    (volume,) = [
        item
        for item in only_object("Deployment", objects)["spec"]["template"]["spec"]["volumes"]
        if "configMap" in item
    ]
    assert volume["configMap"]["name"] == file["metadata"]["name"]
    assert configuration(file["data"][DEFAULT_PATH.name]) == configuration(QUIET)
    runs = container(objects)
    (mounted,) = [item["mountPath"] for item in runs["volumeMounts"] if item["name"] == volume["name"]]
    assert mounted == str((Path(runs["workingDir"]) / DEFAULT_PATH).parent)


# Certificates of the webhook


def test_self_signed_certificate_leaves_the_ca_bundle_to_the_operator() -> None:
    objects = render_chart()
    hook = only_object("ValidatingWebhookConfiguration", objects)["webhooks"][0]
    assert "caBundle" not in hook["clientConfig"], "or every upgrade would remove the caBundle that the operator wrote"
    assert "--webhook=self" in container(objects)["args"]


def test_cert_manager_certificate_covers_the_webhook_service() -> None:
    objects = render_chart({"webhook": {"certificate": {"from": "cert-manager"}}})
    certificate, configured = (
        only_object("Certificate", objects),
        only_object("ValidatingWebhookConfiguration", objects),
    )
    called = configured["webhooks"][0]["clientConfig"]["service"]
    assert f"{called['name']}.{called['namespace']}.svc" in certificate["spec"]["dnsNames"]
    key = f"{certificate['metadata']['namespace']}/{certificate['metadata']['name']}"
    assert configured["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": key}
    (volume,) = [
        candidate
        for candidate in only_object("Deployment", objects)["spec"]["template"]["spec"]["volumes"]
        if "secret" in candidate
    ]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert certificate["spec"]["issuerRef"]["name"] == only_object("Issuer", objects)["metadata"]["name"]


def test_user_provided_certificate_needs_no_permission_for_secrets() -> None:
    given = {"from": "secret", "secretName": "tls", "caBundle": "Q0E="}
    objects = render_chart({"webhook": {"certificate": given}})
    hook = only_object("ValidatingWebhookConfiguration", objects)["webhooks"][0]
    assert hook["clientConfig"]["caBundle"] == "Q0E="
    granted = granted_permissions(operator_roles(objects))
    assert not [item for item in granted if item.resource in ("secrets", "validatingwebhookconfigurations")]


# Permissions


def _drain_configuration(how: str) -> str:
    """Return a configuration that drains with these options."""
    return f"""
intervals: {{requeue: 60s}}
instances:
  check: [{{type: hasLabel, name: wanted, config: {{key: patch}}}}]
  trigger: [{{type: eviction, name: drain, config: {{action: drain, {how}}}}}]
profiles:
- {{name: os, operational: {{transitions: [{{check: wanted, trigger: drain, next: in-maintenance}}]}}}}
"""


@pytest.mark.parametrize("recipe", RECIPES)
def test_roles_grant_exactly_what_the_plugins_of_a_configuration_need(recipe: str) -> None:
    file = (COOKBOOK / f"{recipe}.yaml").read_text()
    needed = permissions.operator_permissions(namespace=NAMESPACE, configuration=configuration(file))
    granted = granted_permissions(operator_roles(render_chart({"profiles": {"config": file}})))
    assert allowed_verbs(granted) == allowed_verbs(needed)


@pytest.mark.parametrize(
    ("values", "needed"),
    [
        pytest.param({}, {"configuration": configuration("budget: []")}, id="nothing"),
        pytest.param({"profiles": {"config": BUDGET}}, {"configuration": configuration(BUDGET)}, id="only a budget"),
        pytest.param({"profiles": {"config": OTHERS}}, {"configuration": configuration(OTHERS)}, id="all plugins"),
        pytest.param({"profiles": {"config": QUIET}}, {"configuration": configuration(QUIET)}, id="no drains"),
        pytest.param({"profiles": {"existingConfigMap": "mine"}}, {}, id="an unknown configuration"),
        pytest.param(
            {"profiles": {"config": QUIET}, "esx": {"enabled": True}},
            {"configuration": configuration(QUIET), "components": {Esx: None}},
            id="nodes on ESX hosts",
        ),
        pytest.param({"profiles": {"permissions": "usual"}}, {}, id="what is usual"),
        pytest.param(
            {"profiles": {"permissions": "usual"}, "rbac": {"podDeletion": True}},
            {"pod_deletion": True},
            id="pods are deleted",
        ),
        *(
            pytest.param(
                {"profiles": {"config": _drain_configuration(how)}},
                {"configuration": configuration(_drain_configuration(how))},
                id=f"a drain with {how}",
            )
            for how in (
                "forceEviction: true",
                "drain: {evictionTimeout: 5m}",
                "drain: {disableEviction: true}",
                "drain: {forceDelete: true, deletionTimeout: 5m}",
                "drain: {rules: [{name: a, evictionTimeout: 5m}]}",
                "drain: {timeout: 5m}",
            )
        ),
        pytest.param(
            {"profiles": {"permissions": "usual"}, "machines": {"enabled": True}},
            {"components": {MachinesComponent: None}},
            id="machines",
        ),
        pytest.param(
            {"profiles": {"config": QUIET}, "kubernikus": {"enabled": True, "secret": "cloud/conf"}},
            {"configuration": configuration(QUIET), "components": {Kubernikus: KUBERNIKUS_SETTINGS}},
            id="nodes of Kubernikus",
        ),
        pytest.param(
            {"profiles": {"permissions": "usual"}, "clouds": {"awsSecret": "cloud/keys"}},
            {"components": {AwsEvents: AwsSettings(secret="cloud/keys")}},
            id="AWS",
        ),
        pytest.param(
            {"profiles": {"permissions": "usual"}, "clouds": {"ociHandlerNamespace": NAMESPACE}},
            {"components": {OciEvents: OciSettings(handler_namespace=NAMESPACE)}},
            id="OCI's handler",
        ),
        pytest.param(
            {"profiles": {"permissions": "usual"}, "webhook": {"enabled": False}},
            {"own_certificate": False},
            id="no webhook",
        ),
        pytest.param(
            {"profiles": {"permissions": "usual"}, "leases": {"namespace": NAMESPACE}},
            {"lease_namespace": NAMESPACE},
            id="one namespace for all",
        ),
    ],
)
def test_roles_grant_exactly_what_enabled_features_need(values: Mapping[str, Any], needed: Mapping[str, Any]) -> None:
    objects = render_chart(values)
    assert allowed_verbs(granted_permissions(operator_roles(objects))) == allowed_verbs(
        permissions.operator_permissions(namespace=NAMESPACE, **needed)
    )


def test_esx_value_mounts_its_secret_and_sets_the_flag() -> None:
    values = {"esx": {"enabled": True, "secretName": "mine"}, "image": {"variant": "vsphere"}}
    pod = only_object("Deployment", render_chart(values))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "--esx=/esx/esx.yaml" in container["args"]
    assert container["image"].endswith("-vsphere")
    assert {"name": "esx", "mountPath": "/esx", "readOnly": True} in container["volumeMounts"]
    assert {"name": "esx", "secret": {"secretName": "mine"}} in pod["volumes"]


def test_operator_roles_have_no_wildcards() -> None:
    roles = [item for item in render_chart(ALL_VALUES) if item["kind"].endswith("Role")]
    rules = [rule for role in roles for rule in role["rules"]]
    assert not any("*" in part for rule in rules for parts in rule.values() for part in parts)
    secrets = [rule for rule in rules if rule.get("resources") == ["secrets"] and rule["verbs"] != ["create"]]
    assert secrets
    assert all(rule.get("resourceNames") for rule in secrets)


# Validation of values


@pytest.mark.parametrize(
    ("values", "value_name"),
    [
        ({"replica": 2}, "replica"),
        ({"replicas": "two"}, "replicas"),
        ({"replicas": 0}, "replicas"),
        ({"webhook": {"certificate": {"from": "certmanager"}}}, "webhook.certificate.from"),
        ({"image": {"variant": "gcp"}}, "image.variant"),
        ({"image": {"digest": "sha256:1"}}, "image.digest"),
        ({"clouds": {"env": {"QUEUE_URL": 7}}}, "clouds.env"),
        ({"clouds": {"awsSecret": "keys"}}, "clouds.awsSecret"),
        ({"leases": {"namespace": "Not A Name"}}, "leases.namespace"),
        ({"history": {"retention": "90"}}, "history.retention"),
        ({"ingress": {"hosts": [{"hots": "x"}]}}, "ingress.hosts"),
        ({"profiles": {"config": "a: [", "permissions": "auto"}}, "profiles.config is not valid YAML"),
        ({"profiles": {"config": QUIET, "existingConfigMap": "x"}}, "are both set: set one of them"),
    ],
)
def test_invalid_chart_values_are_rejected_by_name(values: Mapping[str, Any], value_name: str) -> None:
    with pytest.raises(HelmFailed) as refused:
        render_chart(values)
    message = str(refused.value)
    assert value_name.rpartition(".")[2] in message
    assert value_name in message.replace("/", ".")
