"""Shared parts of the chart's templates: names, labels, and values that are passed on unchanged."""

from typing import Any

from haulout.api.objects import RawObject
from haulout.app.components import ComponentType
from haulout.app.manifests.workload import NAME
from haulout.runtime.component import SettingsFile
from tools.packages.helm.gotemplate import Conditional, IndentedExpression

HOME = "{{ .Release.Namespace }}"
ACCOUNT = "{{ $.Values.serviceAccount.name }}"
LABELS = IndentedExpression('include "haulout.labels" $')
_FROM = ".Values.webhook.certificate.from"
IS_FROM_CERT_MANAGER = f'eq {_FROM} "cert-manager"'  # the source of the webhook's certificate
IS_FROM_SECRET = f'eq {_FROM} "secret"'
IS_MOUNTED = f'and .Values.webhook.enabled (ne {_FROM} "self")'
IS_BEHIND_PROXY = 'eq .Values.dashboard.auth "proxy"'


def is_enabled(kind: ComponentType) -> str:
    """Return the condition under which a component runs."""
    return f".Values.{kind.name}.enabled"


def object_key(file: SettingsFile) -> str:
    """Return the key of the value that names the ConfigMap or Secret with a settings file."""
    return "secretName" if file.is_secret else "configMap"


def metadata(name: Any) -> RawObject:
    """Return the metadata of an object in the operator's namespace."""
    return {"name": name, "namespace": HOME, "labels": LABELS}


def metadata_with_labels(path: str) -> RawObject:
    """Return metadata with the user's labels, by which others select the object."""
    return metadata(NAME) | {"labels": IndentedExpression(f'include "haulout.labelsAnd" (list . .Values.{path})')}


def value(path: str) -> IndentedExpression:
    return IndentedExpression(f"toYaml .Values.{path}")


def value_if_set(path: str, *, otherwise: Any = None) -> Conditional:
    """Return a value if it is not empty, or else `otherwise`."""
    return Conditional(f".Values.{path}", value(path), otherwise)
