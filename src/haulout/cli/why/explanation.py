"""The data of `haulout why`: from a cluster and a configuration file, or from an operator."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance
from haulout.api.objects import RawObject
from haulout.api.resources import NODES, Resource
from haulout.app.components import owners_in
from haulout.cli.check.command import read_input
from haulout.cli.connect import authorization_header, connect, run
from haulout.cli.options import DEFAULT_FILE
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.config.dry_run import dry_run
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.explain.explanation import (
    NodeExplanation,
    OrderedMaintenance,
    OtherCordonOwner,
    explain,
    parse_node_info,
)
from haulout.controllers.profiles.external.network_client import NetworkClient
from haulout.controllers.profiles.plugins.registry import registries
from haulout.drain.cordon import InvalidCordonAnnotation, cordon_of
from haulout.errors import ConfigErrors, ExternalError, HauloutError, KubeError, UsageError
from haulout.kube.client import Client

CONFIG_MAP_KEY = "maintenance.yaml"
_CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=RawObject)
_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyOptions:
    """The flags of the command."""

    file: str | None = None
    config_map: str | None = None
    url: str | None = None
    no_external_queries: bool = False
    variables: Mapping[str, str]
    kubeconfig: str | None = None
    context: str | None = None


def explain_node(node: str, options: WhyOptions) -> NodeExplanation:
    """Return the explanation of a node; raise `HauloutError`."""
    if sum(source is not None for source in (options.file, options.config_map, options.url)) > 1:
        raise click.UsageError("--config, --config-map and --from exclude each other: give one")
    if options.url is not None:
        return run(ask_operator(options.url, node))
    return run(explain_from_cluster(node, options))


# From an operator


async def ask_operator(url: str, node: str) -> NodeExplanation:
    """Return the explanation from an operator's `/api/v1/info`."""
    network = NetworkClient()
    address = f"{url.rstrip('/')}/api/v1/info"
    try:
        response = await network.request("GET", address, headers=authorization_header(os.environ))
    finally:
        await network.close()
    if response.status != _OK:
        text = response.body[:200].decode(errors="replace").strip()
        raise ExternalError(f"{address} answered with status {response.status}: {text}")
    try:
        answer = parse_node_info(response.body, node)
    except (ValueError, RecursionError) as error:
        raise ExternalError(f"{address} is not a maintenance controller: {error}") from None
    if answer is None:
        maybe = "the node does not exist, has no profile, or was not reconciled yet"
        raise HauloutError(f'{address} has no data about node "{node}": {maybe}')
    return answer


# From a cluster and a configuration


async def explain_from_cluster(node: str, options: WhyOptions) -> NodeExplanation:
    """Evaluate the node in the cluster, with a configuration from a file or a ConfigMap."""
    async with connect_with_configuration(options, node) as (client, configuration, notes):
        network = None if options.no_external_queries else NetworkClient(client=client)
        try:
            result = await explain(client, configuration, node, external=network)
        finally:
            if network is not None:
                await network.close()
        maintenances, owners = (
            await list_ordered_maintenances(client, node),
            await list_other_cordon_owners(client, node),
        )
    return msgspec.structs.replace(
        result, notes=(*notes, *result.notes), maintenances=maintenances, cordon_owners=owners
    )


async def list_ordered_maintenances(client: Client, node: str) -> tuple[OrderedMaintenance, ...]:
    """Return the NodeMaintenances of a node; empty if they cannot be read, because the command is about profiles."""
    try:
        found = await client.list(NODE_MAINTENANCES)
    except KubeError:
        return ()
    return tuple(_describe_maintenance(maintenance) for maintenance in found.items if maintenance.node == node)


async def list_other_cordon_owners(client: Client, name: str) -> tuple[OtherCordonOwner, ...]:
    """Return cordon owners other than NodeMaintenances and profiles; empty if they cannot be read."""
    try:
        node = await client.get(NODES, name)
        mark = cordon_of(node)
    except (KubeError, InvalidCordonAnnotation):
        return ()
    if mark is None:
        return ()
    return tuple(
        OtherCordonOwner(owner=owner.name, since=mark.owners[owner.name].since, message=owner.describe(node))
        for owner in owners_in(mark)
    )


def _describe_maintenance(maintenance: NodeMaintenance) -> OrderedMaintenance:
    status = maintenance.status
    blocker_reasons = (blocker.reason for blocker in status.blockers)
    message = status.last_error or next(blocker_reasons, "") or f"{status.drain_progress} % of its pods have left"
    if maintenance.is_being_deleted:
        message = "it was deleted, and the node returns to service"
    return OrderedMaintenance(
        maintenance=maintenance.name, phase=status.phase or "Waiting", reason=maintenance.spec.reason, message=message
    )


@asynccontextmanager
async def connect_with_configuration(
    options: WhyOptions, node: str
) -> AsyncIterator[tuple[Client, Configuration, tuple[str, ...]]]:
    """Connect, and yield the configuration in force for a node, with notes about it."""
    if options.file is not None and options.config_map is not None:
        raise click.UsageError("--config and --config-map exclude each other: give one")
    loaded_configuration = (
        None if options.config_map is not None else configuration_from_file(options.file, options.variables)
    )
    async with connect(kubeconfig=options.kubeconfig, context=options.context) as session:
        loaded_configuration = loaded_configuration or await configuration_from_config_map(
            session.client, options.config_map or "", options.variables
        )
        is_unfinished, recovery = (
            await _default_is_unfinished(session.client, node),
            default_profile.recovery_timeout({**os.environ, **options.variables}),
        )
        in_force = default_profile.effective_configuration(
            loaded_configuration.configuration, has_unfinished_nodes=is_unfinished, recovery=recovery
        )
        yield session.client, in_force, loaded_configuration.notes


async def _default_is_unfinished(client: Client, node: str) -> bool:
    """Return whether the default profile has not finished with a node, whatever is configured now."""
    try:
        return default_profile.is_unfinished_on(await client.get(NODES, node))
    except KubeError:
        return False  # the evaluation will report the error


@dataclass(frozen=True, slots=True)
class LoadedConfiguration:
    """A configuration with notes about it."""

    configuration: Configuration
    notes: tuple[str, ...] = ()


def configuration_from_file(file: str | None, variables: Mapping[str, str]) -> LoadedConfiguration:
    """Load the configuration from a file; raise `ConfigErrors`."""
    if file is None and not Path(DEFAULT_FILE).exists():
        hint = "if the operator has a file, name it with --config, or its ConfigMap with --config-map"
        note = (
            f"there is no {DEFAULT_FILE} here, so the default configuration was used (haulout check "
            f"--print-default); {hint}"
        )
        return LoadedConfiguration(
            default_profile.configuration(default_profile.recovery_timeout({**os.environ, **variables})), (note,)
        )
    name = file or DEFAULT_FILE
    return parse_configuration(read_input(name), name, variables)


async def configuration_from_config_map(
    client: Client, reference: str, variables: Mapping[str, str]
) -> LoadedConfiguration:
    """Load the configuration from a ConfigMap; raise `HauloutError`."""
    namespace, slash, name = reference.partition("/")
    if not (namespace and slash and name):
        raise UsageError(f"--config-map: expected NAMESPACE/NAME, found {reference!r}")
    found = await client.get(_CONFIG_MAPS, name, namespace=namespace)
    text = (found.get("data") or {}).get(CONFIG_MAP_KEY)
    if text is None:
        raise HauloutError(f"ConfigMap {reference} has no {CONFIG_MAP_KEY}")
    return parse_configuration(text.encode(), f"{reference}/{CONFIG_MAP_KEY}", variables)


def parse_configuration(data: bytes, name: str, variables: Mapping[str, str]) -> LoadedConfiguration:
    """Parse a configuration, with placeholders for unset variables. Raise `ConfigErrors`."""
    result = dry_run(data, registries(), {**os.environ, **variables}, file=name, assume_placeholders=True)
    if result.loaded is None:
        raise ConfigErrors(result.errors)
    if not result.unset:
        return LoadedConfiguration(result.loaded.configuration)
    unset = ", ".join(result.unset)
    note = f"not set here: {unset}; checks that use such a variable may be wrong here, unless --env gives its value"
    return LoadedConfiguration(result.loaded.configuration, (note,))
