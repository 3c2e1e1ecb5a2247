"""Who looks into certificates and makes them: this process, or one that ends when it is done.

    keys = await smith.read(secret.data)
    step = await smith.step(keys, hosts=…, now=…, trusted=…, name=…)

The library for it takes eight megabytes of an operator for good, and is needed for a moment when it starts and once a
year. So operators ask another process (`Aside`). Where none can be started it is done here after all.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from haulout.web import generations
from haulout.web.generations import Keys, Step

log = logging.getLogger(__name__)

_WITHIN = timedelta(seconds=30)


class Keysmith(Protocol):
    """Reads and makes certificates."""

    async def read(self, data: Mapping[str, str]) -> Keys:
        """Return what the data of a Secret hold; `ValueError` if that makes no sense."""
        ...

    async def step(self, keys: Keys | None, *, hosts: Sequence[str], now: datetime, trusted: bool, name: str) -> Step:
        """Return what the keys should be, as `generations.step` does; an authority is named `name`."""
        ...


class Here:
    """Does it in this process."""

    async def read(self, data: Mapping[str, str]) -> Keys:
        """Return what the data of a Secret hold; `ValueError` if that makes no sense."""
        return generations.read(data)

    async def step(self, keys: Keys | None, *, hosts: Sequence[str], now: datetime, trusted: bool, name: str) -> Step:
        """Return what the keys should be."""
        return generations.step(
            keys,
            hosts=hosts,
            now=now,
            trusted=trusted,
            make=lambda: generations.generation(hosts, now=now, name=name),
        )


class _Read(msgspec.Struct, tag="read"):
    data: dict[str, str]


class _Step(msgspec.Struct, tag="step"):
    keys: Keys | None
    hosts: tuple[str, ...]
    now: datetime
    trusted: bool
    name: str


class _Answer(msgspec.Struct):
    problem: str = ""  # why what was to be read makes no sense
    keys: Keys | None = None
    wakes_at: datetime | None = None


class Aside:
    """Has another process do it, and remembers what was read last."""

    def __init__(self) -> None:
        self._last: tuple[dict[str, str], Keys] | None = None

    async def read(self, data: Mapping[str, str]) -> Keys:
        """Return what the data of a Secret hold; `ValueError` if that makes no sense."""
        if self._last is not None and self._last[0] == data:
            return self._last[1]
        answer = await _asked(_Read(dict(data)))
        if answer is None:
            return await Here().read(data)
        if answer.keys is None:
            raise ValueError(answer.problem)
        self._last = dict(data), answer.keys
        return answer.keys

    async def step(self, keys: Keys | None, *, hosts: Sequence[str], now: datetime, trusted: bool, name: str) -> Step:
        """Return what the keys should be."""
        answer = await _asked(_Step(keys=keys, hosts=tuple(hosts), now=now, trusted=trusted, name=name))
        if answer is None or answer.keys is None or answer.wakes_at is None:
            return await Here().step(keys, hosts=hosts, now=now, trusted=trusted, name=name)
        return Step(answer.keys, answer.wakes_at)


async def _asked(request: _Read | _Step) -> _Answer | None:
    """Return what another process says; None if it does not."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        log.debug("no other process can be started (%s): certificates are made in this one", error)
        return None
    try:
        async with asyncio.timeout(_WITHIN.total_seconds()):
            said, _ = await process.communicate(msgspec.json.encode(request))
        return msgspec.json.decode(said, type=_Answer)
    except (TimeoutError, msgspec.MsgspecError) as error:
        log.debug("the process that makes certificates gives no answer: %s", error)
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _answer(request: _Read | _Step) -> _Answer:
    if isinstance(request, _Read):
        try:
            return _Answer(keys=await Here().read(request.data))
        except ValueError as error:
            return _Answer(problem=str(error))
    step = await Here().step(
        request.keys, hosts=request.hosts, now=request.now, trusted=request.trusted, name=request.name
    )
    return _Answer(keys=step.keys, wakes_at=step.wakes_at)


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=_Read | _Step)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_answer(asked))))
