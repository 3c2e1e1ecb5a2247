"""Renders the Helm chart with the real helm, and evaluates the permissions that it grants.

rendered = render_chart({"replicas": 3})
granted_permissions(operator_roles(rendered))
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from haulout.api.objects import RawObject
from haulout.kube import rbac
from haulout.kube.rbac import Permission

REPOSITORY = Path(__file__).parents[3]
DEPLOY = REPOSITORY / "deploy"
CHART = DEPLOY / "helm" / "haulout"
HELM = Path(sys.executable).parent / "helm"
RELEASE, NAMESPACE = "haulout", "ops"

BUDGET = "budget: [{max: 2}]"
ALL_VALUES: dict[str, Any] = {
    "image": {"registry": "registry.example/team", "variant": "oci", "tag": "1", "pullSecrets": [{"name": "pull"}]},
    "replicas": 3,
    "profiles": {"config": BUDGET, "secret": "tokens"},
    "machines": {
        "enabled": True,
        "lead": "2h",
        "window": "{start: '22:00', end: '06:00'}",
        "surge": True,
        "kinds": "Stop",
    },
    "kubernikus": {"enabled": True, "secret": "kube-system/cloud-provider"},
    "clouds": {
        "env": {"QUEUE_URL": "https://sqs.example/1/q"},
        "secret": "aws-keys",
        "awsSecret": "kube-system/aws-cloud-credentials",
        "ociHandlerNamespace": "handlers",
    },
    "webhook": {"certificate": {"from": "cert-manager"}, "failurePolicy": "Ignore", "timeoutSeconds": 5},
    "metrics": {
        "readers": [{"namespace": "monitoring", "name": "prometheus-k8s"}],
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
    },
    "networkPolicy": {
        "from": [{"namespaceSelector": {"matchLabels": {"team": "sre"}}}],
        "probesFrom": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
    },
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "hosts": [{"host": "m.example.com"}],
        "tls": [{"secretName": "t"}],
    },
    "serviceAccount": {"name": "sailor", "annotations": {"role": "arn:1"}},
    "rbac": {"extraRules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}]},
    "quorumCheck": False,
    "affinity": {"nodeAffinity": {}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "podLabels": {"team": "sre"},
    "podAnnotations": {"note": "1"},
    "commonLabels": {"cost": "shared"},
    "extraArgs": ["--log-format=text"],
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraVolumes": [{"name": "oci", "secret": {"secretName": "oci"}}],
    "extraVolumeMounts": [{"name": "oci", "mountPath": "/oci"}],
}
MINIMAL_VALUES: dict[str, Any] = {
    "replicas": 1,
    "crds": {"install": False},
    "webhook": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "serviceAccount": {"create": False},
    "rbac": {"create": False, "people": False},
    "leases": {"createNamespace": False},
    "priorityClassName": "",
    "tolerations": [],
}

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the first is many times faster

AllowedVerb = tuple[str | None, str, str, tuple[str, ...], str]


class HelmFailed(AssertionError):
    """Helm failed; the message is its output."""


def helm(*args: str, kubeconfig: Path | None = None, check: bool = True) -> str:
    """Run helm; return what it prints."""
    # Nothing of the user's is read or written.
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": "/usr/bin:/bin", "KUBECONFIG": str(kubeconfig or Path(home, "none"))}
        done = subprocess.run([HELM, *args], env=environment, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise HelmFailed(done.stderr)
    return done.stdout + done.stderr


def render_chart(
    values: Mapping[str, Any] | None = None, *, chart: Path = CHART, definitions: bool = False
) -> list[RawObject]:
    """Return the rendered chart with these values; with its definitions, which take longest to read, only on demand."""
    flags = () if definitions else ("--set", "crds.install=false")
    with values_file(values or {}) as file:
        text = helm("template", RELEASE, str(chart), "--namespace", NAMESPACE, "--values", str(file), *flags)
    return [obj for obj in yaml.load_all(text, Loader=_LOADER) if obj]


class values_file:  # noqa: N801 - reads as a function where it is used
    """Write a file with values that exists until the context ends."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name, "values.yaml")
        self._file.write_text(yaml.safe_dump(dict(values)))

    def __enter__(self) -> Path:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def only_object(kind: str, objects: Iterable[RawObject], *, name: str = "") -> RawObject:
    """Return the only object of a kind, or of a name."""
    (found,) = [obj for obj in objects if obj["kind"] == kind and name in ("", obj["metadata"]["name"])]
    return found


def operator_roles(objects: Iterable[RawObject], *, account: str = "haulout") -> Iterator[RawObject]:
    """Yield the roles that are bound to the operator."""
    by_identity = {(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]): obj for obj in objects}
    for (kind, namespace, _), obj in by_identity.items():
        if kind.endswith("RoleBinding") and obj["subjects"][0]["name"] == account:
            yield by_identity[kind.removesuffix("Binding"), namespace, obj["roleRef"]["name"]]


def granted_permissions(roles: Iterable[RawObject]) -> list[Permission]:
    """Return what roles grant."""
    return [
        Permission(
            tuple(rule["verbs"]),
            group,
            resource,
            role["metadata"].get("namespace"),
            "",
            names=tuple(rule.get("resourceNames", ())),
        )
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]


def allowed_verbs(granted: Sequence[Permission]) -> set[AllowedVerb]:
    """Return the allowed verbs of permissions in a normalized form."""
    return {
        (permission.namespace, permission.group, permission.resource, tuple(sorted(permission.names)), verb)
        for permission in rbac.without_redundant(granted)
        for verb in permission.verbs
    }
