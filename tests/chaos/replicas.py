"""The operator's processes: two replicas with the permissions of the shipped manifests, each behind its own proxy."""

import asyncio
import base64
import os
import random
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import yaml

from chaos.proxy import Proxy
from controlplane import ControlPlane

NAMESPACE = "haulout"
GROUP = "haulout:replicas"
USERS = ("haulout-0", "haulout-1")
TESTS = Path(__file__).parents[1]
MANIFESTS = TESTS.parent / "deploy" / "manifests" / "haulout.yaml"
_TRACEBACK = "Traceback (most recent call last)"
PROFILES = Path(__file__).with_name("maintenance.yaml")


class Replica:
    """One process of the operator; it can be started again after its end."""

    def __init__(self, user: str, proxy: Proxy, *, folder: Path, sabotage: str = "") -> None:
        self.user = user
        self.proxy = proxy
        self._clock = folder / f"{user}.clock"
        self._kubeconfig = folder / f"{user}.kubeconfig"
        self._log = folder / f"{user}.log"
        self._sabotage = sabotage
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process."""
        self._clock.touch()
        self._kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self.proxy, self.user)))
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._kubeconfig.parent),
            "PYTHONPATH": str(TESTS),
            "CHAOS_CLOCK": str(self._clock),
            "CHAOS_SABOTAGE": self._sabotage,
        }
        command = [sys.executable, "-m", "chaos.patched_operator", "run", "--kubeconfig", str(self._kubeconfig)]
        command += ["--namespace", NAMESPACE, "--config", str(PROFILES), "--log-format", "text"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def tracebacks(self) -> list[str]:
        """Return the lines of the log that a traceback follows."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [before for before, line in pairwise(["", *lines]) if _TRACEBACK in line]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; harmless if the process has ended."""
        if self._process is not None and self.is_running:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End the process without warning."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    async def wait_ended(self) -> None:
        """Return when the process has ended."""
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    def set_clock(self, seconds: float) -> None:
        """Have the wall clock of the process be wrong by this."""
        new = self._clock.with_suffix(".new")
        new.write_text(str(seconds))
        new.rename(self._clock)


@asynccontextmanager
async def two_replicas(
    control_plane: ControlPlane, tls: ssl.SSLContext, *, folder: Path, rng: random.Random, sabotage: str = ""
) -> AsyncIterator[tuple[Replica, Replica]]:
    """Yield two replicas that are not started yet; end them afterwards."""
    proxies = [
        Proxy(control_plane.server, tls, control_plane.token(user), random.Random(rng.random())) for user in USERS
    ]
    async with proxies[0].serving(), proxies[1].serving():
        first, second = (
            Replica(user, proxy, folder=folder, sabotage=sabotage) for user, proxy in zip(USERS, proxies, strict=True)
        )
        try:
            yield first, second
        finally:
            first.kill()
            second.kill()


def _kubeconfig(proxy: Proxy, user: str) -> object:
    cluster = {"server": proxy.address, "certificate-authority-data": base64.b64encode(proxy.ca).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "chaos", "cluster": cluster}],
        "users": [{"name": user, "user": {}}],
        "contexts": [{"name": "chaos", "context": {"cluster": "chaos", "user": user, "namespace": NAMESPACE}}],
        "current-context": "chaos",
    }
