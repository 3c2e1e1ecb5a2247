"""Which texts are names: of objects, of labels, of what has a label's form."""

import re
from functools import lru_cache

_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_WORD = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LETTERS = "lower case letters, digits and '-'"
_WORDY = "must be letters, digits, '-', '_' and '.', and begin and end with a letter or a digit"
_LABEL_RULE = f"a DNS label must be {_LETTERS}, begin with a letter and end with a letter or a digit"
_DNS_RULE = f"a DNS label must be {_LETTERS}, and begin and end with a letter or a digit"
_SUBDOMAIN_RULE = f"a DNS subdomain must be {_LETTERS} or '.', and begin and end with a letter or a digit"


def segment_problem(name: str) -> str:
    """Return why a name cannot be part of a path, or nothing."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return ", ".join(f"may not contain '{it}'" for it in "/%" if it in name)


def segment_problems(name: str) -> list[str]:
    """Return why a name cannot be part of a path."""
    found = segment_problem(name)
    return [found] if found else []


def label_problems(name: str) -> list[str]:
    """Return why `name` is no DNS-1035 label."""
    return _problems(name, "[a-z]([-a-z0-9]*[a-z0-9])?", _LABEL_RULE, _LONGEST_LABEL)


def dns_label_problems(name: str) -> list[str]:
    """Return why `name` is no RFC 1123 label."""
    return _problems(name, _DNS_LABEL, _DNS_RULE, _LONGEST_LABEL)


def subdomain_problems(name: str) -> list[str]:
    """Return why `name` is no RFC 1123 subdomain."""
    return _problems(name, _SUBDOMAIN, _SUBDOMAIN_RULE, _LONGEST_SUBDOMAIN)


def qualified_problems(name: str) -> list[str]:
    """Return why `name` is no key of a label, nor of an annotation, nor a finalizer: `example.com/name`."""
    prefix, slash, rest = name.rpartition("/")
    found = [f"prefix part: {it}" for it in subdomain_problems(prefix)] if slash else []
    return found + [f"name part: {it}" for it in _problems(rest, _WORD, _WORDY, _LONGEST_LABEL)]


def label_value_problems(value: str) -> list[str]:
    """Return why `value` is none that a label can have."""
    return _problems(value, f"({_WORD})?", _WORDY, _LONGEST_LABEL)


@lru_cache(16384)  # names and labels repeat themselves in a cluster
def _found(name: str, shape: str, rule: str, longest: int) -> tuple[str, ...]:
    found = (f"must be no more than {longest} characters",) if len(name.encode()) > longest else ()
    return found if re.fullmatch(shape, name) else (*found, rule)


def _problems(name: str, shape: str, rule: str, longest: int) -> list[str]:
    return list(_found(name, shape, rule, longest))
