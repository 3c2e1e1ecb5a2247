"""The nodes that somebody means: by name or by label; all of them, or nothing is done."""

import asyncio
from collections.abc import Sequence

import click

from haulout.cli.terminal import printable
from haulout.core.similar import closest
from haulout.errors import KubeError, NotFound
from haulout.kube import selectors
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kube.resources import NODES

_AT_ONCE = 8
_PREFIXES = ("node/", "nodes/", "no/")  # as kubectl's -o name prints them


async def find(client: Client, names: Sequence[str], selector: str | None) -> tuple[Node, ...]:
    """Return the nodes, in the order in which they were named; raises `KubeError` if one is not there."""
    if selector is not None:
        found = (await client.list(NODES, labels=checked(selector))).items
        if not found:
            click.echo(f"No node has the labels {printable(selector)}.", err=True)
        return found
    wanted = list(dict.fromkeys(bare(name) for name in names))
    there = await _get_all(client, wanted)
    unknown = [name for name in wanted if there[name] is None]
    if unknown:
        listed = ", ".join(f'"{name}"' for name in unknown)
        raise KubeError(f"nodes {listed} not found; nothing was changed{await meant(client, unknown[0])}")
    return tuple(node for node in there.values() if node is not None)


def bare(name: str) -> str:
    """Return the name of a node out of what kubectl prints for it."""
    prefix = next((it for it in _PREFIXES if name.startswith(it)), "")
    return name.removeprefix(prefix)


def checked(selector: str) -> str:
    """Return a selector; raises `UsageError` if it makes no sense."""
    try:
        selectors.parse(selector)
    except selectors.SelectorError as error:
        raise click.UsageError(f"--selector: {error.problem}") from None
    return selector


async def _get_all(client: Client, names: Sequence[str]) -> dict[str, Node | None]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def get(name: str) -> Node | None:
        try:
            async with gate:
                return await client.get(NODES, name)
        except NotFound:
            return None

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(get(name)) for name in names}
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return {name: task.result() for name, task in tasks.items()}


async def meant(client: Client, name: str) -> str:
    """Return the question whether another node was meant, if there is one like it and we may see it."""
    try:
        known = [node.name for node in (await client.list(NODES)).items]
    except KubeError:
        return ""
    near = closest(name, known)
    return f'; did you mean "{near}"?' if near else ""
