"""One budget for profiles and NodeMaintenances in a whole cluster, and the invariant about it.

There may be several operators, and they may crash at any write: never are more nodes out of service than the file
allows.
"""

import asyncio
import json
from datetime import timedelta
from typing import Any

from haulout.api.objects import RawObject
from haulout.budget.budget_check import WaitingList
from haulout.budget.slots import LEDGER
from haulout.budget.unavailable_nodes import NODE_MAINTENANCE_OWNER_PREFIX
from haulout.controllers.nodemaintenance.settings import NodeMaintenanceSettings
from haulout.drain import cordon
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout.runtime.journal import Journal
from support.clusters.live_cluster import LiveCluster
from support.clusters.process import Program
from support.fakes.profile_node import load_configuration
from support.invariants import DisruptionsWithinBudget, Invariant, NodeBudget
from support.operators.nodemaintenance import a_controller, run_with_informers
from support.operators.profiles_controller import (
    NAMESPACE,
    NotificationLog,
    a_profiles_controller,
    is_in_maintenance,
    run_with_nodes,
)

SLOTS = f"{NAMESPACE}/haulout-budget-{LEDGER}"

FILE = """
intervals: {requeue: 1m}
instances:
  check:
  - {name: wanted, type: hasAnnotation, config: {key: wanted}}
  trigger:
  - {name: drain, type: eviction, config: {action: drain}}
  - {name: uncordon, type: eviction, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted, next: in-maintenance, trigger: drain}]
  in-maintenance:
    transitions: [{check: "!wanted", next: operational, trigger: uncordon}]
"""


def always_leading_operator(text: str) -> Program:
    """Return an operator that always acts as the leader, with NodeMaintenances and with profiles from a file."""

    async def program(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="test")
        waiting_list, configuration = WaitingList(), load_configuration(text)
        journal = Journal("NodeMaintenance", events, metrics=client.metrics)
        settings = NodeMaintenanceSettings(namespace=NAMESPACE)
        maintenances = a_controller(client, journal, settings=settings, waiting_list=waiting_list)
        profiles = a_profiles_controller(client, events, NotificationLog(), waiting_list=waiting_list)
        maintenances.set_budget(configuration.budget)
        profiles.use(configuration)
        async with asyncio.TaskGroup() as group:
            for coroutine in (events.run(), run_with_informers(maintenances), run_with_nodes(profiles)):
                group.create_task(coroutine)

    return program


def is_unavailable(node: RawObject) -> bool:
    """Return whether a NodeMaintenance or a profile has a node out of service."""
    cordon_annotation = node["metadata"].get("annotations", {}).get(cordon.CORDON_ANNOTATION)
    owners = json.loads(cordon_annotation)["owners"] if cordon_annotation else ()
    return is_in_maintenance(node) or any(owner.startswith(NODE_MAINTENANCE_OWNER_PREFIX) for owner in owners)


def within_budget(*budgets: NodeBudget, operators: tuple[str, ...] = ("operator",)) -> Invariant:
    """Return that nobody begins a disruption beyond a budget.

    A node that is down counts after a minute, plus the delay of the watch.
    """
    return DisruptionsWithinBudget(
        operator=set(operators),
        budgets=budgets,
        is_disrupted=is_unavailable,
        down_after=timedelta(minutes=1),
        lag=timedelta(seconds=15),
    )


def unavailable_nodes(cluster: LiveCluster) -> list[str]:
    """Return the nodes that are out of service."""
    return sorted(name for name, node in cluster.by_key("nodes").items() if is_unavailable(node))


def slots(cluster: LiveCluster) -> list[Any]:
    """Return the slots that are taken."""
    found: list[Any] = json.loads(cluster.get("configmaps", SLOTS)["data"]["slots"])
    return found
