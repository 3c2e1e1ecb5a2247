"""The view that moves: one task follows the operator, one reads keys, one paints; all end when a person presses q.

A connection that is lost is shown, with what was known last, and tried again.
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

from haulout.cli.topping.choice import Choice, pressed, shown
from haulout.cli.topping.picture import Picture
from haulout.cli.topping.screen import screen
from haulout.cli.topping.ways import Way
from haulout.core.backoff import Backoff
from haulout.errors import HauloutError

_FRAME = timedelta(milliseconds=250)
_AGAIN = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=15))
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


class Top:
    """A view of an operator, until it is quit."""

    def __init__(self, picture: Picture, way: Way, console: Console) -> None:
        self.choice = Choice()
        self._picture = picture
        self._way = way
        self._console = console
        self._random = Random()  # noqa: S311 - for jitter between tries, nothing secret
        self._changed = asyncio.Event()
        self._detail = asyncio.Event()  # another node is shown alone: the stream has to tell of it

    async def run(self) -> None:
        """Show it until q is pressed."""
        with _raw(), _reading(self._press), Live(console=self._console, screen=True, auto_refresh=False) as live:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(it) for it in (self._follow(), self._tick())]
                while not self.choice.is_over:
                    self._changed.clear()
                    size = self._console.size
                    live.update(screen(self._picture, self.choice, width=size.width, height=size.height), refresh=True)
                    await self._changed.wait()
                for task in tasks:
                    task.cancel()

    async def _tick(self) -> None:
        while True:
            await self._picture.clock.sleep(_FRAME)
            self._changed.set()

    async def _follow(self) -> None:
        failures = 0
        while True:
            self._detail.clear()
            why = await self._until_another_node(self.choice.detail)
            failures = 0 if not self._picture.problem else failures
            if self._detail.is_set():
                continue
            self._picture.problem = why or "the operator ended the stream"
            failures += 1
            self._changed.set()
            await self._picture.clock.sleep(_AGAIN.delay(failures, self._random))

    async def _until_another_node(self, node: str) -> str:
        """Follow the operator until another node is to be told of, or it is not heard; return why."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._heard(node))
            waiting = group.create_task(self._detail.wait())
            await asyncio.wait([following, waiting], return_when=asyncio.FIRST_COMPLETED)
            why = following.result() if following.done() else ""
            following.cancel()
            waiting.cancel()
        return why

    async def _heard(self, node: str) -> str:
        try:
            await self._picture.follow(self._way, node)
        except HauloutError as error:
            return str(error)
        return ""

    def _press(self, key: str) -> None:
        before = self.choice.detail
        names = [it.name for it in shown(self.choice, self._picture.tiles.values())]
        self.choice = pressed(self.choice, key, names)
        if self.choice.detail != before:
            self._detail.set()
        self._changed.set()


def keys(text: str) -> Iterator[str]:
    """Yield the keys that a terminal sent."""
    while text:
        known = next((it for it in _ESCAPES if text.startswith(it)), None)
        if known is not None:
            yield _ESCAPES[known]
            text = text[len(known) :]
            continue
        yield _KEYS.get(text[0], text[0])
        text = text[1:]


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Let keys arrive as they are pressed; the terminal is as it was afterwards, whatever happens."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _reading(press: Callable[[str], object]) -> Iterator[None]:
    loop, descriptor, decoder = asyncio.get_running_loop(), sys.stdin.fileno(), codecs.getincrementaldecoder("utf-8")()

    def read() -> None:
        typed = os.read(descriptor, 1024)
        if not typed:  # the terminal is gone
            loop.remove_reader(descriptor)
            press("q")
        for key in keys(decoder.decode(typed)):
            press(key)

    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
