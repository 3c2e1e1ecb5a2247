"""The model of Google Cloud keeps Google's rules."""

from datetime import timedelta
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout_sandbox.clouds.gcp import GcpCloud
from haulout_sandbox.clouds.gcp.request_handler import HttpResponse

DAY, MINUTE, SECOND = timedelta(days=1), timedelta(minutes=1), timedelta(seconds=1)
FLAVOR = {"Metadata-Flavor": "Google"}
INSTANCES = "/compute/v1/projects/sandbox-project/zones/europe-west1-b/instances"


def a_cloud(clock: Clock) -> GcpCloud:
    cloud = GcpCloud(clock)
    cloud.launch("n1")
    return cloud


async def metadata(cloud: GcpCloud, key: str) -> HttpResponse:
    return await cloud.answer("GET", f"/machines/n1/computeMetadata/v1/{key}", FLAVOR)


async def call_api(cloud: GcpCloud, method: str, target: str) -> tuple[int, Any]:
    token = cloud.access_tokens.issue()["access_token"]
    answer = await cloud.answer(method, target, {"Authorization": f"Bearer {token}"})
    return answer.status, msgspec.json.decode(answer.body)


async def test_a_metadata_server_wants_its_header(clock: Clock) -> None:
    answer = await a_cloud(clock).answer("GET", "/machines/n1/computeMetadata/v1/instance/name", {})
    assert answer.status == 403


async def test_a_metadata_server_is_known_by_its_header(clock: Clock) -> None:
    answer = await a_cloud(clock).answer("GET", "/machines/n1/", {})
    assert answer.headers["metadata-flavor"] == "Google"


async def test_a_key_has_the_same_etag_as_long_as_it_says_the_same(clock: Clock) -> None:
    cloud, key = a_cloud(clock), "instance/maintenance-event"
    etag = (await metadata(cloud, key)).headers["etag"]
    assert (await metadata(cloud, key)).headers["etag"] == etag
    cloud.announce_live_migration("n1")
    assert (await metadata(cloud, key)).headers["etag"] != etag


async def test_wait_for_change_answers_at_a_change_or_at_its_timeout(clock: Clock) -> None:
    cloud, key = a_cloud(clock), "instance/maintenance-event"
    etag = (await metadata(cloud, key)).headers["etag"]
    waiting = f"{key}?wait_for_change=true&last_etag={etag}&timeout_sec=60"
    started_at = clock.now()
    assert (await metadata(cloud, waiting)).body == b"NONE"
    assert clock.now() - started_at == MINUTE
    clock.call_at(clock.now() + 7 * SECOND, lambda: cloud.announce_live_migration("n1"))
    assert (await metadata(cloud, waiting)).body == b"MIGRATE_ON_HOST_MAINTENANCE"
    assert MINUTE + 7 * SECOND <= clock.now() - started_at < MINUTE + 8 * SECOND
    assert (await metadata(cloud, waiting)).status == 200, "who knows an old value is answered at once"


async def test_what_is_planned_is_not_known_before_anything_was(clock: Clock) -> None:
    cloud, key = a_cloud(clock), "instance/upcoming-maintenance?alt=json"
    assert (await metadata(cloud, key)).status == 503
    cloud.schedule("n1", start=clock.now() + DAY)
    body = msgspec.json.decode((await metadata(cloud, key)).body)
    assert (body["can_reschedule"], body["maintenance_status"]) == ("true", "PENDING")
    cloud.cancel_maintenance("n1")
    assert (await metadata(cloud, key)).body == b"{}"


async def test_maintenance_starts_once_for_each_request_and_only_if_approved(clock: Clock) -> None:
    cloud = a_cloud(clock)
    perform = f"{INSTANCES}/n1/performMaintenance?requestId=6a6f1d8e-0000-4000-8000-000000000001"
    assert (await call_api(cloud, "POST", perform))[0] == 400
    cloud.schedule("n1", start=clock.now() + DAY, can_start_early=False)
    assert (await call_api(cloud, "POST", perform))[0] == 400
    cloud.schedule("n1", start=clock.now() + DAY)
    status, operation = await call_api(cloud, "POST", perform)
    assert (status, operation["status"]) == (200, "RUNNING")
    assert (await call_api(cloud, "POST", perform))[1]["name"] == operation["name"]
    _, instance = await call_api(cloud, "GET", f"{INSTANCES}/n1")
    assert instance["resourceStatus"]["upcomingMaintenance"]["maintenanceStatus"] == "ONGOING"
    wait = f"/compute/v1/projects/sandbox-project/zones/europe-west1-b/operations/{operation['name']}/wait"
    assert (await call_api(cloud, "POST", wait))[1]["status"] == "DONE"
    assert cloud.operations.performed == ["n1"]


async def test_maintenance_can_be_simulated(clock: Clock) -> None:
    cloud = a_cloud(clock)
    assert (await call_api(cloud, "POST", f"{INSTANCES}/n1/simulateMaintenanceEvent"))[0] == 200
    assert (await metadata(cloud, "instance/maintenance-event")).body == b"TERMINATE_ON_HOST_MAINTENANCE"


async def test_a_missing_or_old_token_gets_401(clock: Clock) -> None:
    cloud = a_cloud(clock)
    token = {"Authorization": f"Bearer {cloud.access_tokens.issue()['access_token']}"}
    assert (await cloud.answer("GET", f"{INSTANCES}/n1", token)).status == 200
    await clock.sleep(timedelta(hours=1))
    assert (await cloud.answer("GET", f"{INSTANCES}/n1", token)).status == 401
    assert (await cloud.answer("GET", f"{INSTANCES}/n1", {})).status == 401


async def test_what_is_not_there_is_not_found(clock: Clock) -> None:
    cloud = a_cloud(clock)
    for path in (f"{INSTANCES}/n2", "/compute/v1/projects/other/aggregated/instances", "/compute/v1/projects/x/y"):
        assert (await call_api(cloud, "GET", path))[0] == 404
