"""Find nodes by name or by label: all of them, or raise."""

import asyncio
from collections.abc import Sequence

import click

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.cli.output import printable
from haulout.core.text import closest_match
from haulout.errors import KubeError, NotFound
from haulout.kube import selectors
from haulout.kube.client import Client

_MAX_PARALLEL = 8
_PREFIXES = ("node/", "nodes/", "no/")  # as in the output of kubectl's -o name


async def find_nodes(client: Client, names: Sequence[str], selector: str | None) -> tuple[Node, ...]:
    """Return the nodes in the order of `names`; raise `KubeError` if one does not exist."""
    if selector is not None:
        found = (await client.list(NODES, labels=check_selector(selector))).items
        if not found:
            click.echo(f"No node has the labels {printable(selector)}.", err=True)
        return found
    unique_names = list(dict.fromkeys(strip_node_prefix(name) for name in names))
    nodes_by_name = await _get_nodes(client, unique_names)
    unknown = [name for name in unique_names if nodes_by_name[name] is None]
    if unknown:
        listed = ", ".join(f'"{name}"' for name in unknown)
        raise KubeError(f"nodes {listed} not found; nothing was changed{await suggest_node(client, unknown[0])}")
    return tuple(node for node in nodes_by_name.values() if node is not None)


def strip_node_prefix(name: str) -> str:
    """Return the name of a node from kubectl's `node/NAME`."""
    prefix = next((candidate for candidate in _PREFIXES if name.startswith(candidate)), "")
    return name.removeprefix(prefix)


def check_selector(selector: str) -> str:
    """Return the selector; raise `UsageError` if it is invalid."""
    try:
        selectors.parse(selector)
    except selectors.SelectorError as error:
        raise click.UsageError(f"--selector: {error.problem}") from None
    return selector


async def _get_nodes(client: Client, names: Sequence[str]) -> dict[str, Node | None]:
    semaphore = asyncio.Semaphore(_MAX_PARALLEL)

    async def get(name: str) -> Node | None:
        try:
            async with semaphore:
                return await client.get(NODES, name)
        except NotFound:
            return None

    try:
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(get(name)) for name in names}
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return {name: task.result() for name, task in tasks.items()}


async def suggest_node(client: Client, name: str) -> str:
    """Return a question that suggests a node with a similar name, or ""."""
    try:
        known = [node.name for node in (await client.list(NODES)).items]
    except KubeError:
        return ""
    suggestion = closest_match(name, known)
    return f'; did you mean "{suggestion}"?' if suggestion else ""
