"""The history of nodes, as a cluster keeps it: accepted by the server, complete, and kept when its node is deleted."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.vitals import Vitals
from haulout.errors import Conflict, Invalid
from haulout.history import survey
from haulout.history.document import change
from haulout.history.record import (
    DELETED,
    MAINTENANCE_RECORDS,
    MOST_ENTRIES,
    NODE_DELETED,
    STANDING,
    Entry,
    Note,
    added,
    content_of,
)
from haulout.history.retention import RetentionSettings
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from support.builders import a_pod
from support.clusters import Plans
from support.live import RESOURCES, LiveCluster
from support.maintaining import RIGHTS, entitled, order, over, succeeded
from support.outside import FakeOutside
from support.profiled import BY_LABEL, NAMESPACE, attach, operating, state
from support.recorded import PLURAL, drains, entries, moves, recorded, writes

OS, MAINTENANCE = "profile/os", "NodeMaintenance/patch"
OPERATIONAL, REQUIRED, IN_MAINTENANCE = "operational", "maintenance-required", "in-maintenance"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the configuration."""
    path = tmp_path / "maintenance.yaml"
    path.write_text(BY_LABEL)
    return path


async def want(cluster: LiveCluster, value: str | None) -> None:
    await cluster.change("nodes", "n1", metadata={"labels": {"patch": value}})


async def test_what_profiles_and_people_do_to_a_node_is_in_its_history(a_cluster: Plans, file: Path) -> None:
    pods = [a_pod(f"shop/cart-{number}", on="n1", act={"stop-seconds": "1"}) for number in range(2)]
    async with recorded(entitled(a_cluster())).with_nodes(2).with_objects(*pods).running() as cluster:
        cluster.run(operating(file, outside=FakeOutside()))
        await attach(cluster, "n1", "os")
        await want(cluster, "")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)
        await want(cluster, None)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        round_ = [(OS, OPERATIONAL, REQUIRED), (OS, REQUIRED, IN_MAINTENANCE), (OS, IN_MAINTENANCE, OPERATIONAL)]
        await cluster.eventually(lambda: moves(cluster, "n1"), becomes=round_)
        await order(cluster, "n1", reason="new kernel")
        await succeeded(cluster)
        await over(cluster)
        what = "NodeMaintenance/patch"
        ordered = [(what, "", "Running"), (what, "Running", "Succeeded"), (what, "Succeeded", "Ended")]
        await cluster.eventually(lambda: moves(cluster, "n1"), becomes=[*round_, *ordered])
        first, last = drains(cluster, "n1")
        assert (first["pods"], last["pods"]) == (2, 0)
        assert writes(cluster, "n1") <= 7
        assert not cluster.has(PLURAL, "n2")
        await cluster.delete("nodes", "n1")
        await cluster.eventually(lambda: entries(cluster, "n1")[-1].get("result"), becomes=DELETED)
        assert NODE_DELETED in cluster.get(PLURAL, "n1")["metadata"]["annotations"]


async def test_the_history_of_a_deleted_node_goes_when_its_time_is_over_and_no_other(a_cluster: Plans) -> None:
    kept = RetentionSettings(keep_for=timedelta(seconds=5))

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=NAMESPACE, identity="operator_1", retention=kept)
        await run_operator(client, settings)

    async with recorded(entitled(a_cluster())).with_nodes(2).running() as cluster:
        owner = [
            {"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": cluster.get("nodes", "n2")["metadata"]["uid"]}
        ]
        older = a_record("n2")
        older["metadata"]["ownerReferences"] = owner
        await cluster.create(older)
        cluster.run(program)
        await order(cluster, "n1")
        await succeeded(cluster)
        await over(cluster)
        await cluster.eventually(lambda: moves(cluster, "n1")[-1:], becomes=[(MAINTENANCE, "Succeeded", "Ended")])
        await cluster.eventually(lambda: "ownerReferences" not in cluster.get(PLURAL, "n2")["metadata"])
        await cluster.delete("nodes", "n1")
        await cluster.eventually(lambda: DELETED in [it.get("result") for it in entries(cluster, "n1")])
        await cluster.eventually(lambda: not cluster.has(PLURAL, "n1"))
        assert cluster.has(PLURAL, "n2")


async def test_who_ordered_a_maintenance_is_named_where_the_server_knows(
    a_cluster: Plans, file: Path, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--backend") == "sandbox":
        pytest.skip("the sandbox does not keep who manages which fields")
    async with recorded(entitled(a_cluster())).with_nodes(1).running() as cluster:
        cluster.run(operating(file, outside=FakeOutside()))
        await order(cluster, "n1")
        await cluster.eventually(lambda: bool(entries(cluster, "n1")))
        assert entries(cluster, "n1")[0]["by"] == cluster.me.field_manager
        await over(cluster)


async def test_a_right_that_is_missing_is_named_and_costs_no_entry(a_cluster: Plans) -> None:
    vitals = Vitals()

    async def program(client: Client) -> None:
        await run_operator(client, OperatorSettings(namespace=NAMESPACE, identity="operator_1"), vitals=vitals)

    (role,) = (it for it in RIGHTS if it["kind"] == "ClusterRole" and it["metadata"]["name"] == "haulout")
    rules = [it for it in role["rules"] if PLURAL not in it.get("resources", ())]
    poor = [{**role, "rules": rules} if it is role else it for it in RIGHTS]
    async with recorded(entitled(a_cluster(), poor)).with_nodes(1).running() as cluster:
        cluster.run(program)
        await order(cluster, "n1")
        await succeeded(cluster)
        await over(cluster)
        # `get` or `list`: whichever is tried first.
        named = 'resource "maintenancerecords" in API group "haulout.dev"'
        await cluster.eventually(lambda: any(named in it for it in vitals.troubles()))
        await cluster.me.patch(RESOURCES["clusterroles"], "haulout", merge_patch({"rules": role["rules"]}))
        await cluster.eventually(
            lambda: [to for _, _, to in moves(cluster, "n1")], becomes=["Running", "Succeeded", "Ended"]
        )
        await cluster.eventually(lambda: not any(vitals.history_troubles()))


def a_record(name: str, **entry: object) -> RawObject:
    full = {"time": "2026-01-01T00:00:00.123456Z", "what": OS, "to": REQUIRED, **entry}
    return {
        "apiVersion": MAINTENANCE_RECORDS.api_version,
        "kind": MAINTENANCE_RECORDS.kind,
        "metadata": {"name": name},
        "total": 1,
        "entries": [{key: value for key, value in full.items() if value is not None}],
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"time": "yesterday"},
        {"time": None},
        {"what": None},
        {"what": ""},
        {"why": "x" * 2_000},
        {"drain": {"pods": 1}},
        {"drain": {"seconds": -1, "pods": 1}},
        {"drain": {"seconds": 1.5, "pods": "all"}},
    ],
    ids=str,
)
async def test_a_record_that_makes_no_sense_is_refused(a_cluster: Plans, wrong: dict[str, object]) -> None:
    async with recorded(a_cluster()).running() as cluster:
        with pytest.raises(Invalid):
            await cluster.me.create(RESOURCES[PLURAL], a_record("n1", **wrong))


async def test_instants_keep_their_fraction_and_numbers_are_numbers(a_cluster: Plans) -> None:
    async with recorded(a_cluster()).running() as cluster:
        await cluster.create(a_record("kept", drain={"seconds": 1.5, "pods": 3}))
        found = await cluster.me.get(MAINTENANCE_RECORDS, "kept")
        (entry,) = found.entries
        assert entry.time == datetime.fromisoformat("2026-01-01T00:00:00.123456+00:00")
        assert entry.drain is not None
        assert (entry.drain.seconds, entry.drain.pods) == (1.5, 3)


async def test_of_two_who_write_to_the_same_version_one_is_refused(a_cluster: Plans) -> None:
    async with recorded(a_cluster()).running() as cluster:
        await cluster.create(a_record("n1"))
        found = await cluster.me.get(MAINTENANCE_RECORDS, "n1")
        entry = Entry(time=cluster.clock.now(), what=OS, from_=REQUIRED, to=IN_MAINTENANCE)
        patch = change(found, added(content_of(found), [Note(entry=entry)]))
        await cluster.me.patch(MAINTENANCE_RECORDS, "n1", patch)
        with pytest.raises(Conflict):
            await cluster.me.patch(MAINTENANCE_RECORDS, "n1", patch)
        again = await cluster.me.get(MAINTENANCE_RECORDS, "n1")
        assert [it.to for it in again.entries] == [REQUIRED, IN_MAINTENANCE]


async def test_all_records_can_be_looked_at_without_their_entries(a_cluster: Plans) -> None:
    async with recorded(a_cluster()).running() as cluster:
        await cluster.create(a_record("looked-at"))
        stands = '{"profile/os":{"state":"in-maintenance","since":"2026-01-01T00:00:00Z"}}'
        change = merge_patch({"metadata": {"annotations": {STANDING: stands}}})
        await cluster.me.patch(MAINTENANCE_RECORDS, "looked-at", change)
        found = (await survey.standings(cluster.me))["looked-at"]
        assert found.standing[OS].state == IN_MAINTENANCE


async def test_a_full_history_stays_within_its_bounds(a_cluster: Plans, file: Path) -> None:
    async with recorded(entitled(a_cluster())).with_nodes(1).running() as cluster:
        uid = cluster.get("nodes", "n1")["metadata"]["uid"]
        full = a_record("n1")
        full["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}]
        full |= {"total": 250, "entries": full["entries"] * MOST_ENTRIES}
        full["metadata"]["annotations"] = {STANDING: "{}"}
        await cluster.create(full)
        cluster.run(operating(file, outside=FakeOutside()))
        await order(cluster, "n1", reason="one more")
        await cluster.eventually(lambda: entries(cluster, "n1")[-1]["to"], becomes="Succeeded")
        assert len(entries(cluster, "n1")) == MOST_ENTRIES
        assert cluster.get(PLURAL, "n1")["total"] == 252
        await over(cluster)
