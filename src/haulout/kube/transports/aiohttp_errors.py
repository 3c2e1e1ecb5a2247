"""Explains aiohttp connection errors: what to do about them, and whether the request may have arrived.

`sent=False` is a guarantee: the API server cannot have received the request, so any request can be repeated safely. In
doubt, `sent` is True.
"""

import ssl
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp

from haulout.errors import KubeError, MalformedResponse, Unreachable
from haulout.kube.transports import tls
from haulout.kube.transports.config import Connection
from haulout.kube.transports.connection_errors import connection_advice, error_text, proxy_without_password

E = TypeVar("E", bound=BaseException)

_CHECK_PROXY = "check proxy-url in the kubeconfig, and HTTPS_PROXY and NO_PROXY in the environment"


def explain(error: BaseException, *, doing: str, connection: Connection, sent: bool) -> KubeError:
    """Return the exception to raise for `error`, which ended the request described by `doing`."""
    if isinstance(error, aiohttp.ClientPayloadError):
        return MalformedResponse(f"{doing}: the response was cut off")
    # A ClientHttpProxyError is a ClientResponseError, too. But it means that the proxy refused the CONNECT, so nothing
    # was sent.
    if isinstance(error, aiohttp.ClientResponseError) and not isinstance(error, aiohttp.ClientHttpProxyError):
        return MalformedResponse(f"{doing}: the answer is not HTTP; is {connection.server} an API server?")
    if not sent or _is_certificate_rejected(error):
        return Unreachable(_connection_failure(error, connection), sent=False)
    lost = f"{doing}: the connection was lost before the answer came"
    if isinstance(error, aiohttp.ClientConnectorError):  # of the second attempt, which aiohttp makes for a GET
        return Unreachable(
            f"{lost}, and cannot be made again{_reason(error)}; {connection_advice(connection)}", sent=True
        )
    return Unreachable(f"{lost}{_reason(error)}", sent=True)


def _is_certificate_rejected(error: BaseException) -> bool:
    """Return whether the server rejected our certificate.

    It does so after our write, but before it reads the request.
    """
    tls_error = cause(error, ssl.SSLError)
    return tls_error is not None and tls.is_certificate_rejected(tls_error)


def _connection_failure(error: BaseException, connection: Connection) -> str:
    server = connection.server
    host = urlsplit(server).hostname or server
    if isinstance(error, aiohttp.ClientHttpProxyError):
        status = f"{error.status} {error.message}"
        return (
            f"proxy {proxy_without_password(connection.proxy)} does "
            f"not connect us to {server}: {status}; {_CHECK_PROXY}"
        )
    if (tls_error := cause(error, ssl.SSLError)) is not None:
        return f"cannot connect to {server}: {tls.explain(tls_error, connection.tls, host=host)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        via_proxy = connection.proxy and (isinstance(error, aiohttp.ClientProxyConnectionError) or error.host != host)
        target = f"proxy {proxy_without_password(connection.proxy)}" if via_proxy else server
        check = _CHECK_PROXY if via_proxy else connection_advice(connection)
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return f"cannot connect to {target}: the address of {error.host} cannot be found; {check}"
        when = " during the handshake" if isinstance(error.os_error, ConnectionResetError) else ""
        return f"cannot connect to {target}: {error_text(error.os_error)}{when}; {check}"
    return (
        f"cannot connect to {server}: the connection was lost at once{_reason(error)}; {connection_advice(connection)}"
    )


def _reason(error: BaseException) -> str:
    found = cause(error, OSError)
    return f" ({error_text(found)})" if found and found.strerror else ""


def cause(error: BaseException | None, kind: type[E]) -> E | None:
    """Return the first exception of type `kind` in the cause chain.

    Skip aiohttp's wrappers, which are OSErrors themselves.
    """
    while error is not None and (isinstance(error, aiohttp.ClientError) or not isinstance(error, kind)):
        error = error.__cause__
    return error
