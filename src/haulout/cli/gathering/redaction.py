"""Strikes secrets out of whatever goes into an archive. Pure.

    redacted(obj, registries)           # an object of Kubernetes
    legible(text)                       # a log, or what else people wrote

Secrets themselves are never asked for. But people put passwords into ConfigMaps, variables, arguments and annotations,
and programs log them. So what is called a secret is struck out wherever it stands, and so is what looks like one
whatever it is called. What is left out for good is what repeats all of that: the last applied configuration.
"""

import re
from collections.abc import Mapping
from typing import Any

from haulout.kube.objects import RawObject
from haulout.profiles.config import Registries
from haulout.profiles.struck import strike
from haulout.profiles.struck_lines import HIDDEN, Lines, is_telling, obvious

_LEFT_OUT = frozenset({"managedFields"})
_REPEATS = "kubectl.kubernetes.io/last-applied-configuration"
# They name where a secret is, or how long one lasts: what it says is not there.
_HARMLESS = frozenset(
    {
        "secretName",
        "secretNamespace",
        "automountServiceAccountToken",
        "webhook",
        "tokenExpirationSeconds",
        "pendingWebhooks",
    }
)
_LOOKS_SECRET = (
    re.compile(r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),  # a JSON web token
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),  # a key of AWS
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?<=ocid1\.credential\.)[\w.-]+"),
)
_TELLING = r"token|passw(?:or)?d?|passphrase|secret|api[_-]?key|private[_-]?key|authorization|credentials?"
_NAMED = re.compile(
    rf"(?P<name>[\w-]{{0,40}}(?:{_TELLING})[\w-]{{0,40}}[\"']?\s{{0,3}}[:=]\s{{0,3}})"
    rf"(?!{re.escape(HIDDEN)})(?P<value>(?:Basic|Bearer)\s+[^\s\"',;&]+|\"[^\"\n]{{1,4000}}\"|'[^'\n]{{1,4000}}'|[^\s\"',;&)}}\]]+)",
    re.IGNORECASE,
)


def legible(text: str) -> str:
    """Return a text without what is called a secret, or looks like one."""
    for look in _LOOKS_SECRET:
        text = look.sub(HIDDEN, text)
    return _NAMED.sub(rf"\g<name>{HIDDEN}", obvious(text))


def redacted(obj: RawObject, registries: Registries) -> RawObject:
    """Return an object without secrets; one that is a Secret keeps the names of what it holds."""
    plain: RawObject = _plain(obj, is_secret=False)
    if obj.get("kind") == "ConfigMap":
        texts = obj.get("data") or {}
        plain["data"] = {name: _file(name, str(text), registries) for name, text in texts.items()}
        plain.pop("binaryData", None)
    return plain


def _plain(value: Any, *, is_secret: bool) -> Any:
    if isinstance(value, str):
        return HIDDEN if is_secret and value else legible(value)
    if isinstance(value, list):
        return [_plain(it, is_secret=is_secret) for it in value]
    if not isinstance(value, Mapping):
        return HIDDEN if is_secret and isinstance(value, bytes) else value
    return {
        key: _plain(it, is_secret=is_secret or _is_secret(key, value))
        for key, it in value.items()
        if key not in _LEFT_OUT and key != _REPEATS
    }


def _is_secret(key: str, beside: Mapping[str, Any]) -> bool:
    """Tell whether what stands under a key is secret: by its name, or as the value of a variable, by the variable's."""
    if beside.get("kind") == "Secret" and key in ("data", "stringData"):
        return True
    if key in _HARMLESS:
        return False
    if key == "value":
        return is_telling(str(beside.get("name", "")))
    return is_telling(key) and isinstance(beside[key], str)


def _file(name: str, text: str, registries: Registries) -> str:
    """Return a file of a ConfigMap without secrets: a configuration as plugins tell, anything else line by line."""
    if is_telling(name):
        return HIDDEN
    if name.endswith((".yaml", ".yml")):
        return legible(strike(text, registries).text)
    return legible(Lines((), set()).anywhere(text))
