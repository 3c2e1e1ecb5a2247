"""`haulout drain` on a cluster in memory: output, remaining pods and result."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from haulout.api.clusterapi import DRAIN, DRAIN_RULES
from haulout.api.resources import NODES, PODS
from haulout.cli.drain.drain_runner import DrainRunner, NodeDrain, NodeDrainState, is_success
from haulout.cli.drain.execution import interruption_summary
from haulout.cli.drain.plain_progress import PlainReporter, summary_lines
from haulout.cli.node_lookup import find_nodes
from haulout.cli.output import OutputLine
from haulout.core.clock import Clock
from haulout.drain.pod_filters import PodFilters
from haulout.drain.policy import Behavior, DrainPolicy, DrainRule
from haulout.errors import KubeError
from haulout.kube import selectors
from haulout.kube.patches import merge_patch
from haulout.kube.transport import Response
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster, a_pdb, a_pod, a_workload

SECOND = timedelta(seconds=1)
FORCE = DrainPolicy(filters=PodFilters(force=True))


class Command:
    """A drain and its output."""

    def __init__(
        self, cluster: DrainCluster, policy: DrainPolicy, runner: DrainRunner, lines: list[OutputLine]
    ) -> None:
        self.cluster = cluster
        self.policy = policy
        self.runner = runner
        self.lines = lines

    @property
    def records(self) -> list[NodeDrain]:
        """The drain of each node."""
        return self.runner.node_drains

    @property
    def out(self) -> list[str]:
        """The lines of standard output."""
        return [line.text for line in self.lines if line.is_result]

    @property
    def err(self) -> list[str]:
        """The lines of standard error, including the summary at the end."""
        return [line.text for line in self.lines if not line.is_result]

    async def run(self) -> bool:
        """Run it to its end; tell whether all nodes are drained."""
        await self.runner.run()
        self.lines += summary_lines(self.records)
        return is_success(self.records)


async def a_command(
    cluster: DrainCluster, nodes: Sequence[str], policy: DrainPolicy = FORCE, *, parallel: int = 10
) -> Command:
    lines: list[OutputLine] = []
    show = PlainReporter(policy, clock=cluster.clock, print_line=lines.append)
    found = await find_nodes(cluster.client, nodes, None)
    return Command(cluster, policy, DrainRunner(cluster.client, found, policy, parallel=parallel, reporter=show), lines)


async def test_drain_prints_the_lines_of_kubectl(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("web", 2, on="n1", stop=lambda number: 1 + number)
        command = await a_command(cluster, ["n1"])
        assert await command.run()
        assert command.out == [
            "node/n1 cordoned",
            "evicting pod shop/web-00",
            "evicting pod shop/web-01",
            "pod/web-00 evicted",
            "pod/web-01 evicted",
            "node/n1 drained",
        ]
        assert command.err == ["Warning: deleting Pods that declare no controller: shop/web-00, shop/web-01"]


async def test_empty_node_is_drained_at_once(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.cordon("n1")
        command = await a_command(cluster, ["n1"])
        assert await command.run()
        assert (command.out, command.err) == (["node/n1 already cordoned", "node/n1 drained"], [])


async def test_disable_eviction_deletes_pods(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        command = await a_command(cluster, ["n1"], DrainPolicy(filters=PodFilters(force=True), disable_eviction=True))
        assert await command.run()
        assert command.out == ["node/n1 cordoned", "pod/web-00 deleted", "node/n1 drained"]


async def test_each_way_a_pod_leaves_is_reported(clock: Clock) -> None:
    """One pod is evicted, one deleted as its budget refuses, one deleted without grace, one deleted by another user."""
    minute = timedelta(minutes=1)
    force = PodFilters(force=True)
    policy = DrainPolicy(filters=force, force_delete=True, eviction_timeout=minute, deletion_timeout=minute)
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        await cluster.run_pods("held", 2, on="n1")
        cluster.put(a_pdb("held", app="held", minAvailable=2))
        await cluster.run_pods("hangs", 1, on="n1", behaviour={"hang": "true"}, grace=20)
        await clock.sleep(SECOND)
        command = await a_command(cluster, ["n1"], policy)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(command.run())
            await clock.sleep(SECOND * 10)
            await cluster.cluster.client("admin").delete(PODS, "held-01", namespace="shop")
        assert running.result()
        assert [it for it in command.out if it.startswith(("deleting", "pod/"))] == [
            "pod/web-00 evicted",
            "pod/held-01 gone",
            "deleting pod shop/held-00",
            "deleting pod shop/hangs-00 without grace",
            "pod/hangs-00 deleted without grace",
            "pod/held-00 deleted",
        ]


async def test_pods_that_the_filters_refuse_end_the_drain_before_any_eviction(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        command = await a_command(cluster, ["n1", "n2"], DrainPolicy())
        assert not await command.run()
        reason = "cannot delete Pods that declare no controller (use --force to override): shop/web-00"
        assert command.out == ["node/n1 cordoned", "node/n2 cordoned", "node/n2 drained"]
        assert command.err == [
            f'error: unable to drain node "n1" due to error: {reason}, continuing command...',
            "There are pending nodes to be drained:",
            " n1",
            reason,
        ]
        assert cluster.pod_names(on="n1") == ["web-00"]


async def test_blocker_is_reported_once_with_advice_and_then_every_minute(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("web", 2, on="n1")
        cluster.put(a_pdb("web", app="web", minAvailable=2))
        await clock.sleep(SECOND)
        policy = DrainPolicy(filters=PodFilters(force=True), timeout=timedelta(seconds=130))
        command = await a_command(cluster, ["n1"], policy)
        assert not await command.run()
        eviction_errors = [line for line in command.err if line.startswith("error when evicting pods/")]
        assert eviction_errors[0].startswith('error when evicting pods/"web-00" -n "shop" (will retry after ')
        reason = "PodDisruptionBudget shop/web needs 2 healthy pods and has 2"
        advice = "run more replicas, or relax the PodDisruptionBudget"
        assert eviction_errors[0].endswith(
            f"Cannot evict pod as it would violate the pod's disruption budget. {reason}; {advice}"
        )
        progress_lines = [line for line in command.err if line.startswith("node/n1: ")]
        assert len(progress_lines) == 2
        assert progress_lines[0].startswith("node/n1: 2 of 2 pods left after 1m0s; blocked for ")
        assert f": shop/web-00: {reason}; {advice}" in progress_lines[0]
        late = 'error when evicting pods/"web-00" -n "shop": global timeout reached: 2m10s'
        both = f"[{late}, {late.replace('web-00', 'web-01')}]"
        assert f'There are pending pods in node "n1" when an error occurred: {both}' in command.err
        assert f'error: unable to drain node "n1" due to error: {both}, continuing command...' in command.err
        assert "pod/web-00" in command.err
        assert command.err[-3:] == ["There are pending nodes to be drained:", " n1", both]


async def test_terminating_pod_at_timeout_is_reported_like_kubectl(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1", stop=20)
        command = await a_command(cluster, ["n1"], DrainPolicy(filters=PodFilters(force=True), timeout=5 * SECOND))
        assert not await command.run()
        assert command.err[-1] == (
            'error when waiting for pod "web-00" in namespace "shop" to terminate: context deadline exceeded'
        )


async def test_permanently_blocked_pod_is_reported_after_the_others_have_left(clock: Clock) -> None:
    """A pod under two budgets never leaves: kubectl fails for it at once, and drains the rest."""
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("web", 2, on="n1")
        await cluster.run_pods("db", 1, on="n1")
        cluster.put(a_pdb("one", app="db", minAvailable=0), a_pdb("two", app="db", minAvailable=0))
        await clock.sleep(SECOND)
        command = await a_command(cluster, ["n1"])
        assert not await command.run()
        assert cluster.pod_names(on="n1") == ["db-00"]
        assert command.records[0].result is NodeDrainState.BLOCKED
        assert command.err[-1].startswith(
            'error when evicting pods/"db-00" -n "shop": more than one PodDisruptionBudget selects the pod'
        )


async def test_missing_eviction_permission_ends_the_drain(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 2, on="n1")
        cluster.transport.faults.fail_before_effect(method="POST", path="/eviction", response=403, times=None)
        command = await a_command(cluster, ["n1"])
        assert not await command.run()
        assert 'error when evicting pods/"web-00" -n "shop": not allowed:' in command.err[-1]
        assert cluster.pod_names(on="n1") == ["web-00", "web-01"]


async def test_node_that_cannot_be_cordoned_is_not_drained(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        cluster.transport.faults.fail_before_effect(method="PATCH", path="/nodes/n1", response=403, times=None)
        command = await a_command(cluster, ["n1", "n2"])
        assert not await command.run()
        assert command.out == ["node/n2 cordoned", "node/n2 drained"]
        assert command.err[0].startswith('error: unable to cordon node "n1": ')
        assert cluster.pod_names(on="n1") == ["web-00"]


async def test_parallel_limits_the_nodes_that_are_drained_at_once(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as cluster:
        for name in ("n1", "n2", "n3"):
            await cluster.run_pods(f"on-{name}", 1, on=name, stop=10)
        together = await a_command(cluster, ["n1", "n2"])
        began = clock.monotonic()
        assert await together.run()
        assert clock.monotonic() - began < 12
        assert together.out[:2] == ["node/n1 cordoned", "node/n2 cordoned"]
        for name in ("n1", "n2"):
            await cluster.run_pods(f"on-{name}", 1, on=name, stop=10)
        began = clock.monotonic()
        assert await (await a_command(cluster, ["n1", "n2", "n3"], parallel=1)).run()
        assert clock.monotonic() - began >= 29


async def test_skipped_and_completed_pods_are_reported_separately(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("stuck", 1, on="n1", grace=3, meta={"finalizers": ["example.com/hold"]})
        await cluster.run_pods("batch", 1, on="n1", behaviour={"run-seconds": "20"}, restartPolicy="Never")
        rule = DrainRule(name="batch", pods=selectors.parse("app=batch"), behavior=Behavior.WAIT_COMPLETED)
        filters = PodFilters(force=True, skip_wait_for_delete=25 * SECOND)
        command = await a_command(cluster, ["n1"], DrainPolicy(filters=filters, rules=(rule,)))
        assert await command.run()
        assert 'pod "stuck-00" has DeletionTimestamp older than 25 seconds, skipping' in command.out
        assert "pod/stuck-00 evicted" not in command.out
        assert "pod/batch-00 completed" in command.out
        assert any(line.startswith("waiting for pod shop/stuck-00: its grace period ended at") for line in command.err)


async def test_terminating_namespace_is_reported_like_kubectl(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        status = {
            "kind": "Status",
            "code": 403,
            "reason": "Forbidden",
            "message": "being terminated",
            "details": {
                "causes": [{"reason": "NamespaceTerminating", "message": "namespace shop is being terminated"}]
            },
        }
        cluster.transport.faults.fail_before_effect(
            method="POST",
            path="/eviction",
            response=Response(status=403, headers={}, body=msgspec.json.encode(status)),
            times=1,
        )
        command = await a_command(cluster, ["n1"])
        assert await command.run()
        assert command.err[1].startswith(
            'error when evicting pod "web-00" from terminating namespace "shop" (will retry after '
        )


async def test_server_errors_are_reported_during_the_drain(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        command = await a_command(cluster, ["n1"], DrainPolicy(timeout=20 * SECOND))
        cluster.transport.faults.fail_before_effect(path="/pods", response=500, times=None)
        assert not await command.run()
        assert command.records[0].result is NodeDrainState.TIMED_OUT
        assert any("this information may be outdated" in line for line in command.err)
        assert command.err[-1].startswith("node n1 was not drained within 20s: ")


# Ctrl-C


async def interrupt_and_summarize(command: Command, after: timedelta) -> list[str]:
    """Run a command, cancel it, and return its interruption summary."""
    task = command.cluster.cluster.start_program(command.run(), name="command")
    await command.cluster.clock.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return interruption_summary(
        command.records, resume_command="haulout drain n1 n2 n3", undo_command="haulout uncordon"
    )


async def test_interrupted_drain_reports_state_resume_command_and_undo_command(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3", "n4") as cluster:
        await cluster.cordon("n2")
        await cluster.run_pods("a", 1, on="n1", stop=1)
        await cluster.run_pods("b", 1, on="n2", stop=2)
        await cluster.run_pods("c", 1, on="n2", stop=60)
        await cluster.run_pods("d", 2, on="n2", stop=1)
        cluster.put(a_pdb("d", app="d", minAvailable=2))
        await clock.sleep(SECOND)
        command = await a_command(cluster, ["n1", "n2", "n3"], parallel=2)
        summary = await interrupt_and_summarize(command, timedelta(seconds=1.5))
        eviction_count = len(cluster.evicted_pods())
        assert summary == [
            "Stopped: no further pods are evicted. State of the nodes:",
            "  node/n1  cordoned, drained",
            (
                "  node/n2  cordoned as before, partly drained: 0 pods gone, 2 pods terminating (shop/b-00, "
                "shop/c-00), "
                "2 pods still running (shop/d-00, shop/d-01)"
            ),
            "  node/n3  cordoned, drained",
            "To resume: haulout drain n1 n2 n3",
            "To undo:   haulout uncordon n1 n3",
            "           n2 was cordoned before, and stays cordoned",
            "Terminating pods are deleted anyway; this cannot be undone.",
        ]
        assert command.err[-1] == "Stopping: waiting for requests in progress; Ctrl-C again exits at once."
        await clock.sleep(timedelta(minutes=2))
        assert len(cluster.evicted_pods()) == eviction_count


async def test_interrupted_drain_reports_nodes_that_were_only_cordoned(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("a", 1, on="n1", stop=50)
        summary = await interrupt_and_summarize(await a_command(cluster, ["n1", "n2"], parallel=1), SECOND)
        assert "  node/n2  cordoned, no pod was evicted" in summary


async def test_interruption_during_cordoning_leaves_the_remaining_nodes_uncordoned(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        cluster.transport.faults.delay(10 * SECOND, method="PATCH", path="/nodes/", times=None)
        summary = await interrupt_and_summarize(await a_command(cluster, ["n1", "n2"]), SECOND)
        assert summary[1:] == [
            "  node/n1  cordoned, no pod was evicted",
            "  node/n2  not cordoned, no pod was evicted",
            "To resume: haulout drain n1 n2 n3",
            "To undo:   haulout uncordon n1",
        ]


# Node selection


async def test_nodes_are_found_by_name_by_kubectl_resource_name_and_by_label(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        found = await find_nodes(cluster.client, ["node/n2", "n1", "nodes/n2"], None)
        assert [node.name for node in found] == ["n2", "n1"]
        by_label = await find_nodes(cluster.client, [], "kubernetes.io/hostname=n1")
        assert [node.name for node in by_label] == ["n1"]


async def test_unknown_node_is_refused_with_a_suggestion(clock: Clock) -> None:
    async with a_drain_cluster(clock, "general-01") as cluster:
        with pytest.raises(KubeError) as raised:
            await find_nodes(cluster.client, ["general-1", "general-01", "x"], None)
        assert str(raised.value) == (
            'nodes "general-1", "x" not found; nothing was changed; did you mean "general-01"?'
        )


async def test_deployment_moves_while_its_node_is_drained(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        cluster.put(a_workload("Deployment", "web", replicas=3))
        await cluster.wait_until(lambda: len(cluster.pod_names(app="web")) == 3)
        await clock.sleep(5 * SECOND)
        command = await a_command(cluster, ["n1"], DrainPolicy())
        assert await command.run()
        assert cluster.pod_names(on="n1") == []
        assert {pod["spec"]["nodeName"] for pod in cluster.pods(app="web")} == {"n2"}


async def test_machine_drain_rules_and_pod_drain_labels_are_applied(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        for name, label in (("web", {}), ("pinned", {DRAIN: "skip"}), ("odd", {DRAIN: "never"})):
            cluster.put(a_pod(name, on="n1", labels={"app": name} | label))
        await cluster.run_pods("batch", 1, on="n1", behaviour={"run-seconds": "20"}, restartPolicy="Never")
        about = '[{"selector":{"matchLabels":{"app":"batch"}}}]'
        rules = f'{{"rules":[{{"name":"jobs","behavior":"WaitCompleted","pods":{about}}}]}}'
        await cluster.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {DRAIN_RULES: rules}}}))
        command = await a_command(cluster, ["n1"])
        assert not await command.run()
        assert command.out == ["node/n1 cordoned", "evicting pod shop/web", "pod/web evicted", "pod/batch-00 completed"]
        problem = "label cluster.x-k8s.io/drain is invalid: found 'never', expected skip"
        assert [line for line in command.err if line.startswith("waiting for pod")] == [
            "waiting for pod shop/batch-00: MachineDrainRule jobs waits until the pod has completed",
            f"waiting for pod shop/odd: {problem} or wait-completed; correct it or remove it",
        ]
        assert any("skipping Pods by label cluster.x-k8s.io/drain=skip: shop/pinned" in line for line in command.err)
        assert command.records[0].result is NodeDrainState.BLOCKED, (
            "it does not wait for what does not change by itself"
        )
        assert cluster.pod_names(on="n1") == ["batch-00", "odd", "pinned"]
