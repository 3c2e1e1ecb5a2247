"""A sandbox that listens, in a thread of its own, for tests with blocking sockets."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer, User
from haulout_sandbox.https_server import HttpsServer
from support.servers.background_server import in_thread
from support.servers.certificates import Authority
from support.servers.raw_http_client import RawClient


@contextmanager
def a_listening_sandbox(
    folder: Path, *, tokens: Mapping[str, str | User], rbac: bool = False, fill: Callable[[ApiServer], None]
) -> Iterator[RawClient]:
    """Serve a sandbox that `fill` has put something into; yields a client without a token."""
    authority = Authority()
    context = authority.issue("127.0.0.1").server_context(folder)

    def serve() -> AbstractAsyncContextManager[int]:
        api = ApiServer(RealClock(), rbac=rbac)
        fill(api)
        return HttpsServer(api, tokens=tokens).serve(host="127.0.0.1", tls=context)

    with in_thread(serve) as port:
        yield RawClient(f"https://127.0.0.1:{port}", authority.pem)
