"""The packages in deploy/: they are generated from the code, and consistent with each other."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

import haulout
from haulout.api.objects import RawObject
from haulout.app import permissions
from haulout.app.manifests import hub_manifests, operator_manifests, workload
from haulout.app.manifests.hub_manifests import HubInstallation
from haulout.app.manifests.operator_manifests import Installation
from haulout.controllers.machines.component import MachinesComponent
from support.packaging.helm import (
    CHART,
    DEPLOY,
    allowed_verbs,
    granted_permissions,
    only_object,
    operator_roles,
    render_chart,
)
from tools.packages import all_packages
from tools.packages.helm.gotemplate import Commented, Conditional, Expression, IndentedExpression, document, text
from tools.packages.semver import to_semver

IMAGE = f"haulout:{haulout.__version__}"
PLAIN = operator_manifests.all_objects(Installation(image=IMAGE))


def loaded(path: Path) -> list[RawObject]:
    return [item for item in yaml.safe_load_all(path.read_text()) if item]


def test_committed_packages_are_up_to_date() -> None:
    """`make packages` generates them."""
    wanted = all_packages.files(DEPLOY, haulout.__version__)
    differing = [
        path for path, text in wanted.items() if not (DEPLOY / path).is_file() or (DEPLOY / path).read_text() != text
    ]
    assert (differing, all_packages.stale(DEPLOY, wanted)) == ([], []), "make packages"


def test_packages_are_written_once_and_stale_files_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "helm" / "haulout" / "templates" / "job.yaml"
    by_hand = old.with_name("_helpers.tpl")
    for path in (old, by_hand):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kind: Job\n")
    changed = list(all_packages.write(tmp_path, "1.2.3"))
    assert {"helm/haulout/templates/job.yaml", "helm/haulout/Chart.yaml"} <= set(changed)
    assert (old.exists(), by_hand.exists()) == (False, True)
    assert list(all_packages.write(tmp_path, "1.2.3")) == []
    assert loaded(tmp_path / "helm" / "haulout" / "Chart.yaml")[0]["version"] == "1.2.3"


@pytest.mark.real_time
def test_alerts_and_the_dashboard_are_packaged_unchanged(tmp_path: Path) -> None:
    """Both have expressions in braces that are not Helm's."""
    rule = {"alert": "HauloutNoLeader", "annotations": {"summary": "lease {{ $labels.name }}"}}
    alerts = {"groups": [{"name": "haulout", "rules": [rule]}]}
    dashboard = '{"legend": "{{node}}"}\n'
    for path, content in ((all_packages.ALERTS, yaml.safe_dump(alerts)), (all_packages.DASHBOARD, dashboard)):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(content)
    chart = tmp_path / "helm" / "haulout"
    shutil.copytree(CHART / "templates", chart / "templates")
    list(all_packages.write(tmp_path, "1.2.3"))
    objects = render_chart(
        {"metrics": {name: {"enabled": True} for name in ("prometheusRule", "dashboard")}}, chart=chart
    )
    assert only_object("PrometheusRule", objects)["spec"] == alerts
    shown = only_object("ConfigMap", objects)
    assert shown["data"] == {"haulout.json": dashboard}
    assert shown["metadata"]["labels"]["grafana_dashboard"] == "1"
    kustomized = loaded(tmp_path / "kustomize" / "components" / "monitoring" / "monitoring.yaml")
    assert only_object("PrometheusRule", kustomized)["spec"] == alerts


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("1.2.3", "1.2.3"), ("0.1.0.dev0", "0.1.0-dev.0"), ("2.0.0rc1", "2.0.0-rc.1")],
)
def test_versions_are_converted_to_semver(version: str, wanted: str) -> None:
    assert to_semver(version) == wanted


def test_invalid_version_is_rejected() -> None:
    with pytest.raises(ValueError, match="expected a version such as"):
        to_semver("newest")


# Plain manifests, and kustomize


def test_plain_manifests_equal_the_output_of_the_command() -> None:
    assert loaded(DEPLOY / "manifests" / "haulout.yaml") == PLAIN


def kustomization_objects(folder: Path) -> list[RawObject]:
    """Return the objects of a kustomization and of those that it refers to, without patches."""
    found: list[RawObject] = []
    (kustomization,) = loaded(folder / "kustomization.yaml")
    for name in (*kustomization.get("resources", ()), *kustomization.get("components", ())):
        path = folder / name
        found += kustomization_objects(path) if path.is_dir() else loaded(path)
    return found


def test_kustomize_base_equals_the_plain_manifests() -> None:
    def in_order(objects: list[RawObject]) -> list[str]:
        return sorted(json.dumps(obj, sort_keys=True) for obj in objects)

    assert in_order(kustomization_objects(DEPLOY / "kustomize" / "base")) == in_order(PLAIN)


def test_openshift_overlay_grants_machine_replacement() -> None:
    objects = kustomization_objects(DEPLOY / "kustomize" / "overlays" / "openshift")
    needed = permissions.operator_permissions(namespace="haulout", components={MachinesComponent: None})
    assert allowed_verbs(granted_permissions(operator_roles(objects))) == allowed_verbs(needed)
    assert only_object("ServiceMonitor", objects)["spec"]["endpoints"][0]["port"] == "https"
    assert only_object(
        "CustomResourceDefinition", objects, name="machinemaintenances.machinemaintenance.managed.openshift.io"
    )


HUB = hub_manifests.hub_objects(HubInstallation(image=IMAGE))
PACKAGES = {
    "plain manifests": PLAIN,
    "kustomize": kustomization_objects(DEPLOY / "kustomize" / "base"),
    "hub": HUB,
    "bundle": [it for path in sorted((DEPLOY / "olm" / "manifests").glob("*.yaml")) for it in loaded(path)],
}


def pods_of(objects: list[RawObject]) -> RawObject:
    """Return the pod template of the operator, or of a hub."""
    found = [obj["spec"] for obj in objects if obj["kind"] == "Deployment"]
    csv = [obj for obj in objects if obj["kind"] == "ClusterServiceVersion"]
    found += [deployment["spec"] for obj in csv for deployment in obj["spec"]["install"]["spec"]["deployments"]]
    (spec,) = found
    template: RawObject = spec["template"]
    return template


@pytest.mark.parametrize("package", PACKAGES)
def test_network_policies_of_all_packages_open_only_needed_ports(package: str) -> None:
    template, policy = pods_of(PACKAGES[package]), only_object("NetworkPolicy", PACKAGES[package])
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    opened = {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    replicas = [{"podSelector": policy["spec"]["podSelector"]}]
    everywhere = {} if package == "hub" else {"webhook": None, "https": None}
    assert opened == {**everywhere, "metrics": replicas}
    assert set(opened) <= {candidate["name"] for candidate in template["spec"]["containers"][0]["ports"]}


def test_allowed_namespaces_reach_only_the_dashboard() -> None:
    named = ("ingress-nginx", "monitoring")
    operator = operator_manifests.all_objects(Installation(image=IMAGE, allowed_namespaces=named))
    hub = hub_manifests.hub_objects(HubInstallation(image=IMAGE, allowed_namespaces=named))
    for objects in (operator, hub):
        *others, dashboard = only_object("NetworkPolicy", objects)["spec"]["ingress"]
        assert not any("from" in other for other in others)
        assert dashboard["ports"] == [{"port": "metrics"}]
        selectors = [
            other["namespaceSelector"]["matchLabels"] for other in dashboard["from"] if "namespaceSelector" in other
        ]
        assert selectors == [{"kubernetes.io/metadata.name": other} for other in named]


@pytest.mark.parametrize("package", ["plain manifests", "kustomize", "hub"])
def test_namespaces_enforce_the_restricted_pod_security_level(package: str) -> None:
    namespaces = [item for item in PACKAGES[package] if item["kind"] == "Namespace"]
    assert namespaces
    for item in namespaces:
        assert set(item["metadata"]["labels"].items()) >= {
            (f"pod-security.kubernetes.io/{mode}", "restricted") for mode in ("enforce", "audit", "warn")
        }


@pytest.mark.parametrize("name", ["kube-system", "wd"])
def test_shared_namespaces_have_no_pod_security_labels(name: str) -> None:
    """Other pods, such as kube-proxy, could not start there."""
    operator = operator_manifests.all_objects(
        Installation(image=IMAGE, namespace=name, lease_namespace=name, agent=True)
    )
    hub = hub_manifests.hub_objects(HubInstallation(image=IMAGE, namespace=name))
    for objects in (operator, hub):
        assert only_object("Namespace", objects)["metadata"] == {"name": name}


def test_only_the_namespace_of_agents_is_privileged() -> None:
    """They use the network of their node, which only the level `privileged` allows."""
    objects = operator_manifests.all_objects(Installation(image=IMAGE, agent=True, machines=True))
    levels = {
        item["metadata"]["name"]: item["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for item in objects
        if item["kind"] == "Namespace"
    }
    assert levels == {
        "haulout": "privileged",
        "medik8s-leases": "restricted",
        "machine-maintenance-operator": "baseline",
    }
    (component,) = loaded(DEPLOY / "kustomize" / "components" / "agent" / "kustomization.yaml")
    (patch,) = (yaml.safe_load(item["patch"]) for item in component["patches"])
    assert patch == only_object("Namespace", objects, name="haulout")


# The bundle for the Operator Lifecycle Manager


def bundle(name: str) -> RawObject:
    (found,) = loaded(DEPLOY / "olm" / name)
    return found


CSV = "manifests/node-maintenance-operator.clusterserviceversion.yaml"


def test_bundle_upgrades_the_node_maintenance_operator() -> None:
    annotations = bundle("metadata/annotations.yaml")["annotations"]
    prefix = "operators.operatorframework.io.bundle"
    assert annotations[f"{prefix}.package.v1"] == "node-maintenance-operator"
    assert annotations[f"{prefix}.channels.v1"] == annotations[f"{prefix}.channel.default.v1"] == "stable"
    csv = bundle(CSV)
    assert csv["metadata"]["annotations"]["olm.skipRange"] == ">=0.12.0"
    modes = {install_mode["type"]: install_mode["supported"] for install_mode in csv["spec"]["installModes"]}
    assert modes == {"OwnNamespace": False, "SingleNamespace": False, "MultiNamespace": False, "AllNamespaces": True}
    (deployment,) = csv["spec"]["install"]["spec"]["deployments"]
    assert deployment["name"] == "node-maintenance-operator-controller-manager"
    assert deployment["spec"]["template"]["metadata"]["labels"]["node-maintenance-operator"] == ""
    (hook,) = csv["spec"]["webhookdefinitions"]
    assert (hook["generateName"], hook["containerPort"], hook["targetPort"], hook["timeoutSeconds"]) == (
        "vnodemaintenance.kb.io",
        443,
        9443,
        15,
    )
    assert hook["deploymentName"] == deployment["name"]


def test_bundle_contains_the_crds_that_it_owns() -> None:
    owned = bundle(CSV)["spec"]["customresourcedefinitions"]["owned"]
    for spec_descriptor in owned:
        definition = bundle(f"manifests/{spec_descriptor['name']}.yaml")
        assert spec_descriptor["version"] in [version["name"] for version in definition["spec"]["versions"]]
    (maintenance,) = [spec_descriptor for spec_descriptor in owned if spec_descriptor["kind"] == "NodeMaintenance"]
    described = {
        part: [spec_descriptor["path"] for spec_descriptor in maintenance[f"{part}Descriptors"]]
        for part in ("spec", "status")
    }
    assert described["spec"][:2] == ["nodeName", "reason"]
    of_nmo = {"phase", "drainProgress", "lastUpdate", "lastError", "pendingPods", "totalpods", "evictionPods"}
    assert of_nmo <= set(described["status"])
    assert all(spec_descriptor["description"] for spec_descriptor in maintenance["specDescriptors"])
    (example,) = json.loads(bundle(CSV)["metadata"]["annotations"]["alm-examples"])
    assert example["kind"] == maintenance["kind"]


def test_bundle_grants_required_permissions_where_olm_can() -> None:
    """In the operator's namespace and cluster-wide: OLM supports no others. OLM provides the certificates."""
    spec = bundle(CSV)["spec"]["install"]["spec"]
    (cluster,), (home,) = spec["clusterPermissions"], spec["permissions"]
    names = {item["serviceAccountName"] for item in (cluster, home)}
    assert names == {spec["deployments"][0]["spec"]["template"]["spec"]["serviceAccountName"]}
    granted = granted_permissions(
        {"metadata": {"namespace": namespace}, "rules": item["rules"]}
        for namespace, item in ((None, cluster), ("ops", home))
    )
    for needed in permissions.operator_permissions(namespace="ops", own_certificate=False):
        for verb in needed.verbs:
            assert any(item.covers(needed, verb) for item in granted), f"{verb} {needed}"
    assert not any("*" in item.verbs or item.resource == "secrets" for item in granted)


def test_bundle_image_labels_equal_its_annotations() -> None:
    dockerfile = (DEPLOY / "olm" / "bundle.Dockerfile").read_text()
    for name, value in bundle("metadata/annotations.yaml")["annotations"].items():
        assert f"LABEL {name}={value}\n" in dockerfile
    for folder in ("manifests", "metadata", "tests/scorecard"):
        assert f"COPY {folder} /{folder}/" in dockerfile
        assert (DEPLOY / "olm" / folder).is_dir()


# Pods


def test_operator_pod_has_a_restricted_security_context() -> None:
    pod = workload.deployment(image="x", namespace="ops")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any(pod.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))


# Generation of templates


def test_templates_render_conditionals_expressions_and_ranges() -> None:
    written = text(
        {
            "a": Expression(".x"),
            "b": IndentedExpression("toYaml .y"),
            "c": Conditional(".c", True, False),
            "l": [
                Commented("why", {"x": "{{ .a }}/b", "verbs": ["get", "true"]}),
                Conditional(".q", [{"k": 1}], keyword="range"),
                IndentedExpression("toYaml .z"),
            ],
            "d": {},
            "e": [],
        }
    )
    assert written == (
        "a: {{ .x }}\n"
        "b:\n  {{- toYaml .y | nindent 2 }}\n"
        "{{- if .c }}\nc: true\n{{- else }}\nc: false\n{{- end }}\n"
        "l:\n  # why\n  - x: '{{ .a }}/b'\n    verbs: [get, 'true']\n"
        "  {{- range .q }}\n  - k: 1\n  {{- end }}\n"
        "  {{- toYaml .z | nindent 2 }}\n"
        "d: {}\ne: []\n"
    )
    assert document({"a": 1}, when=".x") == "{{- if .x }}\n---\na: 1\n{{- end }}\n"
