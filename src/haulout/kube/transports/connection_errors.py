"""Messages for requests without a response, for all transports.

`aiohttp_errors` has those that are specific to aiohttp.
"""

from urllib.parse import urlsplit

from haulout.errors import Unreachable
from haulout.kube.transports.config import IN_CLUSTER, Connection


def stream_broken(doing: str, where: str) -> Unreachable:
    return Unreachable(f"{doing}: the stream broke off {where}", sent=True)


def timeout_error(doing: str, seconds: float, connection: Connection, *, sent: bool) -> Unreachable:
    if sent:
        hint = "is the API server overloaded, or is something else listening there?"
        return Unreachable(f"{doing}: no answer within {seconds:g} s; {hint}", sent=True)
    through = f" through proxy {proxy_without_password(connection.proxy)}" if connection.proxy else ""
    return Unreachable(
        f"{doing}: no connection within {seconds:g} s{through}; {connection_advice(connection)}", sent=False
    )


def connection_advice(connection: Connection) -> str:
    """Return what a user should check when there is no connection."""
    if connection.context == IN_CLUSTER:
        return "is the API server up, and does a network policy let this pod reach it?"
    return f"is the cluster up, and is context {connection.context!r} of {connection.source} the right one?"


def error_text(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError):
        return "connection reset"
    return (error.strerror or str(error) or type(error).__name__).lower()


def proxy_without_password(proxy: str | None) -> str:
    """Return the address of the proxy without its user name and password."""
    address = urlsplit(proxy or "")
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
