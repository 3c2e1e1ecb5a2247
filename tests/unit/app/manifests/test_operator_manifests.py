"""The manifests that install the operator."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from haulout.api.objects import RawObject
from haulout.app import permissions
from haulout.app.manifests import operator_manifests, workload
from haulout.app.manifests.operator_manifests import Installation
from haulout.cli import main
from haulout.controllers.esx.component import Esx
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.profiles_file import DEFAULT_PATH
from haulout.controllers.profiles.plugins.registry import registries

WANTED = Installation(image="example/haulout:1", namespace="ops", lease_namespace="locks", replicas=3)


def one(kind: str, objects: list[RawObject]) -> RawObject:
    (found,) = [it for it in objects if it["kind"] == kind]
    return found


def test_operator_roles_grant_exactly_the_required_permissions() -> None:
    granted = {
        (it["metadata"].get("namespace"), rule["apiGroups"][0], rule["resources"][0], verb)
        for it in operator_manifests.role_objects(WANTED)
        if it["kind"].endswith("Role") and it["metadata"]["name"] == workload.NAME
        for rule in it["rules"]
        for verb in rule["verbs"]
    }
    needed = {
        (it.namespace, it.group, it.resource, verb)
        for it in permissions.operator_permissions(namespace="ops", lease_namespace="locks")
        for verb in it.verbs
    }
    assert granted == needed


def test_operator_roles_have_no_wildcards() -> None:
    rules = [rule for it in operator_manifests.role_objects(WANTED) for rule in it.get("rules", ())]
    assert not any("*" in part for rule in rules for parts in rule.values() for part in parts)
    assert not [rule for rule in rules if rule.get("resources") == ["namespaces"] and rule["verbs"] != ["get"]]
    secrets = [rule for rule in rules if rule.get("resources") == ["secrets"] and rule["verbs"] != ["create"]]
    assert all(rule.get("resourceNames") for rule in secrets)


FORCEFUL = """
intervals: {requeue: 60s}
instances:
  check: [{type: hasLabel, name: wanted, config: {key: patch}}]
  trigger: [{type: eviction, name: drain, config: {action: drain, forceEviction: true}}]
profiles:
- {name: os, operational: {transitions: [{check: wanted, trigger: drain, next: in-maintenance}]}}
"""


def test_pod_deletion_is_granted_only_if_a_policy_may_delete() -> None:
    forceful = loader.load(FORCEFUL.encode(), registries(), {}, file="f").configuration
    image = "example/haulout:1"

    def can_delete(wanted: Installation) -> bool:
        rules = (rule for it in operator_manifests.role_objects(wanted) for rule in it.get("rules", ()))
        return any(rule.get("resources") == ["pods"] and "delete" in rule["verbs"] for rule in rules)

    assert not can_delete(Installation(image=image))
    assert not can_delete(Installation(image=image, components={Esx: None}, machines=True))
    assert can_delete(Installation(image=image, configuration=forceful))
    assert can_delete(Installation(image=image, pod_deletion=True))


def test_esx_option_mounts_its_secret_and_sets_the_flag() -> None:
    def pod_of(wanted: Installation) -> RawObject:
        found: RawObject = one("Deployment", operator_manifests.operator_objects(wanted))["spec"]["template"]["spec"]
        return found

    without, pod = pod_of(WANTED), pod_of(Installation(image="example/haulout:1-vsphere", components={Esx: None}))
    assert pod["containers"][0]["args"] == [*without["containers"][0]["args"], "--esx=/esx/esx.yaml"]
    assert pod["volumes"][-1] == {"name": "esx", "secret": {"secretName": "haulout-esx"}}
    assert pod["containers"][0]["volumeMounts"][-1] == {"name": "esx", "mountPath": "/esx", "readOnly": True}


def test_machines_option_adds_its_crd_namespace_and_rules(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*args: str) -> list[RawObject]:
        with pytest.raises(SystemExit) as exited:
            main(["manifests", *args])
        assert exited.value.code == 0
        return list(yaml.safe_load_all(capsys.readouterr().out))

    name = "machinemaintenances.machinemaintenance.managed.openshift.io"
    assert name not in [it["metadata"]["name"] for it in printed("--crds-only")]
    assert name in [it["metadata"]["name"] for it in printed("--crds-only", "--machines")]
    without, whole = printed("--image", "x"), printed("--image", "x", "--machines")
    added = [it for it in whole if it not in without]
    assert [it["metadata"]["name"] for it in added if it["kind"] == "Namespace"] == ["machine-maintenance-operator"]
    rules = [(it["metadata"].get("namespace"), rule) for it in added for rule in it.get("rules", ())]
    machines = [(where, rule["verbs"]) for where, rule in rules if rule["resources"] == ["machines"]]
    assert machines == [("openshift-machine-api", ["get", "list", "watch", "patch", "delete"])]
    assert "machine.openshift.io" not in str(without)


def test_services_select_the_pods_and_the_webhook_service() -> None:
    objects = operator_manifests.all_objects(WANTED)
    deployment = one("Deployment", objects)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    opened = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    targets = {port[key] for port in opened for key in ("name", "containerPort")}
    services = {it["metadata"]["name"]: it for it in objects if it["kind"] == "Service"}
    for service in services.values():
        assert service["spec"]["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= targets
    called = one("ValidatingWebhookConfiguration", objects)["webhooks"][0]["clientConfig"]["service"]
    assert services[called["name"]]["metadata"]["namespace"] == called["namespace"] == "ops"
    assert "node-maintenance-operator-controller-manager-metrics-service" in services


def test_configuration_is_mounted_at_the_default_path() -> None:
    pod = one("Deployment", operator_manifests.all_objects(WANTED))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = [it for it in pod["volumes"] if "configMap" in it]
    assert volume["configMap"] == {"name": "haulout-profiles", "optional": True}
    (mounted,) = [it["mountPath"] for it in container["volumeMounts"] if it["name"] == volume["name"]]
    assert mounted == str((Path(container["workingDir"]) / DEFAULT_PATH).parent)


def test_manifests_command_prints_all_objects(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(
            ["manifests", "--image", "example/haulout:1", "-n", "ops", "--lease-namespace", "locks", "--replicas", "3"]
        )
    assert exited.value.code == 0
    printed = capsys.readouterr().out
    assert list(yaml.safe_load_all(printed)) == operator_manifests.all_objects(WANTED)
    assert "&id" not in printed


def test_aws_secret_without_a_namespace_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["manifests", "--image", "example/haulout:1", "--aws-secret", "keys"])
    assert exited.value.code == 2
    assert "--aws-secret: expected NAMESPACE/NAME, found 'keys'" in capsys.readouterr().err


def test_manifests_without_an_image_require_crds_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["manifests"])
    assert exited.value.code == 2
    assert "--image" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exited:
        main(["manifests", "--crds-only"])
    assert exited.value.code == 0
    assert {it["kind"] for it in yaml.safe_load_all(capsys.readouterr().out)} == {"CustomResourceDefinition"}


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        pytest.param("haulout.cli", ("rich", "aiohttp"), id="the command line"),
        pytest.param("haulout.cli.run.cluster_mode", ("rich", "cryptography"), id="the operator without a webhook"),
    ],
)
def test_command_line_imports_no_unneeded_libraries(module: str, heavy: tuple[str, ...]) -> None:
    program = f"import sys; import {module}; print(*sorted(m for m in sys.modules if m.startswith({heavy})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
