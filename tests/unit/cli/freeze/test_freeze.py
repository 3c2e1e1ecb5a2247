"""`haulout freeze` and `haulout unfreeze`: the object, the output, and what status and why show."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import click
import pytest

from haulout.cli.freeze.maintenance_freeze import FreezeRequest, create_freeze, delete_freeze
from haulout.cli.output import ASCII_MARKS, OutputLine
from haulout.cli.status import node_status, status_text
from haulout.cli.why import why_text
from haulout.cli.why.explanation import WhyOptions, parse_configuration
from haulout.controllers.profiles.explain.explanation import explain
from haulout.core.clock import Clock
from haulout.errors import HauloutError, UsageError
from support.cli.command_runner import command_runner
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import LiveCluster
from support.operators.freezes import PLURAL, freeze, with_freezes

FILE = b"""
intervals: {requeue: 30s}
instances:
  check:
  - {name: always, type: hasLabel, config: {key: kubernetes.io/hostname}}
profiles:
- name: os
  selector: kubernetes.io/hostname
  operational:
    transitions: [{check: always, next: in-maintenance}]
"""


async def texts(lines: AsyncIterator[OutputLine]) -> list[str]:
    return [line.text async for line in lines]


def specs(cluster: LiveCluster) -> dict[str, Any]:
    return {name: item["spec"] for name, item in cluster.by_key(PLURAL).items()}


async def test_freeze_is_created_and_deleted(clock: Clock) -> None:
    async with with_freezes(a_cluster(clock)).on_the_sandbox() as cluster:
        until = clock.now().replace(microsecond=0) + timedelta(days=2)
        request = FreezeRequest(until="+2d", reason="Black Friday", by="alice")
        name = f"freeze-{clock.now():%Y%m%d-%H%M%S}"
        shown = f"frozen by alice until {until:%Y-%m-%d %H:%M} UTC: Black Friday"
        created = await texts(create_freeze(cluster.admin, request))
        assert created == [f"maintenancefreeze.haulout.dev/{name} created", shown]
        assert specs(cluster) == {
            name: {
                "until": f"{until:%Y-%m-%dT%H:%M:%SZ}",
                "reason": "Black Friday",
                "by": "alice",
                "except": ["Notices"],
            }
        }
        deleted = await texts(delete_freeze(cluster.admin, None))
        assert deleted == [f"maintenancefreeze.haulout.dev/{name} deleted", f"was {shown}"]
        assert specs(cluster) == {}


async def test_options_become_fields(clock: Clock) -> None:
    async with with_freezes(a_cluster(clock)).on_the_sandbox() as cluster:
        request = FreezeRequest(
            name="shop", selector="pool=shop,zone!=a,!spot", start="+1h", hold_notices=True, by="alice"
        )
        await texts(create_freeze(cluster.admin, request))
        spec = specs(cluster)["shop"]
        assert spec["selector"]["matchExpressions"] == [
            {"key": "pool", "operator": "In", "values": ["shop"]},
            {"key": "zone", "operator": "NotIn", "values": ["a"]},
            {"key": "spot", "operator": "DoesNotExist"},
        ]
        assert (spec["except"], "until" in spec, "from" in spec) == ([], False, True)


async def test_dry_run_changes_nothing(clock: Clock) -> None:
    async with with_freezes(a_cluster(clock)).on_the_sandbox() as cluster:
        for dry_run in ("client", "server"):
            (first, *_) = await texts(create_freeze(cluster.admin, FreezeRequest(name="a"), dry_run=dry_run))
            assert first.endswith("dry run)")
        assert specs(cluster) == {}
        await freeze(cluster, "a")
        for dry_run in ("client", "server"):
            await texts(delete_freeze(cluster.admin, "a", dry_run=dry_run))
        assert list(specs(cluster)) == ["a"]


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (FreezeRequest(until="tomorrow"), "--until: expected a time such as"),
        (FreezeRequest(until="2026-12-01T08:00"), "--until: the time zone of"),
        (FreezeRequest(start="soon"), "--from: expected a time such as"),
        (FreezeRequest(until="2020-01-01T00:00:00Z"), "--until: the end must be after now"),
        (FreezeRequest(start="+2h", until="+1h"), "--until: the end must be after --from"),
        (FreezeRequest(selector="pool=a=b"), "--selector: "),
        (FreezeRequest(selector="size>3"), "--selector: > and < are not possible here"),
    ],
)
async def test_invalid_options_are_refused(clock: Clock, request_: FreezeRequest, problem: str) -> None:
    async with with_freezes(a_cluster(clock)).on_the_sandbox() as cluster:
        with pytest.raises(UsageError) as caught:
            await texts(create_freeze(cluster.admin, request_))
        assert problem in str(caught.value)
        assert specs(cluster) == {}


async def test_unfreeze_without_a_name_deletes_the_only_one_that_has_not_ended(clock: Clock) -> None:
    async with with_freezes(a_cluster(clock)).on_the_sandbox() as cluster:
        with pytest.raises(HauloutError, match="nothing is frozen"):
            await texts(delete_freeze(cluster.admin, None))
        with pytest.raises(HauloutError, match='"other" not found'):
            await texts(delete_freeze(cluster.admin, "other"))
        await freeze(cluster, "ended", ends_in=timedelta(seconds=1))
        await freeze(cluster, "a")
        await freeze(cluster, "b", begins_in=timedelta(hours=1))
        await cluster.pass_time(seconds=2)
        with pytest.raises(HauloutError, match="there are 2 freezes, name one: a, b"):
            await texts(delete_freeze(cluster.admin, None))
        await texts(delete_freeze(cluster.admin, "a"))
        await texts(delete_freeze(cluster.admin, None))
        assert list(specs(cluster)) == ["ended"]


async def test_missing_definition_is_named(clock: Clock) -> None:
    async with a_cluster(clock).on_the_sandbox() as cluster:
        for lines in (create_freeze(cluster.admin, FreezeRequest()), delete_freeze(cluster.admin, None)):
            with pytest.raises(HauloutError, match="MaintenanceFreezes are not installed"):
                await texts(lines)


async def test_status_names_each_freeze_once_and_its_nodes_in_detail(clock: Clock) -> None:
    async with with_freezes(a_cluster(clock).with_nodes(3)).on_the_sandbox() as cluster:
        await freeze(cluster)
        found = await node_status.read_status(cluster.admin)
        assert status_text.table(found, include_all=False) == [
            "3 nodes are frozen by alice: Black Friday; to end that: haulout unfreeze black-friday",
            "",
            "All 3 nodes are in service.",
        ]
        one = await node_status.read_status(cluster.admin, "n1")
        details = [click.unstyle(line) for line in status_text.detail_lines(one.nodes[0], one.now)]
        assert any("in service, frozen" in line for line in details)
        assert any("frozen by alice: Black Friday; to end that: haulout unfreeze black" in line for line in details)


async def test_why_names_the_freeze_and_the_transition_that_it_blocks(clock: Clock) -> None:
    async with with_freezes(a_cluster(clock).with_nodes(1)).on_the_sandbox() as cluster:
        await freeze(cluster)
        configuration = parse_configuration(FILE, "maintenance.yaml", WhyOptions(variables={}).variables).configuration
        found = await explain(cluster.admin, configuration, "n1", external=None)
        lines = [click.unstyle(line) for line in why_text.text_lines(found, marks=ASCII_MARKS)]
        assert "  frozen by alice: Black Friday; to end that: haulout unfreeze black-friday" in lines
        assert found.profiles[0].transitions[0].veto == "frozen by alice: Black Friday"


def test_command_line_is_validated(capsys: pytest.CaptureFixture[str]) -> None:
    haulout = command_runner(capsys)
    assert haulout("freeze", "--dry-run=never").code == 2
    assert haulout("unfreeze", "a", "b").code == 2
    assert "MaintenanceFreeze" in haulout("freeze", "--help").out
