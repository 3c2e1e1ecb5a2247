"""All packages, as files: what is made, where it goes, and what is there that is made no more."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from haulout.app import manifests
from haulout.app.manifests import Installation
from haulout.app.workload import NAME
from haulout.kube.objects import RawObject
from tools.packages import argocd, bundle, chart, kustomize

ALERTS = "prometheus/alerts.yaml"  # made with the metrics that they are about
DASHBOARD = "grafana/haulout.json"  # the same
HEALTH = "argocd/health.lua"
BY_HAND = (HEALTH, *(f"helm/haulout/{it}" for it in (".helmignore", *(f"templates/{it}" for it in chart.BY_HAND))))
_MADE = "# Made by `make packages`.\n"


def files(folder: Path, version: str) -> Mapping[str, str]:
    """Return all files by their paths in `folder`, which has the alerts and the dashboard of metrics already."""
    image = f"{NAME}:{version}"
    dashboard = _text(folder / DASHBOARD)
    alerts = _alerts(folder / ALERTS)
    plain = manifests.everything(Installation(image=image))
    return {
        **_definitions(),
        "argocd/argocd-cm.yaml": _MADE
        + argocd.patch(manifests.definitions(with_machines=True), _text(folder / HEALTH)),
        f"manifests/{NAME}.yaml": _MADE + manifests.as_yaml(plain),
        **_under("helm/haulout", chart.files(version, alerts=alerts, dashboard=dashboard)),
        **_under("kustomize", kustomize.files(image, alerts=alerts)),
        **_under("olm", bundle.files(image, version)),
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
    ours = ("argocd", "crds", "helm", "kustomize", "manifests", "olm")
    there = (it for name in ours for it in sorted((folder / name).rglob("*")) if it.is_file())
    paths = (it.relative_to(folder).as_posix() for it in there)
    return [it for it in paths if it not in wanted and it not in BY_HAND]


def _definitions() -> dict[str, str]:
    """Return the CustomResourceDefinitions, which kustomize lists but for those of OpenShift."""
    usual = [it["metadata"]["name"] for it in manifests.definitions()]
    whole = {it["metadata"]["name"]: it for it in manifests.definitions(with_machines=True)}
    listed = "".join(f"- {name}.yaml\n" for name in usual)
    header = f"{_MADE}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
    return {
        "crds/kustomization.yaml": header + listed,
        **{f"crds/{name}.yaml": _MADE + manifests.as_yaml([it]) for name, it in whole.items()},
    }


def _alerts(file: Path) -> RawObject | None:
    """Return the groups of rules, whether they come as a PrometheusRule or for Prometheus itself."""
    found = yaml.safe_load(_text(file))
    return found and {"groups": found.get("spec", found)["groups"]}


def _text(file: Path) -> str:
    return file.read_text() if file.is_file() else ""


def _under(folder: str, found: Mapping[str, str]) -> dict[str, str]:
    return {f"{folder}/{path}": text for path, text in found.items()}
