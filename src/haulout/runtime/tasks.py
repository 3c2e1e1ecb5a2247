"""Runs several coroutines as one: in the background, until the first ends, until one hands over leadership.

`asyncio.TaskGroup` wraps errors into an ExceptionGroup. `LeadershipHandover` is an order to the manager, so these
functions pass it on as it is.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol

from haulout.errors import LeadershipHandover

FLUSH_TIMEOUT = timedelta(seconds=2)

Work = Coroutine[Any, Any, object]


class Writer(Protocol):
    """Something that queues writes and sends them in the background."""

    async def run(self) -> object: ...

    async def flush(self, within: timedelta, /) -> None: ...


@asynccontextmanager
async def background(*works: Work) -> AsyncIterator[None]:
    """Run coroutines while the context lasts."""
    handover: LeadershipHandover | None = None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        try:
            yield
        except LeadershipHandover as error:
            handover = error
        finally:
            for task in tasks:
                task.cancel()
    if handover is not None:
        raise handover


@asynccontextmanager
async def running(*writers: Writer) -> AsyncIterator[None]:
    """Run writers while the context lasts, and send what they have queued at its end."""
    async with background(*(_run(writer) for writer in writers)):
        try:
            yield
        finally:
            await asyncio.gather(*(writer.flush(FLUSH_TIMEOUT) for writer in writers))


async def _run(writer: Writer) -> None:
    await writer.run()


async def first_of(*works: Work) -> None:
    """Return when the first coroutine returns, and cancel the others."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


async def first_handover(works: Iterable[Work]) -> LeadershipHandover:
    """Run all until one hands over leadership, then cancel the others and wait for their end."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_wait_for_handover(work)) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    return done.pop().result()


async def _wait_for_handover(work: Work) -> LeadershipHandover:
    try:
        await work
    except LeadershipHandover as error:
        return error
    raise RuntimeError("a component of the operator ended unexpectedly")
