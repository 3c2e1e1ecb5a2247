"""Hides secrets in the objects that go into an archive. Pure.

Secrets themselves are never read. But people put passwords into ConfigMaps, variables, arguments and annotations, and
programs log them. What is secret is decided by `haulout.core.redaction`. The last applied configuration is left out,
since it repeats the whole object.
"""

from collections.abc import Mapping
from typing import Any

from haulout.core.redaction import HIDDEN, FileRedactor, is_secret_name, redact, redact_arguments
from haulout.kube.objects import RawObject
from haulout.profiles.config import Registries
from haulout.profiles.struck import strike

_LEFT_OUT = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_NAMES_OF_VALUES = ("name", "key")  # of a variable or a header, beside its `value`


def redacted(obj: RawObject, registries: Registries) -> RawObject:
    """Return an object without secrets; one that is a Secret keeps the names of what it holds."""
    plain: RawObject = _plain(obj, is_secret=False)
    if obj.get("kind") == "ConfigMap":
        texts = obj.get("data") or {}
        plain["data"] = {name: _file(name, str(text), registries) for name, text in texts.items()}
        plain.pop("binaryData", None)
    return plain


def _plain(value: Any, *, is_secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _plain(it, is_secret=is_secret or _is_secret(key, value))
            for key, it in value.items()
            if key not in _LEFT_OUT
        }
    if isinstance(value, list) and not is_secret and value and all(isinstance(it, str) for it in value):
        return redact_arguments(value)
    if isinstance(value, list):
        return [_plain(it, is_secret=is_secret) for it in value]
    if isinstance(value, bool) or value is None:
        return value
    if is_secret:
        return HIDDEN if value != "" else value
    return redact(value) if isinstance(value, str) else value


def _is_secret(key: str, beside: Mapping[str, Any]) -> bool:
    """Return whether what stands under a key is secret: by its name, or by the name that stands beside a `value`."""
    if beside.get("kind") == "Secret" and key in ("data", "stringData"):
        return True
    if key == "value":
        return any(is_secret_name(str(beside.get(it, ""))) for it in _NAMES_OF_VALUES)
    value = beside[key]
    # A mapping under such a name refers to a Secret: secretKeyRef, imagePullSecrets.
    is_reference = isinstance(value, Mapping) or (
        isinstance(value, list) and any(isinstance(it, Mapping) for it in value)
    )
    return not is_reference and is_secret_name(key)


def _file(name: str, text: str, registries: Registries) -> str:
    """Return a file of a ConfigMap without secrets: a configuration as its plugins say, anything else line by line."""
    if is_secret_name(name):
        return HIDDEN
    if name.endswith((".yaml", ".yml")):
        return redact(strike(text, registries).text)
    return redact(FileRedactor((), set()).redact(text))
