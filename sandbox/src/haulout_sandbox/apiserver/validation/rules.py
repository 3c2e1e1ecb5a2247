"""Which texts are what: keys and values of labels, names of ports, addresses; in the words of the API server.

Every function returns what is wrong with a text, nothing if it is right. Labels and names repeat themselves in a
cluster, so what was found about a text is kept.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from haulout_sandbox.apiserver.names import label_value_problems, qualified_problems, subdomain_problems

Problems = tuple[str, ...]
Rule = Callable[[str], Problems]

_KEPT = 16384
_LONGEST_SUBDOMAIN, _LONGEST_LABEL, _LONGEST_PORT = 253, 63, 15
_MOST_PORT = 65535
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_UNDERSCORED = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORED_SUBDOMAIN = rf"{_UNDERSCORED}(\.{_UNDERSCORED})*"
_PERCENT, _HEADER, _CONFIG_KEY = "[0-9]+%", "[-A-Za-z0-9]+", "[-._a-zA-Z0-9]+"
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def _matches(pattern: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(pattern).fullmatch


def _rule(said: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{said} (e.g. {shown}regex used for validation is '{pattern}')"


_is_dns_label = _matches(_DNS_LABEL)
_is_percent, _is_header, _is_config_key, _is_http_path = map(_matches, (_PERCENT, _HEADER, _CONFIG_KEY, _HTTP_PATH))
_is_underscored = _matches(_UNDERSCORED_SUBDOMAIN)
_DNS_LABEL_RULE = _rule(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character",
    _DNS_LABEL,
    "my-name",
    "123-abc",
)
_UNDERSCORED_RULE = _rule(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character",
    _UNDERSCORED_SUBDOMAIN,
    "example.com",
)
_PERCENT_RULE = _rule(
    "a valid percent string must be a numeric string followed by an ending '%'", _PERCENT, "1%", "93%"
)
_HEADER_RULE = _rule("a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name")
_CONFIG_KEY_RULE = _rule(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_VARIABLE_RULE = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def too_long(text: str, most: int, *, unit: str = "characters") -> Problems:
    """Return a complaint if `text` has more bytes than that."""
    return (f"must be no more than {most} {unit}",) if len(text.encode()) > most else ()


@lru_cache(_KEPT)
def dns_label(text: str) -> Problems:
    """Return why a text is no label of a name in DNS (RFC 1123)."""
    found = too_long(text, _LONGEST_LABEL)
    if _is_dns_label(text):
        return found
    # As in Go, who sees a subdomain where a label should be is told about the dots.
    return (*found, _DNS_LABEL_RULE if subdomain_problems(text) else "must not contain dots")


@lru_cache(_KEPT)
def subdomain(text: str) -> Problems:
    """Return why a text is no name in DNS (RFC 1123): labels with dots between them."""
    return tuple(subdomain_problems(text))


def long_name(text: str) -> Problems:
    """Return what is wrong with a subdomain, as the newer rules of the server have it."""
    return tuple(
        problem.replace("characters", "bytes") if "no more than" in problem else problem for problem in subdomain(text)
    )


def underscored_subdomain(text: str) -> Problems:
    """Return what is wrong with a domain to search names in, which may have underscores."""
    found = too_long(text, _LONGEST_SUBDOMAIN)
    return found if _is_underscored(text) else (*found, _UNDERSCORED_RULE)


@lru_cache(_KEPT)
def qualified_name(text: str) -> Problems:
    """Return why a text is no key of a label: a name, with or without a domain in front."""
    return tuple(qualified_problems(text))


@lru_cache(_KEPT)
def label_value(text: str) -> Problems:
    """Return why a text is no value of a label."""
    return tuple(label_value_problems(text))


def path_segment(text: str) -> Problems:
    """Return why a text cannot be part of a URL."""
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{bad}'" for bad in "/%" if bad in text)


def port_number(number: int) -> Problems:
    """Return why a number is no port."""
    return () if 1 <= number <= _MOST_PORT else (between(1, _MOST_PORT),)


@lru_cache(_KEPT)
def port_name(text: str) -> Problems:
    """Return why a text is no name of a port (RFC 6335)."""
    found = too_long(text, _LONGEST_PORT)
    if not re.fullmatch("[-a-z0-9]+", text):
        found += ("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",)
    if not re.search("[a-z]", text):
        found += ("must contain at least one letter (a-z)",)
    if "--" in text:
        found += ("must not contain consecutive hyphens",)
    if text.startswith("-") or text.endswith("-"):
        found += ("must not begin or end with a hyphen",)
    return found


def variable_name(text: str) -> Problems:
    """Return why a text is no name of an environment variable."""
    return () if text.isascii() and text.isprintable() and "=" not in text else (_VARIABLE_RULE,)


@lru_cache(_KEPT)
def config_key(text: str) -> Problems:
    """Return why a text is no key in a ConfigMap or a Secret, which may become the name of a file."""
    found = too_long(text, _LONGEST_SUBDOMAIN)
    if not _is_config_key(text):
        found += (_CONFIG_KEY_RULE,)
    if text in (".", ".."):
        return (*found, f"must not be '{text}'")
    return (*found, "must not start with '..'") if text.startswith("..") else found


def percent(text: str) -> Problems:
    """Return why a text is no percentage."""
    return () if _is_percent(text) else (_PERCENT_RULE,)


def header_name(text: str) -> Problems:
    """Return why a text is no name of an HTTP header."""
    return () if _is_header(text) else (_HEADER_RULE,)


def http_path(text: str) -> Problems:
    """Return why a text cannot follow the host of a URL."""
    return () if _is_http_path(text) else (f"Invalid path (regex used for validation is '{_HTTP_PATH}')",)


def between(least: int, most: int) -> str:
    """Return what a number outside of its range is told."""
    return f"must be between {least} and {most}, inclusive"


def address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an IP address; leading zeros, which old fields allow, are no octal numbers."""
    try:
        return ip_address(_without_zeros(text))
    except ValueError:
        return None


def network(text: str) -> IPv4Network | IPv6Network | None:
    """Return what a CIDR says; bits of the host may be set."""
    if "/" not in text:
        return None
    try:
        return ip_network(_without_zeros(text), strict=False)
    except ValueError:
        return None


def is_dual(families: Iterable[int]) -> bool:
    """Tell whether there is one of each IP family."""
    return sorted(families) == [4, 6]


def _without_zeros(text: str) -> str:
    return re.sub(r"(?<![0-9a-fA-F:])0+(?=[0-9])", "", text) if "." in text and ":" not in text else text
