"""What the templates of the chart have in common: names, labels, and values that are handed on as they are."""

from typing import Any

from haulout.app.workload import NAME
from haulout.kube.objects import RawObject
from tools.packages.gotemplate import Inset, When

HOME = "{{ .Release.Namespace }}"
ACCOUNT = "{{ $.Values.serviceAccount.name }}"
LABELS = Inset('include "haulout.labels" $')
_FROM = ".Values.webhook.certificate.from"
IS_MANAGED = f'eq {_FROM} "cert-manager"'  # the certificate of the webhook
IS_GIVEN = f'eq {_FROM} "secret"'
IS_MOUNTED = f'and .Values.webhook.enabled (ne {_FROM} "self")'
IS_BEHIND_PROXY = 'eq .Values.dashboard.auth "proxy"'


def metadata(name: Any) -> RawObject:
    """Return that of an object in the operator's namespace."""
    return {"name": name, "namespace": HOME, "labels": LABELS}


def labelled(path: str) -> RawObject:
    """Return metadata with labels of the user's, by which others select it."""
    return metadata(NAME) | {"labels": Inset(f'include "haulout.labelsAnd" (list . .Values.{path})')}


def value(path: str) -> Inset:
    """Return a value, as it is."""
    return Inset(f"toYaml .Values.{path}")


def value_if_set(path: str, *, otherwise: Any = None) -> When:
    """Return the same if there is something in it, or else something else."""
    return When(f".Values.{path}", value(path), otherwise)
