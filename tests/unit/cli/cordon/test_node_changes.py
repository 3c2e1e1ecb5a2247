"""Manual cordon and uncordon of nodes that have cordon owners."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from haulout.api.nodemaintenance import custom_resource_definition
from haulout.api.objects import Node, ObjectMeta, RawObject, Taint
from haulout.api.resources import NODES
from haulout.cli.cordon.node_changes import ChangeResult, ChangeVerb, cordon_node, result_lines, uncordon_node
from haulout.cli.cordon_owners import OwnerPresence, owners_of_mark
from haulout.cli.node_lookup import find_nodes
from haulout.controllers.profiles.plugin import DATA_ANNOTATION
from haulout.core.clock import Clock
from haulout.drain import cordon
from haulout.drain.cordon import CORDON_ANNOTATION, CordonRequest
from haulout.errors import Conflict
from haulout.kube.patches import merge_patch
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster

DRAIN = Taint(key="medik8s.io/drain", effect="NoSchedule")
CORDON_REQUEST = CordonRequest(taints=(DRAIN,), labels={"exclude": "true"})
OWNER = "NodeMaintenance/patch-n1"


async def node_of(cluster: DrainCluster, name: str = "n1") -> Node:
    return (await find_nodes(cluster.client, [name], None))[0]


async def hold(cluster: DrainCluster, owner: str = OWNER) -> None:
    """Add an owner to the cordon of the node, as the operator does; retry after conflicts."""
    while change := cordon.acquire(await node_of(cluster), owner, CORDON_REQUEST, now=cluster.clock.now()):
        with suppress(Conflict):
            await cluster.client.patch(NODES, "n1", merge_patch(change))


def put_maintenance(cluster: DrainCluster, name: str = "patch-n1", node: str = "n1") -> None:
    """Put a NodeMaintenance."""
    cluster.api.put(custom_resource_definition())
    cluster.api.put(a_maintenance(name, node))


def a_maintenance(name: str, node: str) -> RawObject:
    return {
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
        "kind": "NodeMaintenance",
        "metadata": {"name": name},
        "spec": {"nodeName": node},
    }


def result_texts(done: ChangeResult, wanted: str = "uncordon") -> list[str]:
    return [line.text for line in result_lines(done, verb=wanted)]


async def test_cordon_and_uncordon_report_the_verbs_of_kubectl(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        verbs = [
            (await change(cluster.client, await node_of(cluster))).verb
            for change in (cordon_node, cordon_node, uncordon_node, uncordon_node)
        ]
        assert verbs == ["cordoned", "already cordoned", "uncordoned", "already uncordoned"]
        assert CORDON_ANNOTATION not in (await node_of(cluster)).metadata.annotations


async def test_dry_run_changes_nothing(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        for dry_run, expected_line in (
            ("client", "node/n1 cordoned (dry run)"),
            ("server", "node/n1 cordoned (server dry run)"),
        ):
            done = await cordon_node(cluster.client, await node_of(cluster), dry_run=dry_run)
            assert [line.text for line in result_lines(done, verb="cordon", dry_run=dry_run)] == [expected_line]
            assert not (await node_of(cluster)).spec.unschedulable


async def test_cordon_of_a_held_node_outlasts_the_owner(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await hold(cluster)
        done = await cordon_node(cluster.client, await node_of(cluster))
        assert result_texts(done, "cordon") == [
            "node/n1 already cordoned",
            (
                "node/n1: held by NodeMaintenance patch-n1; it stays cordoned when that ends, "
                "until you run: haulout uncordon n1"
            ),
        ]
        while change := cordon.release(await node_of(cluster), OWNER):
            with suppress(Conflict):
                await cluster.client.patch(NODES, "n1", merge_patch(change))
        assert (await node_of(cluster)).spec.unschedulable


async def test_uncordon_of_a_held_node_is_refused_with_the_command_that_ends_the_hold(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        put_maintenance(cluster)
        await hold(cluster)
        held = await node_of(cluster)
        since = clock.now()
        await clock.sleep(timedelta(hours=3))
        done = await uncordon_node(cluster.client, held)
        assert done.verb is None
        assert result_texts(done) == [
            (
                f'error: unable to uncordon node "n1": it is held by NodeMaintenance patch-n1 since '
                f"{since:%Y-%m-%d %H:%M:%S} UTC (3h0m ago); to end that: kubectl delete nm patch-n1; "
                "to uncordon it anyway: haulout uncordon n1 --force"
            )
        ]
        still = await node_of(cluster)
        assert (still.spec.unschedulable, still.metadata.annotations) == (True, held.metadata.annotations)


async def test_refused_uncordon_removes_the_cordon_of_the_user(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        put_maintenance(cluster)
        await cordon_node(cluster.client, await node_of(cluster))
        await hold(cluster)
        done = await uncordon_node(cluster.client, await node_of(cluster))
        assert done.verb is None
        assert done.problem.endswith("is removed, so the node is uncordoned when that ends")
        mark = cordon.cordon_of(await node_of(cluster))
        assert mark is not None
        assert not mark.before.unschedulable
        assert (await node_of(cluster)).spec.unschedulable


async def test_forced_uncordon_of_a_held_node_warns_that_the_operator_cordons_it_again(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        put_maintenance(cluster)
        await hold(cluster)
        done = await uncordon_node(cluster.client, await node_of(cluster), force=True)
        assert done.verb is ChangeVerb.UNCORDONED
        assert "the operator cordons the node again until you run: kubectl delete nm patch-n1" in done.notes[0]
        node = await node_of(cluster)
        assert not node.spec.unschedulable
        assert DRAIN not in node.spec.taints
        assert "exclude" not in node.metadata.labels
        assert CORDON_ANNOTATION not in node.metadata.annotations


async def test_uncordon_removes_leftovers_of_an_owner_that_no_longer_exists(clock: Clock) -> None:
    """The definition may be deleted too: then the object does not exist either."""
    async with a_drain_cluster(clock, "n1") as cluster:
        await hold(cluster)
        done = await uncordon_node(cluster.client, await node_of(cluster))
        assert done.verb is ChangeVerb.UNCORDONED
        assert done.notes[0].startswith(
            "removed the leftovers of NodeMaintenance patch-n1, which no longer exists, since"
        )
        node = await node_of(cluster)
        assert (node.spec.unschedulable, DRAIN in node.spec.taints, "exclude" in node.metadata.labels) == (
            False,
            False,
            False,
        )


async def test_profile_owns_the_cordon_while_the_node_data_lists_it(clock: Clock) -> None:
    entry = {"Transition": "2026-01-05T09:00:00Z", "Current": "in-maintenance", "Previous": "in-maintenance"}
    for profiles, verb in (({"os": entry}, None), ({}, ChangeVerb.UNCORDONED)):
        async with a_drain_cluster(clock, "n1") as cluster:
            await hold(cluster, "profile/os")
            node_data = json.dumps({"Profiles": profiles, "Notifications": {}})
            await cluster.client.patch(
                NODES, "n1", merge_patch({"metadata": {"annotations": {DATA_ANNOTATION: node_data}}})
            )
            done = await uncordon_node(cluster.client, await node_of(cluster))
            assert done.verb is verb
            if verb is None:
                assert "it is held by profile os since" in done.problem
                assert "to end that: haulout why n1, which shows what it waits for" in done.problem


async def test_kubernikus_owns_the_cordon_while_the_delete_label_is_true(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await hold(cluster, "Kubernikus/delete-node")
        labels = {"metadata": {"labels": {"cloud.sap/delete-node": "true"}}}
        await cluster.client.patch(NODES, "n1", merge_patch(labels))
        refused = await uncordon_node(cluster.client, await node_of(cluster))
        assert refused.verb is None
        assert "to end that: kubectl label node n1 cloud.sap/delete-node-" in refused.problem
        labels["metadata"]["labels"]["cloud.sap/delete-node"] = "false"
        await cluster.client.patch(NODES, "n1", merge_patch(labels))
        assert (await uncordon_node(cluster.client, await node_of(cluster))).verb == ChangeVerb.UNCORDONED


async def test_nodemaintenance_of_another_node_does_not_own_the_cordon(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        put_maintenance(cluster, node="n2")
        await hold(cluster)
        assert (await uncordon_node(cluster.client, await node_of(cluster))).verb is ChangeVerb.UNCORDONED


async def test_owner_that_may_not_be_read_prevents_uncordon(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await hold(cluster)
        cluster.transport.faults.fail_before_effect(path="/nodemaintenances", response=403, times=None)
        done = await uncordon_node(cluster.client, await node_of(cluster))
        assert "NodeMaintenance patch-n1, which you are not allowed to read, since" in done.problem


async def test_owner_of_an_unknown_kind_prevents_uncordon(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await hold(cluster, "Profile/night")
        done = await uncordon_node(cluster.client, await node_of(cluster))
        assert "it is held by Profile night, which you are not allowed to read, since" in done.problem
        assert "ask its administrator" in done.problem


async def test_invalid_cordon_annotation_prevents_uncordon_but_not_cordon(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {CORDON_ANNOTATION: "{"}}}))
        cordoned = await cordon_node(cluster.client, await node_of(cluster))
        assert cordoned.verb is ChangeVerb.CORDONED
        assert f"annotation {CORDON_ANNOTATION} of node n1 is invalid" in cordoned.notes[0]
        refused = await uncordon_node(cluster.client, await node_of(cluster))
        assert refused.verb is None
        assert refused.problem.endswith("or override it with --force")
        forced = await uncordon_node(cluster.client, await node_of(cluster), force=True)
        assert forced.verb is ChangeVerb.UNCORDONED
        assert "taints and labels of a maintenance may be left" in forced.notes[0]
        assert CORDON_ANNOTATION not in (await node_of(cluster)).metadata.annotations


async def test_concurrent_change_by_an_owner_is_kept(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        old = await node_of(cluster)
        await hold(cluster)
        assert (await cordon_node(cluster.client, old)).verb is ChangeVerb.ALREADY_CORDONED
        mark = cordon.cordon_of(await node_of(cluster))
        assert mark is not None
        assert mark.before.unschedulable


async def test_repeated_write_conflicts_end_the_command(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.transport.faults.fail_before_effect(method="PATCH", path="/nodes/n1", response=409, times=None)
        done = await cordon_node(cluster.client, await node_of(cluster))
        assert done.problem.startswith("failed after repeated write conflicts")


async def test_refusal_is_printed_with_the_message_of_the_server(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.transport.faults.fail_before_effect(method="PATCH", path="/nodes/n1", response=403, times=None)
        done = await cordon_node(cluster.client, await node_of(cluster))
        assert done.verb is None
        assert result_texts(done, "cordon")[0].startswith('error: unable to cordon node "n1": ')


def test_elapsed_time_is_formatted_with_two_units() -> None:
    from haulout.cli.cordon_owners import format_elapsed, format_since

    assert [format_elapsed(timedelta(seconds=it)) for it in (-5, 0, 59.9, 90, 3_700, 200_000)] == [
        "0s",
        "0s",
        "59s",
        "1m30s",
        "1h1m",
        "2d7h",
    ]
    instant = datetime(2026, 1, 5, 9, tzinfo=UTC)
    assert format_since(instant, now=instant + timedelta(minutes=2)) == "2026-01-05 09:00:00 UTC (2m0s ago)"


def test_esx_ownership_is_read_from_the_node_annotation() -> None:
    mark = cordon.Cordon(owners={"ESX": cordon.CordonOwnership(since=datetime(2026, 1, 1, tzinfo=UTC))})
    for annotations, presence in (
        ({"cloud.sap/esx-reboot-initiated": "true"}, OwnerPresence.PRESENT),
        ({}, OwnerPresence.GONE),
    ):
        (holder,) = owners_of_mark(mark, Node(metadata=ObjectMeta(name="n1", annotations=annotations)), {})
        assert (holder.name, holder.presence) == ("ESX", presence)
