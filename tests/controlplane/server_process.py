"""A server process of the control plane: start, wait until ready, stop, kill, pause.

Its output goes to a log file, whose last lines are part of the error if it does not start.
"""

import signal
import subprocess
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from haulout.core.clock import RealClock

_POLL_INTERVAL = timedelta(milliseconds=50)
_STOP_TIMEOUT = timedelta(seconds=15)
_LINES_SHOWN = 15


class ControlPlaneError(RuntimeError):
    """The control plane does not do what it was told to."""


class ServerProcess:
    """A server process; `is_ready` tells whether it serves, and may be asked at any time."""

    def __init__(self, command: Sequence[str], *, log: Path, group: int, is_ready: Callable[[], bool]) -> None:
        self.name = Path(command[0]).name
        self.log = log
        self._command = command
        self._group = group
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; an error if it does not run."""
        return self._running().pid

    def start(self, *, within: timedelta) -> None:
        """Start it and return when it is ready."""
        self.launch()
        self.wait_until_ready(within=within)

    def launch(self) -> None:
        """Start it and return at once."""
        if self._process is not None and self._process.poll() is None:
            raise ControlPlaneError(f"{self.name} runs already")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=self._group
            )

    def wait_until_ready(self, *, within: timedelta) -> None:
        """Return when it is ready; raise, with its last words, when it ends or is not ready in time."""
        clock = RealClock()
        deadline = clock.monotonic() + within.total_seconds()
        while not self._is_ready():
            if self._ends_within(_POLL_INTERVAL):
                raise ControlPlaneError(f"{self.name} ended instead of getting ready; its last words:\n{self._tail()}")
            if clock.monotonic() > deadline:
                raise ControlPlaneError(f"{self.name} is not ready after {within}; its last words:\n{self._tail()}")

    def stop(self) -> None:
        """Ask it to end and wait for that; kill it if it takes too long."""
        self._signal(signal.SIGTERM)
        self._ends_within(_STOP_TIMEOUT)
        self.kill()

    def kill(self) -> None:
        """End it without warning; harmless if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Freeze it: its connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ControlPlaneError(f"{self.name} does not run")
        return self._process

    def _ends_within(self, duration: timedelta) -> bool:
        try:
            self._running().wait(duration.total_seconds())
        except subprocess.TimeoutExpired:
            return False
        return True

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LINES_SHOWN:]) or "(none)"
