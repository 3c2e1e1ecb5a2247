"""The Helm chart: the operator's objects as templates that depend on values.

    files("0.1.0")          # by path in the chart

Names are those of `haulout manifests`, whatever the name of the release: a cluster has one operator, and users who
applied those manifests, or come from the Node Maintenance Operator, find all objects under the same names.
"""

import yaml

from haulout.api.objects import RawObject
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.workload import NAME
from tools.packages.helm import agent, network, operator, roles, values
from tools.packages.helm.gotemplate import document
from tools.packages.helm.settings import SETTINGS
from tools.packages.semver import to_semver

GENERATED_HEADER = "{{- /* Made by `make packages` from tools.packages: edit that. */}}\n"
HANDWRITTEN = ("NOTES.txt", "_helpers.tpl", "crds.yaml")  # templates that are more logic than objects


def files(version: str, *, alerts: RawObject | None = None, dashboard: str = "") -> dict[str, str]:
    """Return the generated files by path; `alerts` is the spec of a PrometheusRule, `dashboard` the Grafana JSON."""
    crds = {crd["metadata"]["name"]: crd for crd in operator_manifests.definitions(with_machines=True)}
    return {
        "Chart.yaml": _chart(version),
        "README.md": _readme(),
        "values.yaml": values.as_yaml(SETTINGS),
        "values.schema.json": values.as_schema(SETTINGS),
        **{f"files/crds/{name}.yaml": operator_manifests.as_yaml([crd]) for name, crd in crds.items()},
        **({"files/alerts.yaml": operator_manifests.as_yaml([alerts]).removeprefix("---\n")} if alerts else {}),
        **({"files/dashboard.json": dashboard} if dashboard else {}),
        **{f"templates/{name}.yaml": GENERATED_HEADER + text for name, text in _templates().items()},
    }


def _templates() -> dict[str, str]:
    return {
        "namespaces": operator.namespaces(),
        "account": document(operator.account(), when=".Values.serviceAccount.create"),
        "roles": roles.templates(),
        "people": operator.people(),
        "configuration": operator.configuration(),
        "deployment": document(operator.deployment()),
        "disruptionbudget": document(operator.disruption_budget(), when=".Values.podDisruptionBudget.enabled"),
        "services": network.services(),
        "webhook": network.webhook(),
        "networkpolicy": document(network.network_policy(), when=".Values.networkPolicy.enabled"),
        "ingress": document(network.ingress(), when=".Values.ingress.enabled"),
        "monitoring": network.monitoring(),
        "agent": agent.templates(),
    }


def _chart(version: str) -> str:
    chart = {
        "apiVersion": "v2",
        "name": NAME,
        "description": "Node maintenance for Kubernetes: cordon, drain, repair and return nodes",
        "type": "application",
        "version": to_semver(version),
        "appVersion": version,
        "kubeVersion": ">=1.25.0-0",
        "keywords": ["node", "maintenance", "drain", "operator"],
        "annotations": {"artifacthub.io/license": "Apache-2.0", "artifacthub.io/operator": "true"},
    }
    return "# Made by `make packages`.\n" + yaml.safe_dump(chart, sort_keys=False, width=120)


def _readme() -> str:
    return (
        "# Haulout Helm chart\n\n<!-- made by `make packages` from tools.packages.helm.settings: edit that -->\n\n"
        "[Install, upgrade or uninstall the chart](../../../docs/operations/install.md). Its values are:\n\n"
        + values.as_tables(SETTINGS)
    )
