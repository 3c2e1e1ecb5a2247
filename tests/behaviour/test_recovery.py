"""A node counts as back when the workloads that were evicted from it are available again, whoever operates by then."""

from datetime import timedelta
from pathlib import Path

from haulout.app.profiles import Profiles
from haulout.drain.workloads import ANNOTATION
from haulout.kinds.notice import MAINTENANCE_NOTICES, definition
from haulout.profiles.default import RECOVERY
from support.clusters import ClusterPlan, Plans
from support.listening import a_notice
from support.live import LiveCluster
from support.maintaining import entitled
from support.profiled import a_file, annotation, attach, operating, state
from support.profiling import events, is_cordoned

IN_MAINTENANCE, OPERATIONAL = "in-maintenance", "operational"
RECOVERED = """
intervals: {requeue: 60s}
instances:
  check:
  - {type: hasLabel, name: wanted, config: {key: patch}}
  - {type: recovered, name: well, config: {workloads: true}}
  trigger:
  - {type: eviction, name: drain, config: {action: drain}}
  - {type: eviction, name: uncordon, config: {action: uncordon}}
profiles:
- name: os
  operational:
    transitions: [{check: wanted, next: maintenance-required}]
  maintenance-required:
    transitions: [{check: wanted, trigger: drain, next: in-maintenance}]
  in-maintenance:
    transitions: [{check: "!wanted && well", trigger: uncordon, next: operational}]
"""
SHORT = "evicted from node n1 and not fully available again: Deployment shop/cart (0 of 1)"


def pinned(plan: ClusterPlan) -> ClusterPlan:
    """Run a Deployment that wants node n1, and so does not come back while that is cordoned."""
    pods = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    return plan.with_nodes(2).with_deployment("shop/cart", replicas=1, pods=pods)


async def unpin(cluster: LiveCluster) -> None:
    """Let the Deployment run elsewhere."""
    selector = {"kubernetes.io/hostname": "n2"}
    await cluster.change("deployments", "shop/cart", spec={"template": {"spec": {"nodeSelector": selector}}})


async def misplace(cluster: LiveCluster, node: str, name: str = "elsewhere") -> None:
    """Let a node say that it is another host, so that the Deployment finds none that it wants."""
    await cluster.change("nodes", node, metadata={"labels": {"kubernetes.io/hostname": name}})


async def maintain(cluster: LiveCluster, node: str) -> None:
    """Have a profile take a node into maintenance."""
    await attach(cluster, node, "os")
    await cluster.change("nodes", node, metadata={"labels": {"patch": "yes"}})
    await cluster.eventually(lambda: state(cluster, node), becomes=IN_MAINTENANCE)


def reasons(profiles: list[Profiles]) -> str:
    """Return all that the last operator says of its nodes."""
    return str(profiles[-1].infos()) if profiles else ""


async def test_a_successor_waits_for_what_was_evicted_before_it_started(a_cluster: Plans, tmp_path: Path) -> None:
    seen: list[Profiles] = []
    async with pinned(entitled(a_cluster())).running() as cluster:
        operator = cluster.run(operating(a_file(tmp_path, RECOVERED), seen=seen.append))
        await maintain(cluster, "n1")
        operator.kill()
        await cluster.change("nodes", "n1", metadata={"labels": {"patch": None}})
        operator.start()
        await cluster.eventually(lambda: SHORT in reasons(seen), within=timedelta(minutes=2))
        assert state(cluster, "n1") == IN_MAINTENANCE
        await unpin(cluster)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        assert annotation(cluster, "n1", ANNOTATION) is None


async def test_an_edited_record_is_unknown_until_somebody_removes_it(a_cluster: Plans, tmp_path: Path) -> None:
    seen: list[Profiles] = []
    async with pinned(entitled(a_cluster())).running() as cluster:
        cluster.run(operating(a_file(tmp_path, RECOVERED), seen=seen.append))
        await maintain(cluster, "n1")
        await cluster.change("nodes", "n1", metadata={"annotations": {ANNOTATION: "[all of them]"}})
        await cluster.change("nodes", "n1", metadata={"labels": {"patch": None}})
        await cluster.eventually(lambda: f"annotation {ANNOTATION} cannot be used" in reasons(seen))
        await unpin(cluster)
        await cluster.eventually(lambda: cluster.ready("shop/cart"), becomes=1)
        assert state(cluster, "n1") == IN_MAINTENANCE
        await cluster.change("nodes", "n1", metadata={"annotations": {ANNOTATION: None}})
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)


async def test_a_profile_that_does_not_compare_workloads_leaves_no_record(a_cluster: Plans, tmp_path: Path) -> None:
    text = RECOVERED.replace("workloads: true", "readyFor: 1s")
    async with pinned(entitled(a_cluster())).running() as cluster:
        cluster.run(operating(a_file(tmp_path, text)))
        await maintain(cluster, "n1")
        assert annotation(cluster, "n1", ANNOTATION) is None


# The default profile, for what is announced


async def announce(cluster: LiveCluster, node: str) -> None:
    """Announce a maintenance that is due, and wait until the node is drained for it."""
    await cluster.create(a_notice("disk", node, start=cluster.clock.now() + timedelta(minutes=5)))
    await cluster.eventually(lambda: state(cluster, node), becomes=IN_MAINTENANCE)


async def test_a_node_is_back_after_a_notice_when_its_workloads_have_recovered(
    a_cluster: Plans, tmp_path: Path
) -> None:
    """It is uncordoned first, or what can run nowhere else would never recover."""
    seen: list[Profiles] = []
    async with pinned(entitled(a_cluster())).with_definition(definition()).running() as cluster:
        file, environ = tmp_path / "none.yaml", {RECOVERY: "1h"}
        operator = cluster.run(operating(file, environ=environ, seen=seen.append))
        await announce(cluster, "n1")
        await misplace(cluster, "n1")
        await cluster.delete(MAINTENANCE_NOTICES.plural, "disk")
        await cluster.eventually(lambda: SHORT in reasons(seen))
        assert not is_cordoned(cluster, "n1")
        operator.kill()
        operator.start()
        await cluster.eventually(lambda: len(seen) > 1 and SHORT in reasons(seen), within=timedelta(minutes=2))
        assert state(cluster, "n1") == IN_MAINTENANCE
        await misplace(cluster, "n1", "n1")
        await cluster.eventually(lambda: state(cluster, "n1") in ("", OPERATIONAL))
        assert cluster.ready("shop/cart") == 1
        assert annotation(cluster, "n1", ANNOTATION) is None


async def test_the_wait_for_recovery_after_a_notice_has_an_end_and_is_told(a_cluster: Plans, tmp_path: Path) -> None:
    async with pinned(entitled(a_cluster())).with_definition(definition()).running() as cluster:
        cluster.run(operating(tmp_path / "none.yaml", environ={RECOVERY: "2s"}))
        await announce(cluster, "n1")
        await misplace(cluster, "n1")
        await cluster.delete(MAINTENANCE_NOTICES.plural, "disk")
        await cluster.eventually(lambda: state(cluster, "n1") in ("", OPERATIONAL))
        await cluster.eventually(lambda: "RecoveryTimedOut" in events(cluster, "n1"))


async def test_a_notice_during_the_wait_for_recovery_drains_the_node_again(a_cluster: Plans, tmp_path: Path) -> None:
    seen: list[Profiles] = []
    async with pinned(entitled(a_cluster())).with_definition(definition()).running() as cluster:
        environ = {RECOVERY: "1h"}
        cluster.run(operating(tmp_path / "none.yaml", environ=environ, seen=seen.append))
        await announce(cluster, "n1")
        await misplace(cluster, "n1")
        await cluster.delete(MAINTENANCE_NOTICES.plural, "disk")
        await cluster.eventually(lambda: not is_cordoned(cluster, "n1"))
        await cluster.create(a_notice("power", "n1", start=cluster.clock.now() + timedelta(minutes=5)))
        await cluster.eventually(lambda: is_cordoned(cluster, "n1") and state(cluster, "n1") == IN_MAINTENANCE)


async def test_without_the_setting_a_node_is_back_when_it_is_ready(a_cluster: Plans, tmp_path: Path) -> None:
    async with pinned(entitled(a_cluster())).with_definition(definition()).running() as cluster:
        cluster.run(operating(tmp_path / "none.yaml"))
        await announce(cluster, "n1")
        assert annotation(cluster, "n1", ANNOTATION) is None
        await misplace(cluster, "n1")
        await cluster.delete(MAINTENANCE_NOTICES.plural, "disk")
        await cluster.eventually(lambda: state(cluster, "n1") in ("", OPERATIONAL))
        assert cluster.ready("shop/cart") == 0
