import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from random import Random
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout.errors import KubeError, LeadershipLost
from haulout.kube.client import Client
from haulout.kube.leaderelection import LeaderElection
from haulout.kube.leaderelection_config import LeaderElectionConfig
from haulout.kube.patches import merge_patch
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.event_loops.virtual_time import VirtualClock
from support.faults.stalled_processes import DelayedNetwork, StallingLoop, process_context

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True, model=RawObject)
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "op", "namespace": "haulout"}}


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


TIMING = LeaderElectionConfig(lease_duration=seconds(15), renew_deadline=seconds(10), retry_period=seconds(2))


@dataclass
class World:
    """A cluster, and the candidates for the lease haulout/op in it."""

    clock: VirtualClock
    cluster: ApiServer
    group: asyncio.TaskGroup
    candidates: list["Candidate"] = field(default_factory=list)

    def candidate(self, name: str, *, pause: float = 0.1, **settings: Any) -> "Candidate":
        """Start a process that stands for leader, again and again, and when it leads writes after every `pause`."""
        candidate = Candidate(name, self, pause, settings)
        self.candidates.append(candidate)
        with process_context(name):
            candidate.task = self.group.create_task(candidate.run())
        return candidate

    async def pass_time(self, number: float) -> None:
        """Let time pass."""
        await self.clock.sleep(seconds(number))

    def lease(self) -> dict[str, Any]:
        """Return the spec of the lease."""
        spec: dict[str, Any] = self.cluster.get("leases", "op", "haulout")["spec"]
        return spec

    def put_lease(self, **spec: Any) -> None:
        """Write the lease as another process."""
        self.cluster.put(LEASE | {"spec": spec})

    def leaders(self) -> list[str]:
        """Return the names of the candidates that believe they lead."""
        return [candidate.name for candidate in self.candidates if candidate.election.is_leader()]

    async def wait_for_leader(self, within: float = 40) -> "Candidate":
        """Wait until a candidate leads and return it."""
        async with asyncio.timeout(within):
            while not self.leaders():
                await self.pass_time(0.1)
        return next(candidate for candidate in self.candidates if candidate.election.is_leader())

    def work_done(self) -> list[tuple[datetime, str]]:
        """Return when each write of the leading work took effect, and the term in which it was sent."""
        writes = (write for write in self.cluster.history if write.kind.plural == "configmaps")
        return [
            (write.written_at, write.after["data"]["term"]) for write in writes if write.verb == "patch" and write.after
        ]


class Candidate:
    """One process."""

    def __init__(self, name: str, world: World, pause: float, settings: dict[str, Any]) -> None:
        self.name = name
        self.pause = pause
        self.world = world
        self.transport: InProcessTransport = world.cluster.transport(name)
        random = Random(name)
        connecting = settings.pop("connecting", timedelta())
        self.network = DelayedNetwork(self.transport, clock=world.clock, connect_delay=connecting)
        client = Client(self.network, clock=world.clock, random=random)
        usual: dict[str, Any] = {"name": "op", "namespace": "haulout", "identity": name, "config": TIMING}
        self.election = LeaderElection(client, **(usual | settings))
        self.terms = 0
        self.ends: list[str] = []
        self.stops_after_loss = False
        self.task: asyncio.Task[None]

    async def run(self) -> None:
        """Stand for leader again whenever leadership is lost."""
        while True:
            try:
                await self.election.run(self.work)
            except LeadershipLost as lost:
                self.ends.append(str(lost))
                if self.stops_after_loss:
                    return

    async def work(self, client: Client) -> None:
        """Write, whatever happens."""
        self.terms += 1
        body = {"data": {"term": f"{self.name}-{self.terms}"}}
        while True:
            with suppress(KubeError):
                body["data"]["at"] = str(self.world.clock.monotonic())
                await client.patch(CONFIG_MAPS, "work", merge_patch(body), namespace="haulout")
            if self.pause:
                await self.world.pass_time(self.pause)

    def kill(self) -> None:
        """End the process as SIGKILL does: nothing that it does from now on has any effect."""
        self.transport.cut()
        self.task.cancel()
        self.world.candidates.remove(self)


@asynccontextmanager
async def a_world(clock: VirtualClock | None = None) -> AsyncIterator[World]:
    clock = clock or VirtualClock()
    cluster = ApiServer(clock)
    cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "work", "namespace": "haulout"}})
    async with asyncio.TaskGroup() as group:
        world = World(clock, cluster, group)
        yield world
        for candidate in world.candidates:
            candidate.task.cancel()


def client_of(world: World, name: str = "tester") -> Client:
    return Client(world.cluster.transport(name), clock=world.clock, random=Random(name))


async def forever(client: Client) -> None:
    await client.clock.sleep(timedelta(days=1000))


# Acquiring and renewing the lease


async def test_the_first_candidate_creates_the_lease_and_leads() -> None:
    async with a_world() as world:
        a = world.candidate("a")
        await world.pass_time(1)
        assert a.election.is_leader()
        assert world.lease() == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-05T09:00:00.001000Z",
            "renewTime": "2026-01-05T09:00:00.001000Z",
            "leaseTransitions": 0,
        }


async def test_of_five_candidates_one_leads_and_all_report_the_same_leader() -> None:
    async with a_world() as world:
        everyone = [world.candidate(name) for name in "abcde"]
        await world.pass_time(10)
        (leader,) = world.leaders()
        assert {candidate.election.leader for candidate in everyone} == {leader}


async def test_a_leader_renews_with_one_request_each_retry_period() -> None:
    async with a_world() as world:
        a = world.candidate("a")
        await world.pass_time(1)
        before = len(a.transport.sent_requests(path="leases"))
        await world.pass_time(60)
        renewals = a.transport.sent_requests(path="leases")[before:]
        assert {request.method for request in renewals} == {"PATCH"}
        assert 29 <= len(renewals) <= 30


async def test_renewal_keeps_acquire_time_and_foreign_fields_of_the_lease() -> None:
    async with a_world() as world:
        world.candidate("a")
        await world.pass_time(1)
        acquired = world.lease()["acquireTime"]
        lease = world.cluster.get("leases", "op", "haulout")
        lease["metadata"]["labels"] = {"team": "storage"}
        lease["spec"]["strategy"] = "OldestEmulationVersion"
        world.cluster.put(lease)
        await world.pass_time(60)
        assert world.leaders() == ["a"]
        assert world.lease()["acquireTime"] == acquired < world.lease()["renewTime"]
        assert world.lease()["leaseTransitions"] == 0
        assert world.lease()["strategy"] == "OldestEmulationVersion"
        assert world.cluster.get("leases", "op", "haulout")["metadata"]["labels"] == {"team": "storage"}


async def test_renew_time_has_six_fraction_digits_on_a_full_second() -> None:
    async with a_world() as world:
        a = world.candidate("a")
        a.transport.latency = timedelta()
        await world.pass_time(1)
        assert world.lease()["renewTime"] == "2026-01-05T09:00:00.000000Z"


async def test_a_new_leader_is_announced_once() -> None:
    leaders: list[str] = []
    async with a_world() as world:
        world.put_lease(holderIdentity="go", leaseDurationSeconds=15, renewTime="2026-01-05T09:00:00.000000Z")
        world.candidate("a", on_new_leader=leaders.append)
        await world.pass_time(60)
    assert leaders == ["go", "a"]


# Taking over


async def test_released_lease_is_acquired_at_the_next_retry() -> None:
    async with a_world() as world:
        world.put_lease(holderIdentity="", leaseDurationSeconds=1, leaseTransitions=4)
        world.candidate("a")
        await world.pass_time(0.1)
        assert world.leaders() == ["a"]
        assert world.lease()["leaseTransitions"] == 5


async def test_own_lease_from_before_a_restart_is_continued_at_once() -> None:
    async with a_world() as world:
        acquired = "2026-01-05T08:00:00.000000Z"
        world.put_lease(holderIdentity="a", leaseDurationSeconds=15, acquireTime=acquired, leaseTransitions=4)
        world.candidate("a")
        await world.pass_time(0.1)
        assert world.leaders() == ["a"]
        assert (world.lease()["acquireTime"], world.lease()["leaseTransitions"]) == (acquired, 4)


@pytest.mark.parametrize("renewed", ["2020-01-01T00:00:00.000000Z", "2040-01-01T00:00:00.000000Z"])
async def test_a_foreign_lease_is_taken_only_after_its_own_duration_on_our_clock(renewed: str) -> None:
    """Whatever its renewTime says: the other machine's clock may be wrong by years."""
    async with a_world() as world:
        world.put_lease(holderIdentity="go", leaseDurationSeconds=40, renewTime=renewed)
        world.candidate("a")
        await world.pass_time(40)
        assert world.leaders() == []
        await world.pass_time(5)
        assert world.leaders() == ["a"]
        assert world.lease()["leaseDurationSeconds"] == 15


async def test_foreign_lease_without_a_duration_lasts_as_long_as_configured() -> None:
    async with a_world() as world:
        world.put_lease(holderIdentity="go")
        world.candidate("a")
        await world.pass_time(15)
        assert world.leaders() == []
        await world.pass_time(5)
        assert world.leaders() == ["a"]


async def test_a_foreign_leader_that_renews_is_never_disturbed() -> None:
    async with a_world() as world:
        world.candidate("a")
        for renewal in range(100):
            world.put_lease(
                holderIdentity="go", leaseDurationSeconds=15, renewTime=f"2020-01-01T00:00:00.{renewal:06}Z"
            )
            await world.pass_time(14)
        assert world.leaders() == []


async def test_expired_lease_is_taken_over_although_its_metadata_keeps_changing() -> None:
    async with a_world() as world:
        world.put_lease(holderIdentity="go", leaseDurationSeconds=15)
        world.candidate("a")
        for number in range(40):
            lease = world.cluster.get("leases", "op", "haulout")
            lease["metadata"]["annotations"] = {"scanned": str(number)}
            world.cluster.put(lease)
            await world.pass_time(0.7)
        assert world.leaders() == ["a"]


async def test_killed_leader_is_replaced_soon_after_its_lease_expires() -> None:
    async with a_world() as world:
        a = world.candidate("a")
        await world.pass_time(5)
        world.candidate("b")
        await world.pass_time(5)
        assert world.leaders() == ["a"]
        a.kill()
        await world.pass_time(13)
        assert world.leaders() == []
        await world.pass_time(2 + 2 * 4.4)
        assert world.leaders() == ["b"]
        assert world.lease()["leaseTransitions"] == 1


async def test_leader_that_stops_is_replaced_at_the_next_retry() -> None:
    async with a_world() as world:
        a = world.candidate("a")
        await world.pass_time(5)
        world.candidate("b")
        await world.pass_time(5)
        a.task.cancel()
        world.candidates.remove(a)
        await world.pass_time(4.5)
        assert world.leaders() == ["b"]


# Losing the lease


async def assert_leader_stops_within_renew_deadline(world: World, a: Candidate) -> None:
    """Check that `a`, which cannot renew from now on, works no longer than its last renewal allows."""
    renewed = datetime.fromisoformat(world.lease()["renewTime"])
    await world.pass_time(30)
    assert a.ends
    assert max(at for at, _ in world.work_done()) < renewed + seconds(10)


async def a_leader(world: World) -> Candidate:
    a = world.candidate("a")
    await world.pass_time(7)
    assert world.leaders() == ["a"]
    return a


async def test_leader_without_connection_stops_before_its_lease_expires() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        a.transport.faults.fail_before_effect(path="leases", times=None)
        await assert_leader_stops_within_renew_deadline(world, a)
        assert "could not be renewed for 10 s: " in a.ends[0]
        assert "connection refused" in a.ends[0]


async def test_leader_without_responses_stops_before_its_lease_expires() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        a.transport.faults.hang(path="leases", times=None)
        await assert_leader_stops_within_renew_deadline(world, a)
        assert "no answer within 4 s" in a.ends[0]


@pytest.mark.parametrize("code", [401, 403, 409, 429, 500, 503])
async def test_leader_whose_renewals_are_refused_stops_before_its_lease_expires(code: int) -> None:
    async with a_world() as world:
        a = await a_leader(world)
        a.transport.faults.fail_before_effect(method="PATCH", path="leases", response=code, times=None)
        await assert_leader_stops_within_renew_deadline(world, a)


@pytest.mark.parametrize("code", [401, 403, 409, 429, 500, 503])
async def test_leader_survives_transient_errors(code: int) -> None:
    async with a_world() as world:
        a = await a_leader(world)
        a.transport.faults.fail_before_effect(path="leases", response=code, times=3)
        await world.pass_time(30)
        assert world.leaders() == ["a"]
        assert not a.ends


async def test_renewal_that_took_effect_without_a_response_counts() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        lost_response = a.transport.faults.fail_after_effect(method="PATCH", path="leases", times=None)
        await world.pass_time(120)
        assert world.leaders() == ["a"]
        assert not a.ends
        assert lost_response.hits > 30


async def test_renewal_counts_from_its_request_not_from_its_response() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        a.transport.faults.delay(seconds(4), method="PATCH", path="leases", times=1)
        await world.pass_time(4)
        a.transport.faults.fail_before_effect(method="PATCH", path="leases", response=500, times=None)
        left = datetime.fromisoformat(world.lease()["renewTime"]) + seconds(10) - world.clock.now()
        await world.pass_time(left.total_seconds() - 0.001)
        assert a.election.is_leader()
        await world.pass_time(0.001)
        assert not a.election.is_leader()


async def test_hanging_renewal_times_out_early_enough_for_another() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        hung = a.transport.faults.hang(method="PATCH", path="leases", times=1)
        await world.pass_time(30)
        assert hung.hits == 1
        assert not a.ends


async def test_acquisition_that_took_effect_without_a_response_counts() -> None:
    async with a_world() as world:
        world.put_lease(holderIdentity="", leaseTransitions=2)
        a = world.candidate("a")
        a.transport.faults.fail_after_effect(method="PATCH", path="leases", times=1)
        await world.pass_time(3)
        assert world.leaders() == ["a"]
        assert world.lease()["leaseTransitions"] == 3


async def test_lease_taken_by_another_ends_leadership_at_the_next_renewal() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        world.put_lease(holderIdentity="thief", leaseDurationSeconds=15)
        stolen_at = world.clock.now()
        await world.pass_time(10)
        assert max(at for at, _ in world.work_done()) < stolen_at + seconds(2.2)
        assert a.ends == ["a lost lease haulout/op: it is held by thief"]
        assert world.lease()["holderIdentity"] == "thief"


async def test_second_process_with_the_same_identity_ends_leadership() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        a.stops_after_loss = True
        world.candidate("b", identity="a")
        await world.pass_time(5)
        assert a.ends == ["a lost lease haulout/op: another process with the same identity holds it"]
        assert world.leaders() == ["b"]


async def test_leader_recreates_its_deleted_lease() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        acquired = world.lease()["acquireTime"]
        world.cluster.remove("leases", "op", "haulout")
        await world.pass_time(5)
        assert world.leaders() == ["a"]
        assert not a.ends
        assert world.lease()["acquireTime"] == acquired


async def test_lease_deleted_and_acquired_by_another_is_lost() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        world.cluster.remove("leases", "op", "haulout")
        world.put_lease(holderIdentity="go", leaseDurationSeconds=15)
        await world.pass_time(3)
        assert a.ends == ["a lost lease haulout/op: it is held by go"]


async def test_lease_acquired_by_another_while_it_is_recreated_is_lost() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        world.cluster.remove("leases", "op", "haulout")
        a.transport.faults.delay(seconds(1), method="POST", path="leases")
        await world.pass_time(2)
        world.put_lease(holderIdentity="go", leaseDurationSeconds=15)
        await world.pass_time(1)
        assert a.ends == ["a lost lease haulout/op: it is held by go"]


async def test_deleted_lease_that_cannot_be_recreated_is_lost_at_the_renew_deadline() -> None:
    async with a_world() as world:
        a = await a_leader(world)
        world.cluster.remove("leases", "op", "haulout")
        a.transport.faults.fail_before_effect(method="POST", path="leases", response=403, times=None)
        await world.pass_time(10)
        assert "it could not be renewed for 10 s: creating leases.coordination.k8s.io haulout/op: " in a.ends[0]


async def test_standby_waits_for_the_lease_duration_after_a_held_lease_was_deleted() -> None:
    """Unlike client-go, which creates it at once, while a leader that is cut off still works."""
    async with a_world() as world:
        a = await a_leader(world)
        world.candidate("b")
        await world.pass_time(5)
        a.transport.faults.fail_before_effect(path="leases", times=None)
        world.cluster.remove("leases", "op", "haulout")
        await world.pass_time(14)
        assert a.ends
        assert world.leaders() == []
        await world.pass_time(10)
        assert world.leaders() == ["b"]


async def test_wall_clock_jumps_do_not_change_the_leader(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        a = await a_leader(world)
        b = world.candidate("b")
        await world.pass_time(7)
        for jump in (timedelta(days=-400), timedelta(days=800), timedelta(seconds=-8)):
            clock.move_wall_clock(jump)
            await world.pass_time(20)
        assert world.leaders() == ["a"]
        assert not a.ends
        assert b.terms == 0


async def test_wall_clock_set_back_repeatedly_does_not_make_the_lease_look_expired(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        a = await a_leader(world)
        world.candidate("b")
        renew_times = set()
        for _ in range(40):
            renewed = world.lease()["renewTime"]
            while world.lease()["renewTime"] == renewed:
                await world.pass_time(0.001)
            renew_times.add(world.lease()["renewTime"][:-5])
            clock.move_wall_clock(seconds(-2.001))  # to the very moment of the last renewal
        assert len(renew_times) == 1
        assert world.leaders() == ["a"]
        assert not a.ends


async def test_candidate_logs_a_warning_once_per_kind_of_failure(caplog: pytest.LogCaptureFixture) -> None:
    async with a_world() as world:
        a = world.candidate("a")
        a.transport.faults.fail_before_effect(path="leases", response=403, times=5)
        a.transport.faults.fail_before_effect(path="leases", response=500, times=None, skip=5)
        await world.pass_time(300)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2


# Releasing the lease


@asynccontextmanager
async def running(
    election: LeaderElection, lead: Callable[[Client], Awaitable[None]]
) -> AsyncIterator[asyncio.Task[None]]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(election.run(lead))
        yield task
        task.cancel()


def an_election(world: World, name: str = "a") -> LeaderElection:
    return LeaderElection(client_of(world, name), name="op", namespace="haulout", identity=name, config=TIMING)


async def test_lease_is_released_when_the_leading_task_ends() -> None:
    async def lead(client: Client) -> None:
        await client.clock.sleep(seconds(5))

    async with a_world() as world:
        election = an_election(world)
        await election.run(lead)
        now = "2026-01-05T09:00:05.003000Z"
        assert not election.is_leader()
        assert world.lease() == {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }


async def test_error_of_the_leading_task_is_raised_and_the_lease_is_released() -> None:
    async def lead(_: Client) -> None:
        raise ZeroDivisionError

    async with a_world() as world:
        with pytest.raises(ZeroDivisionError):
            await an_election(world).run(lead)
        assert world.lease()["holderIdentity"] == ""


async def test_lease_is_released_on_cancel_only_after_the_leading_task_has_cleaned_up() -> None:
    async with a_world() as world:
        cleanups: list[tuple[str, bool]] = []

        async def lead(client: Client) -> None:
            try:
                await forever(client)
            finally:
                await client.clock.sleep(seconds(60))
                cleanups.append((world.lease()["holderIdentity"], election.is_leader()))

        election = an_election(world)
        async with running(election, lead):
            await world.pass_time(5)
        assert cleanups == [("a", True)]
        assert world.lease()["holderIdentity"] == ""


async def test_release_finishes_when_cancelled_again() -> None:
    async with a_world() as world:
        election = an_election(world)
        async with running(election, forever) as task:
            await world.pass_time(5)
            task.cancel()
            await world.pass_time(0.0011)
        assert task.cancelled()
        assert world.lease()["holderIdentity"] == ""


async def test_release_has_a_time_limit() -> None:
    async with a_world() as world:
        transport = world.cluster.transport()
        client = Client(transport, clock=world.clock, random=Random(1))
        election = LeaderElection(client, name="op", namespace="haulout", identity="a", config=TIMING)
        async with running(election, forever):
            await world.pass_time(5)
            transport.silence()
            stopped = world.clock.monotonic()
        assert world.clock.monotonic() - stopped <= 5
        assert world.lease()["holderIdentity"] == "a"


async def test_renewal_in_flight_does_not_undo_the_release() -> None:
    async with a_world() as world:
        transport = world.cluster.transport()
        client = Client(transport, clock=world.clock, random=Random(1))
        election = LeaderElection(client, name="op", namespace="haulout", identity="a", config=TIMING)
        async with running(election, forever):
            await world.pass_time(1)
            transport.faults.delay_effect(seconds(3), method="PATCH", path="leases")
            await world.pass_time(1.5)
        assert world.lease()["holderIdentity"] == ""
        await world.pass_time(5)
        assert world.lease()["holderIdentity"] == ""


async def test_lease_held_by_another_is_not_released() -> None:
    async with a_world() as world:
        async with running(an_election(world), forever):
            await world.pass_time(1)
            world.put_lease(holderIdentity="go", leaseDurationSeconds=15)
        assert world.lease()["holderIdentity"] == "go"


async def test_acquisition_in_flight_when_cancelled_is_released() -> None:
    async with a_world() as world:
        transport = world.cluster.transport()
        transport.faults.hang(method="POST", path="leases", takes_effect=True)
        client = Client(transport, clock=world.clock, random=Random(1))
        async with running(
            LeaderElection(client, name="op", namespace="haulout", identity="a", config=TIMING), forever
        ):
            await world.pass_time(1)
            assert world.lease()["holderIdentity"] == "a"
        assert world.lease()["holderIdentity"] == ""


async def test_error_raised_on_cancel_is_the_cause_of_leadership_lost() -> None:
    async with a_world() as world:
        transport = world.cluster.transport()
        client = Client(transport, clock=world.clock, random=Random(1))
        election = LeaderElection(client, name="op", namespace="haulout", identity="a", config=TIMING)

        async def lead(_: Client) -> None:
            transport.cut()
            try:
                await forever(client)
            except asyncio.CancelledError:
                raise ZeroDivisionError from None

        with pytest.raises(LeadershipLost) as lost:
            await election.run(lead)
        assert isinstance(lost.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("timing", "message"),
    [
        ({"lease_duration": seconds(6)}, "lease duration must be greater than the renew deadline, got 6s and 6s"),
        ({"retry_period": seconds(5)}, "greater than 1.2 times the retry period, got 6s and 5s"),
        ({"retry_period": seconds(0)}, "the retry period must be greater than 0, got 0s"),
        ({"retry_period": seconds(-1)}, "the retry period must be greater than 0, got -1s"),
        ({"lease_duration": seconds(14.5)}, "must be whole seconds, as in the Lease, got 14.5s"),
    ],
)
def test_unsafe_lease_timing_is_rejected(timing: dict[str, timedelta], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LeaderElectionConfig(**timing)


async def test_election_without_identity_or_with_a_fenced_client_is_rejected() -> None:
    async with a_world() as world:
        client = client_of(world)
        with pytest.raises(ValueError, match="identity is empty"):
            LeaderElection(client, name="op", namespace="haulout", identity="")
        with pytest.raises(ValueError, match="the client has a fence"):
            LeaderElection(client.with_fence(lambda: None), name="op", namespace="haulout", identity="a")


# Stalls: the machine stops, or the event loop does not get to run


def on_stalling_loop(main: Callable[[StallingLoop], Awaitable[None]]) -> None:
    async def start() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StallingLoop)
        await main(loop)

    with asyncio.Runner(loop_factory=StallingLoop) as runner:
        runner.run(start())


@pytest.mark.parametrize("pause", [0, 0.1])
def test_leader_writes_nothing_after_a_stall_beyond_its_lease(pause: float) -> None:
    async def main(loop: StallingLoop) -> None:
        async with a_world() as world:
            a = world.candidate("a", pause=pause)
            a.transport.latency = seconds(0.01)
            await world.pass_time(7)
            world.candidate("b")
            await world.pass_time(7)
            stalled_at = world.clock.now()
            loop.stall("a", seconds(30))
            await world.pass_time(25)
            assert world.leaders() == ["b"]
            await world.pass_time(10)
            assert world.leaders() == ["b"]
            assert max(at for at, term in world.work_done() if term == "a-1") <= stalled_at + seconds(0.01)
            # Work that waits for an answer is ready to run before the timer that ends it, and meets the fence.
            assert ("must not write" in a.ends[0]) == (pause == 0)

    on_stalling_loop(main)


# The invariant: one writer at a time


@pytest.mark.parametrize("seed", range(60))
def test_two_leaders_never_write_at_once_under_random_faults(seed: int) -> None:
    """Two to five candidates, random faults: writes of two terms never interleave, and only the holder writes."""

    async def main(loop: StallingLoop) -> None:
        random = Random(seed)
        async with a_world() as world:
            for name in "abcde"[: random.randint(2, 5)]:
                world.candidate(name, pause=0.3)
            for _ in range(25):
                await world.pass_time(random.expovariate(1 / 4))
                inject_fault(world, loop, random)
            assert_terms_do_not_interleave(world)
            assert_only_the_holder_works(world)
            for candidate in world.candidates:
                candidate.transport.mend()
                candidate.transport.faults.clear()
                candidate.pause = 5
            await world.pass_time(70)
            assert len(world.leaders()) == 1, "once faults stop, a candidate leads"

    on_stalling_loop(main)


@pytest.mark.parametrize("seed", range(16))
def test_two_leaders_never_write_at_once_when_the_lease_is_deleted(seed: int) -> None:
    """All candidates have observed the holder: one that has not must take a missing lease for a new one."""

    async def main(loop: StallingLoop) -> None:
        random = Random(seed)
        async with a_world() as world:
            for name in "abc":
                world.candidate(name, pause=0.3)
            for _ in range(3):
                await world.pass_time(40)
                leader = await world.wait_for_leader()
                stall = partial(loop.stall, leader.name, seconds(random.uniform(1, 30)))
                troubles: list[Callable[[], None]] = [leader.transport.cut, leader.transport.silence, stall]
                random.choice(troubles)()
                await world.pass_time(random.uniform(0, 9))
                world.cluster.remove("leases", "op", "haulout")
                await world.pass_time(random.uniform(1, 30))
                leader.transport.mend()
            assert_terms_do_not_interleave(world)

    on_stalling_loop(main)


def inject_fault(world: World, loop: StallingLoop, random: Random) -> None:
    """Inject a random fault, into the leader more often than into others."""
    leaders = [candidate for candidate in world.candidates if candidate.election.is_leader()]
    victim = random.choice(leaders * 5 + world.candidates)
    faults = victim.transport.faults
    wall = random.choice([-3600, -5, 5, 3600])
    method = random.choice(["GET", "PATCH", "POST", ""])
    times = random.randint(1, 6)
    leases: Any = {"path": "leases", "method": method, "times": times}
    kinds: list[Callable[[], object]] = [
        victim.transport.cut,
        victim.transport.silence,
        victim.transport.mend,
        victim.transport.mend,
        lambda: loop.stall(victim.name, seconds(random.uniform(1, 30))),
        lambda: faults.fail_before_effect(response=random.choice([409, 429, 500, 503, 403]), **leases),
        lambda: faults.fail_after_effect(**leases),
        lambda: faults.fail_after_effect(response=504, **leases),
        lambda: faults.hang(takes_effect=random.random() < 0.5, **leases),
        lambda: faults.delay_effect(seconds(random.uniform(1, 20)), **leases),
        lambda: faults.delay(seconds(random.uniform(0.1, 6)), **leases),
        lambda: faults.delay(seconds(random.uniform(0.1, 4)), path="configmaps", times=times),
        lambda: world.clock.move_wall_clock(seconds(wall)),
        lambda: replace_process(world, victim),
    ]
    random.choice(kinds)()


def replace_process(world: World, victim: Candidate) -> None:
    victim.kill()
    world.candidate(f"{victim.name}x", pause=victim.pause)


def assert_terms_do_not_interleave(world: World) -> None:
    terms = [term for term, _ in groupby(term for _, term in world.work_done())]
    assert len(terms) == len(set(terms)), f"two led at once: {terms}"


def assert_only_the_holder_works(world: World) -> None:
    holder = ""
    for write in world.cluster.history:
        if write.kind.plural == "leases" and write.after:
            holder = write.after["spec"]["holderIdentity"]
        elif write.verb == "patch":
            assert write.username == holder, (
                f"revision {write.revision}: {write.username} wrote while {holder} held the lease"
            )


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_write_waiting_for_a_connection_is_not_sent_after_the_term(depth: int) -> None:
    """The fence is checked when the request is sent, not when the write is called: a stall may lie between the two."""

    async def scenario() -> list[str]:
        async with a_world() as world:
            leader = world.candidate("a", connecting=timedelta(milliseconds=50))
            keep_writing = leader.work

            async def nested(client: Client, below: int = depth) -> None:
                async with asyncio.TaskGroup() as group:
                    group.create_task(nested(client, below - 1) if below else keep_writing(client))

            leader.work = nested  # type: ignore[method-assign]  # each level delays a cancellation by one turn of the loop
            await world.wait_for_leader()
            world.candidate("b")
            await world.pass_time(5)
            while not any("configmaps" in path for path in leader.network.connecting_paths):
                await world.pass_time(0.01)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, StallingLoop)
            loop.stall("a", timedelta(seconds=40))
            await world.pass_time(60)
            return [term for _, term in world.work_done()]

    with asyncio.Runner(loop_factory=StallingLoop) as runner:
        terms = runner.run(scenario())
    assert "b-1" in terms
    assert "a-1" not in terms[terms.index("b-1") :]


async def test_failing_on_new_leader_callback_does_not_end_the_candidate(caplog: pytest.LogCaptureFixture) -> None:
    def careless(_: str) -> None:
        raise RuntimeError("careless")

    async with a_world() as world:
        candidate = world.candidate("a", on_new_leader=careless)
        await world.wait_for_leader()
        assert candidate.election.is_leader()
    assert "a listener for lease haulout/op failed" in caplog.text


# An election that depends on another one


class NestedElections:
    """A process that leads `haulout/op` and, while it does, stands for `haulout/beside` and works under both."""

    def __init__(self, world: World, name: str, **timing: timedelta) -> None:
        self.world = world
        self.name = name
        self.transport = world.cluster.transport(name)
        client = Client(self.transport, clock=world.clock, random=Random(name))
        of = partial(LeaderElection, client, namespace="haulout", identity=name, config=LeaderElectionConfig(**timing))
        self.outer, self.inner = of(name="op"), of(name="beside")
        self.inner_terms = 0
        with process_context(name):
            self.task = world.group.create_task(self.run())

    async def run(self) -> None:
        """Stand for the first lease again whenever it is lost."""
        while True:
            with suppress(LeadershipLost):
                await self.outer.run(self.lead, next_election=self.inner)

    async def lead(self, client: Client) -> None:
        """Stand for the second lease while the first is held."""
        async with asyncio.TaskGroup() as group:
            inner_task = group.create_task(self.run_inner(client))
            try:
                await asyncio.Event().wait()
            finally:
                inner_task.cancel()

    async def run_inner(self, client: Client) -> None:
        """Stand for the second lease again whenever it is lost."""
        while True:
            self.inner_terms += 1
            with suppress(LeadershipLost):
                await self.inner.run(self.work, fence=client.fence)
            await self.world.pass_time(1)

    async def work(self, client: Client) -> None:
        """Write under both leases, whatever happens."""
        while True:
            with suppress(KubeError):
                at = str(self.world.clock.monotonic())
                patch = merge_patch({"data": {"term": self.name, "at": at}})
                await client.patch(CONFIG_MAPS, "work", patch, namespace="haulout")
            await self.world.pass_time(0.1)

    def has_both(self) -> bool:
        """Tell whether it leads in both elections."""
        return self.outer.is_leader() and self.inner.is_leader()

    def kill(self) -> None:
        """End the process as SIGKILL does."""
        self.transport.cut()
        self.task.cancel()


def is_watch_request(request: Request) -> bool:
    return ("watch", "true") in request.query


def inner_lease_holder(world: World) -> str:
    return str(world.cluster.get("leases", "beside", "haulout")["spec"]["holderIdentity"])


@asynccontextmanager
async def nested_leader_and_standby(
    **timing: timedelta,
) -> AsyncIterator[tuple[World, NestedElections, NestedElections]]:
    """Yield a process that leads in both elections, and a standby."""
    async with a_world() as world:
        a = NestedElections(world, "a", **timing)
        while not a.has_both():
            await world.pass_time(0.1)
        b = NestedElections(world, "b", **timing)
        await world.pass_time(3)
        try:
            yield world, a, b
        finally:
            a.task.cancel()
            b.task.cancel()


async def seconds_until(world: World, condition: Callable[[], bool], within: float = 60) -> float:
    """Wait for a condition and return after how many seconds it was true, to 10 ms."""
    started = world.clock.monotonic()
    async with asyncio.timeout(within):
        while not condition():
            await world.pass_time(0.01)
    return world.clock.monotonic() - started


@pytest.mark.parametrize("instant", range(0, 160, 4))
async def test_standby_gets_both_nested_leases_once_the_outer_lease_of_a_killed_leader_expires(instant: int) -> None:
    """At any instant between two renewals: the standby does not wait for the second lease after the first."""
    async with nested_leader_and_standby() as (world, a, b):
        await world.pass_time(instant / 100)
        a.kill()
        took = await seconds_until(world, b.has_both)
        assert 8 - 1.5 - 0.1 <= took <= 8.1


async def test_leader_that_stops_releases_both_nested_leases_at_once() -> None:
    async with nested_leader_and_standby(lease_duration=seconds(600)) as (world, a, b):
        a.task.cancel()
        assert await seconds_until(world, b.has_both) <= 0.1


async def test_standby_without_permission_to_watch_leases_polls_them() -> None:
    async with nested_leader_and_standby() as (world, a, b):
        refused = b.transport.faults.fail_before_effect(where=is_watch_request, response=403, times=None)
        b.transport.disconnect()
        await world.pass_time(20)
        assert refused.hits == 2, "one for each lease; it does not ask again at once"
        a.kill()
        assert await seconds_until(world, b.has_both) <= 8 + 2.2 * 1.5 + 0.1


async def test_standby_sends_no_requests_but_its_watches() -> None:
    async with nested_leader_and_standby() as (world, _, b):
        before = len(b.transport.sent_requests(path="leases"))
        await world.pass_time(240)
        assert b.transport.sent_requests(path="leases")[before:] == []


def test_stalled_process_releases_the_inner_lease_after_losing_the_outer_one() -> None:
    """The other process takes the first lease; the second one is free before it has run out."""

    async def main(loop: StallingLoop) -> None:
        async with nested_leader_and_standby() as (world, a, b):
            # The second lease would last for another hour: somebody must release it.
            lease = world.cluster.get("leases", "beside", "haulout")
            a.inner.lease_duration = timedelta(hours=1)
            await world.pass_time(4)
            loop.stall("a", seconds(12))
            await world.pass_time(30)
            assert lease["spec"]["holderIdentity"] == "a"
            assert b.has_both()
            assert not a.outer.is_leader()
            names = [term for term, _ in groupby(term for _, term in world.work_done())]
            assert names == ["a", "b"]

    on_stalling_loop(main)


def test_inner_lease_acquired_by_another_during_a_stall_is_not_released() -> None:
    async def main(loop: StallingLoop) -> None:
        async with nested_leader_and_standby() as (world, a, _):
            loop.stall("a", seconds(12))
            await world.pass_time(11)
            stolen = world.cluster.get("leases", "beside", "haulout")
            stolen["spec"] |= {"holderIdentity": "go", "leaseDurationSeconds": 600}
            world.cluster.put(stolen)
            await world.pass_time(10)
            assert not a.inner.is_leader()
            assert inner_lease_holder(world) == "go"

    on_stalling_loop(main)


async def test_losing_the_outer_lease_ends_the_inner_term_and_releases_the_inner_lease() -> None:
    async with nested_leader_and_standby(lease_duration=seconds(600)) as (world, a, b):
        b.kill()
        world.put_lease(holderIdentity="go", leaseDurationSeconds=600)
        await world.pass_time(5)
        assert not a.outer.is_leader()
        assert a.inner_terms == 1
        assert inner_lease_holder(world) == ""


async def test_fence_of_the_inner_lease_refuses_writes_once_the_outer_lease_is_lost() -> None:
    """Also while the second lease is valid and the leading task is not cancelled yet."""
    async with a_world() as world:
        client = client_of(world, "a")
        outer, inner = (
            LeaderElection(client, name=lease_name, namespace="haulout", identity="a")
            for lease_name in ("op", "beside")
        )
        refused: list[str] = []

        async def work(both: Client) -> None:
            outer._leading_until = float("-inf")  # what a stall does: the deadline has passed without a callback
            with pytest.raises(LeadershipLost, match="it lost lease haulout/op") as lost:
                await both.patch(CONFIG_MAPS, "work", merge_patch({"data": {"at": "x"}}), namespace="haulout")
            refused.append(str(lost.value))

        async def lead(leading: Client) -> None:
            await inner.run(work, fence=leading.fence)

        await outer.run(lead)
        assert refused


async def test_error_during_cleanup_of_a_cancelled_leader_is_reported_as_cancellation() -> None:
    """Cleanup may not write any more and raises LeadershipLost: the canceller must not wait for ever."""
    async with a_world() as world:
        election = LeaderElection(client_of(world, "a"), name="op", namespace="haulout", identity="a", config=TIMING)

        async def lead(_: Client) -> None:
            try:
                await forever(_)
            finally:
                raise LeadershipLost("it must not write")

        leading = world.group.create_task(election.run(lead))
        await world.pass_time(5)
        assert election.is_leader()
        leading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leading
