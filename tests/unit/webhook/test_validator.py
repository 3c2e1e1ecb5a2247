"""Reviews of the webhook when requests are slow, malformed or concurrent."""

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest

from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.webhook.validator import InvalidReview, RecentAdmissions, Validator
from support.builders.objects import a_node
from support.clusters.backends import NetworkConnection, SandboxBackend
from support.operators.webhook_cluster import a_nodemaintenance, install_nodemaintenance_crd


@pytest.fixture
async def wired_client(clock: Clock) -> tuple[Client, NetworkConnection]:
    """Return a client in a cluster with the nodes n1 and n2, and its network connection."""
    cluster = SandboxBackend(clock)
    client, wire = await cluster.client_with_connection()
    await install_nodemaintenance_crd(cluster, client)
    for name in ("n1", "n2"):
        cluster.api_server.put(a_node(name))
    return client, wire


def a_review(operation: str = "CREATE", new: Any = None, old: Any = None, **more: Any) -> RawObject:
    request = {"uid": "u-1", "operation": operation, "object": new, "oldObject": old, **more}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def refusal_text(review: RawObject) -> str:
    """Return the message of a denial; empty if admitted."""
    response = review["response"]
    assert response["uid"] == "u-1"
    assert response["allowed"] is ("status" not in response)
    return str(response.get("status", {}).get("message", ""))


async def test_silent_api_server_is_reported_before_the_webhook_timeout(
    wired_client: tuple[Client, NetworkConnection], clock: Clock
) -> None:
    client, wire = wired_client
    wire.silence()
    started = clock.monotonic()
    response = await Validator(client).review(a_review(new=a_nodemaintenance("m", "n1")), timeout=timedelta(seconds=10))
    assert clock.monotonic() - started < 10
    assert refusal_text(response) == (
        "could not get node for validating spec.NodeName, please try again: could not get node: the API server did not "
        "answer within 9s"
    )


async def test_metadata_updates_are_admitted_while_the_api_server_is_unreachable(
    wired_client: tuple[Client, NetworkConnection], clock: Clock
) -> None:
    client, wire = wired_client
    wire.cut()
    old = a_nodemaintenance("m", "n1", drain={"stored": "before it was checked"})
    started = clock.monotonic()
    response = await Validator(client).review(a_review("UPDATE", new=old | {"metadata": {"name": "m"}}, old=old))
    assert refusal_text(response) == ""
    assert clock.monotonic() == started


async def test_recent_admission_delays_the_next_node_maintenance_by_a_second(
    wired_client: tuple[Client, NetworkConnection], clock: Clock
) -> None:
    """The first was denied by another webhook: it never appears in a list."""
    validator, started = Validator(wired_client[0]), clock.monotonic()
    assert refusal_text(await validator.review(a_review(new=a_nodemaintenance("first", "n1")))) == ""
    assert refusal_text(await validator.review(a_review(new=a_nodemaintenance("first", "n1")))) == ""
    assert clock.monotonic() - started < 0.1
    assert refusal_text(await validator.review(a_review(new=a_nodemaintenance("second", "n1")))) == ""
    assert clock.monotonic() - started < 1.1
    assert refusal_text(await validator.review(a_review(new=a_nodemaintenance("third", "n2")))) == ""


async def test_forged_reviews_delay_a_genuine_review_by_a_second_at_most(
    wired_client: tuple[Client, NetworkConnection], clock: Clock
) -> None:
    """Each forged review is about another object of the same node, as if many creates were in flight."""
    validator, waits = Validator(wired_client[0]), []

    async def forge() -> None:
        for number in itertools.count():
            await validator.review(a_review(new=a_nodemaintenance(f"forged-{number}", "n1")))

    async with asyncio.TaskGroup() as group:
        attackers = [group.create_task(forge()) for _ in range(50)]
        for number in range(5):
            await clock.sleep(timedelta(seconds=3))
            started = clock.monotonic()
            assert refusal_text(await validator.review(a_review(new=a_nodemaintenance(f"honest-{number}", "n1")))) == ""
            waits.append(clock.monotonic() - started)
        for attacker in attackers:
            attacker.cancel()
    assert max(waits) < 1.1


async def test_authenticated_review_does_not_wait_for_forged_admissions(
    wired_client: tuple[Client, NetworkConnection], clock: Clock
) -> None:
    validator, started = Validator(wired_client[0]), clock.monotonic()
    assert refusal_text(await validator.review(a_review(new=a_nodemaintenance("forged", "n1")))) == ""
    assert (
        refusal_text(await validator.review(a_review(new=a_nodemaintenance("honest", "n1")), authenticated=True)) == ""
    )
    assert clock.monotonic() - started < 0.1


async def test_review_with_a_short_timeout_is_answered_from_the_list(
    wired_client: tuple[Client, NetworkConnection],
) -> None:
    validator = Validator(wired_client[0])
    assert refusal_text(await validator.review(a_review(new=a_nodemaintenance("first", "n1")))) == ""
    response = await validator.review(a_review(new=a_nodemaintenance("second", "n1")), timeout=timedelta(seconds=0.5))
    assert refusal_text(response) == ""


async def test_waiting_review_is_denied_when_the_list_shows_the_other_object(
    wired_client: tuple[Client, NetworkConnection],
) -> None:
    client, validator = wired_client[0], Validator(wired_client[0])
    assert refusal_text(await validator.review(a_review(new=a_nodemaintenance("first", "n1")))) == ""
    async with asyncio.TaskGroup() as group:
        second = group.create_task(validator.review(a_review(new=a_nodemaintenance("second", "n1"))))
        await client.clock.sleep(timedelta(seconds=0.5))
        await client.create(NODE_MAINTENANCES, a_nodemaintenance("first", "n1"))
    assert refusal_text(second.result()) == "invalid nodeName, a NodeMaintenance for node n1 already exists"


async def test_exactly_one_of_many_concurrent_creates_is_admitted(
    wired_client: tuple[Client, NetworkConnection],
) -> None:
    client, validator = wired_client[0], Validator(wired_client[0])

    async def create(name: str) -> str:
        """Create an object as an API server does: what is admitted is stored."""
        refusal = refusal_text(await validator.review(a_review(new=a_nodemaintenance(name, "n1"))))
        if not refusal:
            await client.create(NODE_MAINTENANCES, a_nodemaintenance(name, "n1"))
        return refusal

    refusals = await asyncio.gather(*(create(f"m{number}") for number in range(20)))
    assert sum(not item for item in refusals) == 1


def test_oldest_recent_admission_is_evicted_first() -> None:
    recent_admissions = RecentAdmissions(max_size=3)
    for number in range(5):
        recent_admissions.add(f"m{number}", node=f"n{number}", now=0)
    assert recent_admissions.possibly_unlisted(list_started=0, excluding="") == {
        f"n{number}": f"m{number}" for number in (2, 3, 4)
    }
    recent_admissions.add("later", node="n9", now=100)
    assert len(recent_admissions) == 1


@pytest.mark.parametrize(
    ("review", "text"),
    [
        (a_review(new={"kind": "Pod"}), "expected a NodeMaintenance but got a Pod"),
        (a_review(new=["odd"]), "expected a NodeMaintenance but got a list"),
        (a_review("UPDATE", new=a_nodemaintenance("m", "n1")), "expected a NodeMaintenance but got a NoneType"),
        (a_review(new=a_nodemaintenance("m", "n1") | {"spec": [], "metadata": "odd"}), "no node with name"),
        (a_review("DELETE"), ""),
        (a_review("CONNECT", new=7), ""),
    ],
)
async def test_malformed_reviews_are_answered(
    wired_client: tuple[Client, NetworkConnection], review: RawObject, text: str
) -> None:
    response = refusal_text(await Validator(wired_client[0]).review(review))
    assert text in response
    assert bool(text) is bool(response)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"odd",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": 7, "operation": []}}',
    ],
)
async def test_body_without_an_admission_review_is_rejected(
    wired_client: tuple[Client, NetworkConnection], body: bytes
) -> None:
    with pytest.raises(InvalidReview, match="expected an AdmissionReview"):
        await Validator(wired_client[0]).review(body)
