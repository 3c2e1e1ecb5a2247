"""Clouds with short notices suggest shorter leases."""

from datetime import timedelta

import pytest

from haulout.app.notices import Notices
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.short_notices import lease_suggestion
from haulout.app.vitals import Vitals
from haulout.core.clock import Clock
from haulout.kinds.notice import definition
from haulout.kube.client import Client
from haulout.kube.lease_timing import LeaseTiming
from support.draining import Town
from support.listening import Cloud, a_notice, listening_to
from support.processes import Process
from support.replicas import HOME, a_site

LONG = LeaseTiming(
    lease_duration=timedelta(seconds=15), renew_deadline=timedelta(seconds=10), retry_period=timedelta(seconds=2)
)
FLAGS = "--lease-duration=8s --renew-deadline=6s --retry-period=1.5s"


@pytest.mark.parametrize("source", ["azure", "gcp", "aws", "oci", "gke", "tickets"])
def test_the_defaults_are_short_enough_for_all(source: str) -> None:
    assert lease_suggestion(LeaseTiming(), [source]) == ""


@pytest.mark.parametrize("source", ["azure", "gcp"])
def test_half_of_the_shortest_notice_must_be_left_after_a_crash(source: str) -> None:
    assert lease_suggestion(LONG, ["aws", source]) == (
        f"{source} may announce maintenance only 30s ahead, and after a crash of the leader a standby begins to drain"
        f" within 19s: consider {FLAGS}"
    )


@pytest.mark.parametrize("source", ["aws", "oci", "tickets"])
def test_where_notices_come_minutes_ahead_leases_of_client_go_are_short_enough(source: str) -> None:
    assert lease_suggestion(LONG, [source]) == ""


def operate(town: Town, leases: LeaseTiming, *clouds: Cloud) -> Vitals:
    """Run an operator with these leases; return how it stands."""
    town.put(definition())
    vitals = Vitals()

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=HOME, identity="one", leases=leases)
        await run_operator(client, settings, notices=Notices(listening_to(*clouds)), vitals=vitals)

    Process(town.cluster, "one", program).start()
    return vitals


async def test_a_cloud_that_is_listened_to_suggests_shorter_leases(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_site(clock, "n1") as town:
        vitals = operate(town, LONG, Cloud("gcp"))
        await town.until(lambda: any(FLAGS in it for it in vitals.troubles()))
        await town.until(lambda: FLAGS in caplog.text)


async def test_a_notice_of_an_agent_suggests_shorter_leases_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_site(clock, "n1") as town:
        vitals = operate(town, LONG)
        for name in ("preempt-1", "preempt-2"):
            town.put(a_notice(name, "n1", start=clock.now() + timedelta(days=1), source="azure"))
        await town.until(lambda: any(FLAGS in it for it in vitals.troubles()))
        await clock.sleep(timedelta(minutes=1))
    assert caplog.text.count(FLAGS) == 1


async def test_short_leases_suggest_nothing(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with a_site(clock, "n1") as town:
        vitals = operate(town, LeaseTiming(), Cloud("gcp"))
        await town.until(lambda: vitals.notices is not None and bool(vitals.notices.listening))
        await clock.sleep(timedelta(minutes=1))
        assert not any("--lease-duration" in it for it in vitals.troubles())
    assert "--lease-duration" not in caplog.text
