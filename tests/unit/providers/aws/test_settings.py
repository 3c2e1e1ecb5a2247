"""AWS settings, from the variables of aws-node-termination-handler."""

from datetime import timedelta

import pytest

from haulout.errors import ConfigError
from haulout.providers.aws.settings import UNSUPPORTED, AwsSettings, read, region_of

QUEUE = "https://sqs.eu-west-1.amazonaws.com/111122223333/nth"


def settings(**variables: str) -> AwsSettings:
    found = read(variables)
    assert found is not None
    return found


def test_queue_url_region_and_tag_variables_of_nth_are_supported() -> None:
    found = settings(ENABLE_SQS_TERMINATION_DRAINING="true", QUEUE_URL=QUEUE)
    assert (found.queue_url, found.region) == (QUEUE, "eu-west-1")
    assert found.managed_tag == "aws-node-termination-handler/managed"
    assert found.visibility_timeout == timedelta(seconds=20)


@pytest.mark.parametrize(
    "names", [("CHECK_TAG_BEFORE_DRAINING", "MANAGED_TAG"), ("CHECK_ASG_TAG_BEFORE_DRAINING", "MANAGED_ASG_TAG")]
)
def test_old_tag_variables_of_nth_are_supported(names: tuple[str, str]) -> None:
    check, tag = names
    assert settings(**{"QUEUE_URL": QUEUE, tag: "ours"}).managed_tag == "ours"
    assert settings(**{"QUEUE_URL": QUEUE, tag: "ours", check: "false"}).managed_tag == ""


def test_heartbeat_and_delay_variables_of_nth_are_supported() -> None:
    found = settings(
        QUEUE_URL=QUEUE,
        AWS_REGION="eu-central-1",
        AWS_ENDPOINT="http://localhost:4566",
        HEARTBEAT_INTERVAL="45",
        HEARTBEAT_UNTIL="-1",
        SQS_MSG_VISIBILITY_TIMEOUT_SEC="60",
        COMPLETE_LIFECYCLE_ACTION_DELAY_SECONDS="30",
    )
    assert found == AwsSettings(
        region="eu-central-1",
        endpoint="http://localhost:4566",
        queue_url=QUEUE,
        managed_tag="aws-node-termination-handler/managed",
        visibility_timeout=timedelta(minutes=1),
        heartbeat=timedelta(seconds=45),
        complete_after=timedelta(seconds=30),
    )


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"HEARTBEAT_INTERVAL": "5"}, "environment: HEARTBEAT_INTERVAL: expected a number of seconds from 30 to 3600"),
        ({"HEARTBEAT_UNTIL": "soon"}, "HEARTBEAT_UNTIL: .*found 'soon'"),
        ({"SQS_MSG_VISIBILITY_TIMEOUT_SEC": "120"}, "from 1 to 119"),
        ({"HAULOUT_AWS_LOOK_EVERY": "5"}, "HAULOUT_AWS_LOOK_EVERY: .*5"),
        ({"HAULOUT_AWS_LOOK_EVERY": "1s"}, "expected at least 30s, found '1s'"),
        ({"HAULOUT_AWS_SECRET": "no-namespace"}, "HAULOUT_AWS_SECRET: expected NAMESPACE/NAME"),
        ({"CHECK_TAG_BEFORE_DRAINING": "maybe"}, "expected true or false, found 'maybe'"),
    ],
)
def test_invalid_values_are_rejected_with_a_message(variables: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read({"QUEUE_URL": QUEUE} | variables)


def test_unsupported_variables_are_listed_with_their_replacement() -> None:
    found = settings(QUEUE_URL=QUEUE, CORDON_ONLY="true", WEBHOOK_URL="https://x", HOME="/").unsupported
    assert set(found) == {"CORDON_ONLY", "WEBHOOK_URL"}
    assert "profile" in found["CORDON_ONLY"]


def test_network_maintenance_drains_only_if_configured() -> None:
    assert not settings(HAULOUT_AWS="true").drains_for_network_maintenance
    assert settings(HAULOUT_AWS="true", HAULOUT_AWS_DRAIN_FOR_NETWORK_MAINTENANCE="true").drains_for_network_maintenance


def test_managed_tag_is_not_checked_without_a_queue() -> None:
    assert settings(HAULOUT_AWS="true") == AwsSettings()


def test_aws_is_enabled_only_by_its_variables() -> None:
    assert read({"AWS_REGION": "eu-west-1", "HOME": "/"}) is None
    assert read({"HAULOUT_AWS": "false"}) is None


def test_settings_of_the_machine_maintenance_operator_are_supported() -> None:
    found = settings(HAULOUT_AWS_SECRET="operators/credentials", HAULOUT_AWS_LOOK_EVERY="1h")
    assert (found.secret, found.poll_interval) == ("operators/credentials", timedelta(hours=1))


def test_reasons_of_unsupported_variables_have_no_full_stop() -> None:
    assert all(why and not why.endswith(".") for why in UNSUPPORTED.values())


@pytest.mark.parametrize(
    ("url", "region"),
    [
        (QUEUE, "eu-west-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/1/q", "cn-north-1"),
        ("https://eu-west-2.queue.amazonaws.com/1/q", "eu-west-2"),
        ("http://localhost:4566/1/q", ""),
        ("", ""),
        ("not a url", ""),
    ],
)
def test_region_is_read_from_the_queue_url(url: str, region: str) -> None:
    assert region_of(url) == region
