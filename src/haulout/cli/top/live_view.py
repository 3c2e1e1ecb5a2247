"""The live view: one task reads events, one refreshes; a reader handles keys; all end on q.

After a lost connection the view shows the last known state and the error, and reconnects.
"""

import asyncio
import codecs
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from datetime import timedelta
from random import Random

from rich.console import Console
from rich.live import Live

from haulout.cli.top.api_client import ApiClient
from haulout.cli.top.fleet_cache import FleetCache
from haulout.cli.top.screen import render_screen
from haulout.cli.top.view_state import ViewState, handle_key, visible_nodes
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.errors import HauloutError

_FRAME_INTERVAL = timedelta(milliseconds=250)
_RECONNECT_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=15))
_ESCAPES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\x1b[H": "home",
    "\x1b[F": "end",
}
_KEYS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x1b": "escape", "\x03": "q"}


class LiveView:
    """A live view of an operator, until the user quits."""

    def __init__(self, fleet: FleetCache, client: ApiClient, console: Console) -> None:
        self.state = ViewState()
        self._fleet = fleet
        self._client = client
        self._console = console
        self._random = Random()  # noqa: S311 - for jitter between retries, not for secrets
        self._changed = asyncio.Event()
        self._detail_changed = asyncio.Event()  # the stream must be reopened for the details of another node

    async def run(self) -> None:
        """Run until q is pressed."""
        with (
            _raw_terminal(),
            _keyboard_reader(self._on_key),
            Live(console=self._console, screen=True, auto_refresh=False) as live,
        ):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(coroutine) for coroutine in (self._stream_events(), self._tick())]
                while not self.state.has_quit:
                    self._changed.clear()
                    size = self._console.size
                    live.update(
                        render_screen(self._fleet, self.state, width=size.width, height=size.height), refresh=True
                    )
                    await self._changed.wait()
                for task in tasks:
                    task.cancel()

    async def _tick(self) -> None:
        while True:
            await self._fleet.clock.sleep(_FRAME_INTERVAL)
            self._changed.set()

    async def _stream_events(self) -> None:
        retry = Retry(self._fleet.clock, self._random, _RECONNECT_BACKOFF)
        while True:
            self._detail_changed.clear()
            problem = await self._stream_until_detail_changes(self.state.detail_node)
            if not self._fleet.problem:
                retry.reset()
            if self._detail_changed.is_set():
                continue
            self._fleet.problem = problem or "the operator ended the stream"
            self._changed.set()
            await retry.wait(HauloutError(self._fleet.problem))

    async def _stream_until_detail_changes(self, node: str) -> str:
        """Read events until another node is selected or the connection fails; return the error."""
        async with asyncio.TaskGroup() as group:
            streaming = group.create_task(self._stream_once(node))
            waiting = group.create_task(self._detail_changed.wait())
            await asyncio.wait([streaming, waiting], return_when=asyncio.FIRST_COMPLETED)
            problem = streaming.result() if streaming.done() else ""
            streaming.cancel()
            waiting.cancel()
        return problem

    async def _stream_once(self, node: str) -> str:
        try:
            await self._fleet.stream_events(self._client, node)
        except HauloutError as error:
            return str(error)
        return ""

    def _on_key(self, key: str) -> None:
        before = self.state.detail_node
        names = [tile.name for tile in visible_nodes(self.state, self._fleet.tiles.values())]
        self.state = handle_key(self.state, key, names)
        if self.state.detail_node != before:
            self._detail_changed.set()
        self._changed.set()


def parse_keys(text: str) -> Iterator[str]:
    """Parse the bytes of a terminal into keys."""
    while text:
        known_escape = next((escape for escape in _ESCAPES if text.startswith(escape)), None)
        if known_escape is not None:
            yield _ESCAPES[known_escape]
            text = text[len(known_escape) :]
            continue
        yield _KEYS.get(text[0], text[0])
        text = text[1:]


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Deliver keys unbuffered; always restore the terminal afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _keyboard_reader(on_key: Callable[[str], object]) -> Iterator[None]:
    loop, descriptor, decoder = asyncio.get_running_loop(), sys.stdin.fileno(), codecs.getincrementaldecoder("utf-8")()

    def read() -> None:
        typed = os.read(descriptor, 1024)
        if not typed:  # the terminal was closed
            loop.remove_reader(descriptor)
            on_key("q")
        for key in parse_keys(decoder.decode(typed)):
            on_key(key)

    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
