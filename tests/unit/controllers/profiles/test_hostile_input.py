"""Invalid data on nodes and misbehaving receivers cause neither hot loops nor delays of other nodes."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, State
from haulout.core.clock import Clock
from haulout.errors import ExternalError
from haulout.kube.transport import Request
from support.builders.objects import a_node
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.fakes.external_client import FakeExternalClient, FakeReply, ReplyFunction, SentRequest
from support.operators.freezes import with_freezes
from support.operators.nodemaintenance import with_operator_rbac
from support.operators.profiles import annotation, operator_with_profiles, profile_data, state
from support.operators.profiles_controller import own_events

OPERATIONAL, REQUIRED, MAINTAINED = State

FILE = """
intervals: {requeue: 10s}
instances:
  check:
  - {name: wanted, type: hasLabel, config: {key: wanted}}
  - {name: up, type: prometheusInstant, config: {url: "http://prometheus:9090", query: up, expr: value > 0}}
  notify:
  - name: chat
    type: slack
    config: {hook: "https://hooks.example.com/x", channel: "#c", message: "{{ .Node.Name }}"}
    schedule: {type: periodic, config: {interval: 24h}}
  - name: thread
    type: slackThread
    config: {token: t, channel: c, title: t, message: m, leaseName: l, leaseNamespace: default, period: 1h}
    schedule: {type: periodic, config: {interval: 24h}}
  - name: letter
    type: mail
    config: {address: "smtp.example.com:25", from: f@example.com, to: t@example.com, subject: s, message: m}
    schedule: {type: periodic, config: {interval: 24h}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    notify: chat && thread && letter
    transitions: [{check: wanted && up, next: in-maintenance}]
- name: plain
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
"""


class WriteRate:
    """Counts the requests of a process to the API server, except for leases."""

    def __init__(self, cluster: SandboxCluster) -> None:
        self._cluster = cluster
        self._request_count = 0
        self._began = cluster.clock.monotonic()
        cluster.processes["operator"].transport.faults.fail_before_effect(response=500, where=self._count, times=None)

    def _count(self, request: Request) -> bool:
        self._request_count += "/leases" not in request.path
        return False

    def assert_calm(self) -> None:
        """Fail if there was more than one request a second."""
        passed = self._cluster.clock.monotonic() - self._began
        assert 0 < self._request_count < passed, f"{self._request_count} requests in {passed:.0f} s"


@asynccontextmanager
async def running(
    clock: Clock, folder: Path, outside: FakeExternalClient | None = None
) -> AsyncIterator[SandboxCluster]:
    """Run the operator on two nodes."""
    file = folder / "maintenance.yaml"
    file.write_text(FILE)
    async with with_freezes(with_operator_rbac(a_cluster(clock))).on_the_sandbox() as cluster:
        for name in ("n1", "n2"):
            cluster.api.put(a_node(name))
        cluster.run(operator_with_profiles(file, external_client=outside or FakeExternalClient()))
        for name in ("n1", "n2"):
            await cluster.eventually(partial(state, cluster, name), becomes=OPERATIONAL)
        yield cluster


async def attach(cluster: SandboxCluster, node: str, *profiles: str, text: str | None = None) -> None:
    """Give a node profiles, and data as anybody may write it."""
    labels = {PROFILE_LABEL: "--".join(profiles), "wanted": ""}
    annotations = {} if text is None else {DATA_ANNOTATION: text}
    await cluster.patch("nodes", node, metadata={"labels": labels, "annotations": annotations})


def entry(**fields: object) -> str:
    known = {"Transition": "2024-05-01T10:00:00Z", "Current": "operational", "Previous": "operational"}
    return json.dumps({"Profiles": {"plain": {**known, **fields}}, "Notifications": {}})


UNREADABLE = {
    "no JSON": "operational",
    "half of it": '{"Profiles":{"plain"',
    "a list": "[]",
    "a text": '"x"',
    "huge": '{"Profiles":"' + "x" * 200_000 + '"}',
    "deep": '{"Profiles":{"plain":' + '{"Current":' * 5000,
    "a number for a state": entry(Current=7),
    "a list for a state": entry(Current=["operational"]),
    "an object for a time": entry(Transition={}),
    "a time of day": entry(Transition="10:00"),
    "the year 10000": entry(Transition="10000-01-01T00:00:00Z"),
    "a month too many": entry(Transition="2024-13-01T00:00:00Z"),
    "a time without a zone": entry(Transition="2024-05-01T10:00:00"),
    "a member of somebody else": entry(Owner="me"),
    "a member of somebody else above": '{"Profiles":{},"Notifications":{},"Version":2}',
    "a wrong time of a notification": '{"Profiles":{},"Notifications":{"chat":"never"}}',
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
async def test_unreadable_data_is_kept_and_reported_and_other_nodes_continue(
    clock: Clock, tmp_path: Path, text: str
) -> None:
    async with running(clock, tmp_path) as cluster:
        write_rate = WriteRate(cluster)
        await attach(cluster, "n1", "plain", text=text)
        await attach(cluster, "n2", "plain")
        await cluster.eventually(lambda: state(cluster, "n2"), becomes=REQUIRED, within=timedelta(seconds=5))
        await cluster.pass_time(minutes=3)
        assert (annotation(cluster, "n1", DATA_ANNOTATION), state(cluster, "n1")) == (text, OPERATIONAL)
        (event,) = [item for item in own_events(cluster, "n1") if item["type"] == "Warning"]
        assert event["reason"] == "MaintenanceDataUnreadable"
        assert len(str(event.get("note") or event.get("message"))) <= 1024
        write_rate.assert_calm()


ODD = {
    "the year 0": entry(Transition="0000-01-01T00:00:00Z"),
    "the first instant": entry(Transition="0001-01-01T00:00:00Z"),
    "before the first instant": entry(Transition="0001-01-01T00:00:00+14:00"),
    "the last instant": entry(Transition="9999-12-31T23:59:59.999999999Z"),
    "after the last instant": entry(Transition="9999-12-31T23:59:59-14:00"),
    "the same name twice": '{"Profiles":{},"Profiles":{"plain":{"Current":"gone"},"plain":{"Current":"operational"}}}',
    "null": '{"Profiles":{"plain":null},"Notifications":null}',
    "more after it": entry() + " and more",
    "nothing": "{}",
    "other letters": entry().replace("Profiles", "PROFILES"),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
async def test_odd_data_that_go_can_parse_is_used(clock: Clock, tmp_path: Path, text: str) -> None:
    async with running(clock, tmp_path) as cluster:
        write_rate = WriteRate(cluster)
        await attach(cluster, "n1", "plain", text=text)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED, within=timedelta(seconds=5))
        await cluster.pass_time(minutes=1)
        assert profile_data(cluster, "n1")["Profiles"]["plain"]["Current"] == REQUIRED
        assert not [event for event in own_events(cluster, "n1") if event["type"] == "Warning"]
        write_rate.assert_calm()


@pytest.mark.parametrize("current", ["", "gone", "Operational", "in-maintenance ", "x" * 5000])
async def test_unknown_state_is_kept_and_reported_and_other_profiles_continue(
    clock: Clock, tmp_path: Path, current: str
) -> None:
    async with running(clock, tmp_path) as cluster:
        write_rate = WriteRate(cluster)
        await attach(cluster, "n1", "plain", "os", text=entry(Current=current))
        await cluster.eventually(lambda: profile_data(cluster, "n1")["Profiles"]["os"]["Current"], becomes=REQUIRED)
        await cluster.pass_time(minutes=1)
        assert profile_data(cluster, "n1")["Profiles"]["plain"]["Current"] == current
        reasons = Counter(event["reason"] for event in own_events(cluster, "n1") if event["type"] == "Warning")
        assert reasons["MaintenanceDataUnreadable"] == 1
        write_rate.assert_calm()


# Receivers


def responds(status: int, body: bytes) -> ReplyFunction:
    return lambda _: (status, body)


def raises(problem: str) -> ReplyFunction:
    def answer(_: SentRequest) -> FakeReply:
        return ExternalError(problem)

    return answer


MISBEHAVING = {
    "refuses": FakeExternalClient(reply_to=raises("connection refused")),
    "says garbage": FakeExternalClient(reply_to=responds(200, b"\x00\xff<html>" * 1000)),
    "says nothing": FakeExternalClient(reply_to=responds(200, b"")),
    "says no": FakeExternalClient(reply_to=responds(500, b"internal error")),
    "redirects": FakeExternalClient(reply_to=responds(302, b"elsewhere")),
    "says JSON of another kind": FakeExternalClient(
        reply_to=responds(200, b'{"status":"success","data":[[[]]],"ok":1}')
    ),
    "takes longer than anybody waits": FakeExternalClient(latency=timedelta(minutes=5)),
}


@pytest.mark.parametrize("outside", MISBEHAVING.values(), ids=MISBEHAVING)
async def test_misbehaving_receiver_delays_nothing_else(
    clock: Clock, tmp_path: Path, outside: FakeExternalClient
) -> None:
    """Transitions do not depend on notifications; the Prometheus check does not pass and states the reason."""
    async with running(clock, tmp_path, outside) as cluster:
        write_rate = WriteRate(cluster)
        began = len(outside.requests)
        await attach(cluster, "n1", "os")
        await attach(cluster, "n2", "plain")
        for name in ("n1", "n2"):
            await cluster.eventually(partial(state, cluster, name), becomes=REQUIRED, within=timedelta(seconds=5))
        await cluster.pass_time(minutes=10)
        assert (state(cluster, "n1"), state(cluster, "n2")) == (REQUIRED, REQUIRED)
        reasons = {event["reason"] for event in own_events(cluster, "n1") if event["type"] == "Warning"}
        assert "NotificationFailed" in reasons
        assert len(outside.requests) - began < 10 * 60
        write_rate.assert_calm()
