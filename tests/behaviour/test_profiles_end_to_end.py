"""The end-to-end cases of the SAP maintenance-controller, and what its tests leave out: two replicas, our roles."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from haulout.api.leases import PROFILES_LEASE
from haulout.api.objects import RawObject
from support.clusters.cluster_plan import ClusterPlan, PlanFactory
from support.clusters.live_cluster import LiveCluster, RunningProgram
from support.fakes.external_client import FakeExternalClient
from support.operators.nodemaintenance import with_operator_rbac
from support.operators.profiles import (
    NAMESPACE,
    annotate,
    annotation,
    operator_with_profiles,
    profile_data,
    set_profiles,
    state,
)

NEEDED = "flatcar-linux-update.v1.flatcar-linux.net/reboot-needed"
ALLOWED = "flatcar-linux-update.v1.flatcar-linux.net/reboot-ok"
APPROVED = "cloud.sap/maintenance-approved"
OPERATIONAL, REQUIRED, MAINTAINED = "operational", "maintenance-required", "in-maintenance"
REPLICAS = ("operator-a", "operator-b")

FLATCAR = f"""
intervals: {{requeue: 10s, notify: 5h}}
instances:
  notify:
  - type: slack
    name: approval_required
    config: {{hook: Your hook, channel: Your channel, message: "Approve {{{{ .Node.Name }}}}"}}
    schedule: {{type: periodic, config: {{interval: 24h}}}}
  check:
  - {{type: hasAnnotation, name: reboot_needed, config: {{key: {NEEDED}, value: "${{TRUE}}"}}}}
  - {{type: hasAnnotation, name: check_approval, config: {{key: {APPROVED}, value: "${{TRUE}}"}}}}
  trigger:
  - {{type: alterAnnotation, name: reboot-ok, config: {{key: {ALLOWED}, value: "${{TRUE}}"}}}}
  - {{type: alterAnnotation, name: remove_approval, config: {{key: {APPROVED}, remove: true}}}}
  - {{type: alterAnnotation, name: remove_reboot_ok, config: {{key: {ALLOWED}, remove: true}}}}
  - {{type: eviction, name: cordon, config: {{action: cordon}}}}
  - {{type: eviction, name: uncordon, config: {{action: uncordon}}}}
profiles:
- name: flatcar
  operational:
    transitions:
    - {{check: reboot_needed, next: maintenance-required}}
  maintenance-required:
    notify: approval_required
    transitions:
    - {{check: check_approval, trigger: remove_approval && cordon && reboot-ok, next: in-maintenance}}
  in-maintenance:
    transitions:
    - {{check: "!reboot_needed", trigger: remove_reboot_ok && uncordon, next: operational}}
"""

DRAIN = """
intervals: {requeue: 10s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  trigger:
  - {type: eviction, name: drain, config: {action: drain}}
  - {type: eviction, name: uncordon, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: in-maintenance, TRIGGER}]
  in-maintenance:
    ENTER
    transitions: [{check: "!wanted", next: operational, trigger: uncordon}]
"""
DRAIN_CONFIGURATIONS = {
    "trigger": DRAIN.replace("TRIGGER", "trigger: drain").replace("ENTER", ""),
    "enter": DRAIN.replace(", TRIGGER", "").replace("ENTER", "enter: drain"),
}


@asynccontextmanager
async def replicas(
    plan: ClusterPlan, text: str, folder: Path, *, node: str = "", programs: dict[str, RunningProgram] | None = None
) -> AsyncIterator[LiveCluster]:
    """Run a cluster in which one of two replicas leads; both are on `node`. `programs` gets them, by identity."""
    file = folder / "maintenance.yaml"
    file.write_text(text)
    async with plan.running() as cluster:
        for name in REPLICAS:
            program = operator_with_profiles(
                file, external_client=FakeExternalClient(), identity=f"{name}_1", environ={"TRUE": "true"}, node=node
            )
            program_run = cluster.run(program, name=name)
            if programs is not None:
                programs[f"{name}_1"] = program_run
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        yield cluster


def is_cordoned(cluster: LiveCluster, node: str) -> bool:
    return bool(cluster.get("nodes", node)["spec"].get("unschedulable"))


def leader(cluster: LiveCluster) -> str:
    return str(cluster.get("leases", f"{NAMESPACE}/{PROFILES_LEASE}")["spec"]["holderIdentity"])


def event_counts(cluster: LiveCluster, node: str, *, since: Sequence[str]) -> Counter[str]:
    """Count the Events about a node by reason, without those that existed before."""
    events = [event for key, event in cluster.by_key("events").items() if key not in since]
    return Counter(event["reason"] for event in events if regarding(event).get("name") == node and _is_own_event(event))


def regarding(event: RawObject) -> RawObject:
    found: RawObject = event.get("regarding") or event.get("involvedObject") or {}
    return found


def _is_own_event(event: RawObject) -> bool:
    return "maintenance" in (event.get("reportingController"), event.get("reportingComponent"))


async def test_flatcar_node_that_hosts_the_leader_completes_the_cycle(
    a_cluster: PlanFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """X01, X02, X03, X04, X05."""
    async with replicas(with_operator_rbac(a_cluster()).with_nodes(2), FLATCAR, tmp_path, node="n1") as cluster:
        caplog.clear()  # a real server takes a moment until it goes by roles that are new
        before = tuple(cluster.by_key("events"))
        assert leader(cluster) in {f"{replica}_1" for replica in REPLICAS}
        await set_profiles(cluster, "n1", "flatcar")
        await annotate(cluster, "n1", NEEDED, "true")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        await annotate(cluster, "n1", APPROVED, "true")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        assert annotation(cluster, "n1", ALLOWED) == "true"
        assert annotation(cluster, "n1", APPROVED) is None
        assert is_cordoned(cluster, "n1")
        await annotate(cluster, "n1", NEEDED, "false")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        assert annotation(cluster, "n1", ALLOWED) is None
        assert not is_cordoned(cluster, "n1")
        await cluster.eventually(
            lambda: event_counts(cluster, "n1", since=before)["ChangedMaintenanceState"], becomes=3
        )
        await cluster.pass_time(seconds=2)
        assert event_counts(cluster, "n1", since=before)["ChangedMaintenanceState"] == 3
        assert not event_counts(cluster, "n2", since=before)
        assert "forbidden" not in caplog.text.lower()


async def test_another_replica_continues_after_the_leader_is_killed(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """X02, with the leader lost in the middle of it."""
    programs: dict[str, RunningProgram] = {}
    async with replicas(with_operator_rbac(a_cluster()).with_nodes(1), FLATCAR, tmp_path, programs=programs) as cluster:
        await set_profiles(cluster, "n1", "flatcar")
        await annotate(cluster, "n1", NEEDED, "true")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        first = leader(cluster)
        programs[first].kill()
        await annotate(cluster, "n1", APPROVED, "true")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        assert leader(cluster) != first


@pytest.mark.parametrize("variant", DRAIN_CONFIGURATIONS)
async def test_transition_waits_for_the_drain_and_the_drain_for_the_disruption_budget(
    a_cluster: PlanFactory, tmp_path: Path, variant: str
) -> None:
    """12.9: drain against a disruption budget, retry signal in enter and trigger through the whole controller."""
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    plan = with_operator_rbac(a_cluster()).with_nodes(2).with_deployment("shop/kept", replicas=1, budget=1, pods=pods)
    async with replicas(plan, DRAIN_CONFIGURATIONS[variant], tmp_path) as cluster:
        before = tuple(cluster.by_key("events"))
        await set_profiles(cluster, "n1", "os")
        await cluster.patch("nodes", "n1", metadata={"labels": {"patch": ""}})
        await cluster.eventually(lambda: is_cordoned(cluster, "n1"))
        await cluster.pass_time(seconds=4)
        entry = profile_data(cluster, "n1")["Profiles"]["os"]
        expected = {"trigger": (OPERATIONAL, OPERATIONAL), "enter": (MAINTAINED, OPERATIONAL)}
        assert (entry["Current"], entry["Previous"]) == expected[variant]
        assert len(cluster.pods_on("n1")) == 1
        assert not event_counts(cluster, "n1", since=before)["ChangeMaintenanceStateFailed"]
        await cluster.delete("poddisruptionbudgets", "shop/kept")
        await cluster.eventually(
            lambda: tuple(profile_data(cluster, "n1")["Profiles"]["os"][name] for name in ("Current", "Previous")),
            becomes=(MAINTAINED, MAINTAINED),
        )
        assert cluster.pods_on("n1") == []
        await cluster.patch("nodes", "n1", metadata={"labels": {"patch": None}})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        assert not is_cordoned(cluster, "n1")


async def test_profile_label_removed_in_maintenance_leaves_the_node_unchanged(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """12.9: profile removal while in maintenance."""
    async with replicas(
        with_operator_rbac(a_cluster()).with_nodes(1), DRAIN_CONFIGURATIONS["trigger"], tmp_path
    ) as cluster:
        await set_profiles(cluster, "n1", "os")
        await cluster.patch("nodes", "n1", metadata={"labels": {"patch": ""}})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        await cluster.patch("nodes", "n1", metadata={"labels": {"cloud.sap/maintenance-profile": None}})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        await cluster.pass_time(seconds=2)
        assert list(profile_data(cluster, "n1")["Profiles"]) == ["default"]
        assert is_cordoned(cluster, "n1")


async def test_invalid_file_keeps_the_last_valid_configuration_until_it_is_corrected(
    a_cluster: PlanFactory, tmp_path: Path
) -> None:
    """12.9: reload while running, broken configuration; every replica follows the file."""
    async with replicas(with_operator_rbac(a_cluster()).with_nodes(1), FLATCAR, tmp_path) as cluster:
        file = tmp_path / "maintenance.yaml"
        await set_profiles(cluster, "n1", "flatcar")
        for text in ("intervals: [", "", FLATCAR.replace("requeue: 10s", "requeue: never")):
            file.write_text(text)
            await cluster.pass_time(seconds=2)
        await annotate(cluster, "n1", NEEDED, "true")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=REQUIRED)
        await annotate(cluster, "n1", "example.com/go", "true")
        file.write_text(FLATCAR.replace(APPROVED, "example.com/go"))
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)


async def test_two_profiles_enter_maintenance_one_after_the_other(a_cluster: PlanFactory, tmp_path: Path) -> None:
    """12.9: two profiles becoming eligible in one reconcile."""
    second = DRAIN_CONFIGURATIONS["trigger"].replace("trigger: drain", "trigger: ~").partition("profiles:\n")[2]
    text = DRAIN_CONFIGURATIONS["trigger"] + second.replace("name: os", "name: bios")
    async with replicas(with_operator_rbac(a_cluster()).with_nodes(1), text, tmp_path) as cluster:
        await cluster.patch("nodes", "n1", metadata={"labels": {"patch": ""}})
        await set_profiles(cluster, "n1", "os", "bios")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=MAINTAINED)
        await cluster.pass_time(seconds=2)
        assert {name: profile["Current"] for name, profile in profile_data(cluster, "n1")["Profiles"].items()} == {
            "os": MAINTAINED,
            "bios": OPERATIONAL,
        }
        await set_profiles(cluster, "n1", "bios")
        await cluster.eventually(
            lambda: {name: profile["Current"] for name, profile in profile_data(cluster, "n1")["Profiles"].items()},
            becomes={"bios": MAINTAINED},
        )
