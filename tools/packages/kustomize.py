"""The kustomization: a base that is what `haulout manifests` prints, and components that are put on top of it."""

import textwrap

from haulout.app import daemon, manifests, workload
from haulout.app.manifests import Installation
from haulout.app.workload import NAME
from haulout.kube.namespaces import PodSecurity, namespace
from haulout.kube.objects import RawObject

_BASE = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
_COMPONENT = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
_MADE = "# Made by `make packages`.\n"


def files(image: str, *, alerts: RawObject | None) -> dict[str, str]:
    """Return the kustomization, by path; `alerts` are the spec of a PrometheusRule."""
    wanted = Installation(image=image)
    with_machines = Installation(image=image, machines=True)
    parts = {
        "operator.yaml": manifests.operator(wanted),
        "roles.yaml": manifests.permissions(wanted),
        "namespaces.yaml": [it for it in manifests.everything(wanted) if it["kind"] in ("Namespace", "ServiceAccount")],
    }
    name, _, tag = image.rpartition(":")
    images = f"images:  # where your registry has it\n- name: {name}\n  newName: {name}\n  newTag: {tag}\n"
    # Labels are not added here: the selectors of a Deployment cannot change, and those of people should not have to.
    base = f"{_MADE}{_BASE}resources:\n- ../../crds\n{_listed(parts)}{images}"
    known = [_key(it) for it in manifests.everything(wanted)]
    machines = [it for it in manifests.everything(with_machines) if _key(it) not in known]
    crds = [it for it in machines if it["kind"] == "CustomResourceDefinition"]
    components = {
        "machines": {"machines.yaml": [it for it in machines if it not in crds], "definition.yaml": crds},
        "agent": {"agent.yaml": daemon.everything(image, NAME)},
        "monitoring": {"monitoring.yaml": [workload.service_monitor(NAME), *_alerts(alerts)]},
    }
    return {
        "base/kustomization.yaml": base,
        **{f"base/{path}": _made(objects) for path, objects in parts.items()},
        **{
            f"components/{name}/kustomization.yaml": f"{_MADE}{_COMPONENT}resources:\n{_listed(its)}{_patches(name)}"
            for name, its in components.items()
        },
        **{
            f"components/{name}/{path}": _made(objects)
            for name, its in components.items()
            for path, objects in its.items()
        },
        "overlays/openshift/kustomization.yaml": _overlay("machines", "monitoring"),
        "overlays/guarded/kustomization.yaml": _overlay("monitoring"),
    }


def _patches(component: str) -> str:
    """Return what a component changes about the base: agents are not let into a restricted namespace."""
    if component != "agent":
        return ""
    patch = manifests.as_yaml([namespace(NAME, PodSecurity.PRIVILEGED)]).removeprefix("---\n")
    return "patches:\n- patch: |\n" + textwrap.indent(patch, "    ")


def _overlay(*components: str) -> str:
    used = "".join(f"- ../../components/{it}\n" for it in components)
    return f"{_MADE}{_BASE}resources:\n- ../../base\ncomponents:\n{used}"


def _alerts(spec: RawObject | None) -> list[RawObject]:
    if spec is None:
        return []
    metadata = {"name": NAME, "namespace": NAME, "labels": workload.LABELS}
    return [{"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": spec}]


def _listed(parts: dict[str, list[RawObject]]) -> str:
    return "".join(f"- {path}\n" for path in parts)


def _made(objects: list[RawObject]) -> str:
    return _MADE + manifests.as_yaml(objects)


def _key(it: RawObject) -> tuple[str, str | None, str]:
    return it["kind"], it["metadata"].get("namespace"), it["metadata"]["name"]
