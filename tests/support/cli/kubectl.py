"""Runs the real kubectl against a sandbox that is served over HTTPS."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from haulout.core.clock import RealClock
from haulout_sandbox.apiserver import ApiServer
from haulout_sandbox.https_server import HttpsServer
from support.servers.certificates import Authority

TIMEOUT_SECONDS = 90
_RETRY_DELAY = timedelta(milliseconds=500)


class CommandResult(NamedTuple):
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


class Kubectl:
    """Runs kubectl with a kubeconfig; manifests lie in `folder`, which is also where it runs."""

    def __init__(self, binary: Path, *, kubeconfig: Path, folder: Path) -> None:
        self.folder = folder
        self._binary = binary
        self._kubeconfig = kubeconfig

    async def run(self, *arguments: str, **environment: str) -> CommandResult:
        """Run a command to its end."""
        process = await asyncio.create_subprocess_exec(
            self._binary,
            "--kubeconfig",
            self._kubeconfig,
            *arguments,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                out, err = await process.communicate()
        except TimeoutError:
            process.kill()
            out, err = await process.communicate()
            raise AssertionError(f"kubectl {' '.join(arguments)} did not end; it said {out!r} {err!r}") from None
        return CommandResult(process.returncode or 0, out.decode(), err.decode())

    async def run_until_published(self, *arguments: str, **environment: str) -> CommandResult:
        """Run a command; `explain` again while a real server has not yet published what it shall explain."""
        result = await self.run(*arguments, **environment)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while arguments[0] == "explain" and "couldn't find resource" in result.err:
                await RealClock().sleep(_RETRY_DELAY)
                result = await self.run(*arguments, **environment)
        return result

    async def __call__(self, command: str) -> str:
        """Run a command that must succeed, and return what it printed."""
        result = await self.run(*command.split())
        assert result.code == 0, (command, result)
        return result.out

    async def json(self, command: str) -> Any:
        """Return what a command printed as JSON."""
        return json.loads(await self(f"{command} -o json"))

    def file(self, name: str, content: str) -> Path:
        """Write a manifest."""
        path = self.folder / name
        path.write_text(content)
        return path


@asynccontextmanager
async def serve_sandbox(api: ApiServer, folder: Path) -> AsyncIterator[Path]:
    """Serve a sandbox over TLS to `admin`; yields a kubeconfig in `folder`."""
    authority = Authority()
    (folder / "ca.pem").write_bytes(authority.pem)
    tls = authority.issue("127.0.0.1").server_context(folder)
    async with HttpsServer(api, tokens={"secret": "admin"}).serve(host="127.0.0.1", tls=tls) as port:
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.pem"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sandbox",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": "secret"}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin"}}],
        }
        kubeconfig = folder / "config"
        kubeconfig.write_text(json.dumps(config))
        yield kubeconfig
