"""The proxy of the environment, by the same rules as kubectl.

These are Go's rules (golang.org/x/net/http/httpproxy), not Python's: NO_PROXY may contain networks such as 10.0.0.0/8,
the usual way to exempt a cluster's addresses, `example.com` covers its subdomains, and the local machine is never
proxied.
"""

import contextlib
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from haulout.errors import KubeconfigError

_DEFAULT_PORTS = {"http": 80, "https": 443}


def from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy URL for `server`, or None. Raise `KubeconfigError` if it is invalid."""
    address = urlsplit(server)
    scheme = address.scheme.upper()
    proxy = environ.get(f"{scheme}_PROXY") or environ.get(f"{scheme}_proxy".lower())
    host = (address.hostname or "").lower()
    port = address.port or _DEFAULT_PORTS[address.scheme]
    exempt = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    if not proxy or _is_local(host) or any(_matches(rule.strip().lower(), host, port) for rule in exempt.split(",")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if found_problem := problem(proxy):
        raise KubeconfigError(f"the proxy in {scheme}_PROXY cannot be used: {found_problem}")
    return proxy


def problem(proxy: str) -> str | None:
    """Return why `proxy` is invalid, or None. The text does not repeat the URL, which may contain a password."""
    try:
        address = urlsplit(proxy)
        usable = address.scheme in {"http", "https"} and address.hostname and address.port != 0
    except ValueError:
        return "expected http://host:port"
    if address.scheme.startswith("socks"):
        return "SOCKS proxies are not supported; use an HTTP proxy, http://host:port"
    return None if usable else "expected http://host:port or https://host:port"


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _matches(rule: str, host: str, port: int) -> bool:
    if rule == "*":
        return True
    address = _address(host)
    if address is not None:
        with contextlib.suppress(ValueError):
            return address in ipaddress.ip_network(rule, strict=False)
    name, _, only_port = rule.rpartition(":") if _has_port(rule) else (rule, "", "")
    if not name or (only_port and only_port != str(port)):
        return False
    if address is not None:
        return _address(name.strip("[]")) == address
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _has_port(rule: str) -> bool:
    return rule.rpartition(":")[2].isdigit() and (rule.count(":") == 1 or "]:" in rule)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
