"""One budget for profiles and orders in a whole cluster: the operator by a file, and what must hold.

Operators may be several, or die at any write: no more nodes are out of service than the file says.
"""

import asyncio
import json
from datetime import timedelta
from typing import Any

from haulout.budget.away import ORDER_PREFIX
from haulout.budget.line import Line
from haulout.budget.slots import LEDGER
from haulout.drain import cordon
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.objects import RawObject
from haulout.maintenance.controller import Controller, Settings
from support.invariants import DisruptionsWithinBudget, Invariant, NodeBudget
from support.live import LiveCluster
from support.processes import Program
from support.profiling import HOME, Phone, a_controller, is_away
from support.stepping import loaded

SLOTS = f"{HOME}/haulout-budget-{LEDGER}"

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


def leading(text: str) -> Program:
    """Return an operator that believes to lead, whoever else does: orders and profiles, by a file."""

    async def program(client: Client) -> None:
        events = EventRecorder(client, instance="test", controller="test")
        line, configuration = Line(), loaded(text)
        orders = Controller(client, events=events, settings=Settings(namespace=HOME), line=line)
        profiles = a_controller(client, events, Phone(), line=line)
        orders.use(configuration.budget)
        profiles.use(configuration)
        async with asyncio.TaskGroup() as group:
            for run in (events.run, orders.run, profiles.run):
                group.create_task(run())

    return program


def is_out(node: RawObject) -> bool:
    """Tell whether a node is out of service, by an order or by a profile."""
    mark = node["metadata"].get("annotations", {}).get(cordon.MARK)
    owners = json.loads(mark)["owners"] if mark else ()
    return is_away(node) or any(it.startswith(ORDER_PREFIX) for it in owners)


def within(*budgets: NodeBudget, operators: tuple[str, ...] = ("operator",)) -> Invariant:
    """Return that nobody begins a disruption beyond a budget.

    A node that is down counts after a minute; how much later that is seen is the watch's business.
    """
    return DisruptionsWithinBudget(
        operator=set(operators),
        budgets=budgets,
        disrupts=is_out,
        down_after=timedelta(minutes=1),
        lag=timedelta(seconds=15),
    )


def out(cluster: LiveCluster) -> list[str]:
    """Return the nodes that are out of service."""
    return sorted(name for name, node in cluster.all("nodes").items() if is_out(node))


def slots(cluster: LiveCluster) -> list[Any]:
    """Return the slots that are taken."""
    found: list[Any] = json.loads(cluster.get("configmaps", SLOTS)["data"]["slots"])
    return found
