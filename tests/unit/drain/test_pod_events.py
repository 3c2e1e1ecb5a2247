"""Events about pods that a drain evicts: one for each pod and each maintenance of its node."""

from datetime import timedelta
from random import Random

import msgspec
import pytest

from haulout.api.objects import Node, ObjectMeta, Pod
from haulout.core.clock import Clock
from haulout.drain import pod_events
from haulout.drain.cordon import CORDON_ANNOTATION, EMPTY_REQUEST, acquire
from haulout.drain.escalation import EscalationStep
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout_sandbox.apiserver import ApiServer

POD = Pod(metadata=ObjectMeta(name="cart-0", namespace="shop", uid="5678"))
NODE = Node(metadata=ObjectMeta(name="n1", uid="1234"))


@pytest.fixture
def server(clock: Clock) -> ApiServer:
    return ApiServer(clock, namespaces=["shop"])


def with_annotations(node: Node, annotations: dict[str, str]) -> Node:
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=annotations))


def cordoned(clock: Clock, owner: str, node: Node = NODE) -> Node:
    """Return a node that one more owner has cordoned now."""
    change = acquire(node, owner, EMPTY_REQUEST, now=clock.now())
    assert change is not None
    return with_annotations(node, change["metadata"]["annotations"])


async def evict(server: ApiServer, clock: Clock, node: Node) -> int:
    """Tell of the eviction of the pod in a process of its own; return how many events there are then."""
    events = EventRecorder(Client(server.transport(), clock=clock, random=Random()), instance="test")
    pod_events.record_pod_event(events, node, POD, EscalationStep.EVICT)
    await events.flush(timedelta(seconds=10))
    return len(server.objects("events.events.k8s.io"))


async def test_two_processes_tell_of_an_eviction_once(server: ApiServer, clock: Clock) -> None:
    node = cordoned(clock, "profile/os")
    assert await evict(server, clock, node) == 1
    assert await evict(server, clock, node) == 1


async def test_a_second_owner_of_the_cordon_does_not_tell_again(server: ApiServer, clock: Clock) -> None:
    node = cordoned(clock, "profile/os")
    assert await evict(server, clock, node) == 1
    await clock.sleep(timedelta(minutes=1))
    assert await evict(server, clock, cordoned(clock, "profile/firmware", node)) == 1


async def test_the_next_maintenance_tells_again(server: ApiServer, clock: Clock) -> None:
    assert await evict(server, clock, cordoned(clock, "profile/os")) == 1
    await clock.sleep(timedelta(minutes=1))
    assert await evict(server, clock, cordoned(clock, "profile/os")) == 2


@pytest.mark.parametrize("annotations", [{}, {CORDON_ANNOTATION: "{}"}, {CORDON_ANNOTATION: "not JSON"}])
async def test_a_node_without_a_readable_mark_has_its_events_too(
    server: ApiServer, clock: Clock, annotations: dict[str, str]
) -> None:
    assert await evict(server, clock, with_annotations(NODE, annotations)) == 1
