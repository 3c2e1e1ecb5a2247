"""A freeze on a real API server: what it refuses, what kubectl shows, and that the operator honours it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controlplane import ControlPlane
from controlplane.server_process import ControlPlaneError
from haulout.api import maintenancefreeze, nodemaintenance
from haulout.api.maintenancefreeze import MAINTENANCE_FREEZES
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.resources import NODES
from haulout.app.operator import OperatorSettings, run_operator
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from support.builders.objects import a_node
from support.expectations.eventually import eventually
from support.operators.freezes import a_freeze

TIMEOUT = timedelta(minutes=1)


@pytest.fixture(scope="module")
def isolated() -> Iterator[ControlPlane]:
    """Run a control plane for these tests alone: a freeze keeps maintenance off all nodes of a cluster."""
    with ControlPlane() as control_plane:
        for definition in (maintenancefreeze.definition(), nodemaintenance.custom_resource_definition()):
            control_plane.kubectl("create", "-f", "-", input=json.dumps(definition))
        control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield control_plane


@asynccontextmanager
async def a_client(control_plane: ControlPlane, clock: Clock) -> AsyncIterator[Client]:
    connection = config.load(kubeconfig=str(control_plane.kubeconfig()), context=None, clock=clock)
    client = Client(HttpTransport(connection, clock=clock), clock=clock, random=Random(1))
    try:
        yield client
    finally:
        await client.close()


def haulout(control_plane: ControlPlane, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a haulout command."""
    command_line = [sys.executable, "-m", "haulout", *arguments, "--kubeconfig", str(control_plane.kubeconfig())]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command_line, capture_output=True, text=True, check=False, env=env, cwd=folder)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"from": "2026-12-02T00:00:00Z", "until": "2026-12-01T00:00:00Z"},
            "spec.until: Invalid value: until must be after from",
        ),
        ({"until": "tomorrow"}, "spec.until"),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.selector.matchExpressions[0].values: Invalid value: In and NotIn need values",
        ),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            "spec.selector.matchExpressions[0].values: Invalid value: In and NotIn need values",
        ),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "matchExpressions[0].operator"),
        ({"selector": {"matchExpressions": [{"key": "no key", "operator": "Exists"}]}}, "matchExpressions[0].key"),
        ({"selector": {"matchLabels": {"a": "no value"}}}, "spec.selector.matchLabels.a"),
        ({"except": ["Profiles"]}, "spec.except[0]"),
    ],
)
def test_bad_input_is_refused_with_its_field(isolated: ControlPlane, spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(ControlPlaneError) as caught:
        isolated.kubectl("create", "-f", "-", input=json.dumps(a_freeze("bad", **spec)))
    assert problem in str(caught.value)


@pytest.mark.real_time
async def test_freeze_holds_maintenance_until_it_is_deleted(
    isolated: ControlPlane, clock: Clock, tmp_path: Path
) -> None:
    flags = ("--until", "+2d", "--reason", "Black Friday", "--name", "black-friday")
    created = haulout(isolated, tmp_path, "freeze", *flags)
    assert (created.returncode, created.stdout) == (0, "maintenancefreeze.haulout.dev/black-friday created\n")
    async with a_client(isolated, clock) as client, asyncio.TaskGroup() as group:
        await client.create(NODES, a_node("n1"))
        maintenance = {"metadata": {"name": "first"}, "spec": {"nodeName": "n1", "reason": "test"}}
        kind = {"apiVersion": NODE_MAINTENANCES.api_version, "kind": NODE_MAINTENANCES.kind}
        await client.create(NODE_MAINTENANCES, {**kind, **maintenance})
        operator = group.create_task(run_operator(client, OperatorSettings(namespace="default", identity="one")))
        await eventually(clock, lambda: _drained_reason(client), becomes="Held", within=TIMEOUT)
        assert not await _is_cordoned(client)
        await eventually(clock, lambda: _phase(client), becomes="Active", within=TIMEOUT)
        columns = await asyncio.to_thread(isolated.kubectl, "get", "mf")
        header, row = columns.stdout.splitlines()
        assert header.split() == ["NAME", "PHASE", "FROM", "UNTIL", "NODES", "BY", "REASON", "AGE"]
        assert row.split()[:2] == ["black-friday", "Active"]
        status = await asyncio.to_thread(haulout, isolated, tmp_path, "status")
        assert "; to end that: haulout unfreeze black-friday" in status.stdout
        deleted = await asyncio.to_thread(haulout, isolated, tmp_path, "unfreeze")
        assert (deleted.returncode, deleted.stdout) == (0, "maintenancefreeze.haulout.dev/black-friday deleted\n")
        await eventually(clock, lambda: _is_cordoned(client), becomes=True, within=timedelta(seconds=10))
        operator.cancel()


async def _drained_reason(client: Client) -> str:
    conditions = (await client.get(NODE_MAINTENANCES, "first")).status.conditions
    return next((condition.reason for condition in conditions if condition.type == "Drained"), "")


async def _is_cordoned(client: Client) -> bool:
    return (await client.get(NODES, "n1")).spec.unschedulable


async def _phase(client: Client) -> str:
    return (await client.get(MAINTENANCE_FREEZES, "black-friday")).status.phase
