"""Decides by the name of a variable, key, flag or header whether its value is secret."""

import re

_MAX_LENGTH = 256  # characters of a name, counted from its end, which is the significant part
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SEPARATORS = re.compile(r"[^a-z0-9]+")
# Secret wherever they occur in a name, also without separators: dbpassword, authToken, AWS_SECRET_ACCESS_KEY.
_STEMS = re.compile(
    "token|passw|passphrase|passcode|secret|credential|authorization|cookie|connectionstring"
    "|(?:api|private|access|account|shared|signing|encryption|master|client|session|routing|integration|genie)key"
)
_LAST_WORDS = frozenset({"pwd", "psk", "signature", "masterauth"})
# Last words of names whose value is a location, a kind or a number instead of the secret itself.
_HARMLESS_ENDS = frozenset(
    [
        "name",
        "names",
        "namespace",
        "file",
        "files",
        "path",
        "paths",
        "dir",
        "ref",
        "refs",
        "reference",
        "stdin",
        "seconds",
        "minutes",
        "expiration",
        "expiry",
        "expires",
        "ttl",
        "timeout",
        "count",
        "size",
        "length",
        "limit",
        "enabled",
        "required",
        "type",
        "types",
        "version",
        "mount",
        "mounts",
        "audience",
        "policy",
        "algorithm",
        "review",
        "reviews",
        "webhooks",
    ]
)
_WORDS_IN_PASS = frozenset({"bypass", "compass", "encompass", "overpass", "surpass", "trespass", "underpass"})
_WORKING_DIRECTORIES = frozenset({"PWD", "OLDPWD"})


def is_secret_name(name: str) -> bool:
    """Return whether a value of this name is secret: `DB_PASS`, `db.pass`, `client-key-data`, `slackToken`."""
    if name in _WORKING_DIRECTORIES:
        return False
    name = name[-_MAX_LENGTH:]
    words = [word.lower() for word in _WORDS.findall(name)]
    last = words[-1] if words else ""
    if last in _HARMLESS_ENDS:
        return False
    if last in _LAST_WORDS or (last.endswith("pass") and last not in _WORDS_IN_PASS):
        return True
    return _STEMS.search(_SEPARATORS.sub("", name.lower())) is not None
