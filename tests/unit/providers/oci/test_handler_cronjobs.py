"""Parsing the CronJobs of the OCI Node Maintenance Handler."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.objects import Node, NodeSpec, RawObject, machine_key
from haulout.providers.oci.handler_cronjobs import CronJob, HandlerDrain, parse_cron_job, report_of
from support.clouds.oci_handler_cronjob import DRAIN, a_drain_cronjob

MADE = datetime(2026, 4, 2, 8, 15, 31, tzinfo=UTC)
START = datetime(2026, 4, 16, 2, 0, tzinfo=UTC)
NODE = "10.0.10.109"


def read(body: RawObject, *, made: datetime = MADE) -> HandlerDrain | None:
    metadata = body["metadata"] | {"creationTimestamp": made.isoformat()}
    return parse_cron_job(msgspec.convert(body | {"metadata": metadata}, CronJob))


def test_case_33_node_and_start_are_parsed_from_the_cronjob() -> None:
    body = a_drain_cronjob(NODE, start=START)
    assert body["spec"]["schedule"] == "45 1 16 4 *"
    assert read(body) == HandlerDrain(NODE, START - timedelta(minutes=15), MADE)


@pytest.mark.parametrize(
    ("made", "start"),
    [
        ("2026-12-30T23:00:00Z", "2027-01-02T00:10:00Z"),
        ("2026-04-16T01:45:20Z", "2026-04-16T02:00:59Z"),  # its minute had begun when it was created
        ("2026-04-16T01:46:02Z", "2026-04-16T02:00:59Z"),  # and was over when the server accepted it
        ("2027-03-01T00:00:00Z", "2028-02-29T12:00:00Z"),
    ],
)
def test_year_of_the_start_is_the_first_that_fits(made: str, start: str) -> None:
    expected_start = datetime.fromisoformat(start)
    found = read(a_drain_cronjob(NODE, start=expected_start), made=datetime.fromisoformat(made))
    assert found is not None
    assert found.start == expected_start.replace(second=0)


def changed_cron_job(**metadata: Any) -> RawObject:
    body = a_drain_cronjob(NODE, start=START)
    return body | {"metadata": body["metadata"] | metadata}


def running_commands(*commands: str) -> RawObject:
    containers = [{"command": ["/bin/sh", "-c", item]} for item in commands]
    return a_drain_cronjob(NODE, start=START, jobTemplate={"spec": {"template": {"spec": {"containers": containers}}}})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(changed_cron_job(name="nightly-drain-10.0.10.109"), id="another name"),
        pytest.param(changed_cron_job(name="scheduled-drain-10.0.10.110-081531"), id="a name with another node"),
        pytest.param(a_drain_cronjob(NODE, start=START, schedule="45 1 * * 6"), id="every week"),
        pytest.param(a_drain_cronjob(NODE, start=START, schedule="45 1 31 2 *"), id="a day that does not exist"),
        pytest.param(a_drain_cronjob(NODE, start=START, schedule="99 99 99 99 *"), id="no time"),
        pytest.param(a_drain_cronjob(NODE, start=START, timeZone="Europe/Berlin"), id="in a time zone"),
        pytest.param(running_commands("kubectl drain 10.0.10.109 --ignore-daemonsets"), id="another drain"),
        pytest.param(running_commands(f"{DRAIN.format(NODE)} && reboot"), id="and more"),
        pytest.param(running_commands(DRAIN.format(NODE), "sleep 9"), id="two containers"),
        pytest.param(running_commands(), id="no container"),
    ],
)
def test_cronjobs_not_created_by_the_handler_are_ignored(body: RawObject) -> None:
    assert read(body) is None


@given(
    made=st.datetimes(datetime(2020, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - it gets a time zone
    ahead=st.timedeltas(timedelta(minutes=15, microseconds=1), timedelta(days=360)),
)
def test_start_is_parsed_to_the_minute(made: datetime, ahead: timedelta) -> None:
    start = made + ahead
    found = read(a_drain_cronjob("n1", start=start), made=made.replace(microsecond=0))
    assert found is not None
    assert found.start == start.replace(second=0, microsecond=0)


def test_case_29_long_node_name_is_parsed() -> None:
    name = "oke-" + "x" * 56
    found = read(a_drain_cronjob(name, start=START))
    assert found is not None
    assert found.node == name


def test_report_has_the_instance_id_and_the_creation_time_of_the_cronjob() -> None:
    node = Node(spec=NodeSpec(provider_id="oci://ocid1.instance.oc1.fra.a"))
    report = report_of(HandlerDrain(NODE, START, MADE), node)
    assert (report.source, report.notice_id, report.at) == ("oci", "ocid1.instance.oc1.fra.a", MADE)
    assert report.provider_id == machine_key(node.spec.provider_id)
    assert report.node_name == ""


def test_report_about_a_node_without_a_provider_id_has_its_name() -> None:
    report = report_of(HandlerDrain(NODE, START, MADE), Node())
    assert (report.source, report.node_name) == ("onmh", NODE)
