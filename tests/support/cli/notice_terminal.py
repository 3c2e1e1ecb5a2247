"""Runs `haulout notice` against an in-memory cluster on simulated time, and captures its output."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import click
import pytest

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, definition
from haulout.cli.notice import cancellation, creation, notice_text, notice_view
from haulout.cli.notice.cancellation import EndAction
from haulout.cli.notice.command import cancel, create, end, list_, show
from haulout.core.clock import Clock
from haulout.kube.client import Client
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster


class CommandOutput(NamedTuple):
    """What was printed."""

    out: str
    err: str


class NoticeTerminal:
    """A person at a terminal."""

    def __init__(self, cluster: DrainCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self.clock = cluster.clock
        self._capsys = capsys

    @property
    def client(self) -> Client:
        """The person's client."""
        return self.cluster.client

    def put_notice(self, name: str, status: dict[str, Any] | None = None, **spec: Any) -> None:
        """Put a notice of another user."""
        self.cluster.put(
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
        return [notice.name for notice in (await self.client.list(MAINTENANCE_NOTICES)).items]

    async def create(self, *args: str) -> CommandOutput:
        """Run `haulout notice create` with these arguments."""
        typed = _parsed_options(create, args)
        output = typed.pop("output")
        await creation.create_and_print(self.client, creation.parse_request(self.clock.now(), **typed), output=output)
        return self._output()

    async def list(self, *args: str) -> CommandOutput:
        """Run `haulout notice list` with these arguments."""
        typed = _parsed_options(list_, args)
        output, _ = typed.pop("output"), typed.pop("is_watched")
        await notice_text.print_notices(self.client, notice_view.NoticeQuery(**typed), output=output)
        return self._output()

    async def show(self, *args: str) -> CommandOutput:
        """Run `haulout notice show` with these arguments."""
        typed = _parsed_options(show, args)
        await notice_text.print_notice(self.client, typed["name"], output=typed["output"])
        return self._output()

    async def cancel(self, *args: str) -> tuple[bool, CommandOutput]:
        """Run `haulout notice cancel` with these arguments; return also whether it succeeded."""
        return await self._act_on_notices(cancel, EndAction.CANCEL, args)

    async def end(self, *args: str) -> tuple[bool, CommandOutput]:
        """Run `haulout notice end` with these arguments; return also whether it succeeded."""
        return await self._act_on_notices(end, EndAction.END, args)

    async def _act_on_notices(
        self, command: click.Command, step: EndAction, args: tuple[str, ...]
    ) -> tuple[bool, CommandOutput]:
        typed = _parsed_options(command, args)
        names, force = typed.pop("names"), bool(typed.pop("force"))
        return await cancellation.end_notices(self.client, names, step, force=force, **typed), self._output()

    def _output(self) -> CommandOutput:
        out, err = self._capsys.readouterr()
        return CommandOutput(click.unstyle(out), click.unstyle(err))


def _parsed_options(command: click.Command, args: tuple[str, ...]) -> dict[str, Any]:
    typed = command.make_context(command.name, list(args)).params
    return {name: value for name, value in typed.items() if name not in ("kubeconfig", "context")}


@asynccontextmanager
async def a_notice_terminal(
    clock: Clock, capsys: pytest.CaptureFixture[str], *nodes: str, is_installed: bool = True
) -> AsyncIterator[NoticeTerminal]:
    """Yield a terminal in a cluster with these nodes, in which notices are installed or not."""
    async with a_drain_cluster(clock, *nodes) as cluster:
        if is_installed:
            cluster.put(definition())
        yield NoticeTerminal(cluster, capsys)
