"""Settings of the dashboard's authentication."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from haulout.dashboard.api.types import AuthMode
from haulout.errors import UsageError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Users need `get` on this non-resource URL, which is not served. The real URL would not do: every authenticated user
# may get `/api/*`, by the role system:discovery.
DASHBOARD_URL = "/haulout/dashboard"
SERVICE_ACCOUNT = "haulout-dashboard"  # impersonates users that a proxy authenticates
LOOPBACK: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
SECRET_HEADER = "X-Haulout-Proxy-Secret"  # noqa: S105 - the name of the header, not its value
_MIN_SECRET_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """The trusted proxy, and the headers in which it names the user."""

    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    networks: tuple[Network, ...] = LOOPBACK  # trusted peers, if there is no secret
    secret_file: Path | None = None  # contains the proxy's secret, which is trusted from any peer
    prefix: str = ""  # of users and groups, as the API server's --oidc-username-prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Who may use the dashboard."""

    mode: AuthMode = AuthMode.TOKEN
    proxy: ProxySettings = ProxySettings()
    hosts: tuple[str, ...] = ()  # further allowed hosts in mode off


def parse_network(text: str) -> Network:
    """Parse `10.0.0.0/8`, or one address; raise `UsageError`."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(f"expected a network such as 10.0.0.0/8, found {text!r:.60}: {error}") from None


def read_secret(file: Path) -> str:
    """Return the proxy's secret; raise `UsageError`."""
    try:
        secret = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the proxy's secret cannot be read from {file}: {error}") from None
    if len(secret) < _MIN_SECRET_LENGTH or not secret.isprintable():
        raise UsageError(f"the proxy's secret in {file} must have {_MIN_SECRET_LENGTH} printable characters or more")
    return secret
