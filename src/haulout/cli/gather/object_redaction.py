"""Redact secrets in the objects of a support archive. Pure.

Secrets themselves are never read. But users put passwords into ConfigMaps, variables, arguments and annotations, and
programs log them. `haulout.core.redaction` decides what is secret. The last applied configuration is left out, because
it repeats the whole object.
"""

from collections.abc import Mapping
from typing import Any

from haulout.api.objects import RawObject
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.redaction import redact_config
from haulout.core.redaction import REDACTED, FileRedactor, is_secret_name, redact, redact_arguments

_OMITTED_KEYS = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_NAME_KEYS = ("name", "key")  # of a variable or a header, beside its `value`


def redact_object(obj: RawObject, registries: Registries) -> RawObject:
    """Return an object without secrets; a Secret keeps its keys."""
    redacted_obj: RawObject = _redact_value(obj, is_secret=False)
    if obj.get("kind") == "ConfigMap":
        texts = obj.get("data") or {}
        redacted_obj["data"] = {name: _redact_file(name, str(text), registries) for name, text in texts.items()}
        redacted_obj.pop("binaryData", None)
    return redacted_obj


def _redact_value(value: Any, *, is_secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _redact_value(item, is_secret=is_secret or _is_secret(key, value))
            for key, item in value.items()
            if key not in _OMITTED_KEYS
        }
    if isinstance(value, list) and not is_secret and value and all(isinstance(item, str) for item in value):
        return redact_arguments(value)
    if isinstance(value, list):
        return [_redact_value(item, is_secret=is_secret) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if is_secret:
        return REDACTED if value != "" else value
    return redact(value) if isinstance(value, str) else value


def _is_secret(key: str, mapping: Mapping[str, Any]) -> bool:
    """Return whether the value of a key is secret: by the key, or by the name beside a `value`."""
    if mapping.get("kind") == "Secret" and key in ("data", "stringData"):
        return True
    if key == "value":
        return any(is_secret_name(str(mapping.get(item, ""))) for item in _NAME_KEYS)
    value = mapping[key]
    # A mapping with such a name is a reference to a Secret: secretKeyRef, imagePullSecrets.
    is_reference = isinstance(value, Mapping) or (
        isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
    )
    return not is_reference and is_secret_name(key)


def _redact_file(name: str, text: str, registries: Registries) -> str:
    """Redact a file of a ConfigMap: a configuration by the options of its plugins, anything else line by line."""
    if is_secret_name(name):
        return REDACTED
    if name.endswith((".yaml", ".yml")):
        return redact(redact_config(text, registries).text)
    return redact(FileRedactor((), set()).redact(text))
