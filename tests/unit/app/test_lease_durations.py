"""The lease durations of the settings are those of the leases that an operator takes."""

import asyncio
from datetime import timedelta
from random import Random

from haulout.api.leases import LEADER_LEASE
from haulout.app.operator import OperatorSettings, run_operator
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_namespace
from support.expectations.eventually import eventually


async def test_operator_uses_the_lease_durations_of_its_settings(clock: Clock) -> None:
    api = ApiServer(clock)
    api.put(a_namespace("haulout"))
    fifteen, ten, two = (timedelta(seconds=it) for it in (15, 10, 2))
    timing = LeaderElectionConfig(lease_duration=fifteen, renew_deadline=ten, retry_period=two)
    settings = OperatorSettings(namespace="haulout", identity="haulout-1_x", leases=timing)
    client = Client(api.transport(), clock=clock, random=Random(1))

    def durations() -> list[int]:
        found = {it["metadata"]["name"]: it["spec"] for it in api.objects("leases", namespace="haulout")}
        return [found[LEADER_LEASE]["leaseDurationSeconds"]] if LEADER_LEASE in found else []

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run_operator(client, settings))
        await eventually(clock, durations, becomes=[15])
        running.cancel()
