"""`haulout notice` on a cluster in memory: from the words that are typed to what is printed, on simulated time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import click
import pytest

from haulout.cli.notice import cancel, end, show
from haulout.cli.notice_create import create
from haulout.cli.notice_list import list_
from haulout.cli.noticing import announcing, ending, finding, showing
from haulout.cli.noticing.ending import Step
from haulout.core.clock import Clock
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, definition
from haulout.kube.client import Client
from support.draining import Town, a_town


class Said(NamedTuple):
    """What was printed."""

    out: str
    err: str


class Desk:
    """A person at a terminal."""

    def __init__(self, town: Town, capsys: pytest.CaptureFixture[str]) -> None:
        self.town = town
        self.clock = town.clock
        self._capsys = capsys

    @property
    def client(self) -> Client:
        """The person's client."""
        return self.town.client

    def put(self, name: str, status: dict[str, Any] | None = None, **spec: Any) -> None:
        """Have a notice that somebody else wrote."""
        self.town.put(
            {
                "apiVersion": MAINTENANCE_NOTICES.api_version,
                "kind": MAINTENANCE_NOTICES.kind,
                "metadata": {"name": name, "generation": 1},
                "spec": spec,
                "status": status or {},
            }
        )

    async def get(self, name: str) -> MaintenanceNotice:
        """Return a notice."""
        return await self.client.get(MAINTENANCE_NOTICES, name)

    async def names(self) -> list[str]:
        """Return the names of all notices."""
        return [it.name for it in (await self.client.list(MAINTENANCE_NOTICES)).items]

    async def create(self, *args: str) -> Said:
        """Type `haulout notice create` and more."""
        typed = _typed(create, args)
        output = typed.pop("output")
        await announcing.announce(self.client, announcing.wanted(self.clock.now(), **typed), output=output)
        return self._said()

    async def list(self, *args: str) -> Said:
        """Type `haulout notice list` and more."""
        typed = _typed(list_, args)
        output, _ = typed.pop("output"), typed.pop("is_watched")
        await showing.show_all(self.client, finding.Wanted(**typed), output=output)
        return self._said()

    async def show(self, *args: str) -> Said:
        """Type `haulout notice show` and more."""
        typed = _typed(show, args)
        await showing.show_one(self.client, typed["name"], output=typed["output"])
        return self._said()

    async def cancel(self, *args: str) -> tuple[bool, Said]:
        """Type `haulout notice cancel` and more; return whether all went well, too."""
        return await self._take(cancel, Step.CANCEL, args)

    async def end(self, *args: str) -> tuple[bool, Said]:
        """Type `haulout notice end` and more."""
        return await self._take(end, Step.END, args)

    async def _take(self, command: click.Command, step: Step, args: tuple[str, ...]) -> tuple[bool, Said]:
        typed = _typed(command, args)
        names, force = typed.pop("names"), bool(typed.pop("force"))
        return await ending.take_all(self.client, names, step, force=force, **typed), self._said()

    def _said(self) -> Said:
        out, err = self._capsys.readouterr()
        return Said(click.unstyle(out), click.unstyle(err))


def _typed(command: click.Command, args: tuple[str, ...]) -> dict[str, Any]:
    typed = command.make_context(command.name, list(args)).params
    return {name: value for name, value in typed.items() if name not in ("kubeconfig", "context")}


@asynccontextmanager
async def a_desk(
    clock: Clock, capsys: pytest.CaptureFixture[str], *nodes: str, is_installed: bool = True
) -> AsyncIterator[Desk]:
    """Yield a terminal in a cluster with these nodes, in which notices are installed or not."""
    async with a_town(clock, *nodes) as town:
        if is_installed:
            town.put(definition())
        yield Desk(town, capsys)
