"""How the dashboard is to know who asks."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from haulout.dashboard.api.types import AuthMode
from haulout.errors import UsageError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# What whoever looks must be allowed to `get`. It is no address. The dashboard's own would not do: everybody whom the
# API server knows may get `/api/*`, by its role system:discovery.
DASHBOARD_URL = "/haulout/dashboard"
SERVICE_ACCOUNT = "haulout-dashboard"  # the ServiceAccount that impersonates people whom a proxy names
LOOPBACK: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
SECRET_HEADER = "X-Haulout-Proxy-Secret"  # noqa: S105 - of the header, not of what it says
_MIN_SECRET_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """Which proxy is believed, and how it says who asks."""

    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    networks: tuple[Network, ...] = LOOPBACK  # from where it is believed, if there is no secret
    secret_file: Path | None = None  # has what it shows instead, from wherever it asks
    prefix: str = ""  # before the names of users and groups, as the API server's --oidc-username-prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Who may use the dashboard."""

    mode: AuthMode = AuthMode.TOKEN
    proxy: ProxySettings = ProxySettings()
    hosts: tuple[str, ...] = ()  # by which it is reached where everybody may read, beside those nobody else can have


def parse_network(text: str) -> Network:
    """Return `10.0.0.0/8`, or one address; raises `UsageError`."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(f"expected a network such as 10.0.0.0/8, found {text!r:.60}: {error}") from None


def read_secret(file: Path) -> str:
    """Return what the proxy shows; raises `UsageError`."""
    try:
        secret = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the proxy's secret cannot be read from {file}: {error}") from None
    if len(secret) < _MIN_SECRET_LENGTH or not secret.isprintable():
        raise UsageError(f"the proxy's secret in {file} must have {_MIN_SECRET_LENGTH} printable characters or more")
    return secret
