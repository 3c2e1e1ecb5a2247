"""Addresses of replicas, and rate limit keys of addresses."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.dashboard.auth.rate_limits import canonical_address, rate_limit_key
from haulout.dashboard.auth.replicas import Replicas
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_namespace, a_pod
from support.faults.injected_responses import ResponseInjector

HOME = "haulout"


def put_pod(
    api: ApiServer, name: str, ip: str, *, account: str = "haulout", phase: str = "Running", **spec: Any
) -> None:
    status = {"podIP": ip, "podIPs": [{"ip": ip}, {"ip": f"fd00::{ip.rpartition('.')[2]}"}], "phase": phase}
    api.put({**a_pod(f"{HOME}/{name}", serviceAccountName=account, **spec), "status": status})


def a_cluster(clock: Clock) -> tuple[ApiServer, Replicas, Client]:
    api = ApiServer(clock)
    api.put(a_namespace(HOME))
    put_pod(api, "haulout-1", "10.0.0.1")
    client = Client(api.transport(), clock=clock, random=Random(1))
    return api, Replicas(client, namespace=HOME, identity="haulout-1_x"), client


async def test_pods_of_the_service_account_are_replicas_by_every_pod_ip(clock: Clock) -> None:
    api, replicas, _ = a_cluster(clock)
    put_pod(api, "haulout-2", "10.0.0.2")
    for address in ("10.0.0.2", "fd00::2", "::ffff:10.0.0.2"):
        assert await replicas.includes(address), address


async def test_other_pods_and_addresses_are_not_replicas(clock: Clock) -> None:
    api, replicas, _ = a_cluster(clock)
    put_pod(api, "agent", "10.0.0.3", account="haulout-agent")
    put_pod(api, "ended", "10.0.0.4", phase="Failed")
    put_pod(api, "on-the-node", "10.0.0.5", hostNetwork=True)
    for address in ("10.0.0.1", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.9", "127.0.0.1", "odd", "", None):
        assert not await replicas.includes(address), address


async def test_no_replicas_are_known_outside_a_pod(clock: Clock) -> None:
    api, _, client = a_cluster(clock)
    put_pod(api, "haulout-2", "10.0.0.2", account="")
    assert not await Replicas(client, namespace=HOME, identity="laptop_x").includes("10.0.0.2")


async def test_new_replica_is_recognized_and_an_ended_replica_is_not(clock: Clock) -> None:
    api, replicas, _ = a_cluster(clock)
    assert not await replicas.includes("10.0.0.2")
    put_pod(api, "haulout-2", "10.0.0.2")
    await clock.sleep(timedelta(seconds=3))
    assert await replicas.includes("10.0.0.2")
    put_pod(api, "haulout-2", "10.0.0.2", phase="Succeeded")
    await clock.sleep(timedelta(seconds=11))
    assert not await replicas.includes("10.0.0.2")


async def test_unknown_addresses_do_not_cause_repeated_pod_lists(clock: Clock) -> None:
    _, replicas, client = a_cluster(clock)
    for number in range(100):
        await replicas.includes(f"10.0.1.{number}")
    lists = client.transport.requests  # type: ignore[attr-defined] # of the sandbox
    assert sum(request.request.path.endswith("/pods") for request in lists) == 1


async def test_no_replicas_are_known_when_pods_may_not_be_listed(clock: Clock) -> None:
    api, _, client = a_cluster(clock)
    put_pod(api, "haulout-2", "10.0.0.2")
    answers = ResponseInjector()
    answers.inject(403, matches=lambda request: request.path.endswith("/pods"))
    replicas = Replicas(
        client.with_transport(answers.wrap_transport(client.transport)), namespace=HOME, identity="haulout-1_x"
    )
    assert not await replicas.includes("10.0.0.2")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::7", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_ipv6_rate_limit_key_is_the_64_bit_prefix(text: str, key: str) -> None:
    address = canonical_address(text)
    assert address is not None
    assert rate_limit_key(address) == key
