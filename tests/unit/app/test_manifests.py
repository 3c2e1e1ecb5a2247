"""What is applied to a cluster before the operator runs in it."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from haulout.app import manifests, needs
from haulout.app.configured import USUAL
from haulout.app.manifests import Installation
from haulout.cli import main
from haulout.kube.objects import RawObject

WANTED = Installation(image="example/haulout:1", namespace="ops", lease_namespace="locks", replicas=3)


def one(kind: str, objects: list[RawObject]) -> RawObject:
    (found,) = [it for it in objects if it["kind"] == kind]
    return found


def test_the_roles_hold_exactly_what_controllers_say_they_need() -> None:
    granted = {
        (it["metadata"].get("namespace"), rule["apiGroups"][0], rule["resources"][0], verb)
        for it in manifests.permissions(WANTED)
        if it["kind"].endswith("Role") and it["metadata"]["name"] == manifests.NAME
        for rule in it["rules"]
        for verb in rule["verbs"]
    }
    needed = {
        (it.namespace, it.group, it.resource, verb)
        for it in needs.permissions(namespace="ops", lease_namespace="locks")
        for verb in it.verbs
    }
    assert granted == needed


def test_no_rule_is_wider_than_it_has_to_be() -> None:
    rules = [rule for it in manifests.permissions(WANTED) for rule in it.get("rules", ())]
    assert not any("*" in part for rule in rules for part in (*rule["verbs"], *rule["resources"], *rule["apiGroups"]))
    secrets = [rule for rule in rules if rule["resources"] == ["secrets"] and rule["verbs"] != ["create"]]
    assert all(rule.get("resourceNames") for rule in secrets)


def test_the_webhook_and_the_pods_find_each_other() -> None:
    objects = manifests.everything(WANTED)
    service, deployment = one("Service", objects), one("Deployment", objects)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    called = one("ValidatingWebhookConfiguration", objects)["webhooks"][0]["clientConfig"]["service"]
    assert (called["name"], called["namespace"]) == (service["metadata"]["name"], "ops")
    ports = {port["containerPort"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert service["spec"]["ports"][0]["targetPort"] in ports


def test_the_configuration_is_found_where_the_operator_looks_for_it() -> None:
    pod = one("Deployment", manifests.everything(WANTED))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = [it for it in pod["volumes"] if "configMap" in it]
    assert volume["configMap"] == {"name": "haulout-profiles", "optional": True}
    (mounted,) = [it["mountPath"] for it in container["volumeMounts"] if it["name"] == volume["name"]]
    assert mounted == str((Path(container["workingDir"]) / USUAL).parent)


def test_what_is_printed_is_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(
            ["manifests", "--image", "example/haulout:1", "-n", "ops", "--lease-namespace", "locks", "--replicas", "3"]
        )
    assert exited.value.code == 0
    printed = capsys.readouterr().out
    assert list(yaml.safe_load_all(printed)) == manifests.everything(WANTED)
    assert "&id" not in printed


def test_without_an_image_only_the_definitions_can_be_had(capsys: pytest.CaptureFixture[str]) -> None:
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
        pytest.param("haulout.cli.operate", ("rich", "cryptography"), id="the operator without a webhook"),
    ],
)
def test_nothing_is_loaded_that_is_not_needed(module: str, heavy: tuple[str, ...]) -> None:
    program = f"import sys; import {module}; print(*sorted(m for m in sys.modules if m.startswith({heavy})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
