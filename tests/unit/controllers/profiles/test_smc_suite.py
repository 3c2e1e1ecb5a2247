"""The suite of the SAP maintenance-controller, against the whole operator: its cases by what plugins do to nodes."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.app.manifests import operator_manifests
from haulout.app.manifests.operator_manifests import Installation
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.plugin import PROFILE_LABEL, STATE_LABEL, State
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core.clock import Clock
from support.builders.objects import a_node, a_pod
from support.clusters.cluster_plan import a_cluster
from support.clusters.live_cluster import SandboxCluster
from support.fakes.external_client import FakeExternalClient, FakeSlack
from support.operators.nodemaintenance import with_operator_rbac
from support.operators.profiles import operator_with_profiles, profile_data, state
from support.operators.profiles_controller import own_events

OPERATIONAL, REQUIRED, MAINTAINED = State


@dataclass(slots=True)
class Suite:
    """A cluster without kubelets in which the operator works by a file."""

    cluster: SandboxCluster
    components: list[ProfilesComponent] = field(default_factory=list)

    def add(self, name: str, *profiles: str, **labels: str) -> None:
        """Add a node."""
        known = {PROFILE_LABEL: "--".join(profiles)} if profiles else {}
        self.cluster.api.put(a_node(name, labels={**known, **labels}))

    def state(self, node: str = "n1") -> str:
        """Return the state of a node."""
        return state(self.cluster, node)

    async def becomes(self, expected: str, node: str = "n1") -> None:
        """Wait until a node is in a state."""
        await self.cluster.eventually(partial(self.state, node), becomes=expected)

    async def assert_stays(self, expected: str, node: str = "n1", *, minutes: float = 5) -> None:
        """Let time pass, in which a node comes into a state or stays there."""
        await self.cluster.pass_time(minutes=minutes)
        assert self.state(node) == expected

    async def label(self, node: str, **labels: str | None) -> None:
        """Set labels of a node."""
        await self.cluster.patch("nodes", node, metadata={"labels": labels})

    def check(self, name: str, node: str = "n1") -> RawObject:
        """Return the entry of a check in `/api/v1/info`."""
        (found,) = [item for item in self.components[-1].infos() or () if item["node"] == node]
        (info,) = {
            id(info): info
            for profile in found["profiles"]
            for transition in profile["applied"]["transitions"]
            for key, info in transition["chain"]["info"].items()
            if key == name
        }.values()
        return dict(info)

    def failures(self, node: str = "n1") -> list[str]:
        """Return the warning events of a node."""
        about = own_events(self.cluster, node)
        return [str(event.get("note") or event.get("message")) for event in about if event["type"] == "Warning"]


Suites = Callable[..., Any]


@pytest.fixture
def a_suite(clock: Clock, tmp_path: Path) -> Suites:
    """Return a function that runs the operator with a file and the shipped RBAC for it."""

    @asynccontextmanager
    async def run(text: str, *objects: RawObject, outside: FakeExternalClient | None = None) -> AsyncIterator[Suite]:
        file = tmp_path / "maintenance.yaml"
        file.write_text(text)
        configuration = loader.load(text.encode(), registries(), {}).configuration
        rights = operator_manifests.role_objects(Installation(image="example/haulout", configuration=configuration))
        async with with_operator_rbac(a_cluster(clock), rights).on_the_sandbox() as cluster:
            suite = Suite(cluster)
            for each in objects:
                cluster.api.put(each)
            cluster.run(operator_with_profiles(file, external_client=outside, on_started=suite.components.append))
            yield suite

    return run


def profile_with_check(
    check: str, *, state: State = OPERATIONAL, target: State = MAINTAINED, name: str = "test"
) -> str:
    """Return a file whose profile has one transition with a check; nodes with label `ready` are required."""
    before = "operational: {transitions: [{check: ready, next: maintenance-required}]}" if state is REQUIRED else ""
    return f"""
intervals: {{requeue: 200ms, notify: 500ms}}
instances:
  check:
  - {{name: ready, type: hasLabel, config: {{key: ready}}}}
  - {{name: it, {check}}}
profiles:
- name: {name}
  {before}
  {state}: {{transitions: [{{check: it, next: {target}}}]}}
- name: other
  operational: {{transitions: [{{check: ready, next: maintenance-required}}]}}
"""


# Limits


async def test_max_maintenance_counts_nodes_by_profile_label(a_suite: Suites) -> None:
    """C10, C11."""
    text = profile_with_check("type: maxMaintenance, config: {max: 1}", state=REQUIRED)
    async with a_suite(text) as suite:
        suite.add("n1", "test", ready="")
        await suite.becomes(MAINTAINED)
        suite.add("n2", "test", ready="")
        await suite.assert_stays(REQUIRED, "n2")
        assert suite.check("it", "n2")["info"]["maintained"] == 1
        await suite.label("n1", **{PROFILE_LABEL: "other"})
        await suite.becomes(REQUIRED)
        await suite.becomes(MAINTAINED, "n2")


@pytest.mark.parametrize(("parallel", "inside"), [(1, 1), (2, 2)])
async def test_stagger_allows_as_many_nodes_as_there_are_leases(a_suite: Suites, parallel: int, inside: int) -> None:
    """C12, C13, C14, C15."""
    config = f"{{duration: 6m, leaseName: mc-lease, leaseNamespace: default, parallel: {parallel}}}"
    nodes = ("n1", "n2", "n3")
    async with a_suite(profile_with_check(f"type: stagger, config: {config}")) as suite:

        def there() -> list[str]:
            return [node for node in nodes if suite.state(node) == MAINTAINED]

        def holders() -> list[str]:
            names = [f"default/mc-lease-{number}" for number in range(parallel)]
            return sorted(suite.cluster.get("leases", lease_name)["spec"]["holderIdentity"] for lease_name in names)

        for name in nodes:
            suite.add(name, "test")
        await suite.cluster.pass_time(minutes=5)
        assert (len(there()), holders()) == (inside, there())
        (blocked, *_) = [item for item in nodes if item not in there()]
        assert len(suite.check("it", blocked)["info"]["availableInSec"]) == parallel
        before = there()
        await suite.cluster.pass_time(minutes=2)
        assert len(there()) == min(3, 2 * inside)
        assert set(there()) - set(before) <= set(holders())


# Threads


def thread_reply(node: str) -> tuple[str, str]:
    return "Maintenance", f"{node} is required"


THREAD = """
intervals: {requeue: 200ms}
instances:
  check:
  - {name: ready, type: hasLabel, config: {key: ready}}
  notify:
  - name: thread
    type: slackThread
    config:
      token: xoxb-1
      channel: "#c"
      title: Maintenance
      message: "{{ .Node.Name }} is required"
      leaseName: thread
      leaseNamespace: default
      period: 6m
    schedule: {type: oneshot, config: {delay: 0s}}
profiles:
- name: test
  operational: {transitions: [{check: ready, next: maintenance-required}]}
  maintenance-required: {notify: thread}
"""


async def test_messages_of_a_period_form_one_slack_thread(a_suite: Suites) -> None:
    """C16, C17, C18."""
    slack = FakeSlack()
    async with a_suite(THREAD, outside=FakeExternalClient(reply_to=slack)) as suite:
        suite.add("n1", "test", ready="")
        await suite.cluster.eventually(lambda: slack.replies, becomes=[thread_reply("n1")])
        assert slack.titles == ["Maintenance"]
        lease = suite.cluster.get("leases", "default/thread")["spec"]
        assert (lease["holderIdentity"], lease["leaseDurationSeconds"]) == (slack.posts[0]["ts"], 360)
        suite.add("n2", "test", ready="")
        await suite.cluster.eventually(lambda: slack.replies, becomes=[thread_reply("n1"), thread_reply("n2")])
        assert slack.titles == ["Maintenance"]
        await suite.cluster.pass_time(minutes=7)
        suite.add("n3", "test", ready="")
        await suite.cluster.eventually(lambda: len(slack.replies), becomes=3)
        assert slack.titles == ["Maintenance"] * 2
        assert slack.posts[-1]["thread_ts"] == slack.posts[-2]["ts"] != slack.posts[0]["ts"]


# Affinity


def a_sensitive_pod(name: str, *, on: str) -> RawObject:
    """Return a pod that prefers operational nodes."""
    term = {"matchExpressions": [{"key": STATE_LABEL, "operator": "In", "values": ["operational"]}]}
    preferred = [{"weight": 1, "preference": term}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return a_pod(f"shop/{name}", on=on, affinity=affinity)


AFFINITY = profile_with_check("type: affinity, config: null", state=REQUIRED)
ENOUGH = profile_with_check("type: affinity, config: {minOperational: 1}", state=REQUIRED)


@pytest.mark.parametrize(
    ("text", "pods", "profiles", "passes"),
    [
        pytest.param(AFFINITY, (), {"n2": "test"}, True, id="C19"),
        pytest.param(AFFINITY, ("n1",), {"n2": "test"}, False, id="C20"),
        pytest.param(AFFINITY, ("n1", "n2"), {"n2": "test"}, True, id="C21"),
        pytest.param(AFFINITY, ("n1",), {"n2": "other"}, True, id="C24"),
        pytest.param(ENOUGH, ("n1",), {"n2": "test", "n3": "test--idle"}, False, id="no operational node"),
        pytest.param(ENOUGH, ("n1",), {"n2": "test", "n4": "test"}, True, id="C25"),
    ],
)
async def test_affinity_makes_nodes_with_sensitive_pods_wait_for_others(
    a_suite: Suites,
    text: str,
    pods: Sequence[str],
    profiles: dict[str, str],
    passes: bool,  # noqa: FBT001 - a table
) -> None:
    """C19, C20, C21, C23, C24, C25: n2 is held in its state by being blocked there, n4 is operational."""
    held = text.replace("check: it, next: in-maintenance", "check: it && mine, next: in-maintenance").replace(
        "  - {name: ready,", "  - {name: mine, type: hasLabel, config: {key: mine}}\n  - {name: ready,"
    )
    plain = [a_pod("shop/plain", on="n1")]
    async with a_suite(held, *plain, *(a_sensitive_pod(f"on-{pod}", on=pod) for pod in pods)) as suite:
        for name, label in profiles.items():
            ready = {} if name == "n4" else {"ready": ""}
            suite.add(name, label, **ready)
            await suite.becomes(OPERATIONAL if name == "n4" else REQUIRED, name)
        suite.add("n1", "test", ready="", mine="")
        await suite.assert_stays(MAINTAINED if passes else REQUIRED)
        assert passes or "n2" in suite.check("it")["info"]["reason"]


async def test_affinity_outside_of_maintenance_required_is_a_failure(a_suite: Suites) -> None:
    """C22."""
    async with a_suite(profile_with_check("type: affinity, config: null")) as suite:
        suite.add("n1", "test")
        await suite.assert_stays(OPERATIONAL)
        assert suite.failures() == ["At least one check plugin failed for profile test: Will stay in operational state"]
        assert "cannot be used in operational" in suite.check("it")["info"]["error"]


# Counting and comparing nodes


@pytest.mark.parametrize(("count", "passes"), [(1, True), (3, False)])
async def test_node_count_requires_the_minimum(a_suite: Suites, count: int, passes: bool) -> None:  # noqa: FBT001 - a table
    """C26."""
    async with a_suite(profile_with_check(f"type: nodeCount, config: {{count: {count}}}")) as suite:
        suite.add("n1", "test")
        await suite.assert_stays(MAINTAINED if passes else OPERATIONAL)
        if not passes:
            assert suite.check("it") == {
                "id": "nodeCount",
                "passed": False,
                "info": {"reason": "the cluster has 1 node, 3 needed", "current": 1, "expected": 3},
            }
            suite.add("n2")
            suite.add("n3")
            await suite.becomes(MAINTAINED)


@pytest.mark.parametrize(
    ("own", "others", "config", "passes"),
    [
        ("2.0.0", {"n2": "1.0.0"}, "", False),
        ("1.0.0", {"n2": "2.0.0"}, "", True),
        ("1.0.0", {"n2": "banana"}, "", False),
        ("1.0.0", {"n2": "2.0.0"}, ", profileScoped: yes", False),
    ],
)
async def test_cluster_semver_compares_versions(
    a_suite: Suites,
    own: str,
    others: dict[str, str],
    config: str,
    passes: bool,  # noqa: FBT001 - a table
) -> None:
    """C27, C28."""
    async with a_suite(profile_with_check(f"type: clusterSemver, config: {{key: version{config}}}")) as suite:
        for name, version in others.items():
            suite.add(name, version=version)
        suite.add("n1", "test", version=own)
        await suite.assert_stays(MAINTAINED if passes else OPERATIONAL)
        assert not suite.failures()


async def test_cluster_semver_fails_on_an_invalid_version_and_is_unknown_without_one(a_suite: Suites) -> None:
    """C29; "no data" does not pass, states the reason, and is no failure."""
    async with a_suite(profile_with_check("type: clusterSemver, config: {key: version}")) as suite:
        suite.add("n2", version="2.0.0")
        suite.add("n1", "test", version="latest")
        await suite.assert_stays(OPERATIONAL)
        assert len(suite.failures()) == 1
        await suite.label("n1", version=None)
        await suite.assert_stays(OPERATIONAL)
        assert "has no label version" in suite.check("it")["info"]["reason"]
        await suite.label("n1", version="1.0.0")
        await suite.becomes(MAINTAINED)


@pytest.mark.parametrize(
    ("config", "passes"),
    [
        ("{key: mark, value: yes-it-is}", True),
        ("{key: mark, value: ''}", True),
        ("{key: mark, value: other}", False),
        ("{key: absent}", False),
    ],
)
async def test_any_label_passes_if_any_node_has_the_label(a_suite: Suites, config: str, passes: bool) -> None:  # noqa: FBT001 - a table
    """C37; a label that comes later is noticed."""
    async with a_suite(profile_with_check(f"type: anyLabel, config: {config}")) as suite:
        suite.add("n2", mark="yes-it-is")
        suite.add("n1", "test")
        await suite.assert_stays(MAINTAINED if passes else OPERATIONAL)
        await suite.label("n2", mark="other", absent="no")
        await suite.becomes(MAINTAINED)


# Draining


DRAIN = """
intervals: {requeue: 200ms}
instances:
  check:
  - {name: ready, type: hasLabel, config: {key: ready}}
  trigger:
  - name: drain
    type: eviction
    config: {action: drain, forceEviction: FORCE, evictionTimeout: 1m, deletionTimeout: 1m}
profiles:
- name: test
  operational: {transitions: [{check: ready, next: in-maintenance, trigger: drain}]}
"""


@pytest.mark.parametrize("force", [False, True])
async def test_hanging_pod_is_force_deleted_only_with_force_eviction(a_suite: Suites, force: bool) -> None:  # noqa: FBT001 - a table
    """C40, C39; 12.9: force deletion deadline."""
    text = DRAIN.replace("FORCE", str(force).lower())
    stuck = a_pod("shop/stuck", on="n1").running()  # without a kubelet it never terminates
    async with a_suite(text, stuck) as suite:
        suite.add("n1", "test", ready="")
        await suite.cluster.eventually(lambda: _is_leaving(suite, "shop/stuck"))
        assert suite.state() == OPERATIONAL
        assert suite.cluster.get("nodes", "n1")["spec"]["unschedulable"] is True
        await suite.assert_stays(MAINTAINED if force else OPERATIONAL, minutes=10)
        assert suite.cluster.has("pods", "shop/stuck") is not force
        assert not suite.failures()


def _is_leaving(suite: Suite, pod: str) -> bool:
    return "deletionTimestamp" in suite.cluster.get("pods", pod)["metadata"]


# Several at once


async def test_failure_in_one_profile_does_not_affect_others(a_suite: Suites) -> None:
    """The suite's profile `broken`: in Go it would block all profiles of its node."""
    bad = "type: prometheusInstant, config: {url: 'http://nobody/', query: up, expr: value > 0}"
    external = FakeExternalClient(reply_to=lambda _: (500, b"no"))
    async with a_suite(profile_with_check(bad, name="broken"), outside=external) as suite:
        suite.add("n1", "broken", "other", ready="")
        await suite.becomes(REQUIRED)
        assert {
            name: Profile["Current"] for name, Profile in profile_data(suite.cluster, "n1")["Profiles"].items()
        } == {
            "broken": OPERATIONAL,
            "other": REQUIRED,
        }
        assert suite.failures() == [
            "At least one check plugin failed for profile broken: Will stay in operational state"
        ]


async def test_default_profile_of_all_nodes_can_be_redefined(a_suite: Suites) -> None:
    """12.9: default profile redefinition."""
    async with a_suite(profile_with_check("type: hasLabel, config: {key: ready}", name="default")) as suite:
        suite.add("n1", ready="")
        suite.add("n2", "other", ready="")
        await suite.becomes(MAINTAINED)
        await suite.becomes(REQUIRED, "n2")


async def test_initial_transition_is_written_in_utc(a_suite: Suites, monkeypatch: pytest.MonkeyPatch) -> None:
    """12.9: time zone of the initial Transition; the process may live in another one."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    async with a_suite(profile_with_check("type: hasLabel, config: {key: ready}")) as suite:
        suite.add("n1", "test")
        await suite.becomes(OPERATIONAL)
        (entry,) = profile_data(suite.cluster, "n1")["Profiles"].values()
        assert entry["Transition"].endswith("Z")
        assert entry["Transition"][:16] == f"{suite.cluster.clock.now():%Y-%m-%dT%H:%M}"


ONCE = """
intervals: {requeue: 200ms}
instances:
  check:
  - {name: ready, type: hasLabel, config: {key: ready}}
  - {name: done, type: hasLabel, config: {key: done}}
  notify:
  - name: once
    type: slack
    config: {hook: "https://hooks.example.com/x", channel: "#c", message: "{{ .State }}"}
    schedule: {type: oneshot, config: {delay: 1m}}
profiles:
- name: test
  operational: {transitions: [{check: ready, next: maintenance-required}]}
  maintenance-required: {notify: once, transitions: [{check: done, next: operational}]}
"""


async def test_oneshot_notification_is_sent_once_per_state_that_lasts_long_enough(a_suite: Suites) -> None:
    """12.9: oneshot inside the controller."""
    external = FakeExternalClient()
    async with a_suite(ONCE, outside=external) as suite:
        suite.add("n1", "test", ready="")
        await suite.becomes(REQUIRED)
        await suite.cluster.pass_time(minutes=0.9)
        assert not external.requests
        await suite.assert_stays(REQUIRED, minutes=5)
        assert len(external.requests) == 1
        await suite.label("n1", ready=None, done="")
        await suite.becomes(OPERATIONAL)
        await suite.label("n1", ready="", done=None)
        await suite.becomes(REQUIRED)
        await suite.label("n1", ready=None, done="")
        await suite.assert_stays(OPERATIONAL, minutes=5)
        assert len(external.requests) == 1
        await suite.label("n1", ready="", done=None)
        await suite.assert_stays(REQUIRED, minutes=5)
        assert [request.json["text"] for request in external.requests] == [REQUIRED, REQUIRED]


async def test_failed_node_patch_is_retried_and_loses_nothing(a_suite: Suites) -> None:
    """12.9: patch failure."""
    external = FakeExternalClient()
    async with a_suite(ONCE.replace("delay: 1m", "delay: 0s"), outside=external) as suite:
        suite.add("n1", "test")
        await suite.becomes(OPERATIONAL)
        faults = suite.cluster.processes["operator"].transport.faults
        rule = faults.fail_before_effect(response=500, method="PATCH", path="/nodes/n1", times=None)
        await suite.label("n1", ready="")
        await suite.assert_stays(OPERATIONAL, minutes=2)
        assert not external.requests
        faults.remove(rule)
        await suite.cluster.eventually(suite.state, becomes=REQUIRED, within=timedelta(minutes=3))
        await suite.cluster.eventually(lambda: len(external.requests), becomes=1)
