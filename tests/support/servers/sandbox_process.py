"""`haulout run --sandbox` as a separate process, for tests that access it from outside."""

import os
import queue
import random
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import resources
from pathlib import Path

from haulout.core.clock import RealClock
from haulout.kube.client import Client
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport

TIMEOUT_SECONDS = 60


class SandboxProcess:
    """A sandbox in a process of its own."""

    def __init__(self, home: Path, *args: str) -> None:
        self.home = home
        environment = {**os.environ, "HOME": str(home), "PYTHONUNBUFFERED": "1"}
        environment.pop("XDG_CACHE_HOME", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "haulout", "run", "--sandbox", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.output_lines: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file that it printed."""
        return Path(next(line.split()[-1] for line in self.output_lines if line.startswith("Kubeconfig")))

    def wait_for_line(self, part: str) -> str:
        """Wait for a line with `part` in it, and return it."""
        while True:
            line = self._lines.get(timeout=TIMEOUT_SECONDS)
            assert line is not None, f"it ended: {self.output_lines}"
            if part in line:
                return line

    def stop(self, number: signal.Signals) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(TIMEOUT_SECONDS)
        self._reader.join(TIMEOUT_SECONDS)
        return code

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Yield a client from the kubeconfig."""
        clock = RealClock()
        connection = config.load(kubeconfig=str(self.kubeconfig), context="sandbox", clock=clock)
        client = Client(HttpTransport(connection, clock=clock), clock=clock, random=random.Random(1))
        try:
            yield client
        finally:
            await client.close()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.output_lines.append(line.rstrip("\n"))
            self._lines.put(line)
        self._lines.put(None)


def a_scenario_without_timeline(folder: Path) -> str:
    """Return a file with the default scenario without its timeline, so that hours can pass in seconds."""
    whole = resources.files("haulout_sandbox.scenarios").joinpath("default.yaml").read_text()
    file = folder / "quiet.yaml"
    file.write_text(whole.partition("\ntimeline:")[0] + "\n")
    return str(file)


def names_in(folder: Path) -> list[str]:
    """Return the names of what is in a folder."""
    return [path.name for path in folder.iterdir()]


@contextmanager
def running_sandbox(home: Path, *args: str) -> Iterator[SandboxProcess]:
    """Run a sandbox until the context ends."""
    running = SandboxProcess(home, *args)
    try:
        running.wait_for_line("Ready after")
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        if running.process.stdout:
            running.process.stdout.close()
