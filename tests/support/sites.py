"""A sandbox that listens, from a thread of its own, for tests that ask it over sockets which block."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer, User
from haulout_sandbox.front import Front
from support.certificates import Authority
from support.raw_http import RawClient
from support.serving import aside


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
        return Front(api, tokens=tokens).serving(host="127.0.0.1", tls=context)

    with aside(serve) as port:
        yield RawClient(f"https://127.0.0.1:{port}", authority.pem)
