"""Where `haulout why` gets its knowledge from: a cluster and a file, or an operator."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from haulout.cli.check import content
from haulout.cli.connect import connect, run
from haulout.cli.why import DEFAULT_FILE
from haulout.errors import ConfigErrors, HauloutError, OutsideError, UsageError
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout.profiles.model import Configuration
from haulout.profiles.outside import Network
from haulout.profiles.plugins.registry import registries
from haulout.profiles.trial import attempt
from haulout.profiles.why import Why, heard, judge

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
    if wishes.config_map is not None:
        return run(look_around(node, wishes, None))
    return run(look_around(node, wishes, from_file(wishes.file, wishes.given)))


# An operator


async def ask_operator(url: str, node: str) -> Why:
    """Return what an operator says."""
    network = Network()
    address = f"{url.rstrip('/')}/api/v1/info"
    try:
        status, body = await network.request("GET", address)
    finally:
        await network.close()
    if status != _OK:
        raise OutsideError(f"{address} answered with status {status}: {body[:200].decode(errors='replace').strip()}")
    try:
        found = heard(body, node)
    except (ValueError, RecursionError) as error:
        raise OutsideError(f"{address} does not speak as a maintenance controller does: {error}") from None
    if found is None:
        raise HauloutError(f'{address} says nothing about node "{node}": it has not looked at it yet, or there is none')
    return found


# A cluster and a file


async def look_around(node: str, wishes: Wishes, known: "Known | None") -> Why:
    """Return what comes of a look at the cluster, by a configuration that is known or in a ConfigMap."""
    async with connect(kubeconfig=wishes.kubeconfig, context=wishes.context) as session:
        known = known or await from_config_map(session.client, wishes.config_map or "", wishes.given)
        network = None if wishes.no_ask else Network(client=session.client)
        try:
            found = await judge(session.client, known.configuration, node, outside=network)
        finally:
            if network is not None:
                await network.close()
    return msgspec.structs.replace(found, notes=(*known.notes, *found.notes))


@dataclass(frozen=True, slots=True)
class Known:
    """A configuration, and what is to be said about it."""

    configuration: Configuration
    notes: tuple[str, ...] = ()


def from_file(file: str | None, given: Mapping[str, str]) -> Known:
    """Return the configuration in a file; raises `ConfigErrors`."""
    if file is None and not Path(DEFAULT_FILE).exists():
        ways = "name the file with --config, or its ConfigMap with --config-map"
        raise UsageError(f"there is no {DEFAULT_FILE} here: {ways}")
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
