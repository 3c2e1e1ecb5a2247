"""Failures of the Compute API and how they are handled."""

from datetime import timedelta

import msgspec
import pytest

from haulout.api.maintenancenotice import NoticeStage
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout.providers.gcp.compute_api import RestCompute, is_retryable
from haulout.providers.gcp.settings import GcpSettings
from haulout.providers.gcp.tokens import MetadataTokenIssuer, TokenCache
from haulout.providers.http_fetch import FetchedResponse
from support.builders.objects import a_node
from support.clouds.gcp import a_gcp_world

LISTED = {
    "items": {
        "zones/a": {"instances": [{"id": "1", "name": "n1", "zone": "a"}, "nonsense"]},
        "zones/b": {"warning": {"code": "NO_RESULTS_ON_PAGE"}},
        "zones/c": {"warning": {"code": "UNREACHABLE"}},
        "zones/d": None,
    },
    "unreachables": ["projects/p/zones/e"],
    "nextPageToken": "more",
}
DAY, HOUR, MINUTE, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, "authError", "the token is not accepted"),
        (403, "forbidden", "the role of this account does not allow it"),
        (403, "accessNotConfigured", "the Compute Engine API is not enabled"),
        (403, "rateLimitExceeded", "rateLimitExceeded"),
        (429, "rateLimitExceeded", "429"),
        (500, "backendError", "500"),
        (503, "", "503"),
        (0, "", "told to fail"),
    ],
)
async def test_api_error_ends_no_notice_and_is_reported(clock: Clock, status: int, code: str, message: str) -> None:
    async with a_gcp_world(clock) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        rules = [
            world.cloud.faults.fail(item, status=status, code=code, times=None)
            for item in ("AggregatedList", "GetInstance")
        ]
        world.cloud.cancel_maintenance(node)
        await clock.sleep(HOUR)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED
        (problem,) = world.problems()
        assert problem.startswith("gcp: Compute Engine does not answer, retrying: ")
        assert message in problem
        world.cloud.faults.remove(*rules)
        await world.wait_for_stage(NoticeStage.CANCELLED)
        await clock.sleep(MINUTE)
        assert world.problems() == []


async def test_notice_ends_only_after_the_instance_itself_is_read(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        rule = world.cloud.faults.fail("GetInstance", status=500, times=None)
        world.cloud.cancel_maintenance(node)
        await clock.sleep(HOUR)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED
        world.cloud.faults.remove(rule)
        await world.wait_for_stage(NoticeStage.CANCELLED)


async def test_unreachable_zone_ends_no_notice_and_does_not_delay_other_zones(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        here, there = await world.join_node("n1"), await world.join_node("n2", zone="europe-west1-c")
        world.start()
        for node in (here, there):
            world.cloud.schedule(node, start=clock.now() + DAY)
        await clock.sleep(6 * MINUTE)
        world.cloud.instances.unreachable.add("europe-west1-c")
        for node in (here, there):
            world.cloud.cancel_maintenance(node)
        await clock.sleep(HOUR)
        assert await world.notice_summaries() == [("n1", "Reboot", "Cancelled"), ("n2", "Reboot", "Scheduled")]
        assert world.problems() == ["gcp: listing instances of sandbox-project: zone europe-west1-c does not answer"]
        world.cloud.instances.unreachable.clear()
        await clock.sleep(6 * MINUTE)
        assert [row[2] for row in await world.notice_summaries()] == [NoticeStage.CANCELLED] * 2


async def test_incomplete_list_of_many_pages_ends_no_notice(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        world.cloud.instances.page_size = 3
        nodes = [await world.join_node(f"n{number}") for number in range(8)]
        for node in nodes:
            world.cloud.schedule(node, start=clock.now() + DAY)
        world.start()
        await clock.sleep(MINUTE)
        assert len(await world.notices()) == 8
        world.cloud.faults.on_call = None
        for node in nodes:
            world.cloud.remove(node)
        for name in ("other-1", "other-2"):
            world.cloud.launch(name)
        rule = world.cloud.faults.fail("AggregatedList", status=500, times=None)
        await clock.sleep(HOUR)
        assert {row[2] for row in await world.notice_summaries()} == {NoticeStage.SCHEDULED}
        world.cloud.faults.remove(rule)
        await clock.sleep(6 * MINUTE)
        assert {row[2] for row in await world.notice_summaries()} == {NoticeStage.CANCELLED}


async def test_instances_that_are_no_nodes_are_ignored(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        await world.join_node("n1")
        world.cloud.launch("database")
        world.cloud.schedule("database", start=clock.now() + DAY)
        await world.client.create(NODES, a_node("elsewhere").with_spec(providerID="aws:///eu-west-1a/i-0abc"))
        world.start()
        await clock.sleep(HOUR)
        assert await world.notices() == {}
        assert world.problems() == []


async def test_only_projects_of_nodes_are_polled_unless_configured(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        world.start()
        await clock.sleep(HOUR)
        assert "AggregatedList" not in world.cloud.faults.calls
    async with a_gcp_world(clock, settings=GcpSettings(projects=("somebody-elses",))) as world:
        await world.join_node("n1")
        world.start()
        await clock.sleep(MINUTE)
        (problem,) = world.problems()
        assert "The resource 'projects/somebody-elses' was not found" in problem


async def test_instance_is_not_deleted_if_its_project_is_not_found(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        for operation in ("AggregatedList", "GetInstance"):
            world.cloud.faults.fail(operation, status=404, code="notFound", times=None)
        await clock.sleep(HOUR)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED


async def test_deleted_instance_cancels_its_notice(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        node = await world.join_node("n1")
        world.start()
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        world.cloud.remove(node)
        await world.client.delete(NODES, "n1")
        await world.wait_for_stage(NoticeStage.CANCELLED)


async def test_notice_of_an_agent_ends_when_its_instance_is_deleted(clock: Clock) -> None:
    async with a_gcp_world(clock, agent_on="n1") as world:
        node = await world.join_node("n1", spot=True)
        world.start()
        await clock.sleep(SECOND)
        world.cloud.preempt(node)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        await world.stop()
        world.agent_on = ""
        world.start()
        await clock.sleep(10 * MINUTE)
        assert (await world.only_notice()).spec.stage == NoticeStage.SCHEDULED, "the machine is still there"
        world.cloud.remove(node)
        await world.wait_for_stage(NoticeStage.ENDED)


async def test_access_token_is_reused_until_shortly_before_it_expires(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        await world.join_node("n1")
        world.start()
        await clock.sleep(3 * HOUR)
        assert world.cloud.faults.calls.count("MetadataToken") == 3
        assert world.problems() == []


async def test_rejected_access_token_is_replaced_at_once(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        node = await world.join_node("n1")
        world.start()
        await clock.sleep(SECOND)
        world.cloud.access_tokens.revoke_all()
        world.cloud.schedule(node, start=clock.now() + DAY)
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        assert world.problems() == []


async def test_missing_access_token_is_reported_with_its_source(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        await world.join_node("n1")
        world.cloud.faults.fail("MetadataToken", status=404, message="no service account", times=None)
        world.start()
        await clock.sleep(MINUTE)
        (problem,) = world.problems()
        assert "getting a Google access token: 404: the metadata server issued no token: no service account" in problem


async def test_malformed_instance_in_a_list_does_not_hide_others(clock: Clock) -> None:
    async with a_gcp_world(clock) as world:
        odd, node = await world.join_node("n1"), await world.join_node("n2")
        world.cloud.instances.by_name[odd].numeric_id = "none"
        for item in (odd, node):
            world.cloud.schedule(item, start=clock.now() + DAY)
        world.start()
        await world.wait_for_stage(NoticeStage.SCHEDULED)
        assert "expected an instance with id, name and zone" in "".join(world.problems())


async def test_unreachable_zones_of_a_list_are_reported_as_missing(clock: Clock) -> None:
    targets = []

    async def fetch(method: str, target: str, **_: object) -> FetchedResponse:
        targets.append(f"{method} {target}")
        return FetchedResponse(
            200, {}, msgspec.json.encode(LISTED if "aggregated" in target else {"access_token": "t"})
        )

    compute = RestCompute(fetch, TokenCache(MetadataTokenIssuer(fetch), clock=clock))
    page = await compute.instances("p", filter_expression="labels.cluster=prod", page_token="2")
    assert (page.instances, sorted(page.missing_zones), page.next_page_token) == (
        [{"id": "1", "name": "n1", "zone": "a"}],
        ["c", "e"],
        "more",
    )
    assert "filter=labels.cluster%3Dprod&pageToken=2" in targets[-1]
    assert "fields=items%2F%2A%2Finstances%28id%2Cname" in targets[-1]


@pytest.mark.parametrize(
    "answer",
    [
        FetchedResponse(200, {}, b'{"items": "\xff"}'),
        FetchedResponse(200, {}, b"[" * 100_000),
        FetchedResponse(503, {"retry-after": "\u00b2"}, b"\xff"),
        FetchedResponse(429, {"retry-after": "9" * 30}, b"[" * 100_000),
    ],
)
async def test_malformed_response_is_a_retryable_cloud_error(clock: Clock, answer: FetchedResponse) -> None:
    async def fetch(method: str, target: str, **_: object) -> FetchedResponse:
        del method
        return (
            answer if "compute/v1" in target else FetchedResponse(200, {}, b'{"access_token": "t", "expires_in": 3600}')
        )

    compute = RestCompute(fetch, TokenCache(MetadataTokenIssuer(fetch), clock=clock))
    with pytest.raises(CloudError, match="listing instances of p") as error:
        await compute.instances("p")
    assert error.value.retry_after is None
    assert is_retryable(error.value)
