"""`haulout notice list --watch`: a line for each notice whenever something about it changes."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NoReturn

from haulout.cli.noticing.finding import Wanted
from haulout.cli.noticing.sights import Sight, sight
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection


async def follow(client: Client, wanted: Wanted, shown: Sequence[Sight], *, show: Callable[[Sight], None]) -> NoReturn:
    """Show each notice that is asked for when it is not as it was shown last, until cancelled."""
    last = {it.notice.name: _what_shows(it) for it in shown}
    news: asyncio.Queue[MaintenanceNotice] = asyncio.Queue()
    cache: Cache[MaintenanceNotice] = Cache(client, Selection(MAINTENANCE_NOTICES), row=as_is)
    cache.subscribe(lambda _, new: None if new is None else news.put_nowait(new))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            while True:
                seen = sight(await news.get(), now=client.clock.now())
                name = seen.notice.name
                is_asked_for = name in last or wanted.has(seen)  # one that was shown is shown to its end
                if is_asked_for and last.get(name) != _what_shows(seen):
                    last[name] = _what_shows(seen)
                    show(seen)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _what_shows(seen: Sight) -> tuple[object, ...]:
    return seen.node, seen.phase, seen.drain_at, seen.is_on_time, seen.notice.spec
