"""Why a request got no answer, in words that tell what to do, and whether it may have arrived.

`sent` is a promise to the layers above: False means that the API server cannot have seen the request, so repeating it
is safe whatever it was. When in doubt it is True.
"""

import ssl
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp

from haulout.errors import GarbledAnswer, KubeError, Unreachable
from haulout.kube.network import tls
from haulout.kube.network.config import IN_CLUSTER, Connection

E = TypeVar("E", bound=BaseException)

_CHECK_PROXY = "check proxy-url in the kubeconfig, and HTTPS_PROXY and NO_PROXY in the environment"


def explain(error: BaseException, *, doing: str, connection: Connection, sent: bool) -> KubeError:
    """Return what to raise for `error`, which ended the request described by `doing`."""
    if isinstance(error, aiohttp.ClientPayloadError):
        return GarbledAnswer(f"{doing}: the answer broke off")
    if isinstance(error, aiohttp.ClientResponseError) and not isinstance(error, aiohttp.ClientHttpProxyError):
        return GarbledAnswer(f"{doing}: the answer is not HTTP; is {connection.server} an API server?")
    if not sent or _is_refusal(error):
        return Unreachable(_no_connection(error, connection), sent=False)
    lost = f"{doing}: the connection was lost before the answer came"
    if isinstance(error, aiohttp.ClientConnectorError):  # of the second try, which a GET gets
        return Unreachable(f"{lost}, and cannot be made again{_reason(error)}; {_advice(connection)}", sent=True)
    return Unreachable(f"{lost}{_reason(error)}", sent=True)


def broke_off(doing: str, where: str) -> Unreachable:
    """Return what to raise when a stream ended where no server ends it."""
    return Unreachable(f"{doing}: the stream broke off {where}", sent=True)


def timed_out(doing: str, seconds: float, connection: Connection, *, sent: bool) -> Unreachable:
    """Return what to raise when there was no answer in time."""
    if sent:
        advice = "is the API server overloaded, or is something else listening there?"
        return Unreachable(f"{doing}: no answer within {seconds:g} s; {advice}", sent=True)
    through = f" through proxy {_shown(connection.proxy)}" if connection.proxy else ""
    return Unreachable(f"{doing}: no connection within {seconds:g} s{through}; {_advice(connection)}", sent=False)


def _is_refusal(error: BaseException) -> bool:
    """Tell whether the server refused our certificate: it says so after we wrote, but before it reads the request."""
    tls_error = cause(error, ssl.SSLError)
    return tls_error is not None and tls.is_refusal(tls_error)


def _no_connection(error: BaseException, connection: Connection) -> str:
    server = connection.server
    host = urlsplit(server).hostname or server
    if isinstance(error, aiohttp.ClientHttpProxyError):
        said = f"{error.status} {error.message}"
        return f"proxy {_shown(connection.proxy)} does not connect us to {server}: {said}; {_CHECK_PROXY}"
    if (tls_error := cause(error, ssl.SSLError)) is not None:
        return f"cannot connect to {server}: {tls.explain(tls_error, connection.tls, host=host)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        via_proxy = connection.proxy and (isinstance(error, aiohttp.ClientProxyConnectionError) or error.host != host)
        target = f"proxy {_shown(connection.proxy)}" if via_proxy else server
        advice = _CHECK_PROXY if via_proxy else _advice(connection)
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return f"cannot connect to {target}: the address of {error.host} cannot be found; {advice}"
        when = " during the handshake" if isinstance(error.os_error, ConnectionResetError) else ""
        return f"cannot connect to {target}: {words(error.os_error)}{when}; {advice}"
    return f"cannot connect to {server}: the connection was lost at once{_reason(error)}; {_advice(connection)}"


def _advice(connection: Connection) -> str:
    if connection.context == IN_CLUSTER:
        return "is the API server up, and does a network policy let this pod reach it?"
    return f"is the cluster up, and is context {connection.context!r} of {connection.source} the right one?"


def words(error: OSError) -> str:
    """Return what happened to a connection, as people say it."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, ConnectionResetError):
        return "connection reset"
    return (error.strerror or str(error) or type(error).__name__).lower()


def _reason(error: BaseException) -> str:
    found = cause(error, OSError)
    return f" ({words(found)})" if found and found.strerror else ""


def _shown(proxy: str | None) -> str:
    """Return the address of the proxy without the password it may hold."""
    address = urlsplit(proxy or "")
    return f"{address.scheme}://{address.netloc.rpartition('@')[2]}"


def cause(error: BaseException | None, kind: type[E]) -> E | None:
    """Return the first of its causes that is of `kind`, past aiohttp's wrappers, which are OSErrors themselves."""
    while error is not None and (isinstance(error, aiohttp.ClientError) or not isinstance(error, kind)):
        error = error.__cause__
    return error
