"""Which names are names: the rules of DNS, in the words of the API server."""

import re

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


def label_problems(name: str) -> list[str]:
    """Return why `name` is no DNS-1035 label."""
    return _problems(name, _LABEL, _LABEL_RULE, _LONGEST_LABEL)


def subdomain_problems(name: str) -> list[str]:
    """Return why `name` is no RFC 1123 subdomain."""
    return _problems(name, _SUBDOMAIN, _SUBDOMAIN_RULE, _LONGEST_SUBDOMAIN)


def _problems(name: str, shape: str, rule: str, longest: int) -> list[str]:
    found = [f"must be no more than {longest} characters"] if len(name.encode()) > longest else []
    return found if re.fullmatch(shape, name) else [*found, rule]
