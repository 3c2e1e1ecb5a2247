"""`haulout hold`, `haulout release` and `haulout approve`: annotations and output."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from haulout.api import hold
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.cli.approve import node_approval
from haulout.cli.approve.node_approval import ApprovalRequest, approve_node
from haulout.cli.cordon.node_changes import ChangeResult, result_lines
from haulout.cli.hold.command import _ends_at
from haulout.cli.hold.node_hold import HoldRequest, hold_node, release_node
from haulout.cli.output import ASCII_MARKS
from haulout.cli.status import node_status, status_text
from haulout.cli.why import why_text
from haulout.cli.why.explanation import WhyOptions, parse_configuration
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.explain.explanation import explain
from haulout.controllers.profiles.plugin import PROFILE_LABEL
from haulout.core.clock import Clock
from haulout.drain import cordon
from haulout.drain.cordon import CordonRequest as CordonWishes
from haulout.errors import HauloutError
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from support.cli.command_runner import command_runner
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster

FILE = b"""
intervals: {requeue: 30s}
instances:
  check:
  - {name: needed, type: hasLabel, config: {key: needed}}
  - {name: approved, type: hasAnnotation, config: {key: example.com/approved-by}}
  - {name: rested, type: wait, config: {duration: 10m}}
profiles:
- name: os
  operational:
    transitions: [{check: needed, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: approved && rested, next: in-maintenance}]
"""


async def node_of(cluster: DrainCluster) -> Node:
    return await cluster.client.get(NODES, "n1")


def result_texts(done: ChangeResult, wanted: str = "hold") -> list[str]:
    return [line.text for line in result_lines(done, verb=wanted)]


async def test_hold_annotation_has_owner_reason_and_end(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        until = clock.now().replace(microsecond=0) + timedelta(hours=4)
        request = HoldRequest(reason="migration", by="alice", until=until)
        done = await hold_node(cluster.client, await node_of(cluster), request)
        assert result_texts(done) == [
            "node/n1 held",
            f"node/n1: held by alice: migration, until {until:%Y-%m-%d %H:%M} UTC",
        ]
        assert (await node_of(cluster)).metadata.annotations[hold.ANNOTATION] == (
            f"until={until:%Y-%m-%dT%H:%M:%SZ}; by=alice; migration"
        )
        again = await hold_node(cluster.client, await node_of(cluster), HoldRequest(by="bob"))
        was = f"node/n1: was held by alice: migration, until {until:%Y-%m-%d %H:%M} UTC"
        assert result_texts(again)[1:] == ["node/n1: held by bob", was]
        released = await release_node(cluster.client, await node_of(cluster))
        assert result_texts(released, "release") == ["node/n1 released", "node/n1: was held by bob"]
        assert hold.ANNOTATION not in (await node_of(cluster)).metadata.annotations
        assert result_texts(await release_node(cluster.client, await node_of(cluster)), "release") == [
            "node/n1 not held"
        ]


async def test_hold_without_a_name_uses_the_username_of_the_server(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await hold_node(cluster.client, await node_of(cluster), HoldRequest())
        found = hold.hold_of(await node_of(cluster))
        assert found is not None
        assert found.by


async def test_hold_reports_maintenance_in_progress_that_continues(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        change = cordon.acquire(await node_of(cluster), "profile/os", CordonWishes(), now=clock.now())
        assert change is not None
        await cluster.client.patch(NODES, "n1", merge_patch(change))
        done = await hold_node(cluster.client, await node_of(cluster), HoldRequest(by="alice"))
        assert result_texts(done)[-1] == "node/n1: maintenance by profile os is in progress and continues"


async def test_dry_run_sets_no_hold(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        for dry_run in ("client", "server"):
            await hold_node(cluster.client, await node_of(cluster), HoldRequest(), dry_run=dry_run)
            assert hold.ANNOTATION not in (await node_of(cluster)).metadata.annotations


@pytest.mark.parametrize(
    ("until", "span", "problem"),
    [
        ("tomorrow", None, "--until: expected a time such as"),
        ("2020-01-01T00:00:00Z", None, "--until: 2020-01-01 00:00 UTC is not in the future"),
        (None, "soon", "--for: expected a duration such as"),
        (None, "0s", "is not in the future"),
    ],
)
def test_invalid_end_is_refused(until: str | None, span: str | None, problem: str) -> None:
    with pytest.raises(click.UsageError) as error:
        _ends_at(until, span, now=datetime(2026, 1, 5, 9, tzinfo=UTC))
    assert problem in error.value.message


def test_command_line_is_validated_before_any_change(capsys: pytest.CaptureFixture[str]) -> None:
    haulout = command_runner(capsys)
    both = haulout("hold", "n1", "--for", "1h", "--until", "+1h")
    assert (both.code, "--until and --for exclude each other: give one" in both.err) == (2, True)
    assert haulout("hold").code == 2
    assert haulout("release").code == 2


async def test_status_and_why_show_active_and_expired_holds(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        until = clock.now().replace(microsecond=0) + timedelta(hours=4)
        await hold_node(
            cluster.client, await node_of(cluster), HoldRequest(reason="migration", by="alice", until=until)
        )
        found = await node_status.read_status(cluster.client)
        lines = status_text.table(found, include_all=False)
        assert [line.split()[:4] for line in lines if line.startswith("n1")] == [["n1", "in", "service,", "held"]]
        one = await node_status.read_status(cluster.client, "n1")
        details = [click.unstyle(line) for line in status_text.detail_lines(one.nodes[0], one.now)]
        hold_text = f"held by alice: migration, until {until:%Y-%m-%d %H:%M} UTC"
        assert any(hold_text in line and "haulout release n1" in line for line in details)
        known = parse_configuration(FILE, "maintenance.yaml", {}).configuration
        reason = await explain(cluster.client, known, "n1", external=None)
        assert f"  {hold_text}; to end that: haulout release n1" in list(why_text.text_lines(reason, marks=ASCII_MARKS))
        await clock.sleep(timedelta(hours=5))
        later = await node_status.read_status(cluster.client, "n1")
        details = [click.unstyle(line) for line in status_text.detail_lines(later.nodes[0], later.now)]
        assert any(f"expired: {hold_text}" in line for line in details)
        assert later.nodes[0].state == "in service"


# Approving


@asynccontextmanager
async def waiting(clock: Clock, monkeypatch: pytest.MonkeyPatch, **labels: str) -> AsyncIterator[DrainCluster]:
    """Run a node that waits for an approval, with `haulout approve` using the file."""
    async with a_drain_cluster(clock, "n1") as cluster:
        change: dict[str, Any] = {"labels": {PROFILE_LABEL: "os", **labels}}
        if labels:
            change["annotations"] = {"cloud.sap/maintenance-data": _data(clock)}
        await cluster.client.patch(NODES, "n1", merge_patch({"metadata": change}))

        @asynccontextmanager
        async def connected(_: WhyOptions, node: str) -> AsyncIterator[tuple[Client, Configuration, tuple[str, ...]]]:
            assert node == "n1"
            yield cluster.client, parse_configuration(FILE, "maintenance.yaml", {}).configuration, ()

        monkeypatch.setattr(node_approval, "connect_with_configuration", connected)
        yield cluster


def _data(clock: Clock) -> str:
    at = f"{clock.now():%Y-%m-%dT%H:%M:%SZ}"
    return (
        f'{{"Profiles":{{"os":{{"Transition":"{at}","Current":"maintenance-required",'
        '"Previous":"maintenance-required"}},"Notifications":{}}'
    )


async def test_approval_sets_the_annotation_and_lists_remaining_checks(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting(clock, monkeypatch, needed="yes") as cluster:
        for dry_run in ("client", "server"):
            await approve_node(ApprovalRequest(node="n1"), WhyOptions(variables={}), dry_run=dry_run)
            assert "example.com/approved-by" not in (await node_of(cluster)).metadata.annotations
        lines = [
            it.text for it in await approve_node(ApprovalRequest(node="n1"), WhyOptions(variables={}), dry_run="none")
        ]
        by = (await node_of(cluster)).metadata.annotations["example.com/approved-by"]
        assert by
        assert lines[0] == "node/n1 approved"
        assert lines[1] == "node/n1: profile os waits until rested passed; then it moves to in-maintenance"
        assert lines[2].startswith("node/n1: kubectl annotate node n1 ")


async def test_approval_without_a_pending_check_is_refused(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with waiting(clock, monkeypatch) as cluster:
        with pytest.raises(HauloutError) as error:
            await approve_node(ApprovalRequest(node="n1"), WhyOptions(variables={}), dry_run="none")
        assert str(error.value).startswith("no profile is waiting for an approval; possible with --check: os: needed")
        assert "needed" not in (await node_of(cluster)).metadata.labels
        await approve_node(ApprovalRequest(node="n1", check="needed"), WhyOptions(variables={}), dry_run="none")
        assert (await node_of(cluster)).metadata.labels["needed"] == "true"
