"""`haulout drain` on a cluster in memory: what is said, what is left, and how it ends."""

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
    """A drain, and what it says."""

    def __init__(
        self, town: DrainCluster, policy: DrainPolicy, conductor: DrainRunner, lines: list[OutputLine]
    ) -> None:
        self.town = town
        self.policy = policy
        self.conductor = conductor
        self.lines = lines

    @property
    def records(self) -> list[NodeDrain]:
        """What is known of each node."""
        return self.conductor.node_drains

    @property
    def out(self) -> list[str]:
        """What a script reads."""
        return [line.text for line in self.lines if line.is_result]

    @property
    def err(self) -> list[str]:
        """What goes to standard error, the summary at the end included."""
        return [line.text for line in self.lines if not line.is_result]

    async def run(self) -> bool:
        """Run it to its end; tell whether all nodes are drained."""
        await self.conductor.run()
        self.lines += summary_lines(self.records)
        return is_success(self.records)


async def a_command(
    town: DrainCluster, nodes: Sequence[str], policy: DrainPolicy = FORCE, *, parallel: int = 10
) -> Command:
    lines: list[OutputLine] = []
    show = PlainReporter(policy, clock=town.clock, print_line=lines.append)
    found = await find_nodes(town.client, nodes, None)
    return Command(town, policy, DrainRunner(town.client, found, policy, parallel=parallel, reporter=show), lines)


async def test_a_node_is_drained_in_kubectls_words(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 2, on="n1", stop=lambda number: 1 + number)
        command = await a_command(town, ["n1"])
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


async def test_an_empty_node_is_drained_at_once(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.cordon("n1")
        command = await a_command(town, ["n1"])
        assert await command.run()
        assert (command.out, command.err) == (["node/n1 already cordoned", "node/n1 drained"], [])


async def test_with_deletions_no_pod_is_evicted(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1")
        command = await a_command(town, ["n1"], DrainPolicy(filters=PodFilters(force=True), disable_eviction=True))
        assert await command.run()
        assert command.out == ["node/n1 cordoned", "pod/web-00 deleted", "node/n1 drained"]


async def test_what_a_policy_does_to_a_pod_is_said_as_it_is(clock: Clock) -> None:
    """One is evicted, one deleted because its budget says no, one gets no more time, and one went without us."""
    minute = timedelta(minutes=1)
    force = PodFilters(force=True)
    policy = DrainPolicy(filters=force, force_delete=True, eviction_timeout=minute, deletion_timeout=minute)
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1")
        await town.run_pods("held", 2, on="n1")
        town.put(a_pdb("held", app="held", minAvailable=2))
        await town.run_pods("hangs", 1, on="n1", behaviour={"hang": "true"}, grace=20)
        await clock.sleep(SECOND)
        command = await a_command(town, ["n1"], policy)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(command.run())
            await clock.sleep(SECOND * 10)
            await town.cluster.client("admin").delete(PODS, "held-01", namespace="shop")
        assert running.result()
        assert [it for it in command.out if it.startswith(("deleting", "pod/"))] == [
            "pod/web-00 evicted",
            "pod/held-01 gone",
            "deleting pod shop/held-00",
            "deleting pod shop/hangs-00 without grace",
            "pod/hangs-00 deleted without grace",
            "pod/held-00 deleted",
        ]


async def test_a_pod_that_the_flags_do_not_let_go_ends_it_before_it_begins(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 1, on="n1")
        command = await a_command(town, ["n1", "n2"], DrainPolicy())
        assert not await command.run()
        why = "cannot delete Pods that declare no controller (use --force to override): shop/web-00"
        assert command.out == ["node/n1 cordoned", "node/n2 cordoned", "node/n2 drained"]
        assert command.err == [
            f'error: unable to drain node "n1" due to error: {why}, continuing command...',
            "There are pending nodes to be drained:",
            " n1",
            why,
        ]
        assert town.pod_names(on="n1") == ["web-00"]


async def test_what_blocks_is_said_once_with_what_to_do_and_then_once_a_minute(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 2, on="n1")
        town.put(a_pdb("web", app="web", minAvailable=2))
        await clock.sleep(SECOND)
        policy = DrainPolicy(filters=PodFilters(force=True), timeout=timedelta(seconds=130))
        command = await a_command(town, ["n1"], policy)
        assert not await command.run()
        blamed = [line for line in command.err if line.startswith("error when evicting pods/")]
        assert blamed[0].startswith('error when evicting pods/"web-00" -n "shop" (will retry after ')
        reason = "PodDisruptionBudget shop/web needs 2 healthy pods and has 2"
        advice = "run more replicas, or relax the PodDisruptionBudget"
        assert blamed[0].endswith(
            f"Cannot evict pod as it would violate the pod's disruption budget. {reason}; {advice}"
        )
        beats = [line for line in command.err if line.startswith("node/n1: ")]
        assert len(beats) == 2
        assert beats[0].startswith("node/n1: 2 of 2 pods left after 1m0s; blocked for ")
        assert f": shop/web-00: {reason}; {advice}" in beats[0]
        late = 'error when evicting pods/"web-00" -n "shop": global timeout reached: 2m10s'
        both = f"[{late}, {late.replace('web-00', 'web-01')}]"
        assert f'There are pending pods in node "n1" when an error occurred: {both}' in command.err
        assert f'error: unable to drain node "n1" due to error: {both}, continuing command...' in command.err
        assert "pod/web-00" in command.err
        assert command.err[-3:] == ["There are pending nodes to be drained:", " n1", both]


async def test_a_pod_that_was_told_to_go_and_is_late_is_told_as_kubectl_tells_it(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1", stop=20)
        command = await a_command(town, ["n1"], DrainPolicy(filters=PodFilters(force=True), timeout=5 * SECOND))
        assert not await command.run()
        assert command.err[-1] == (
            'error when waiting for pod "web-00" in namespace "shop" to terminate: context deadline exceeded'
        )


async def test_who_waits_in_vain_is_told_so_while_others_go_on(clock: Clock) -> None:
    """A pod under two budgets never leaves: kubectl fails for it at once, and drains the rest."""
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 2, on="n1")
        await town.run_pods("db", 1, on="n1")
        town.put(a_pdb("one", app="db", minAvailable=0), a_pdb("two", app="db", minAvailable=0))
        await clock.sleep(SECOND)
        command = await a_command(town, ["n1"])
        assert not await command.run()
        assert town.pod_names(on="n1") == ["db-00"]
        assert command.records[0].result is NodeDrainState.BLOCKED
        assert command.err[-1].startswith(
            'error when evicting pods/"db-00" -n "shop": more than one PodDisruptionBudget selects the pod'
        )


async def test_a_missing_permission_to_evict_ends_the_drain(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 2, on="n1")
        town.transport.faults.fail_before_effect(method="POST", path="/eviction", response=403, times=None)
        command = await a_command(town, ["n1"])
        assert not await command.run()
        assert 'error when evicting pods/"web-00" -n "shop": not allowed:' in command.err[-1]
        assert town.pod_names(on="n1") == ["web-00", "web-01"]


async def test_a_node_that_cannot_be_cordoned_is_not_drained(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 1, on="n1")
        town.transport.faults.fail_before_effect(method="PATCH", path="/nodes/n1", response=403, times=None)
        command = await a_command(town, ["n1", "n2"])
        assert not await command.run()
        assert command.out == ["node/n2 cordoned", "node/n2 drained"]
        assert command.err[0].startswith('error: unable to cordon node "n1": ')
        assert town.pod_names(on="n1") == ["web-00"]


async def test_so_many_nodes_are_drained_at_once(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as town:
        for name in ("n1", "n2", "n3"):
            await town.run_pods(f"on-{name}", 1, on=name, stop=10)
        together = await a_command(town, ["n1", "n2"])
        began = clock.monotonic()
        assert await together.run()
        assert clock.monotonic() - began < 12
        assert together.out[:2] == ["node/n1 cordoned", "node/n2 cordoned"]
        for name in ("n1", "n2"):
            await town.run_pods(f"on-{name}", 1, on=name, stop=10)
        began = clock.monotonic()
        assert await (await a_command(town, ["n1", "n2", "n3"], parallel=1)).run()
        assert clock.monotonic() - began >= 29


async def test_pods_that_are_not_waited_for_are_told_apart(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("stuck", 1, on="n1", grace=3, meta={"finalizers": ["example.com/hold"]})
        await town.run_pods("batch", 1, on="n1", behaviour={"run-seconds": "20"}, restartPolicy="Never")
        rule = DrainRule(name="batch", pods=selectors.parse("app=batch"), behavior=Behavior.WAIT_COMPLETED)
        filters = PodFilters(force=True, skip_wait_for_delete=25 * SECOND)
        command = await a_command(town, ["n1"], DrainPolicy(filters=filters, rules=(rule,)))
        assert await command.run()
        assert 'pod "stuck-00" has DeletionTimestamp older than 25 seconds, skipping' in command.out
        assert "pod/stuck-00 evicted" not in command.out
        assert "pod/batch-00 completed" in command.out
        assert any(line.startswith("waiting for pod shop/stuck-00: its grace period ended at") for line in command.err)


async def test_a_terminating_namespace_has_kubectls_words(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1")
        said = {
            "kind": "Status",
            "code": 403,
            "reason": "Forbidden",
            "message": "being terminated",
            "details": {
                "causes": [{"reason": "NamespaceTerminating", "message": "namespace shop is being terminated"}]
            },
        }
        town.transport.faults.fail_before_effect(
            method="POST",
            path="/eviction",
            response=Response(status=403, headers={}, body=msgspec.json.encode(said)),
            times=1,
        )
        command = await a_command(town, ["n1"])
        assert await command.run()
        assert command.err[1].startswith(
            'error when evicting pod "web-00" from terminating namespace "shop" (will retry after '
        )


async def test_trouble_with_the_server_is_told(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        command = await a_command(town, ["n1"], DrainPolicy(timeout=20 * SECOND))
        town.transport.faults.fail_before_effect(path="/pods", response=500, times=None)
        assert not await command.run()
        assert command.records[0].result is NodeDrainState.TIMED_OUT
        assert any("this information may be outdated" in line for line in command.err)
        assert command.err[-1].startswith("node n1 was not drained within 20s: ")


# Ctrl-C


async def interrupted(command: Command, after: timedelta) -> list[str]:
    """Run a command, cancel it, and return what it says was left."""
    task = command.town.cluster.start_program(command.run(), name="command")
    await command.town.clock.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return interruption_summary(
        command.records, resume_command="haulout drain n1 n2 n3", undo_command="haulout uncordon"
    )


async def test_an_interrupted_drain_says_what_it_leaves_how_to_go_on_and_how_to_undo_it(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3", "n4") as town:
        await town.cordon("n2")
        await town.run_pods("a", 1, on="n1", stop=1)
        await town.run_pods("b", 1, on="n2", stop=2)
        await town.run_pods("c", 1, on="n2", stop=60)
        await town.run_pods("d", 2, on="n2", stop=1)
        town.put(a_pdb("d", app="d", minAvailable=2))
        await clock.sleep(SECOND)
        command = await a_command(town, ["n1", "n2", "n3"], parallel=2)
        said = await interrupted(command, timedelta(seconds=1.5))
        asked = len(town.evicted_pods())
        assert said == [
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
        assert len(town.evicted_pods()) == asked


async def test_nodes_whose_turn_did_not_come_are_only_cordoned(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("a", 1, on="n1", stop=50)
        said = await interrupted(await a_command(town, ["n1", "n2"], parallel=1), SECOND)
        assert "  node/n2  cordoned, no pod was evicted" in said


async def test_an_interruption_while_nodes_are_cordoned_leaves_the_rest_alone(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        town.transport.faults.delay(10 * SECOND, method="PATCH", path="/nodes/", times=None)
        said = await interrupted(await a_command(town, ["n1", "n2"]), SECOND)
        assert said[1:] == [
            "  node/n1  cordoned, no pod was evicted",
            "  node/n2  not cordoned, no pod was evicted",
            "To resume: haulout drain n1 n2 n3",
            "To undo:   haulout uncordon n1",
        ]


# Whom it is about


async def test_nodes_are_found_by_name_as_kubectl_prints_it_and_by_label(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        found = await find_nodes(town.client, ["node/n2", "n1", "nodes/n2"], None)
        assert [node.name for node in found] == ["n2", "n1"]
        by_label = await find_nodes(town.client, [], "kubernetes.io/hostname=n1")
        assert [node.name for node in by_label] == ["n1"]


async def test_an_unknown_node_is_answered_with_the_one_that_was_meant_and_nothing_is_done(clock: Clock) -> None:
    async with a_drain_cluster(clock, "general-01") as town:
        with pytest.raises(KubeError) as raised:
            await find_nodes(town.client, ["general-1", "general-01", "x"], None)
        assert str(raised.value) == (
            'nodes "general-1", "x" not found; nothing was changed; did you mean "general-01"?'
        )


async def test_a_workload_moves_while_its_node_is_drained(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        town.put(a_workload("Deployment", "web", replicas=3))
        await town.wait_until(lambda: len(town.pod_names(app="web")) == 3)
        await clock.sleep(5 * SECOND)
        command = await a_command(town, ["n1"], DrainPolicy())
        assert await command.run()
        assert town.pod_names(on="n1") == []
        assert {pod["spec"]["nodeName"] for pod in town.pods(app="web")} == {"n2"}


async def test_rules_of_the_nodes_machine_and_labels_of_pods_are_honoured_and_told(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        for name, label in (("web", {}), ("pinned", {DRAIN: "skip"}), ("odd", {DRAIN: "never"})):
            town.put(a_pod(name, on="n1", labels={"app": name} | label))
        await town.run_pods("batch", 1, on="n1", behaviour={"run-seconds": "20"}, restartPolicy="Never")
        about = '[{"selector":{"matchLabels":{"app":"batch"}}}]'
        rules = f'{{"rules":[{{"name":"jobs","behavior":"WaitCompleted","pods":{about}}}]}}'
        await town.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {DRAIN_RULES: rules}}}))
        command = await a_command(town, ["n1"])
        assert not await command.run()
        assert command.out == ["node/n1 cordoned", "evicting pod shop/web", "pod/web evicted", "pod/batch-00 completed"]
        waits = "label cluster.x-k8s.io/drain is invalid: found 'never', expected skip"
        assert [line for line in command.err if line.startswith("waiting for pod")] == [
            "waiting for pod shop/batch-00: MachineDrainRule jobs waits until the pod has completed",
            f"waiting for pod shop/odd: {waits} or wait-completed; correct it or remove it",
        ]
        assert any("skipping Pods by label cluster.x-k8s.io/drain=skip: shop/pinned" in line for line in command.err)
        assert command.records[0].result is NodeDrainState.BLOCKED, (
            "it does not wait for what does not change by itself"
        )
        assert town.pod_names(on="n1") == ["batch-00", "odd", "pinned"]
