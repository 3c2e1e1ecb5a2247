"""What people cordon and uncordon by hand, beside those who hold nodes."""

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
WISHES = CordonRequest(taints=(DRAIN,), labels={"exclude": "true"})
OWNER = "NodeMaintenance/patch-n1"


async def node_of(town: DrainCluster, name: str = "n1") -> Node:
    return (await find_nodes(town.client, [name], None))[0]


async def hold(town: DrainCluster, owner: str = OWNER) -> None:
    """Have an owner hold the node, as the operator does it; others may write to it at the same moment."""
    while change := cordon.acquire(await node_of(town), owner, WISHES, now=town.clock.now()):
        with suppress(Conflict):
            await town.client.patch(NODES, "n1", merge_patch(change))


def order(town: DrainCluster, name: str = "patch-n1", node: str = "n1") -> None:
    """Have a NodeMaintenance."""
    town.api.put(custom_resource_definition())
    town.api.put(a_maintenance(name, node))


def a_maintenance(name: str, node: str) -> RawObject:
    return {
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
        "kind": "NodeMaintenance",
        "metadata": {"name": name},
        "spec": {"nodeName": node},
    }


def texts(done: ChangeResult, wanted: str = "uncordon") -> list[str]:
    return [line.text for line in result_lines(done, verb=wanted)]


async def test_kubectls_words_for_what_was_done(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        verbs = [
            (await change(town.client, await node_of(town))).verb
            for change in (cordon_node, cordon_node, uncordon_node, uncordon_node)
        ]
        assert verbs == ["cordoned", "already cordoned", "uncordoned", "already uncordoned"]
        assert CORDON_ANNOTATION not in (await node_of(town)).metadata.annotations


async def test_a_dry_run_changes_nothing(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        for dry_run, said in (
            ("client", "node/n1 cordoned (dry run)"),
            ("server", "node/n1 cordoned (server dry run)"),
        ):
            done = await cordon_node(town.client, await node_of(town), dry_run=dry_run)
            assert [line.text for line in result_lines(done, verb="cordon", dry_run=dry_run)] == [said]
            assert not (await node_of(town)).spec.unschedulable


async def test_what_is_held_stays_cordoned_for_the_person_who_cordons_it_too(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await hold(town)
        done = await cordon_node(town.client, await node_of(town))
        assert texts(done, "cordon") == [
            "node/n1 already cordoned",
            (
                "node/n1: held by NodeMaintenance patch-n1; it stays cordoned when that ends, "
                "until you run: haulout uncordon n1"
            ),
        ]
        while change := cordon.release(await node_of(town), OWNER):
            with suppress(Conflict):
                await town.client.patch(NODES, "n1", merge_patch(change))
        assert (await node_of(town)).spec.unschedulable


async def test_a_node_that_is_held_is_not_uncordoned(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        order(town)
        await hold(town)
        held = await node_of(town)
        since = clock.now()
        await clock.sleep(timedelta(hours=3))
        done = await uncordon_node(town.client, held)
        assert done.verb is None
        assert texts(done) == [
            (
                f'error: unable to uncordon node "n1": it is held by NodeMaintenance patch-n1 since '
                f"{since:%Y-%m-%d %H:%M:%S} UTC (3h0m ago); to end that: kubectl delete nm patch-n1; "
                "to uncordon it anyway: haulout uncordon n1 --force"
            )
        ]
        still = await node_of(town)
        assert (still.spec.unschedulable, still.metadata.annotations) == (True, held.metadata.annotations)


async def test_the_persons_part_in_a_held_cordon_can_be_taken_back(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        order(town)
        await cordon_node(town.client, await node_of(town))
        await hold(town)
        done = await uncordon_node(town.client, await node_of(town))
        assert done.verb is None
        assert done.problem.endswith("is removed, so the node is uncordoned when that ends")
        mark = cordon.cordon_of(await node_of(town))
        assert mark is not None
        assert not mark.before.unschedulable
        assert (await node_of(town)).spec.unschedulable


async def test_force_uncordons_what_is_held_and_says_what_will_follow(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        order(town)
        await hold(town)
        done = await uncordon_node(town.client, await node_of(town), force=True)
        assert done.verb is ChangeVerb.UNCORDONED
        assert "the operator cordons the node again until you end that: kubectl delete nm patch-n1" in done.notes[0]
        node = await node_of(town)
        assert not node.spec.unschedulable
        assert DRAIN not in node.spec.taints
        assert "exclude" not in node.metadata.labels
        assert CORDON_ANNOTATION not in node.metadata.annotations


async def test_what_was_left_by_one_that_is_no_more_is_cleared_away(clock: Clock) -> None:
    """The kind may be gone too: then there is no such object either."""
    async with a_drain_cluster(clock, "n1") as town:
        await hold(town)
        done = await uncordon_node(town.client, await node_of(town))
        assert done.verb is ChangeVerb.UNCORDONED
        assert done.notes[0].startswith(
            "removed the leftovers of NodeMaintenance patch-n1, which no longer exists, since"
        )
        node = await node_of(town)
        assert (node.spec.unschedulable, DRAIN in node.spec.taints, "exclude" in node.metadata.labels) == (
            False,
            False,
            False,
        )


async def test_a_profile_holds_a_node_for_as_long_as_the_node_has_it(clock: Clock) -> None:
    entry = {"Transition": "2026-01-05T09:00:00Z", "Current": "in-maintenance", "Previous": "in-maintenance"}
    for profiles, verb in (({"os": entry}, None), ({}, ChangeVerb.UNCORDONED)):
        async with a_drain_cluster(clock, "n1") as town:
            await hold(town, "profile/os")
            said = json.dumps({"Profiles": profiles, "Notifications": {}})
            await town.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {DATA_ANNOTATION: said}}}))
            done = await uncordon_node(town.client, await node_of(town))
            assert done.verb is verb
            if verb is None:
                assert "it is held by profile os since" in done.problem
                assert "to end that: haulout why n1, which shows what it waits for" in done.problem


async def test_a_node_of_kubernikus_is_held_for_as_long_as_its_label_orders_that_it_goes(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await hold(town, "Kubernikus/delete-node")
        labels = {"metadata": {"labels": {"cloud.sap/delete-node": "true"}}}
        await town.client.patch(NODES, "n1", merge_patch(labels))
        refused = await uncordon_node(town.client, await node_of(town))
        assert refused.verb is None
        assert "to end that: kubectl label node n1 cloud.sap/delete-node-" in refused.problem
        labels["metadata"]["labels"]["cloud.sap/delete-node"] = "false"
        await town.client.patch(NODES, "n1", merge_patch(labels))
        assert (await uncordon_node(town.client, await node_of(town))).verb == ChangeVerb.UNCORDONED


async def test_an_object_of_that_name_for_another_node_holds_nothing(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        order(town, node="n2")
        await hold(town)
        assert (await uncordon_node(town.client, await node_of(town))).verb is ChangeVerb.UNCORDONED


async def test_a_holder_that_we_may_not_look_for_counts(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await hold(town)
        town.transport.faults.fail_before_effect(path="/nodemaintenances", response=403, times=None)
        done = await uncordon_node(town.client, await node_of(town))
        assert "NodeMaintenance patch-n1, which you are not allowed to read, since" in done.problem


async def test_a_holder_of_a_kind_that_we_do_not_know_counts(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await hold(town, "Profile/night")
        done = await uncordon_node(town.client, await node_of(town))
        assert "it is held by Profile night, which you are not allowed to read, since" in done.problem
        assert "ask its administrator" in done.problem


async def test_a_mark_that_nobody_can_read_stops_uncordoning_but_not_cordoning(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await town.client.patch(NODES, "n1", merge_patch({"metadata": {"annotations": {CORDON_ANNOTATION: "{"}}}))
        cordoned = await cordon_node(town.client, await node_of(town))
        assert cordoned.verb is ChangeVerb.CORDONED
        assert f"annotation {CORDON_ANNOTATION} of node n1 is invalid" in cordoned.notes[0]
        refused = await uncordon_node(town.client, await node_of(town))
        assert refused.verb is None
        assert refused.problem.endswith("or override it with --force")
        forced = await uncordon_node(town.client, await node_of(town), force=True)
        assert forced.verb is ChangeVerb.UNCORDONED
        assert "taints and labels of a maintenance may be left" in forced.notes[0]
        assert CORDON_ANNOTATION not in (await node_of(town)).metadata.annotations


async def test_what_others_change_meanwhile_is_not_lost(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        old = await node_of(town)
        await hold(town)
        assert (await cordon_node(town.client, old)).verb is ChangeVerb.ALREADY_CORDONED
        mark = cordon.cordon_of(await node_of(town))
        assert mark is not None
        assert mark.before.unschedulable


async def test_a_node_that_keeps_changing_is_given_up(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.transport.faults.fail_before_effect(method="PATCH", path="/nodes/n1", response=409, times=None)
        done = await cordon_node(town.client, await node_of(town))
        assert done.problem.startswith("gave up after repeated write conflicts")


async def test_a_refusal_is_told_in_the_servers_words(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.transport.faults.fail_before_effect(method="PATCH", path="/nodes/n1", response=403, times=None)
        done = await cordon_node(town.client, await node_of(town))
        assert done.verb is None
        assert texts(done, "cordon")[0].startswith('error: unable to cordon node "n1": ')


def test_how_long_ago_is_told_as_coarsely_as_makes_sense() -> None:
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


def test_whether_a_node_is_still_held_for_its_esx_host_stands_on_it() -> None:
    mark = cordon.Cordon(owners={"ESX": cordon.CordonOwnership(since=datetime(2026, 1, 1, tzinfo=UTC))})
    for annotations, presence in (
        ({"cloud.sap/esx-reboot-initiated": "true"}, OwnerPresence.PRESENT),
        ({}, OwnerPresence.GONE),
    ):
        (holder,) = owners_of_mark(mark, Node(metadata=ObjectMeta(name="n1", annotations=annotations)), {})
        assert (holder.name, holder.presence) == ("ESX", presence)
