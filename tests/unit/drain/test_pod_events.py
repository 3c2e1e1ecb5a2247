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
    """Return the node, cordoned by one more owner."""
    change = acquire(node, owner, EMPTY_REQUEST, now=clock.now())
    assert change is not None
    return with_annotations(node, change["metadata"]["annotations"])


async def evict(server: ApiServer, clock: Clock, node: Node) -> int:
    """Record the eviction event in a new process; return the number of events."""
    events = EventRecorder(Client(server.transport(), clock=clock, random=Random()), instance="test")
    pod_events.record_pod_event(events, node, POD, EscalationStep.EVICT)
    await events.flush(timedelta(seconds=10))
    return len(server.objects("events.events.k8s.io"))


async def test_two_processes_record_an_eviction_event_once(server: ApiServer, clock: Clock) -> None:
    node = cordoned(clock, "profile/os")
    assert await evict(server, clock, node) == 1
    assert await evict(server, clock, node) == 1


async def test_second_cordon_owner_does_not_record_the_event_again(server: ApiServer, clock: Clock) -> None:
    node = cordoned(clock, "profile/os")
    assert await evict(server, clock, node) == 1
    await clock.sleep(timedelta(minutes=1))
    assert await evict(server, clock, cordoned(clock, "profile/firmware", node)) == 1


async def test_next_maintenance_records_a_new_event(server: ApiServer, clock: Clock) -> None:
    assert await evict(server, clock, cordoned(clock, "profile/os")) == 1
    await clock.sleep(timedelta(minutes=1))
    assert await evict(server, clock, cordoned(clock, "profile/os")) == 2


@pytest.mark.parametrize("annotations", [{}, {CORDON_ANNOTATION: "{}"}, {CORDON_ANNOTATION: "not JSON"}])
async def test_node_without_a_readable_cordon_annotation_has_events(
    server: ApiServer, clock: Clock, annotations: dict[str, str]
) -> None:
    assert await evict(server, clock, with_annotations(NODE, annotations)) == 1
