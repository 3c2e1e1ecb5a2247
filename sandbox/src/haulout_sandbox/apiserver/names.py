"""Which names are names: the rules of DNS and of labels, in the words of the API server."""

import re

METADATA_FIELDS = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)  # in the order of the Go type

_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253
_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_LABEL}')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_WORD = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_WORDY = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. '{}',  or '{}',  or '{}', regex used for validation is '{}')"
)
_KEY_RULE = f"must {_WORDY.format('MyName', 'my.name', '123-abc', _WORD)}"
_VALUE_RULE = f"a valid label must be an empty string or {_WORDY.format('MyValue', 'my_value', '12345', f'({_WORD})?')}"


def label_problems(name: str) -> list[str]:
    """Return why `name` is no DNS-1035 label."""
    return _problems(name, _LABEL, _LABEL_RULE, f"{_LONGEST_LABEL} characters")


def subdomain_problems(name: str) -> list[str]:
    """Return why `name` is no RFC 1123 subdomain."""
    return _problems(name, _SUBDOMAIN, _SUBDOMAIN_RULE, f"{_LONGEST_SUBDOMAIN} characters")


def qualified_problems(name: str) -> list[str]:
    """Return why `name` is no key of a label, nor of an annotation, nor a finalizer: `example.com/name`."""
    prefix, slash, rest = name.rpartition("/")
    if "/" in prefix:
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_KEY_RULE} {optional}"]
    found = []
    if slash:
        found += [f"prefix part {it}" for it in (subdomain_problems(prefix) if prefix else ["must be non-empty"])]
    if not rest:
        found.append("name part must be non-empty")
    return found + [f"name part {it}" for it in _problems(rest, _WORD, _KEY_RULE, f"{_LONGEST_LABEL} bytes")]


def label_value_problems(value: str) -> list[str]:
    """Return why `value` is none that a label can have."""
    return _problems(value, f"({_WORD})?", _VALUE_RULE, f"{_LONGEST_LABEL} bytes")


def _problems(name: str, shape: str, rule: str, longest: str) -> list[str]:
    found = [f"must be no more than {longest}"] if len(name.encode()) > int(longest.partition(" ")[0]) else []
    return found if re.fullmatch(shape, name) else [*found, rule]
