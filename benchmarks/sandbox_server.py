"""The sandbox's API server on the network, for the benchmark of its HTTP: over TLS, with a lease to ask for.

python front.py CORES CERTIFICATE          prints the port; ends when its standard input does
"""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.https_server import HttpsServer
from tasks import LEASE

TOKEN = "secret"  # noqa: S105 - of a server that lives for seconds, on loopback


@asynccontextmanager
async def serving(certificate: Path) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port. `certificate` holds the certificate and its key."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    api = ApiServer(RealClock(), keep_history=False)
    namespace, name = LEASE
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
    }
    api.put(lease | {"spec": {"holderIdentity": name, "leaseDurationSeconds": 40}})
    async with HttpsServer(api, tokens={TOKEN: "bench"}).serve(host="127.0.0.1", tls=tls) as port:
        yield port


async def _main(certificate: str) -> None:
    async with serving(Path(certificate)) as port:
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)  # the parent process closes it to end this process


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(core) for core in sys.argv[1].split(",")})
    asyncio.run(_main(sys.argv[2]))
