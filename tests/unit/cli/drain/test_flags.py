"""From a command line and a file to a policy."""

from datetime import timedelta
from pathlib import Path

import click
import pytest

from haulout.cli.drain.flags import DrainFlags, build_policy
from haulout.drain.pod_filters import PodFilters
from haulout.drain.policy import DrainOrder, DrainPolicy
from haulout.errors import ConfigErrors, UsageError
from haulout.kube import selectors


def test_policy_without_flags_has_the_defaults_of_kubectl() -> None:
    assert build_policy(DrainFlags()) == DrainPolicy()


def test_kubectl_flags_keep_their_meaning() -> None:
    flags = DrainFlags(
        force=True,
        ignore_daemonsets=True,
        delete_emptydir_data=True,
        disable_eviction=True,
        grace_period=0,
        timeout="1m30s",
        pod_selector="app=cart",
        skip_wait_for_delete_timeout=7,
    )
    assert build_policy(flags) == DrainPolicy(
        filters=PodFilters(
            force=True,
            ignore_daemonsets=True,
            delete_emptydir_data=True,
            skip_wait_for_delete=timedelta(seconds=7),
        ),
        grace_period=timedelta(),
        timeout=timedelta(seconds=90),
        pod_selector=selectors.parse("app=cart"),
        disable_eviction=True,
    )


def test_kubectl_values_for_no_limit_are_accepted() -> None:
    assert build_policy(DrainFlags(grace_period=-1, timeout="0s", skip_wait_for_delete_timeout=0)) == DrainPolicy()


def test_order_flag_is_a_comma_separated_list() -> None:
    assert build_policy(DrainFlags(order="priority, storage-last")).order == DrainOrder(
        by_priority=True, storage_last=True
    )
    assert build_policy(DrainFlags(order="daemonsets-last")).order == DrainOrder(daemon_sets_last=True)


def test_flags_override_the_policy_file(tmp_path: Path) -> None:
    file = tmp_path / "night.yaml"
    file.write_text("force: true\ntimeout: 1h\ngracePeriod: 20s\norder: {byPriority: true}\n")
    policy = build_policy(DrainFlags(policy=str(file)))
    assert (policy.filters.force, policy.timeout, policy.grace_period) == (
        True,
        timedelta(hours=1),
        timedelta(seconds=20),
    )
    changed = build_policy(
        DrainFlags(policy=str(file), force=False, timeout="0s", grace_period=-1, order="storage-last")
    )
    assert changed == DrainPolicy(order=DrainOrder(storage_last=True))


def test_flags_that_conflict_with_the_policy_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "night.yaml"
    file.write_text("force: true\nevictionTimeout: 10m\ntimeout: 1h\n")
    assert build_policy(DrainFlags(policy=str(file), grace_period=0)).grace_period == timedelta()
    with pytest.raises(click.UsageError) as raised:
        build_policy(DrainFlags(policy=str(file), timeout="5m"))
    assert raised.value.message == (
        f"the flags conflict with the policy {file}: "
        "timeout: found 5m0s, expected more than evictionTimeout and deletionTimeout together, 10m0s"
    )


def test_all_errors_in_the_policy_file_are_reported_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "night.yaml"
    file.write_text("timeuot: 3s\n\nrules:\n- name: a\n  order: x\n- behavior: Skip\n")
    with pytest.raises(ConfigErrors) as raised:
        build_policy(DrainFlags(policy=str(file)))
    assert [str(each) for each in raised.value.errors] == [
        f"{file}:1: timeuot: unknown, did you mean timeout?",
        f"{file}:5: rules[0].order: found 'x', expected a whole number from -2147483648 to 2147483647",
        f"{file}:6: rules[1].name: found None, expected a name",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "night.yaml: expected a drain policy, found nothing"),
        ("- a", "night.yaml: found ['a'], expected keys and values"),
        ("force: {", "night.yaml:2: expected YAML or JSON"),
        ("a: &a [*a]", "night.yaml:1: a: unknown, expected one of force"),
        ("forceDelete: true", "night.yaml:1: forceDelete: found true, expected deletionTimeout to be set"),
    ],
)
def test_invalid_policy_file_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("night.yaml").write_text(text)
    with pytest.raises(Exception, match="night") as raised:
        build_policy(DrainFlags(policy="night.yaml"))
    assert str(raised.value).startswith(problem)


def test_unreadable_policy_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"cannot read the policy nowhere\.yaml: No such file"):
        build_policy(DrainFlags(policy="nowhere.yaml"))


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (DrainFlags(timeout="5"), "--timeout: time: missing unit in duration"),
        (DrainFlags(timeout="-5s"), "--timeout: expected a duration such as 90s"),
        (DrainFlags(pod_selector="a=(b"), "--pod-selector=<pod_selector> must be a valid label selector"),
        (DrainFlags(order="size"), "--order: expected some of priority, storage-last, daemonsets-last"),
    ],
)
def test_invalid_flag_is_refused_with_the_reason(flags: DrainFlags, problem: str) -> None:
    with pytest.raises(click.UsageError) as raised:
        build_policy(flags)
    assert raised.value.message.startswith(problem)
