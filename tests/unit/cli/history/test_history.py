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
DRAINED = "node n1 is drained: 7 pods left it"


def entries(town: DrainCluster) -> list[Entry]:
    """Return a round of a profile, which ended a minute ago, and an order before it."""
    now = town.clock.now()

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


async def record(town: DrainCluster, node: str = "n1", *, uid: str = "", total: int | None = None) -> None:
    """Have these entries be recorded."""
    town.api.put(custom_resource_definition())
    content = add_entries(RecordContent(), [NewEntry(entry=it) for it in entries(town)])
    found = await town.client.get(NODES, node)
    body = new_record(
        node, uid or found.uid, RecordContent(content.entries, total or content.total, content.last_states)
    )
    town.api.put({**body, "entries": msgspec.to_builtins(content.entries)})


def lines(found: HistoryResult, **how: object) -> list[str]:
    return [click.unstyle(line) for line in text_lines(found, **how)]  # type: ignore[arg-type]


async def test_it_reads_like_this(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town)
        found = await read_histories(town.client, HistoryQuery(("n1",)))
        days, hours, later, last = (f"{it.time:%Y-%m-%d %H:%M:%S}" for it in entries(town))
        why = "7 pods left in 1m35s, held up longest by PodDisruptionBudget shop/cart (1m1s)"
        assert lines(found) == [
            "TIME (UTC)            DURATION   OBJECT                  CHANGE                                  REASON",
            f"{days}   -          NodeMaintenance patch   → Running                               disk",
            f"{hours}   -          profile os              operational → maintenance-required      old",
            f"{later}   -          profile os              Drained                                 {why}",
            f"{last}   1h30m      profile os              maintenance-required → in-maintenance   room passed: 0 of 1",
        ]
        assert found.notes == ()


async def test_wide_says_who_ordered_it(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town)
        header, first, *_ = lines(await read_histories(town.client, HistoryQuery(("n1",))), is_wide=True)
        at = header.index("REQUESTED BY")
        assert first[at:].startswith("kubectl-create ")


async def test_lines_are_no_wider_than_the_terminal(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town)
        shown = lines(await read_histories(town.client, HistoryQuery(("n1",))), width=130)
        assert max(map(len, shown)) == 130
        assert any(it.endswith("…") for it in shown)


async def test_only_what_is_asked_for_is_shown(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town)
        recent = await read_histories(town.client, HistoryQuery(("n1",), since=timedelta(days=7)))
        assert len(recent.nodes[0].entries) == 3
        (last,) = (await read_histories(town.client, HistoryQuery(("n1",), limit=1))).nodes[0].entries
        assert last.to == "in-maintenance"
        nothing = await read_histories(town.client, HistoryQuery(("n1",), since=timedelta(minutes=1)))
        assert lines(nothing) == ["Node n1 has no entries in this period (4 outside of it)."]


async def test_what_has_given_way_is_said(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town, total=16)
        assert (
            lines(await read_histories(town.client, HistoryQuery(("n1",))))[0]
            == "(12 older entries deleted: only the newest are kept)"
        )


async def test_several_nodes_have_their_names_above(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await record(town)
        shown = lines(await read_histories(town.client, HistoryQuery(("n1", "n2"))))
        assert shown[0] == "Node n1"
        assert shown[-2:] == [
            "Node n2",
            "Node n2 has no history yet.",
        ]


async def test_a_transition_that_is_not_recorded_yet_is_known_from_the_node(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town)
        at = (town.clock.now() - timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
        data = {"Profiles": {"os": {"Transition": at, "Current": "operational", "Previous": "operational"}}}
        change = {"metadata": {"annotations": {DATA_ANNOTATION: json.dumps(data)}}}
        await town.client.patch(NODES, "n1", merge_patch(change))
        found = await read_histories(town.client, HistoryQuery(("n1",)))
        last = found.nodes[0].entries[-1]
        assert (last.from_, last.to) == ("in-maintenance", "operational")
        assert found.notes == ("The last entry of node n1 is read from the node itself; it is not recorded yet.",)


async def test_data_that_cannot_be_read_does_no_harm(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town)
        change = {"metadata": {"annotations": {DATA_ANNOTATION: "{"}}}
        await town.client.patch(NODES, "n1", merge_patch(change))
        assert len((await read_histories(town.client, HistoryQuery(("n1",)))).nodes[0].entries) == 4


async def test_a_record_of_an_earlier_node_of_the_name_is_said_to_be_that(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town, uid="of-another")
        found = await read_histories(town.client, HistoryQuery(("n1",)))
        assert len(found.nodes[0].entries) == 4
        assert "belongs to an earlier node of this name" in found.notes[0]


async def test_what_a_new_node_says_itself_follows_what_was_recorded_of_the_earlier_one(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town, uid="of-another")
        at = town.clock.now().isoformat().replace("+00:00", "Z")
        data = {"Profiles": {"os": {"Transition": at, "Current": "maintenance-required", "Previous": "operational"}}}
        change = {"metadata": {"annotations": {DATA_ANNOTATION: json.dumps(data)}}}
        await town.client.patch(NODES, "n1", merge_patch(change))
        (history,) = (await read_histories(town.client, HistoryQuery(("n1",)))).nodes
        told = [(it.object, it.result, it.from_, it.to) for it in history.entries[4:]]
        assert told == [
            ("Node", "Deleted", "", ""),
            ("Node", "Created", "", ""),
            (OS, "", "operational", "maintenance-required"),
        ]


async def test_a_node_that_was_deleted_is_shown_by_its_name_and_it_says_when_that_was(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town)
        await town.client.delete(NODES, "n1")
        found = await read_histories(town.client, HistoryQuery(("n1",)))
        assert not found.nodes[0].exists
        assert found.notes == ("Node n1 was deleted; the time is not recorded yet.",)
        deleted = merge_patch({"metadata": {"annotations": {NODE_DELETED_ANNOTATION: "2026-11-01T10:00:00Z"}}})
        await town.client.patch(MAINTENANCE_RECORDS, "n1", deleted)
        found = await read_histories(town.client, HistoryQuery(("n1",)))
        assert found.notes == ("Node n1 was deleted at 2026-11-01 10:00 UTC. Its history is kept for a limited time.",)
        assert json.loads(to_json(found))["nodes"][0]["deleted"] == "2026-11-01T10:00:00Z"


async def test_unknown_nodes_do_not_hide_the_others(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town)
        found = await read_histories(town.client, HistoryQuery(("n1", "n11")))
        assert len(found.nodes) == 1
        assert found.unknown_nodes == ('node "n11" not found; did you mean "n1"?',)


async def test_where_no_history_is_kept_it_says_how_to_have_one(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        with pytest.raises(HauloutError, match=r"maintenancerecords\.haulout\.dev is not installed.*haulout manifests"):
            await read_histories(town.client, HistoryQuery(("n1",)))


async def test_who_may_not_read_it_is_told_so(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town)
        town.transport.faults.fail_before_effect(
            response=403, where=lambda it: "maintenancerecords" in it.path, times=None
        )
        with pytest.raises(Forbidden):
            await read_histories(town.client, HistoryQuery(("n1",)))


async def test_programs_get_all_of_it(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        await record(town)
        found = await read_histories(town.client, HistoryQuery(("n1", "zz")))
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
def test_spans_have_days_and_weeks(text: str, span: timedelta) -> None:
    assert parse_time_bound("--since", text) == span


def test_a_time_may_be_absolute() -> None:
    assert parse_time_bound("--until", "2026-12-01T03:00+01:00") == datetime(2026, 12, 1, 2, tzinfo=UTC)
    with pytest.raises(UsageError, match="--until: the time zone of"):
        parse_time_bound("--until", "2026-12-01T03:00")


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "-1h", "0d", "yesterday", "9999999d", "1d1w"])
def test_a_span_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--since: expected a duration "):
        parse_time_bound("--since", text)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("history", "expected a NODE, -l SELECTOR or --all"),
        ("history n1 --all", "--all"),
        ("history n1 -l pool=a", "-l"),
        ("history -l a,=", "--selector"),
        ("history --all --until 2026-12-01", "--until"),
        ("history n1 --since soon", "--since"),
        ("history n1 -n 0", "-n"),
        ("history n1 -o xml", "-o"),
    ],
)
def test_the_command_line_is_checked_before_anything_is_asked(
    capsys: pytest.CaptureFixture[str], line: str, problem: str
) -> None:
    """By the words: without a kubeconfig the code is 2 as well."""
    outcome = command_runner(capsys)(*line.split())
    assert outcome.code == 2
    assert problem in outcome.err
    assert "kubeconfig" not in outcome.err


def test_what_is_typed_is_what_is_looked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[HistoryQuery] = []

    def remember(asked: HistoryQuery, **_: object) -> HistoryResult:
        wanted.append(asked)
        return HistoryResult(nodes=(), now=datetime(2026, 12, 1, tzinfo=UTC))

    monkeypatch.setattr("haulout.cli.history.command._read_histories", remember)
    run = command_runner(capsys)
    run("history", "-l", "pool=a", "--since", "7d", "--until", "2026-12-01T03:00:00Z", "-n", "5")
    run("history", "n1", "node/n2", "n1")
    assert wanted == [
        HistoryQuery(since=timedelta(days=7), until=datetime(2026, 12, 1, 3, tzinfo=UTC), limit=5, selector="pool=a"),
        HistoryQuery(nodes=("n1", "n2")),
    ]


async def test_what_was_announced_is_told_between(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await record(town)
        town.api.put(notice_definition())
        for name, node in (("people-a", "n1"), ("people-b", "n2")):
            told = [
                {
                    "time": f"{town.clock.now() - timedelta(minutes=ago):%Y-%m-%dT%H:%M:%SZ}",
                    "reporter": who,
                    "message": what,
                }
                for ago, who, what in ((90, "people", "Reboot is announced"), (5, "haulout", "Due: it begins soon"))
            ]
            town.api.put(
                {
                    "apiVersion": "haulout.dev/v1alpha1",
                    "kind": "MaintenanceNotice",
                    "metadata": {"name": name},
                    "spec": {"nodeName": node},
                    "status": {"history": told},
                }
            )
        shown = lines(await read_histories(town.client, HistoryQuery(("n1",))))
        whats = [
            "OBJECT",
            "NodeMaintenance",
            "profile os",
            "notice people-a",
            "profile os",
            "profile os",
            "notice people-a",
        ]
        assert len(shown) == 7
        assert all(what in line for what, line in zip(whats, shown, strict=True))
        assert shown[3].endswith("-                                       Reboot is announced")
        (last,) = (await read_histories(town.client, HistoryQuery(("n1",), limit=1))).nodes[0].entries
        assert (last.object, last.requested_by, last.reason) == ("notice/people-a", "haulout", "Due: it begins soon")
        town.transport.faults.fail_before_effect(path="/maintenancenotices", response=403, times=None)
        assert len((await read_histories(town.client, HistoryQuery(("n1",)))).nodes[0].entries) == 4


# Clocks that were set


async def test_entries_are_in_the_order_of_the_record_whatever_their_times_say(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        now, what = town.clock.now(), "NodeMaintenance/patch"
        moves = [
            Entry(time=now, object=what, to="Running"),
            Entry(time=now - timedelta(hours=2), object=what, from_="Running", to="Succeeded", since=now),
            Entry(time=now - timedelta(hours=1), object="history", result="Gap", missing=3, reason="3 entries missing"),
            Entry(time=now - timedelta(days=9), object=what, from_="Succeeded", to="Ended", since=now),
        ]
        town.api.put(custom_resource_definition())
        found = await town.client.get(NODES, "n1")
        town.api.put(
            {**new_record("n1", found.uid, RecordContent(tuple(moves), 4)), "entries": msgspec.to_builtins(moves)}
        )
        seen = await read_histories(town.client, HistoryQuery(("n1",), since=timedelta(days=1)))
        told = [line.split("   ")[1:] for line in lines(seen)[1:]]
        assert [it[0].strip() for it in told] == ["-", "?", "-", "?"]
        assert "Gap" in lines(seen)[3]
        assert "3 entries missing" in lines(seen)[3]
        assert any("A clock was set back" in it for it in seen.notes)
        assert json.loads(to_json(seen))["nodes"][0]["entries"][2]["missing"] == 3


# All nodes


async def at_all(town: DrainCluster, **wanted: object) -> list[NodeHistory]:
    return [it async for it in read_all_histories(town.client, HistoryQuery(**wanted))]  # type: ignore[arg-type]


def table(histories: list[NodeHistory], **how: object) -> list[str]:
    return [click.unstyle(line) for line in table_lines(histories, **how)]  # type: ignore[arg-type]


async def a_fleet(town: DrainCluster) -> None:
    """Have something happen to n1 and to n2, of which n2 is deleted."""
    await record(town)
    await record(town, "n2")
    await town.client.delete(NODES, "n2")
    gone = f"{town.clock.now() - timedelta(minutes=10):%Y-%m-%dT%H:%M:%SZ}"
    await town.client.patch(
        MAINTENANCE_RECORDS, "n2", merge_patch({"metadata": {"annotations": {NODE_DELETED_ANNOTATION: gone}}})
    )


async def test_all_nodes_are_in_one_table_by_time_and_deleted_ones_are_marked(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as town:
        await a_fleet(town)
        shown = table(await at_all(town, since=timedelta(days=1)))
        assert re.split(" {2,}", shown[0]) == ["TIME (UTC)", "NODE", "DURATION", "OBJECT", "CHANGE", "REASON"]
        assert [re.split(" {2,}", it)[1] for it in shown[1:]] == ["n1", "n2 (deleted)"] * 3
        assert shown[1:] == sorted(shown[1:], key=lambda it: it[:19])
        assert "REQUESTED BY" in table(await at_all(town), is_wide=True)[0]


async def test_what_is_asked_for_of_all_nodes_is_between_two_times(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await a_fleet(town)
        now = town.clock.now()
        between = await at_all(town, since=timedelta(hours=3), until=now - timedelta(minutes=45))
        assert [[it.to or it.result for it in one.entries] for one in between] == [
            ["maintenance-required", "Drained"]
        ] * 2
        assert [len(it.entries) for it in await at_all(town, limit=1)] == [1, 1]
        nothing = await at_all(town, until=timedelta(days=99999))
        assert table(nothing) == ["No node has entries in this period."]


async def test_nodes_are_chosen_by_their_labels_which_deleted_ones_have_no_more(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2", "n3") as town:
        await a_fleet(town)
        await record(town, "n3")
        for name in ("n1", "n3"):
            change = merge_patch({"metadata": {"labels": {"pool": name}}})
            await town.client.patch(NODES, name, change)
        assert [it.node for it in await at_all(town, selector="pool=n3")] == ["n3"]
        assert [it.node for it in await at_all(town, selector="pool")] == ["n1", "n3"]


async def test_a_node_of_which_nothing_is_recorded_yet_is_known_from_itself(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        town.api.put(custom_resource_definition())
        at = town.clock.now().isoformat().replace("+00:00", "Z")
        data = {"Profiles": {"os": {"Transition": at, "Current": "maintenance-required", "Previous": "operational"}}}
        change = {"metadata": {"annotations": {DATA_ANNOTATION: json.dumps(data)}}}
        await town.client.patch(NODES, "n1", merge_patch(change))
        (history,) = await at_all(town)
        assert history.entries[-1].to == "maintenance-required"


async def test_records_are_read_page_by_page(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_history, "_PAGE_SIZE", 2)
    names = [f"n{number}" for number in range(1, 6)]
    async with a_drain_cluster(clock, *names) as town:
        for name in names:
            await record(town, name)
        town.transport.requests.clear()
        assert [it.node for it in await at_all(town)] == names
        asked = [it.request for it in town.transport.requests if "maintenancerecords" in it.request.path]
        assert len(asked) == 3


async def test_a_record_that_cannot_be_read_does_not_hide_the_others(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await a_fleet(town)
        raw = new_record("n3", "u3", RecordContent())
        town.api.put({**raw, "entries": "none", "total": 1})
        found = to_result(await at_all(town), now=town.clock.now())
        assert [it.node for it in found.nodes] == ["n1", "n2"]
        assert found.notes[0].startswith("The record of node n3 cannot be read")


async def test_without_records_it_says_how_to_have_a_history(clock: Clock) -> None:
    async with a_drain_cluster(clock, "n1") as town:
        with pytest.raises(HauloutError, match="no history is kept in this cluster"):
            await at_all(town)


# CSV


def read(*rows: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_export.HEADER + "".join(rows), newline=""), strict=True))


async def test_a_line_has_all_of_an_entry(clock: Clock) -> None:
    async with a_drain_cluster(clock) as town:
        order, _, drained, last = entries(town)
        first, second, third = read(
            csv_export.row("n1", order, deleted=town.clock.now()),
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
        assert datetime.fromisoformat(first["nodeDeleted"]) == town.clock.now()
        assert (second["drainSeconds"], second["drainPods"], second["drainBlockedSeconds"]) == ("95", "7", "61")
        assert datetime.fromisoformat(third["since"]) == last.since
        assert (third["reconstructed"], third["missing"], third["number"], third["nodeDeleted"]) == ("", "", "", "")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_is_a_formula(text: str) -> None:
    entry = Entry(time=datetime(2026, 1, 1, tzinfo=UTC), object=text, requested_by=text, reason=text, result=text)
    (line,) = read(csv_export.row(text, entry))
    assert [line[it] for it in ("node", "object", "requestedBy", "reason", "result")] == [f"'{text}"] * 5


def test_quotes_commas_and_line_breaks_stay_in_their_cell_and_terminals_are_left_alone() -> None:
    why = 'say "hi", then\r\ngo\n\x1b[31m'
    (line,) = read(csv_export.row("n1", Entry(time=datetime(2026, 1, 1, tzinfo=UTC), object="x", reason=why)))
    assert line["reason"] == why.replace("\x1b", "\ufffd")


def test_the_header_stays_as_it_is() -> None:
    """Programs read these columns by name or by place: new ones come at the end."""
    assert csv_export.HEADER == (
        "node,nodeDeleted,time,object,requestedBy,from,to,since,reason,result,drainSeconds,drainPods,drainBlockedBy,"
        "drainBlockedSeconds,instance,number,reconstructed,missing\r\n"
    )
