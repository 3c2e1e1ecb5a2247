"""`haulout history`: what happened to a node, when, by whom and why."""

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta

import click
import msgspec
import pytest
import yaml

from haulout.api.maintenancenotice import definition as notice_definition
from haulout.api.maintenancerecord import (
    MAINTENANCE_RECORDS,
    NODE_DELETED_ANNOTATION,
    DrainFacts,
    Entry,
    NewEntry,
    RecordContent,
    add_entries,
    custom_resource_definition,
)
from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.cli.history import node_history
from haulout.cli.history.history_text import table_lines, text_lines, to_json, to_yaml
from haulout.cli.history.node_history import (
    HistoryQuery,
    HistoryResult,
    NodeHistory,
    parse_time_bound,
    read_all_histories,
    read_histories,
    to_result,
)
from haulout.controllers.profiles.plugin import DATA_ANNOTATION
from haulout.core.clock import Clock
from haulout.errors import Forbidden, HauloutError, UsageError
from haulout.history import csv_export
from haulout.history.record_store import new_record
from haulout.kube.patches import merge_patch
from support.cli.command_runner import command_runner
from support.clusters.drain_cluster import DrainCluster, a_drain_cluster

OS = "profile/os"
DRAINED = "node n1 is drained: 7 pods removed"


def entries(cluster: DrainCluster) -> list[Entry]:
    """Return the entries of a maintenance by a profile, and of a NodeMaintenance before it."""
    now = cluster.clock.now()

    drain = DrainFacts(seconds=95, pods=7, blocked_by="PodDisruptionBudget shop/cart", blocked_seconds=61)
    return [
        Entry(
            time=now - timedelta(days=9),
            object="NodeMaintenance/patch",
            requested_by="kubectl-create",
            to="Running",
            reason="disk",
        ),
        Entry(time=now - timedelta(hours=2), object=OS, from_="operational", to="maintenance-required", reason="old"),
        Entry(time=now - timedelta(hours=1), object=OS, result="Drained", drain=drain, reason=DRAINED),
        Entry(
            time=now - timedelta(minutes=30),
            object=OS,
            from_="maintenance-required",
            to="in-maintenance",
            since=now - timedelta(hours=2),
            reason="room passed: 0 of 1",
        ),
    ]


async def put_record(cluster: DrainCluster, node: str = "n1", *, uid: str = "", total: int | None = None) -> None:
    """Put a record with these entries."""
    cluster.api.put(custom_resource_definition())
    content = add_entries(RecordContent(), [NewEntry(entry=it) for it in entries(cluster)])
    found = await cluster.client.get(NODES, node)
    body = new_record(
        node, uid or found.uid, RecordContent(content.entries, total or content.total, content.last_states)
    )
    cluster.api.put({**body, "entries": msgspec.to_builtins(content.entries)})


def lines(found: HistoryResult, **options: object) -> list[str]:
    return [click.unstyle(line) for line in text_lines(found, **options)]  # type: ignore[arg-type]


async def test_text_output_has_the_expected_lines(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster)
        found = await read_histories(cluster.client, HistoryQuery(("n1",)))
        days, hours, later, last = (f"{it.time:%Y-%m-%d %H:%M:%S}" for it in entries(cluster))
        reason = "7 pods removed in 1m35s, blocked longest by PodDisruptionBudget shop/cart (1m1s)"
        assert lines(found) == [
            "TIME (UTC)            DURATION   OBJECT                  CHANGE                                  REASON",
            f"{days}   -          NodeMaintenance patch   → Running                               disk",
            f"{hours}   -          profile os              operational → maintenance-required      old",
            f"{later}   -          profile os              Drained                                 {reason}",
            f"{last}   1h30m      profile os              maintenance-required → in-maintenance   room passed: 0 of 1",
        ]
        assert found.notes == ()


async def test_wide_output_adds_the_ordered_by_column(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster)
        header, first, *_ = lines(await read_histories(cluster.client, HistoryQuery(("n1",))), is_wide=True)
        at = header.index("REQUESTED BY")
        assert first[at:].startswith("kubectl-create ")


async def test_lines_fit_the_terminal_width(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster)
        text = lines(await read_histories(cluster.client, HistoryQuery(("n1",))), width=130)
        assert max(map(len, text)) == 130
        assert any(it.endswith("…") for it in text)


async def test_filters_select_the_listed_entries(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster)
        recent = await read_histories(cluster.client, HistoryQuery(("n1",), since=timedelta(days=7)))
        assert len(recent.nodes[0].entries) == 3
        (last,) = (await read_histories(cluster.client, HistoryQuery(("n1",), limit=1))).nodes[0].entries
        assert last.to == "in-maintenance"
        nothing = await read_histories(cluster.client, HistoryQuery(("n1",), since=timedelta(minutes=1)))
        assert lines(nothing) == ["Node n1 has no entries in this period (4 outside of it)."]


async def test_deleted_older_entries_are_reported(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster, total=16)
        assert (
            lines(await read_histories(cluster.client, HistoryQuery(("n1",))))[0]
            == "(12 older entries deleted: only the newest are kept)"
        )


async def test_several_nodes_have_a_heading_each(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await put_record(cluster)
        text = lines(await read_histories(cluster.client, HistoryQuery(("n1", "n2"))))
        assert text[0] == "Node n1"
        assert text[-2:] == [
            "Node n2",
            "Node n2 has no history yet.",
        ]


async def test_unrecorded_transition_is_read_from_the_node(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster)
        at = (cluster.clock.now() - timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
        data = {"Profiles": {"os": {"Transition": at, "Current": "operational", "Previous": "operational"}}}
        change = {"metadata": {"annotations": {DATA_ANNOTATION: json.dumps(data)}}}
        await cluster.client.patch(NODES, "n1", merge_patch(change))
        found = await read_histories(cluster.client, HistoryQuery(("n1",)))
        last = found.nodes[0].entries[-1]
        assert (last.from_, last.to) == ("in-maintenance", "operational")
        assert found.notes == ("The last entry of node n1 is read from the node itself; it is not recorded yet.",)


async def test_unreadable_node_data_is_ignored(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster)
        change = {"metadata": {"annotations": {DATA_ANNOTATION: "{"}}}
        await cluster.client.patch(NODES, "n1", merge_patch(change))
        assert len((await read_histories(cluster.client, HistoryQuery(("n1",)))).nodes[0].entries) == 4


async def test_record_of_an_earlier_node_with_the_same_name_is_marked(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster, uid="of-another")
        found = await read_histories(cluster.client, HistoryQuery(("n1",)))
        assert len(found.nodes[0].entries) == 4
        assert "belongs to an earlier node of this name" in found.notes[0]


async def test_transition_of_a_recreated_node_follows_the_recorded_entries(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster, uid="of-another")
        at = cluster.clock.now().isoformat().replace("+00:00", "Z")
        data = {"Profiles": {"os": {"Transition": at, "Current": "maintenance-required", "Previous": "operational"}}}
        change = {"metadata": {"annotations": {DATA_ANNOTATION: json.dumps(data)}}}
        await cluster.client.patch(NODES, "n1", merge_patch(change))
        (history,) = (await read_histories(cluster.client, HistoryQuery(("n1",)))).nodes
        transitions = [(it.object, it.result, it.from_, it.to) for it in history.entries[4:]]
        assert transitions == [
            ("Node", "Deleted", "", ""),
            ("Node", "Created", "", ""),
            (OS, "", "operational", "maintenance-required"),
        ]


async def test_deleted_node_is_shown_with_its_deletion_time(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster)
        await cluster.client.delete(NODES, "n1")
        found = await read_histories(cluster.client, HistoryQuery(("n1",)))
        assert not found.nodes[0].exists
        assert found.notes == ("Node n1 was deleted; the time is not recorded yet.",)
        deleted = merge_patch({"metadata": {"annotations": {NODE_DELETED_ANNOTATION: "2026-11-01T10:00:00Z"}}})
        await cluster.client.patch(MAINTENANCE_RECORDS, "n1", deleted)
        found = await read_histories(cluster.client, HistoryQuery(("n1",)))
        assert found.notes == ("Node n1 was deleted at 2026-11-01 10:00 UTC. Its history is kept for a limited time.",)
        assert json.loads(to_json(found))["nodes"][0]["deleted"] == "2026-11-01T10:00:00Z"


async def test_unknown_nodes_do_not_hide_known_nodes(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster)
        found = await read_histories(cluster.client, HistoryQuery(("n1", "n11")))
        assert len(found.nodes) == 1
        assert found.unknown_nodes == ('node "n11" not found; did you mean "n1"?',)


async def test_missing_record_definition_is_reported_with_a_remedy(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        with pytest.raises(HauloutError, match=r"maintenancerecords\.haulout\.dev is not installed.*haulout manifests"):
            await read_histories(cluster.client, HistoryQuery(("n1",)))


async def test_forbidden_history_is_an_error(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster)
        cluster.transport.faults.fail_before_effect(
            response=403, where=lambda it: "maintenancerecords" in it.path, times=None
        )
        with pytest.raises(Forbidden):
            await read_histories(cluster.client, HistoryQuery(("n1",)))


async def test_machine_readable_output_has_all_fields(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        await put_record(cluster)
        found = await read_histories(cluster.client, HistoryQuery(("n1", "zz")))
        document: RawObject = json.loads(to_json(found))
        assert yaml.safe_load(to_yaml(found)) == document
        (node,) = document["nodes"]
        assert (node["node"], node["exists"], node["older"]) == ("n1", True, 0)
        assert node["entries"][2]["drain"] == {
            "seconds": 95,
            "pods": 7,
            "blockedBy": "PodDisruptionBudget shop/cart",
            "blockedSeconds": 61,
        }
        assert document["notes"] == ['node "zz" not found']


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90m", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1w2d3h", timedelta(days=9, hours=3)),
        ("1.5h", timedelta(minutes=90)),
    ],
)
def test_span_accepts_days_and_weeks(text: str, span: timedelta) -> None:
    assert parse_time_bound("--since", text) == span


def test_until_accepts_an_absolute_time() -> None:
    assert parse_time_bound("--until", "2026-12-01T03:00+01:00") == datetime(2026, 12, 1, 2, tzinfo=UTC)
    with pytest.raises(UsageError, match="--until: the time zone of"):
        parse_time_bound("--until", "2026-12-01T03:00")


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "-1h", "0d", "yesterday", "9999999d", "1d1w"])
def test_invalid_span_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--since: expected a duration "):
        parse_time_bound("--since", text)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("history", "expected node names, -l SELECTOR or --all"),
        ("history n1 --all", "--all"),
        ("history n1 -l pool=a", "-l"),
        ("history -l a,=", "--selector"),
        ("history --all --until 2026-12-01", "--until"),
        ("history n1 --since soon", "--since"),
        ("history n1 -n 0", "-n"),
        ("history n1 -o xml", "-o"),
    ],
)
def test_command_line_is_validated_before_any_request(
    capsys: pytest.CaptureFixture[str], line: str, problem: str
) -> None:
    """The message is checked, because the exit code is 2 without a kubeconfig as well."""
    outcome = command_runner(capsys)(*line.split())
    assert outcome.code == 2
    assert problem in outcome.err
    assert "kubeconfig" not in outcome.err


def test_flags_become_the_history_query(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[HistoryQuery] = []

    def remember(query: HistoryQuery, **_: object) -> HistoryResult:
        queries.append(query)
        return HistoryResult(nodes=(), now=datetime(2026, 12, 1, tzinfo=UTC))

    monkeypatch.setattr("haulout.cli.history.command._read_histories", remember)
    run = command_runner(capsys)
    run("history", "-l", "pool=a", "--since", "7d", "--until", "2026-12-01T03:00:00Z", "-n", "5")
    run("history", "n1", "node/n2", "n1")
    assert queries == [
        HistoryQuery(since=timedelta(days=7), until=datetime(2026, 12, 1, 3, tzinfo=UTC), limit=5, selector="pool=a"),
        HistoryQuery(nodes=("n1", "n2")),
    ]


async def test_notices_of_the_node_are_merged_into_the_history(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await put_record(cluster)
        cluster.api.put(notice_definition())
        for name, node in (("people-a", "n1"), ("people-b", "n2")):
            history = [
                {
                    "time": f"{cluster.clock.now() - timedelta(minutes=ago):%Y-%m-%dT%H:%M:%SZ}",
                    "reporter": author,
                    "message": subject,
                }
                for ago, author, subject in (
                    (90, "people", "Reboot is announced"),
                    (5, "haulout", "Due: it begins soon"),
                )
            ]
            cluster.api.put(
                {
                    "apiVersion": "haulout.dev/v1alpha1",
                    "kind": "MaintenanceNotice",
                    "metadata": {"name": name},
                    "spec": {"nodeName": node},
                    "status": {"history": history},
                }
            )
        text = lines(await read_histories(cluster.client, HistoryQuery(("n1",))))
        subjects = [
            "OBJECT",
            "NodeMaintenance",
            "profile os",
            "notice people-a",
            "profile os",
            "profile os",
            "notice people-a",
        ]
        assert len(text) == 7
        assert all(subject in line for subject, line in zip(subjects, text, strict=True))
        assert text[3].endswith("-                                       Reboot is announced")
        (last,) = (await read_histories(cluster.client, HistoryQuery(("n1",), limit=1))).nodes[0].entries
        assert (last.object, last.requested_by, last.reason) == ("notice/people-a", "haulout", "Due: it begins soon")
        cluster.transport.faults.fail_before_effect(path="/maintenancenotices", response=403, times=None)
        assert len((await read_histories(cluster.client, HistoryQuery(("n1",)))).nodes[0].entries) == 4


# Clocks that were set


async def test_entries_keep_the_order_of_the_record_when_a_clock_was_set_back(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        now, subject = cluster.clock.now(), "NodeMaintenance/patch"
        moves = [
            Entry(time=now, object=subject, to="Running"),
            Entry(time=now - timedelta(hours=2), object=subject, from_="Running", to="Succeeded", since=now),
            Entry(time=now - timedelta(hours=1), object="history", result="Gap", missing=3, reason="3 entries missing"),
            Entry(time=now - timedelta(days=9), object=subject, from_="Succeeded", to="Ended", since=now),
        ]
        cluster.api.put(custom_resource_definition())
        found = await cluster.client.get(NODES, "n1")
        cluster.api.put(
            {**new_record("n1", found.uid, RecordContent(tuple(moves), 4)), "entries": msgspec.to_builtins(moves)}
        )
        result = await read_histories(cluster.client, HistoryQuery(("n1",), since=timedelta(days=1)))
        rows = [line.split("   ")[1:] for line in lines(result)[1:]]
        assert [it[0].strip() for it in rows] == ["-", "?", "-", "?"]
        assert "Gap" in lines(result)[3]
        assert "3 entries missing" in lines(result)[3]
        assert any("A clock was set back" in it for it in result.notes)
        assert json.loads(to_json(result))["nodes"][0]["entries"][2]["missing"] == 3


# All nodes


async def read_all(cluster: DrainCluster, **wanted: object) -> list[NodeHistory]:
    return [it async for it in read_all_histories(cluster.client, HistoryQuery(**wanted))]  # type: ignore[arg-type]


def table(histories: list[NodeHistory], **options: object) -> list[str]:
    return [click.unstyle(line) for line in table_lines(histories, **options)]  # type: ignore[arg-type]


async def a_fleet(cluster: DrainCluster) -> None:
    """Put records of n1 and of n2, which is deleted."""
    await put_record(cluster)
    await put_record(cluster, "n2")
    await cluster.client.delete(NODES, "n2")
    gone = f"{cluster.clock.now() - timedelta(minutes=10):%Y-%m-%dT%H:%M:%SZ}"
    await cluster.client.patch(
        MAINTENANCE_RECORDS, "n2", merge_patch({"metadata": {"annotations": {NODE_DELETED_ANNOTATION: gone}}})
    )


async def test_all_nodes_are_one_table_sorted_by_time_with_deleted_nodes_marked(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as cluster:
        await a_fleet(cluster)
        text = table(await read_all(cluster, since=timedelta(days=1)))
        assert re.split(" {2,}", text[0]) == ["TIME (UTC)", "NODE", "DURATION", "OBJECT", "CHANGE", "REASON"]
        assert [re.split(" {2,}", it)[1] for it in text[1:]] == ["n1", "n2 (deleted)"] * 3
        assert text[1:] == sorted(text[1:], key=lambda it: it[:19])
        assert "REQUESTED BY" in table(await read_all(cluster), is_wide=True)[0]


async def test_since_until_and_limit_select_entries_of_all_nodes(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await a_fleet(cluster)
        now = cluster.clock.now()
        histories = await read_all(cluster, since=timedelta(hours=3), until=now - timedelta(minutes=45))
        assert [[it.to or it.result for it in one.entries] for one in histories] == [
            ["maintenance-required", "Drained"]
        ] * 2
        assert [len(it.entries) for it in await read_all(cluster, limit=1)] == [1, 1]
        nothing = await read_all(cluster, until=timedelta(days=99999))
        assert table(nothing) == ["No node has entries in this period."]


async def test_selector_chooses_nodes_by_label_and_skips_deleted_nodes(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as cluster:
        await a_fleet(cluster)
        await put_record(cluster, "n3")
        for name in ("n1", "n3"):
            change = merge_patch({"metadata": {"labels": {"pool": name}}})
            await cluster.client.patch(NODES, name, change)
        assert [it.node for it in await read_all(cluster, selector="pool=n3")] == ["n3"]
        assert [it.node for it in await read_all(cluster, selector="pool")] == ["n1", "n3"]


async def test_node_without_a_record_is_read_from_its_annotation(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        cluster.api.put(custom_resource_definition())
        at = cluster.clock.now().isoformat().replace("+00:00", "Z")
        data = {"Profiles": {"os": {"Transition": at, "Current": "maintenance-required", "Previous": "operational"}}}
        change = {"metadata": {"annotations": {DATA_ANNOTATION: json.dumps(data)}}}
        await cluster.client.patch(NODES, "n1", merge_patch(change))
        (history,) = await read_all(cluster)
        assert history.entries[-1].to == "maintenance-required"


async def test_records_are_listed_page_by_page(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_history, "_PAGE_SIZE", 2)
    names = [f"n{number}" for number in range(1, 6)]
    async with a_drain_cluster(clock, *names) as cluster:
        for name in names:
            await put_record(cluster, name)
        cluster.transport.requests.clear()
        assert [it.node for it in await read_all(cluster)] == names
        requests = [it.request for it in cluster.transport.requests if "maintenancerecords" in it.request.path]
        assert len(requests) == 3


async def test_unreadable_record_does_not_hide_other_records(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await a_fleet(cluster)
        raw = new_record("n3", "u3", RecordContent())
        cluster.api.put({**raw, "entries": "none", "total": 1})
        found = to_result(await read_all(cluster), now=cluster.clock.now())
        assert [it.node for it in found.nodes] == ["n1", "n2"]
        assert found.notes[0].startswith("The record of node n3 cannot be read")


async def test_missing_records_are_reported_when_all_nodes_are_read(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as cluster:
        with pytest.raises(HauloutError, match="no history is kept in this cluster"):
            await read_all(cluster)


# CSV


def read_csv(*rows: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_export.HEADER + "".join(rows), newline=""), strict=True))


async def test_csv_row_has_all_fields_of_an_entry(clock: Clock) -> None:
    async with a_drain_cluster(clock) as cluster:
        order, _, drained, last = entries(cluster)
        first, second, third = read_csv(
            csv_export.row("n1", order, deleted=cluster.clock.now()),
            csv_export.row("n1", drained),
            csv_export.row("n1", last),
        )
        assert (first["node"], first["object"], first["requestedBy"], first["to"]) == (
            "n1",
            "NodeMaintenance/patch",
            "kubectl-create",
            "Running",
        )
        assert datetime.fromisoformat(first["time"]) == order.time
        assert datetime.fromisoformat(first["nodeDeleted"]) == cluster.clock.now()
        assert (second["drainSeconds"], second["drainPods"], second["drainBlockedSeconds"]) == ("95", "7", "61")
        assert datetime.fromisoformat(third["since"]) == last.since
        assert (third["reconstructed"], third["missing"], third["number"], third["nodeDeleted"]) == ("", "", "", "")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_csv_cells_cannot_be_formulas(text: str) -> None:
    entry = Entry(time=datetime(2026, 1, 1, tzinfo=UTC), object=text, requested_by=text, reason=text, result=text)
    (line,) = read_csv(csv_export.row(text, entry))
    assert [line[it] for it in ("node", "object", "requestedBy", "reason", "result")] == [f"'{text}"] * 5


def test_csv_quotes_special_characters_and_replaces_escape_sequences() -> None:
    reason = 'say "hi", then\r\ngo\n\x1b[31m'
    (line,) = read_csv(csv_export.row("n1", Entry(time=datetime(2026, 1, 1, tzinfo=UTC), object="x", reason=reason)))
    assert line["reason"] == reason.replace("\x1b", "\ufffd")


def test_csv_header_is_stable() -> None:
    """Programs read these columns by name or by place: new ones come at the end."""
    assert csv_export.HEADER == (
        "node,nodeDeleted,time,object,requestedBy,from,to,since,reason,result,drainSeconds,drainPods,drainBlockedBy,"
        "drainBlockedSeconds,instance,number,reconstructed,missing\r\n"
    )
