"""Lookups of DaemonSets and namespaces, and their results on failure."""

from random import Random

import pytest

from haulout.core.clock import Clock
from haulout.drain.lookups import LookupCache
from haulout.drain.pod_filters import DaemonSetInfo
from haulout.drain.pod_selection import LookupRequest
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer

LOGS = LookupRequest("daemonset", "shop/logs")


@pytest.mark.parametrize(
    ("status", "problem"),
    [(403, "forbidden"), (500, "an error on the server has prevented the request from succeeding")],
)
async def test_lookup_failure_is_reported_with_the_message_of_the_server(
    clock: Clock, status: int, problem: str
) -> None:
    transport = ApiServer(clock).transport("drain")
    transport.faults.fail_before_effect(path="daemonsets", response=status, times=None)
    answers = LookupCache(Client(transport, clock=clock, random=Random(1)))
    await answers.look_up(LOGS)
    assert answers.daemon_sets[LOGS.key] == DaemonSetInfo(problem)


async def test_daemon_set_that_does_not_exist_is_missing(clock: Clock) -> None:
    answers = LookupCache(Client(ApiServer(clock).transport("drain"), clock=clock, random=Random(1)))
    await answers.look_up(LOGS)
    assert answers.daemon_sets[LOGS.key] == DaemonSetInfo('daemonsets.apps "logs" not found', is_missing=True)
