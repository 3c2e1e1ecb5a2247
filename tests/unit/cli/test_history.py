"""`haulout history`: what happened to a node, when, by whom and why."""

import json
from datetime import timedelta

import click
import msgspec
import pytest
import yaml

from haulout.cli.node_history import Found, Wanted, look, span_of
from haulout.cli.node_history_text import as_json, as_text, as_yaml
from haulout.core.clock import Clock
from haulout.errors import Forbidden, HauloutError, UsageError
from haulout.history.keeper import new
from haulout.history.record import Content, DrainFacts, Entry, Note, added, definition
from haulout.kinds.notice import definition as notice_definition
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.profiles.plugin import DATA_ANNOTATION
from support.commands import runner
from support.draining import Town, a_town

OS = "profile/os"
DRAINED = "node n1 is drained: 7 pods left it"


def entries(town: Town) -> list[Entry]:
    """Return a round of a profile, which ended a minute ago, and an order before it."""
    now = town.clock.now()

    drain = DrainFacts(seconds=95, pods=7, blocked_by="PodDisruptionBudget shop/cart", blocked_seconds=61)
    return [
        Entry(
            time=now - timedelta(days=9), what="NodeMaintenance/patch", by="kubectl-create", to="Running", why="disk"
        ),
        Entry(time=now - timedelta(hours=2), what=OS, from_="operational", to="maintenance-required", why="old"),
        Entry(time=now - timedelta(hours=1), what=OS, result="Drained", drain=drain, why=DRAINED),
        Entry(
            time=now - timedelta(minutes=30),
            what=OS,
            from_="maintenance-required",
            to="in-maintenance",
            since=now - timedelta(hours=2),
            why="room passed: 0 of 1",
        ),
    ]


async def record(town: Town, node: str = "n1", *, uid: str = "", total: int | None = None) -> None:
    """Have these entries be recorded."""
    town.api.put(definition())
    content = added(Content(), [Note(entry=it) for it in entries(town)])
    found = await town.client.get(NODES, node)
    body = new(node, uid or found.uid, Content(content.entries, total or content.total, content.standing))
    town.api.put({**body, "entries": msgspec.to_builtins(content.entries)})


def lines(found: Found, **how: object) -> list[str]:
    return [click.unstyle(line) for line in as_text(found, **how)]  # type: ignore[arg-type]


async def test_it_reads_like_this(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town)
        found = await look(town.client, Wanted(("n1",)))
        days, hours, later, last = (f"{it.time:%Y-%m-%d %H:%M:%S}" for it in entries(town))
        why = "7 pods left in 1m35s, held up longest by PodDisruptionBudget shop/cart (1m1s)"
        assert lines(found) == [
            "TIME (UTC)            AFTER   WHAT                    CHANGE                                  WHY",
            f"{days}   -       NodeMaintenance patch   → Running                               disk",
            f"{hours}   -       profile os              operational → maintenance-required      old",
            f"{later}   -       profile os              Drained                                 {why}",
            f"{last}   1h30m   profile os              maintenance-required → in-maintenance   room passed: 0 of 1",
        ]
        assert found.notes == ()


async def test_wide_says_who_ordered_it(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town)
        header, first, *_ = lines(await look(town.client, Wanted(("n1",))), is_wide=True)
        at = header.index("ORDERED BY")
        assert first[at:].startswith("kubectl-create ")


async def test_lines_are_no_wider_than_the_terminal(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town)
        shown = lines(await look(town.client, Wanted(("n1",))), width=130)
        assert max(map(len, shown)) == 130
        assert any(it.endswith("…") for it in shown)


async def test_only_what_is_asked_for_is_shown(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town)
        recent = await look(town.client, Wanted(("n1",), within=timedelta(days=7)))
        assert len(recent.nodes[0].entries) == 3
        (last,) = (await look(town.client, Wanted(("n1",), most=1))).nodes[0].entries
        assert last.to == "in-maintenance"
        nothing = await look(town.client, Wanted(("n1",), within=timedelta(minutes=1)))
        assert lines(nothing) == ["Nothing of the 4 entries about node n1 is that recent."]


async def test_what_has_given_way_is_said(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town, total=16)
        assert lines(await look(town.client, Wanted(("n1",))))[0] == "(12 older entries gone: only the newest are kept)"


async def test_several_nodes_have_their_names_above(clock: Clock) -> None:
    async with a_town(clock, "n1", "n2") as town:
        await record(town)
        shown = lines(await look(town.client, Wanted(("n1", "n2"))))
        assert shown[0] == "Node n1"
        assert shown[-2:] == [
            "Node n2",
            "Nothing has happened to node n2 yet, or not since its history is kept.",
        ]


async def test_a_transition_that_is_not_recorded_yet_is_known_from_the_node(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town)
        at = (town.clock.now() - timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
        data = {"Profiles": {"os": {"Transition": at, "Current": "operational", "Previous": "operational"}}}
        change = {"metadata": {"annotations": {DATA_ANNOTATION: json.dumps(data)}}}
        await town.client.patch(NODES, "n1", merge_patch(change))
        found = await look(town.client, Wanted(("n1",)))
        last = found.nodes[0].entries[-1]
        assert (last.from_, last.to) == ("in-maintenance", "operational")
        assert found.notes == ("What is last of node n1 is not recorded yet, but known from the node itself.",)


async def test_data_that_cannot_be_read_does_no_harm(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town)
        change = {"metadata": {"annotations": {DATA_ANNOTATION: "{"}}}
        await town.client.patch(NODES, "n1", merge_patch(change))
        assert len((await look(town.client, Wanted(("n1",)))).nodes[0].entries) == 4


async def test_a_record_of_an_earlier_node_of_the_name_is_not_taken_for_this_one(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town, uid="of-another")
        found = await look(town.client, Wanted(("n1",)))
        assert found.nodes[0].entries == ()
        assert "an earlier node of this name" in found.notes[0]


async def test_a_node_that_is_gone_is_shown_while_its_record_is_there(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town)
        await town.client.delete(NODES, "n1")
        found = await look(town.client, Wanted(("n1",)))
        assert not found.nodes[0].exists
        assert "is gone" in found.notes[0]


async def test_unknown_nodes_do_not_hide_the_others(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town)
        found = await look(town.client, Wanted(("n1", "n11")))
        assert len(found.nodes) == 1
        assert found.unknown == ('node "n11" not found; did you mean "n1"?',)


async def test_where_no_history_is_kept_it_says_how_to_have_one(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        with pytest.raises(HauloutError, match=r"maintenancerecords\.haulout\.dev is not installed.*haulout manifests"):
            await look(town.client, Wanted(("n1",)))


async def test_who_may_not_read_it_is_told_so(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town)
        town.line.faults.before(answer=403, where=lambda it: "maintenancerecords" in it.path, times=None)
        with pytest.raises(Forbidden):
            await look(town.client, Wanted(("n1",)))


async def test_programs_get_all_of_it(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        await record(town)
        found = await look(town.client, Wanted(("n1", "zz")))
        document: RawObject = json.loads(as_json(found))
        assert yaml.safe_load(as_yaml(found)) == document
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
    assert span_of(text) == span


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "-1h", "0d", "yesterday", "9999999d", "1d1w"])
def test_a_span_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--since: expected a span"):
        span_of(text)


def test_the_command_line_is_checked_before_anything_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    run = runner(capsys)
    assert run("history").code == 2
    assert run("history", "n1", "--since", "soon").code == 2
    assert run("history", "n1", "-n", "0").code == 2
    assert run("history", "n1", "-o", "xml").code == 2


async def test_what_was_announced_is_told_between(clock: Clock) -> None:
    async with a_town(clock, "n1", "n2") as town:
        await record(town)
        town.api.put(notice_definition())
        for name, node in (("people-a", "n1"), ("people-b", "n2")):
            told = [
                {"time": f"{town.clock.now() - timedelta(minutes=ago):%Y-%m-%dT%H:%M:%SZ}", "who": who, "what": what}
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
        shown = lines(await look(town.client, Wanted(("n1",))))
        whats = [
            "WHAT",
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
        (last,) = (await look(town.client, Wanted(("n1",), most=1))).nodes[0].entries
        assert (last.what, last.by, last.why) == ("notice/people-a", "haulout", "Due: it begins soon")
        town.line.faults.before(path="/maintenancenotices", answer=403, times=None)
        assert len((await look(town.client, Wanted(("n1",)))).nodes[0].entries) == 4


# Clocks that were set


async def test_entries_are_in_the_order_of_the_record_whatever_their_times_say(clock: Clock) -> None:
    async with a_town(clock, "n1") as town:
        now, what = town.clock.now(), "NodeMaintenance/patch"
        moves = [
            Entry(time=now, what=what, to="Running"),
            Entry(time=now - timedelta(hours=2), what=what, from_="Running", to="Succeeded", since=now),
            Entry(time=now - timedelta(hours=1), what="history", result="Gap", missing=3, why="3 entries missing"),
            Entry(time=now - timedelta(days=9), what=what, from_="Succeeded", to="Ended", since=now),
        ]
        town.api.put(definition())
        found = await town.client.get(NODES, "n1")
        town.api.put({**new("n1", found.uid, Content(tuple(moves), 4)), "entries": msgspec.to_builtins(moves)})
        seen = await look(town.client, Wanted(("n1",), within=timedelta(days=1)))
        told = [line.split("   ")[1:] for line in lines(seen)[1:]]
        assert [it[0].strip() for it in told] == ["-", "?", "-", "?"]
        assert "Gap" in lines(seen)[3]
        assert "3 entries missing" in lines(seen)[3]
        assert any("A clock was set back" in it for it in seen.notes)
        assert json.loads(as_json(seen))["nodes"][0]["entries"][2]["missing"] == 3
