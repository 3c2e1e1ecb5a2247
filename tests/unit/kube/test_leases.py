import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from haulout.api.objects import Lease, LeaseSpec, ObjectMeta, OwnerReference
from haulout.core.clock import Clock
from haulout.errors import Conflict, LockHeld, NotFound, Unreachable
from haulout.kube import leases
from haulout.kube.client import Client
from haulout.kube.leases import LockState, claim
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
LONG_AGO = NOW - timedelta(days=30)
RECENTLY = NOW - timedelta(minutes=10)
US = "node-maintenance"
OTHER = "NodeHealthCheck-nhc"


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def a_lease(
    holder: str | None,
    *,
    renewed: datetime | None = RECENTLY,
    lasts: timedelta | None = HOUR,
    acquired: datetime | None = LONG_AGO,
    transitions: int | None = 4,
) -> Lease:
    spec = LeaseSpec(
        holder_identity=holder,
        renew_time=renewed,
        lease_duration_seconds=None if lasts is None else round(lasts.total_seconds()),
        acquire_time=acquired,
        lease_transitions=transitions,
    )
    return Lease(metadata=ObjectMeta(name="node-n1", namespace="locks", uid="u", resource_version="7"), spec=spec)


def claim_for_an_hour(lease: Lease | None) -> leases.Claim:
    return claim(lease, holder=US, now=NOW, duration=HOUR)


# The decision. The rules are those of the lock that Node Maintenance Operator and node-healthcheck-operator share.


def test_lock_that_does_not_exist_is_free() -> None:
    found = claim_for_an_hour(None)
    assert (found.state, found.holder, found.until) == (LockState.FREE, "", None)
    assert found.record == LeaseSpec(
        holder_identity=US, lease_duration_seconds=3600, acquire_time=NOW, renew_time=NOW, lease_transitions=0
    )


@pytest.mark.parametrize(
    ("lease", "acquired", "transitions"),
    [
        pytest.param(a_lease(US), LONG_AGO, 4, id="in force"),
        pytest.param(a_lease(US, acquired=None), None, 4, id="in force, without acquireTime"),
        pytest.param(a_lease(US, transitions=None), LONG_AGO, None, id="in force, without leaseTransitions"),
        pytest.param(a_lease(US, renewed=LONG_AGO), LONG_AGO, 4, id="expired"),
        pytest.param(a_lease(US, renewed=LONG_AGO, acquired=None), NOW, 5, id="expired, without acquireTime"),
        pytest.param(a_lease(US, renewed=None), NOW, 5, id="without renewTime"),
        pytest.param(a_lease(US, lasts=None), NOW, 5, id="without duration"),
        pytest.param(a_lease(US, lasts=None, transitions=None), NOW, 1, id="without duration and leaseTransitions"),
        pytest.param(a_lease(US, renewed=NOW + HOUR), LONG_AGO, 4, id="renewed in the future"),
    ],
)
def test_claim_renews_our_own_lock(lease: Lease, acquired: datetime | None, transitions: int | None) -> None:
    found = claim_for_an_hour(lease)
    assert found.state is LockState.OURS
    assert found.record == LeaseSpec(
        holder_identity=US,
        lease_duration_seconds=3600,
        renew_time=NOW,
        acquire_time=acquired,
        lease_transitions=transitions,
    )


def test_claim_keeps_our_lock_unchanged_while_it_lasts_longer_than_requested() -> None:
    lease = a_lease(US, lasts=HOUR + minutes(10))
    assert claim_for_an_hour(lease).record == lease.spec


@pytest.mark.parametrize("holder", [OTHER, "", None])
@pytest.mark.parametrize("renewed", [NOW - HOUR, RECENTLY, NOW, NOW + leases.CLOCK_SKEW])
def test_lock_in_force_is_held_even_without_a_holder_identity(holder: str | None, renewed: datetime) -> None:
    lease = a_lease(holder, renewed=renewed)
    found = claim_for_an_hour(lease)
    assert (found.state, found.holder, found.until) == (LockState.HELD, holder or "", renewed + HOUR)
    assert found.record == lease.spec


@pytest.mark.parametrize("holder", [OTHER, "", None])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"renewed": NOW - HOUR - timedelta(microseconds=1)}, id="expired"),
        pytest.param({"renewed": NOW + leases.CLOCK_SKEW + timedelta(microseconds=1)}, id="renewed in the future"),
        pytest.param({"renewed": None}, id="without renewTime"),
        pytest.param({"lasts": None}, id="without duration"),
    ],
)
def test_claim_takes_over_a_lock_not_in_force(holder: str | None, change: dict[str, Any]) -> None:
    found = claim_for_an_hour(a_lease(holder, **change))
    assert (found.state, found.until) == (LockState.FREE, None)
    assert found.record == LeaseSpec(
        holder_identity=US, lease_duration_seconds=3600, acquire_time=NOW, renew_time=NOW, lease_transitions=5
    )


def test_first_takeover_sets_lease_transitions_to_one() -> None:
    found = claim_for_an_hour(a_lease(OTHER, renewed=None, transitions=None))
    assert found.record.lease_transitions == 1


def test_lease_duration_is_rounded_up_to_whole_seconds() -> None:
    found = claim(None, holder=US, now=NOW, duration=timedelta(seconds=1.2))
    assert found.record.lease_duration_seconds == 2


# Acquiring, renewing, releasing


class World:
    """A cluster with one lock, locks/node-n1, and two processes."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.cluster = ApiServer(clock, namespaces=["locks"])
        self.transport = self.cluster.transport("us")
        self.client = self.a_client(self.transport)

    def a_client(self, transport: InProcessTransport | None = None) -> Client:
        """Return the client of another process."""
        transport = transport or self.cluster.transport()
        return Client(transport, clock=self.clock, random=Random(transport.name))

    async def acquire(self, client: Client | None = None, holder: str = US, **more: Any) -> Lease:
        """Acquire the lock for an hour."""
        client = client or self.client
        settings: dict[str, Any] = {"namespace": "locks", "duration": HOUR} | more
        return await leases.acquire(client, "node-n1", holder=holder, **settings)

    async def renew(self) -> Lease:
        """Renew the lock for an hour."""
        return await leases.renew(self.client, "node-n1", namespace="locks", holder=US, duration=HOUR)

    async def release(self, holder: str = US) -> None:
        """Release the lock."""
        await leases.release(self.client, "node-n1", namespace="locks", holder=holder)

    def lease(self) -> dict[str, Any]:
        """Return the lease of the lock."""
        return self.cluster.get("leases", "node-n1", "locks")

    def is_locked(self) -> bool:
        """Return whether the lock exists."""
        return self.cluster.has("leases", "node-n1", "locks")

    def put(self, holder: str, renewed: str = "2026-01-05T09:00:00.000000Z", seconds: int = 3600) -> None:
        """Write the lock as another process."""
        spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds}
        metadata = {"name": "node-n1", "namespace": "locks", "labels": {"team": "storage"}}
        self.cluster.put({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})


@pytest.fixture
def world(clock: Clock) -> World:
    return World(clock)


async def test_acquire_creates_the_lock_with_its_owner_reference(world: World) -> None:
    owner = OwnerReference(api_version="v1", kind="Node", name="n1", uid="1234")
    lease = await world.acquire(owner=owner)
    assert lease.spec.holder_identity == US
    assert world.lease()["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "1234"}
    ]
    assert world.lease()["spec"] == {
        "holderIdentity": US,
        "leaseDurationSeconds": 3600,
        "acquireTime": "2026-01-05T09:00:00.001000Z",
        "renewTime": "2026-01-05T09:00:00.001000Z",
        "leaseTransitions": 0,
    }


async def test_acquire_assuming_absence_sends_one_create_and_detects_an_existing_lock(world: World) -> None:
    await world.acquire(assume_absent=True)
    assert [recorded.request.method for recorded in world.transport.requests] == ["POST"]
    with pytest.raises(LockHeld) as caught:
        await world.acquire(holder="another", assume_absent=True)
    assert caught.value.holder == US


async def test_acquiring_again_renews_and_replaces_the_owner_reference(world: World) -> None:
    await world.acquire(owner=OwnerReference(api_version="v1", kind="Node", name="n1", uid="old"))
    await world.clock.sleep(minutes(30))
    await world.acquire(owner=OwnerReference(api_version="v1", kind="Node", name="n1", uid="new"))
    assert world.lease()["spec"]["renewTime"] == "2026-01-05T09:30:00.003000Z"
    assert world.lease()["spec"]["acquireTime"] == "2026-01-05T09:00:00.001000Z"
    assert [owner["uid"] for owner in world.lease()["metadata"]["ownerReferences"]] == ["new"]


async def test_takeover_keeps_foreign_labels_of_the_lock(world: World) -> None:
    world.put(OTHER, renewed="2026-01-05T07:00:00.000000Z")
    await world.acquire()
    assert world.lease()["spec"]["holderIdentity"] == US
    assert world.lease()["metadata"]["labels"] == {"team": "storage"}


async def test_lock_held_error_names_the_holder_and_the_expiry(world: World) -> None:
    world.put(OTHER)
    with pytest.raises(LockHeld) as caught:
        await world.acquire()
    assert (caught.value.lock, caught.value.holder) == ("locks/node-n1", OTHER)
    assert caught.value.until == datetime(2026, 1, 5, 10, tzinfo=UTC)
    assert world.lease()["spec"]["holderIdentity"] == OTHER


async def test_renew_updates_renew_time_of_our_lock(world: World) -> None:
    await world.acquire()
    await world.clock.sleep(minutes(59))
    lease = await world.renew()
    assert lease.spec.renew_time == datetime(2026, 1, 5, 9, 59, 0, 3000, tzinfo=UTC)


async def test_renew_revives_our_expired_lock_if_it_is_not_taken(world: World) -> None:
    await world.acquire()
    await world.clock.sleep(minutes(90))
    assert (await world.renew()).spec.holder_identity == US


@pytest.mark.parametrize("renewed", ["2026-01-05T09:00:00.000000Z", "2020-01-01T00:00:00.000000Z"])
async def test_renew_never_takes_back_a_lock_acquired_by_another(world: World, renewed: str) -> None:
    await world.acquire()
    world.put(OTHER, renewed=renewed)
    with pytest.raises(LockHeld, match=OTHER):
        await world.renew()
    assert world.lease()["spec"]["holderIdentity"] == OTHER


async def test_renewing_a_deleted_lock_raises_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        await world.renew()


async def test_release_deletes_the_lock(world: World) -> None:
    await world.acquire()
    await world.release()
    assert not world.is_locked()


async def test_releasing_a_deleted_lock_is_no_error(world: World) -> None:
    await world.release()


async def test_releasing_a_lock_without_a_holder_deletes_it(world: World) -> None:
    world.put("")
    await world.release()
    assert not world.is_locked()


async def test_lock_of_another_holder_is_not_released_even_when_expired(world: World) -> None:
    world.put(OTHER, renewed="2020-01-01T00:00:00.000000Z")
    with pytest.raises(LockHeld, match=OTHER):
        await world.release()
    assert world.is_locked()


async def test_lock_acquired_by_another_during_our_release_is_kept(world: World) -> None:
    await world.acquire()
    world.transport.faults.delay(timedelta(seconds=2), method="DELETE")
    asyncio.get_running_loop().call_later(1, world.put, OTHER)
    with pytest.raises(LockHeld, match=OTHER):
        await world.release()
    assert world.lease()["spec"]["holderIdentity"] == OTHER


# Failures


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("outcome", [None, 500, 504])
async def test_write_that_took_effect_without_a_response_is_detected(
    world: World, method: str, outcome: int | None
) -> None:
    lost_response = world.transport.faults.fail_after_effect(method=method, response=outcome)
    await world.acquire()
    await world.clock.sleep(minutes(10))
    await world.acquire()
    assert world.lease()["spec"]["leaseTransitions"] == 0
    await world.release()
    assert not world.is_locked()
    assert lost_response.hits == 1
    assert len(world.cluster.history) == 3, "nothing was written twice"


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_write_that_had_no_effect_is_retried(world: World, method: str) -> None:
    world.transport.faults.fail_before_effect(method=method, response=500, times=2)
    await world.acquire()
    await world.clock.sleep(minutes(10))
    await world.acquire()
    assert world.lease()["spec"]["renewTime"] > "2026-01-05T09:10:00"
    await world.release()
    assert not world.is_locked()


async def test_persistent_conflict_is_raised(world: World) -> None:
    await world.acquire()
    world.transport.faults.fail_before_effect(method="PATCH", response=409, times=None)
    await world.clock.sleep(HOUR + minutes(1))
    with pytest.raises(Conflict):
        await world.acquire()


async def test_unreachable_server_is_raised(world: World) -> None:
    world.transport.cut()
    with pytest.raises(Unreachable):
        await world.acquire()


@pytest.mark.parametrize("seed", range(100))
def test_exactly_one_of_twenty_concurrent_acquirers_gets_the_lock(seed: int) -> None:
    async def race() -> None:
        random = Random(seed)
        world = World(VirtualClock())
        if seed % 2:
            world.put(OTHER, renewed="2020-01-01T00:00:00.000000Z")
        winners: list[str] = []

        async def racer(name: str) -> None:
            transport = world.cluster.transport(name, latency=timedelta(milliseconds=random.choice([0, 2, 4])))
            if random.random() < 0.3:
                transport.faults.fail_after_effect(method=random.choice(["POST", "PATCH"]))
            await world.clock.sleep(timedelta(milliseconds=random.randint(0, 4)))
            try:
                await world.acquire(world.a_client(transport), holder=name)
            except LockHeld:
                return
            winners.append(name)

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(racer(f"racer-{number}"))
        assert winners == [world.lease()["spec"]["holderIdentity"]]
        writes = [write.username for write in world.cluster.history if write.username != "test"]
        assert writes == winners, "no other process ever held it"

    run_virtual(race())


@pytest.mark.parametrize("seed", range(20))
def test_processes_of_one_holder_share_the_lock_without_transitions(seed: int) -> None:
    async def race() -> None:
        random = Random(seed)
        world = World(VirtualClock())
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                latency = timedelta(milliseconds=random.randint(1, 30))
                client = world.a_client(world.cluster.transport(f"replica-{number}", latency=latency))
                group.create_task(world.acquire(client))
        assert world.lease()["spec"]["holderIdentity"] == US
        assert world.lease()["spec"]["leaseTransitions"] == 0

    run_virtual(race())


@pytest.mark.parametrize("seed", range(40))
def test_lock_changes_its_holder_only_after_release_or_expiry(seed: int) -> None:
    """Processes that acquire, renew, release and die at random: the invariant holds at every revision."""

    async def run_processes() -> None:
        random = Random(seed)
        world = World(VirtualClock())

        async def process(name: str) -> None:
            transport = world.cluster.transport(name, latency=timedelta(milliseconds=random.randint(0, 3000)))
            client = world.a_client(transport)
            for _ in range(12):
                await world.clock.sleep(timedelta(seconds=random.expovariate(1 / 20)))
                if random.random() < 0.2:
                    transport.faults.fail_after_effect(method=random.choice(["POST", "PATCH", "DELETE"]))
                try:
                    if random.random() < 0.7:
                        await world.acquire(client, holder=name, duration=timedelta(seconds=random.randint(10, 60)))
                    else:
                        await leases.release(client, "node-n1", namespace="locks", holder=name)
                except LockHeld:
                    continue

        async with asyncio.TaskGroup() as group:
            for name in "abcd":
                group.create_task(process(name))
        assert_writes_only_by_holder_or_after_expiry(world)

    run_virtual(run_processes())


def assert_writes_only_by_holder_or_after_expiry(world: World) -> None:
    for write in world.cluster.history:
        if write.before is None:
            continue
        before = write.before["spec"]
        until = datetime.fromisoformat(before["renewTime"]) + timedelta(seconds=before["leaseDurationSeconds"])
        assert before["holderIdentity"] == write.username or until < write.written_at, (
            f"{write.username} broke in: {before}"
        )
