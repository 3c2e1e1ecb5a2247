"""Check the Host header of requests, against DNS rebinding. Pure.

A page of another site cannot read our responses, unless its own name resolves to our address (DNS rebinding). Its
browser then sends that name as the Host. So where everyone who reaches the port may read, the Host must be one that no
attacker can own in the public DNS: an IP address, `localhost`, a name without dots, a Service's name (`….svc` or
`….svc.cluster.local`), or a configured name. A client that is no browser may omit the Host.
"""

import contextlib
import ipaddress
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

ANY = "*"
_LOCAL_SUFFIXES = (".localhost", ".svc", ".svc.cluster.local")


def are_allowed(hosts: Iterable[str], *, names: Collection[str] = ()) -> bool:
    """Return whether all Host headers of a request are allowed; `names` are the configured ones."""
    return ANY in names or all(_is_allowed(host, names) for host in hosts)


def _is_allowed(host: str, names: Collection[str]) -> bool:
    if set(host) & set("@/?#"):
        return False
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return bool(name) and (
        "." not in name or name.endswith(_LOCAL_SUFFIXES) or name in {allowed_name.casefold() for allowed_name in names}
    )
