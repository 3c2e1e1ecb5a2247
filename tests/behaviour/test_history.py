"""The history of nodes, as a cluster keeps it: accepted by the server, complete, and kept when its node is deleted."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from haulout.api.maintenancerecord import (
    DELETED,
    LAST_STATES_ANNOTATION,
    MAINTENANCE_RECORDS,
    MAX_ENTRIES,
    NODE_DELETED_ANNOTATION,
    Entry,
    NewEntry,
    add_entries,
    content_of,
)
from haulout.api.objects import RawObject
from haulout.app.operator import OperatorSettings, run_operator
from haulout.app.operator_status import OperatorStatus
from haulout.errors import Conflict, Invalid
from haulout.history import record_store
from haulout.history.record_store import append_patch
from haulout.history.retention import RetentionSettings
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from support.builders.objects import a_pod
from support.clusters.cluster_plan import PlanFactory
from support.clusters.live_cluster import RESOURCES, LiveCluster
from support.expectations.maintenance_records import (
    PLURAL,
    drain_records,
    entries,
    transitions,
    with_record_crd,
    write_count,
)
from support.fakes.external_client import FakeExternalClient
from support.operators.nodemaintenance import (
    OPERATOR_RBAC,
    create_maintenance,
    end_maintenance,
    wait_for_success,
    with_operator_rbac,
)
from support.operators.profiles import LABEL_CONFIGURATION, NAMESPACE, operator_with_profiles, set_profiles, state

OS, MAINTENANCE = "profile/os", "NodeMaintenance/patch"
OPERATIONAL, REQUIRED, IN_MAINTENANCE = "operational", "maintenance-required", "in-maintenance"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the configuration."""
    path = tmp_path / "maintenance.yaml"
    path.write_text(LABEL_CONFIGURATION)
    return path


async def set_patch_label(cluster: LiveCluster, value: str | None) -> None:
    await cluster.patch("nodes", "n1", metadata={"labels": {"patch": value}})


async def test_maintenances_by_profiles_and_users_are_recorded(a_cluster: PlanFactory, file: Path) -> None:
    pods = [a_pod(f"shop/cart-{number}", on="n1", behaviour={"stop-seconds": "1"}) for number in range(2)]
    async with with_record_crd(with_operator_rbac(a_cluster())).with_nodes(2).with_objects(*pods).running() as cluster:
        cluster.run(operator_with_profiles(file, external_client=FakeExternalClient()))
        await set_profiles(cluster, "n1", "os")
        await set_patch_label(cluster, "")
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=IN_MAINTENANCE)
        await set_patch_label(cluster, None)
        await cluster.eventually(lambda: state(cluster, "n1"), becomes=OPERATIONAL)
        round_ = [(OS, OPERATIONAL, REQUIRED), (OS, REQUIRED, IN_MAINTENANCE), (OS, IN_MAINTENANCE, OPERATIONAL)]
        await cluster.eventually(lambda: transitions(cluster, "n1"), becomes=round_)
        await create_maintenance(cluster, "n1", reason="new kernel")
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        what = "NodeMaintenance/patch"
        ordered = [(what, "", "Running"), (what, "Running", "Succeeded"), (what, "Succeeded", "Ended")]
        await cluster.eventually(lambda: transitions(cluster, "n1"), becomes=[*round_, *ordered])
        first, last = drain_records(cluster, "n1")
        assert (first["pods"], last["pods"]) == (2, 0)
        assert write_count(cluster, "n1") <= 7
        assert not cluster.has(PLURAL, "n2")
        await cluster.delete("nodes", "n1")
        await cluster.eventually(lambda: entries(cluster, "n1")[-1].get("result"), becomes=DELETED)
        assert NODE_DELETED_ANNOTATION in cluster.get(PLURAL, "n1")["metadata"]["annotations"]


async def test_history_of_a_deleted_node_is_removed_after_the_retention_time(a_cluster: PlanFactory) -> None:
    kept = RetentionSettings(keep_for=timedelta(seconds=5))

    async def program(client: Client) -> None:
        settings = OperatorSettings(namespace=NAMESPACE, identity="operator_1", retention=kept)
        await run_operator(client, settings)

    async with with_record_crd(with_operator_rbac(a_cluster())).with_nodes(2).running() as cluster:
        owner = [
            {"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": cluster.get("nodes", "n2")["metadata"]["uid"]}
        ]
        older = a_record("n2")
        older["metadata"]["ownerReferences"] = owner
        await cluster.create(older)
        cluster.run(program)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        await cluster.eventually(lambda: transitions(cluster, "n1")[-1:], becomes=[(MAINTENANCE, "Succeeded", "Ended")])
        await cluster.eventually(lambda: "ownerReferences" not in cluster.get(PLURAL, "n2")["metadata"])
        await cluster.delete("nodes", "n1")
        await cluster.eventually(lambda: DELETED in [entry.get("result") for entry in entries(cluster, "n1")])
        await cluster.eventually(lambda: not cluster.has(PLURAL, "n1"))
        assert cluster.has(PLURAL, "n2")


async def test_creator_of_a_maintenance_is_recorded_from_managed_fields(
    a_cluster: PlanFactory, file: Path, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--backend") == "sandbox":
        pytest.skip("the sandbox does not keep who manages which fields")
    async with with_record_crd(with_operator_rbac(a_cluster())).with_nodes(1).running() as cluster:
        cluster.run(operator_with_profiles(file, external_client=FakeExternalClient()))
        await create_maintenance(cluster, "n1")
        await cluster.eventually(lambda: bool(entries(cluster, "n1")))
        assert entries(cluster, "n1")[0]["requestedBy"] == cluster.admin.field_manager
        await end_maintenance(cluster)


async def test_missing_permission_is_reported_and_no_entry_is_lost(a_cluster: PlanFactory) -> None:
    operator_status = OperatorStatus()

    async def program(client: Client) -> None:
        await run_operator(client, OperatorSettings(namespace=NAMESPACE, identity="operator_1"), status=operator_status)

    (role,) = (
        item for item in OPERATOR_RBAC if item["kind"] == "ClusterRole" and item["metadata"]["name"] == "haulout"
    )
    rules = [item for item in role["rules"] if PLURAL not in item.get("resources", ())]
    poor = [{**role, "rules": rules} if item is role else item for item in OPERATOR_RBAC]
    async with with_record_crd(with_operator_rbac(a_cluster(), poor)).with_nodes(1).running() as cluster:
        cluster.run(program)
        await create_maintenance(cluster, "n1")
        await wait_for_success(cluster)
        await end_maintenance(cluster)
        # `get` or `list`: whichever is tried first.
        named = 'resource "maintenancerecords" in API group "haulout.dev"'
        await cluster.eventually(lambda: any(named in item for item in operator_status.troubles()))
        await cluster.admin.patch(RESOURCES["clusterroles"], "haulout", merge_patch({"rules": role["rules"]}))
        await cluster.eventually(
            lambda: [to for _, _, to in transitions(cluster, "n1")], becomes=["Running", "Succeeded", "Ended"]
        )
        await cluster.eventually(lambda: not any(operator_status.troubles()))


def a_record(name: str, **entry: object) -> RawObject:
    full = {"time": "2026-01-01T00:00:00.123456Z", "object": OS, "to": REQUIRED, **entry}
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
        {"object": None},
        {"object": ""},
        {"reason": "x" * 2_000},
        {"drain": {"pods": 1}},
        {"drain": {"seconds": -1, "pods": 1}},
        {"drain": {"seconds": 1.5, "pods": "all"}},
    ],
    ids=str,
)
async def test_invalid_record_is_refused(a_cluster: PlanFactory, wrong: dict[str, object]) -> None:
    async with with_record_crd(a_cluster()).running() as cluster:
        with pytest.raises(Invalid):
            await cluster.admin.create(RESOURCES[PLURAL], a_record("n1", **wrong))


async def test_timestamps_keep_fractions_and_numbers_keep_their_type(a_cluster: PlanFactory) -> None:
    async with with_record_crd(a_cluster()).running() as cluster:
        await cluster.create(a_record("kept", drain={"seconds": 1.5, "pods": 3}))
        found = await cluster.admin.get(MAINTENANCE_RECORDS, "kept")
        (entry,) = found.entries
        assert entry.time == datetime.fromisoformat("2026-01-01T00:00:00.123456+00:00")
        assert entry.drain is not None
        assert (entry.drain.seconds, entry.drain.pods) == (1.5, 3)


async def test_concurrent_append_to_the_same_version_is_refused(a_cluster: PlanFactory) -> None:
    async with with_record_crd(a_cluster()).running() as cluster:
        await cluster.create(a_record("n1"))
        found = await cluster.admin.get(MAINTENANCE_RECORDS, "n1")
        entry = Entry(time=cluster.clock.now(), object=OS, from_=REQUIRED, to=IN_MAINTENANCE)
        patch = append_patch(found, add_entries(content_of(found), [NewEntry(entry=entry)]))
        await cluster.admin.patch(MAINTENANCE_RECORDS, "n1", patch)
        with pytest.raises(Conflict):
            await cluster.admin.patch(MAINTENANCE_RECORDS, "n1", patch)
        again = await cluster.admin.get(MAINTENANCE_RECORDS, "n1")
        assert [candidate.to for candidate in again.entries] == [REQUIRED, IN_MAINTENANCE]


async def test_records_can_be_listed_without_their_entries(a_cluster: PlanFactory) -> None:
    async with with_record_crd(a_cluster()).running() as cluster:
        await cluster.create(a_record("looked-at"))
        last_states = '{"profile/os":{"state":"in-maintenance","since":"2026-01-01T00:00:00Z"}}'
        change = merge_patch({"metadata": {"annotations": {LAST_STATES_ANNOTATION: last_states}}})
        await cluster.admin.patch(MAINTENANCE_RECORDS, "looked-at", change)
        found = (await record_store.list_summaries(cluster.admin))["looked-at"]
        assert found.last_states[OS].state == IN_MAINTENANCE


async def test_full_history_keeps_the_maximum_number_of_entries(a_cluster: PlanFactory, file: Path) -> None:
    async with with_record_crd(with_operator_rbac(a_cluster())).with_nodes(1).running() as cluster:
        uid = cluster.get("nodes", "n1")["metadata"]["uid"]
        full = a_record("n1")
        full["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}]
        full |= {"total": 250, "entries": full["entries"] * MAX_ENTRIES}
        full["metadata"]["annotations"] = {LAST_STATES_ANNOTATION: "{}"}
        await cluster.create(full)
        cluster.run(operator_with_profiles(file, external_client=FakeExternalClient()))
        await create_maintenance(cluster, "n1", reason="one more")
        await cluster.eventually(lambda: entries(cluster, "n1")[-1]["to"], becomes="Succeeded")
        assert len(entries(cluster, "n1")) == MAX_ENTRIES
        assert cluster.get(PLURAL, "n1")["total"] == 252
        await end_maintenance(cluster)
