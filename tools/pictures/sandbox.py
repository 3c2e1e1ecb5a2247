"""`haulout run --sandbox` as a process, as `make run` starts it; and a hub beside it."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

_HAULOUT = str(Path(sys.executable).with_name("haulout"))
_ADDRESS = re.compile(r"^Dashboard\s+(http://\S+?)/?$")
_READY = "Ready after"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A sandbox that runs as a process: the address of its dashboard, and its kubeconfig."""

    kubeconfig: str
    dashboard: str  # its address; empty without an operator


@contextmanager
def running_sandbox(*arguments: str, folder: Path | None = None) -> Iterator[Sandbox]:
    """Start a sandbox in `folder`, which ends with the context. Its log goes to stderr."""
    with TemporaryDirectory() as temporary:
        kubeconfig = f"{temporary}/kubeconfig"
        command = [_HAULOUT, "run", "--sandbox", "--write-kubeconfig", kubeconfig, *arguments]
        with _process(command, folder or Path(temporary)) as process:
            yield Sandbox(kubeconfig, _dashboard_address(process))


@contextmanager
def running_hub(kubeconfig: str, *arguments: str) -> Iterator[str]:
    """Start a hub in a management cluster, and return the address of its dashboard."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [_HAULOUT, "run", "--mode", "management", "--kubeconfig", kubeconfig, "--metrics-port", str(port)]
    with _process([*command, "--dashboard-auth", "off", *arguments], Path(kubeconfig).parent):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _process(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def _dashboard_address(process: subprocess.Popen[str]) -> str:
    address = ""
    for line in process.stdout or ():
        if found := _ADDRESS.match(line):
            address = found[1]
        if line.startswith(_READY):
            return address
    sys.exit("the sandbox did not start; its log says why")
