"""What all workload clusters share: the management cluster, and the settings."""

from collections.abc import Callable
from dataclasses import dataclass

from haulout.api.clusterapi import Cluster, ClusterKey, Machine
from haulout.api.resources import Resource
from haulout.controllers.clusterapi.cluster_accessor import ClientFactory
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget
from haulout.controllers.clusterapi.metrics import ClusterApiMetrics
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.kube.client import Client
from haulout.kube.mutation_cache import MutationCache
from haulout.runtime.freezes import FreezeSource
from haulout.runtime.journal import Journal

DrainRulesLookup = Callable[[Machine, Cluster | None], str | None]  # the node's annotation; None: keep what is there


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementContext:
    """Lookups in the management cluster, and callbacks of its controller."""

    client: Client
    resource: Resource[Machine]
    machines: MutationCache[Machine]
    cluster: Callable[[ClusterKey], Cluster | None]
    machines_of_node: Callable[[ClusterKey, str], tuple[str, ...]]  # keys of the Machines of a node
    machines_of_cluster: Callable[[ClusterKey], tuple[str, ...]]  # keys of all Machines of a cluster
    connect: ClientFactory
    cluster_budget: ClusterBudget
    freezes: FreezeSource
    settings: ClusterApiSettings
    journal: Journal
    metrics: ClusterApiMetrics
    instance: str
    reporter: str
    drain_rules: DrainRulesLookup
    on_status_change: Callable[[ClusterKey], None]  # the status of a cluster changed
    on_idle: Callable[[ClusterKey], None]  # no node of a cluster has a request any more
