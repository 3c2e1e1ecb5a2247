"""Where `haulout why` gets its knowledge from: a cluster and a file, or an operator."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from haulout.cli.check import content
from haulout.cli.connect import connect, run
from haulout.cli.token import shown
from haulout.cli.why import DEFAULT_FILE
from haulout.drain.cordon import BadMark, cordon_of
from haulout.errors import ConfigErrors, HauloutError, KubeError, OutsideError, UsageError
from haulout.esx import keys as esx
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.resources import NODES, Resource
from haulout.kubernikus import keys as kubernikus
from haulout.maintenance.resource import NODE_MAINTENANCES, NodeMaintenance
from haulout.profiles import default
from haulout.profiles.model import Configuration
from haulout.profiles.outside import Network
from haulout.profiles.plugins.registry import registries
from haulout.profiles.trial import attempt
from haulout.profiles.why import HeldBy, Ordered, Why, heard, judge

KEY = "maintenance.yaml"
_CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=RawObject)
_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was typed."""

    file: str | None = None
    config_map: str | None = None
    url: str | None = None
    no_ask: bool = False
    given: Mapping[str, str]
    kubeconfig: str | None = None
    context: str | None = None


def look(node: str, wishes: Wishes) -> Why:
    """Return why a node is where it is; raises `HauloutError`."""
    if sum(it is not None for it in (wishes.file, wishes.config_map, wishes.url)) > 1:
        raise click.UsageError("--config, --config-map and --from are three ways to know: name one")
    if wishes.url is not None:
        return run(ask_operator(wishes.url, node))
    return run(look_around(node, wishes))


# An operator


async def ask_operator(url: str, node: str) -> Why:
    """Return what an operator says."""
    network = Network()
    address = f"{url.rstrip('/')}/api/v1/info"
    try:
        status, body = await network.request("GET", address, headers=shown(os.environ))
    finally:
        await network.close()
    if status != _OK:
        raise OutsideError(f"{address} answered with status {status}: {body[:200].decode(errors='replace').strip()}")
    try:
        found = heard(body, node)
    except (ValueError, RecursionError) as error:
        raise OutsideError(f"{address} does not speak as a maintenance controller does: {error}") from None
    if found is None:
        maybe = "it has not looked at it yet, there is none, or no profile is on it"
        raise HauloutError(f'{address} says nothing about node "{node}": {maybe}')
    return found


# A cluster and a file


async def look_around(node: str, wishes: Wishes) -> Why:
    """Return what comes of a look at the cluster, by a configuration that is known or in a ConfigMap."""
    async with connected(wishes, node) as (client, configuration, notes):
        network = None if wishes.no_ask else Network(client=client)
        try:
            found = await judge(client, configuration, node, outside=network)
        finally:
            if network is not None:
                await network.close()
        ordered, held = await orders_of(client, node), await holders_of(client, node)
    return msgspec.structs.replace(found, notes=(*notes, *found.notes), ordered=ordered, held=held)


async def orders_of(client: Client, node: str) -> tuple[Ordered, ...]:
    """Return what people have ordered for a node; nothing, if that cannot be seen: profiles are what was asked for."""
    try:
        found = await client.list(NODE_MAINTENANCES)
    except KubeError:
        return ()
    return tuple(_in_words(it) for it in found.items if it.node == node)


async def holders_of(client: Client, name: str) -> tuple[HeldBy, ...]:
    """Return what keeps a node cordoned beside orders and profiles; nothing, if that cannot be seen or read."""
    try:
        node = await client.get(NODES, name)
        mark = cordon_of(node)
    except (KubeError, BadMark):
        return ()
    host, state = (node.metadata.labels.get(it, "unknown") for it in (esx.HOST, esx.STATE))
    words = {
        kubernikus.OWNER: f"by label {kubernikus.DELETE_NODE} it is drained, and its server deleted",
        esx.OWNER: f"it is away for its ESX host {host}, which is in state {state}, or on its way",
    }
    holds = {} if mark is None else mark.owners
    return tuple(HeldBy(by=by, since=holds[by].since, says=says) for by, says in words.items() if by in holds)


def _in_words(order: NodeMaintenance) -> Ordered:
    status = order.status
    hindered = (it.reason for it in status.blockers)
    says = status.last_error or next(hindered, "") or f"{status.drain_progress} % of its pods have left"
    if order.is_leaving:
        says = "it was deleted, and the node is given back"
    return Ordered(maintenance=order.name, phase=status.phase or "Waiting", reason=order.spec.reason, says=says)


@asynccontextmanager
async def connected(wishes: Wishes, node: str) -> AsyncIterator[tuple[Client, Configuration, tuple[str, ...]]]:
    """Connect, and find the configuration that is in force for a node, with what is to be said about it."""
    if wishes.file is not None and wishes.config_map is not None:
        raise click.UsageError("--config and --config-map are two ways to know: name one")
    known = None if wishes.config_map is not None else from_file(wishes.file, wishes.given)
    async with connect(kubeconfig=wishes.kubeconfig, context=wishes.context) as session:
        known = known or await from_config_map(session.client, wishes.config_map or "", wishes.given)
        is_left, recovery = await _is_left(session.client, node), default.recovery_of({**os.environ, **wishes.given})
        in_force = default.in_force(known.configuration, is_left=is_left, recovery=recovery)
        yield session.client, in_force, known.notes


async def _is_left(client: Client, node: str) -> bool:
    """Tell whether the default is not done with a node yet, whatever else is configured now."""
    try:
        return default.is_unfinished_on(await client.get(NODES, node))
    except KubeError:
        return False  # the look at the cluster will tell


@dataclass(frozen=True, slots=True)
class Known:
    """A configuration, and what is to be said about it."""

    configuration: Configuration
    notes: tuple[str, ...] = ()


def from_file(file: str | None, given: Mapping[str, str]) -> Known:
    """Return the configuration in a file; raises `ConfigErrors`."""
    if file is None and not Path(DEFAULT_FILE).exists():
        ways = "if the operator has a file, name it with --config, or its ConfigMap with --config-map"
        note = f"there is no {DEFAULT_FILE} here, so this is by the default (haulout check --print-default); {ways}"
        return Known(default.configuration(default.recovery_of({**os.environ, **given})), (note,))
    name = file or DEFAULT_FILE
    return loaded(content(name), name, given)


async def from_config_map(client: Client, where: str, given: Mapping[str, str]) -> Known:
    """Return the configuration in a ConfigMap; raises `HauloutError`."""
    namespace, slash, name = where.partition("/")
    if not (namespace and slash and name):
        raise UsageError(f"--config-map: expected NAMESPACE/NAME, found {where!r}")
    found = await client.get(_CONFIG_MAPS, name, namespace=namespace)
    text = (found.get("data") or {}).get(KEY)
    if text is None:
        raise HauloutError(f"ConfigMap {where} has no {KEY}")
    return loaded(text.encode(), f"{where}/{KEY}", given)


def loaded(data: bytes, name: str, given: Mapping[str, str]) -> Known:
    """Return what a text holds; variables that are set elsewhere do no harm. Raises `ConfigErrors`."""
    found = attempt(data, registries(), {**os.environ, **given}, file=name, assume=True)
    if found.loaded is None:
        raise ConfigErrors(found.errors)
    if not found.unset:
        return Known(found.loaded.configuration)
    unset = ", ".join(found.unset)
    note = f"not set here: {unset}; checks that use such a variable may be wrong here, unless --env gives its value"
    return Known(found.loaded.configuration, (note,))
