"""The kustomization: a base that is the output of `haulout manifests`, and optional components."""

import textwrap

from haulout.api.objects import RawObject
from haulout.app.manifests import agent_manifests, operator_manifests, workload
from haulout.app.manifests.operator_manifests import Installation
from haulout.app.manifests.workload import NAME
from haulout.kube.namespaces import PodSecurity, namespace

_BASE = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
_COMPONENT = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
_GENERATED_HEADER = "# Made by `make packages`.\n"


def files(image: str, *, alerts: RawObject | None) -> dict[str, str]:
    """Return the kustomization by path; `alerts` is the spec of a PrometheusRule."""
    installation = Installation(image=image)
    with_machines = Installation(image=image, machines=True)
    files_by_name = {
        "operator.yaml": operator_manifests.operator_objects(installation),
        "roles.yaml": operator_manifests.role_objects(installation),
        "namespaces.yaml": [
            machine
            for machine in operator_manifests.all_objects(installation)
            if machine["kind"] in ("Namespace", "ServiceAccount")
        ],
    }
    name, _, tag = image.rpartition(":")
    images = f"images:  # set newName for your registry\n- name: {name}\n  newName: {name}\n  newTag: {tag}\n"
    # Labels are not added here: the selector of a Deployment is immutable, and selectors of users should not have to
    # change.
    base = f"{_GENERATED_HEADER}{_BASE}resources:\n- ../../crds\n{_resource_list(files_by_name)}{images}"
    known = [_key(machine) for machine in operator_manifests.all_objects(installation)]
    machines = [machine for machine in operator_manifests.all_objects(with_machines) if _key(machine) not in known]
    crds = [machine for machine in machines if machine["kind"] == "CustomResourceDefinition"]
    components = {
        "machines": {
            "machines.yaml": [machine for machine in machines if machine not in crds],
            "definition.yaml": crds,
        },
        "agent": {"agent.yaml": agent_manifests.agent_objects(image, NAME)},
        "monitoring": {"monitoring.yaml": [workload.service_monitor(NAME), *_alerts(alerts)]},
    }
    return {
        "base/kustomization.yaml": base,
        **{f"base/{path}": _generated_yaml(objects) for path, objects in files_by_name.items()},
        **{
            f"components/{name}/kustomization.yaml": (
                f"{_GENERATED_HEADER}{_COMPONENT}resources:\n{_resource_list(objects_by_file)}{_patches(name)}"
            )
            for name, objects_by_file in components.items()
        },
        **{
            f"components/{name}/{path}": _generated_yaml(objects)
            for name, objects_by_file in components.items()
            for path, objects in objects_by_file.items()
        },
        "overlays/openshift/kustomization.yaml": _overlay("machines", "monitoring"),
        "overlays/guarded/kustomization.yaml": _overlay("monitoring"),
    }


def _patches(component: str) -> str:
    """Return what a component changes in the base: a restricted namespace does not admit agents."""
    if component != "agent":
        return ""
    patch = operator_manifests.as_yaml([namespace(NAME, PodSecurity.PRIVILEGED)]).removeprefix("---\n")
    return "patches:\n- patch: |\n" + textwrap.indent(patch, "    ")


def _overlay(*components: str) -> str:
    used = "".join(f"- ../../components/{component}\n" for component in components)
    return f"{_GENERATED_HEADER}{_BASE}resources:\n- ../../base\ncomponents:\n{used}"


def _alerts(spec: RawObject | None) -> list[RawObject]:
    if spec is None:
        return []
    metadata = {"name": NAME, "namespace": NAME, "labels": workload.LABELS}
    return [{"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": spec}]


def _resource_list(parts: dict[str, list[RawObject]]) -> str:
    return "".join(f"- {path}\n" for path in parts)


def _generated_yaml(objects: list[RawObject]) -> str:
    return _GENERATED_HEADER + operator_manifests.as_yaml(objects)


def _key(obj: RawObject) -> tuple[str, str | None, str]:
    return obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]
