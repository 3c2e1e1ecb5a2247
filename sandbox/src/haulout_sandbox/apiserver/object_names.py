"""Validation of names: of objects, labels, and other values with the same format."""

import re
from functools import lru_cache

_MAX_LABEL, _MAX_SUBDOMAIN = 63, 253
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_QUALIFIED_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LETTERS = "lower case letters, digits and '-'"
_QUALIFIED_NAME_RULE = "must be letters, digits, '-', '_' and '.', and begin and end with a letter or a digit"
_DNS_RULE = f"a DNS label must be {_LETTERS}, and begin and end with a letter or a digit"
_SUBDOMAIN_RULE = f"a DNS subdomain must be {_LETTERS} or '.', and begin and end with a letter or a digit"


def segment_problem(name: str) -> str:
    """Return why a name cannot be a path segment, or an empty string."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return ", ".join(f"may not contain '{character}'" for character in "/%" if character in name)


def segment_problems(name: str) -> list[str]:
    """Return why a name cannot be a path segment."""
    problem = segment_problem(name)
    return [problem] if problem else []


def dns1123_label_problems(name: str) -> list[str]:
    return _problems(name, _DNS_LABEL, _DNS_RULE, _MAX_LABEL)


def dns1123_subdomain_problems(name: str) -> list[str]:
    return _problems(name, _SUBDOMAIN, _SUBDOMAIN_RULE, _MAX_SUBDOMAIN)


def qualified_name_problems(name: str) -> list[str]:
    """Return why `name` is no qualified name (label key, annotation key, finalizer): `example.com/name`."""
    prefix, slash, rest = name.rpartition("/")
    problems = [f"prefix part: {problem}" for problem in dns1123_subdomain_problems(prefix)] if slash else []
    return problems + [
        f"name part: {problem}" for problem in _problems(rest, _QUALIFIED_NAME, _QUALIFIED_NAME_RULE, _MAX_LABEL)
    ]


def label_value_problems(value: str) -> list[str]:
    return _problems(value, f"({_QUALIFIED_NAME})?", _QUALIFIED_NAME_RULE, _MAX_LABEL)


@lru_cache(16384)  # a cluster has few distinct names and labels
def _cached_problems(name: str, pattern: str, rule: str, max_length: int) -> tuple[str, ...]:
    problems = (f"must be no more than {max_length} characters",) if len(name.encode()) > max_length else ()
    return problems if re.fullmatch(pattern, name) else (*problems, rule)


def _problems(name: str, pattern: str, rule: str, max_length: int) -> list[str]:
    return list(_cached_problems(name, pattern, rule, max_length))
