"""Discovery on a real cluster: both formats have the same content."""

import random

import pytest

from controlplane import ControlPlane
from haulout.api.resources import EVENTS, LEASES, NODES, PODS
from haulout.core.clock import Clock
from haulout.kube import discovery
from haulout.kube.client import Client
from haulout.kube.discovery import Discovery, discover
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport


async def discovered(control_plane: ControlPlane, clock: Clock) -> Discovery:
    connection = config.load(kubeconfig=str(control_plane.kubeconfig()), clock=clock)
    client = Client(HttpTransport(connection, clock=clock), clock=clock, random=random.Random(7))
    try:
        return await discover(client)
    finally:
        await client.close()


@pytest.mark.real_time
async def test_discovery_finds_the_resources_of_the_operator(control_plane: ControlPlane, clock: Clock) -> None:
    found = await discovered(control_plane, clock)

    assert all(found.serves(resource) for resource in (NODES, PODS, LEASES, EVENTS))
    assert found.unavailable == ()
    pods = found.find("", "pods")
    assert pods is not None
    assert "eviction" in pods.subresources
    assert {"get", "list", "watch", "patch"} <= set(pods.verbs)


@pytest.mark.real_time
async def test_legacy_discovery_has_the_same_content(
    control_plane: ControlPlane, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = await discovered(control_plane, clock)
    monkeypatch.setattr(discovery, "_ACCEPT", "application/json")
    old = await discovered(control_plane, clock)

    def comparable(found: Discovery) -> dict[tuple[str, str], object]:
        return {
            name: (each.kind, each.namespaced, each.versions, sorted(each.verbs), sorted(each.subresources))
            for name, each in found.resources.items()
            if not name[0].endswith("haulout.dev")  # other tests define these, and they may come and go meanwhile
        }

    assert comparable(old) == comparable(new)
