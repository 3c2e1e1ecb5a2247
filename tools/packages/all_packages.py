"""All packages, as files: what is made, where it goes, and what is there that is made no more."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from haulout.api.objects import RawObject
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.app.manifests.workload import NAME
from tools.packages import argocd, kustomize, olm_bundle
from tools.packages.helm import chart

ALERTS = "prometheus/alerts.yaml"  # made with the metrics that they are about
DASHBOARD = "grafana/haulout.json"  # the same
HEALTH = "argocd/health.lua"
HANDWRITTEN = (
    HEALTH,
    *(f"helm/haulout/{it}" for it in (".helmignore", *(f"templates/{it}" for it in chart.HANDWRITTEN))),
)
_GENERATED_HEADER = "# Made by `make packages`.\n"


def files(folder: Path, version: str) -> Mapping[str, str]:
    """Return all files by their paths in `folder`, which has the alerts and the dashboard of metrics already."""
    image = f"{NAME}:{version}"
    dashboard = _text(folder / DASHBOARD)
    alerts = _alerts(folder / ALERTS)
    operator_objects = operator_manifests.all_objects(Installation(image=image))
    return {
        **_crds(),
        "argocd/argocd-cm.yaml": _GENERATED_HEADER
        + argocd.patch(operator_manifests.definitions(with_machines=True), _text(folder / HEALTH)),
        f"manifests/{NAME}.yaml": _GENERATED_HEADER + operator_manifests.as_yaml(operator_objects),
        **_with_prefix("helm/haulout", chart.files(version, alerts=alerts, dashboard=dashboard)),
        **_with_prefix("kustomize", kustomize.files(image, alerts=alerts)),
        **_with_prefix("olm", olm_bundle.files(image, version)),
    }


def write(folder: Path, version: str) -> Iterator[str]:
    """Write all files, and remove those that are made no more; yield the paths of what has changed."""
    wanted = files(folder, version)
    for path in stale(folder, wanted):
        (folder / path).unlink()
        yield path
    for path, text in wanted.items():
        target = folder / path
        if target.is_file() and target.read_text() == text:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        yield path


def stale(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """Return what lies among the packages, and is neither made nor written by hand."""
    folders = ("argocd", "crds", "helm", "kustomize", "manifests", "olm")
    existing = (path for name in folders for path in sorted((folder / name).rglob("*")) if path.is_file())
    paths = (path.relative_to(folder).as_posix() for path in existing)
    return [path for path in paths if path not in wanted and path not in HANDWRITTEN]


def _crds() -> dict[str, str]:
    """Return the CustomResourceDefinitions, which kustomize lists but for those of OpenShift."""
    default_names = [crd["metadata"]["name"] for crd in operator_manifests.definitions()]
    crds = {crd["metadata"]["name"]: crd for crd in operator_manifests.definitions(with_machines=True)}
    listed = "".join(f"- {name}.yaml\n" for name in default_names)
    header = f"{_GENERATED_HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
    return {
        "crds/kustomization.yaml": header + listed,
        **{f"crds/{name}.yaml": _GENERATED_HEADER + operator_manifests.as_yaml([crd]) for name, crd in crds.items()},
    }


def _alerts(file: Path) -> RawObject | None:
    """Return the groups of rules, whether they come as a PrometheusRule or for Prometheus itself."""
    found = yaml.safe_load(_text(file))
    return found and {"groups": found.get("spec", found)["groups"]}


def _text(file: Path) -> str:
    return file.read_text() if file.is_file() else ""


def _with_prefix(folder: str, found: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{path}": text for path, text in found.items()}
