"""Either controller takes over from the other, at any point of a maintenance and as often as one likes.

The other one is a model of how the SAP maintenance-controller works on one node, after the contract: it reads the
annotation strictly, evaluates, and writes it back. Fixtures made by Go itself are in test_data.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, State
from support.fakes.cluster_view import MINUTE
from support.fakes.profile_node import ProfileNode

OPERATIONAL, REQUIRED, MAINTAINED = map(str, State)
NEVER = "0001-01-01T00:00:00Z"

FILE = """
intervals: {requeue: 10m}
instances:
  check:
  - {name: c1, type: says, config: {about: c1}}
  - {name: c2, type: says, config: {about: c2}}
  - {name: c3, type: says, config: {about: c3}}
  notify:
  - name: told
    type: webhook
    config: {url: "https://example.com/"}
    schedule: {type: periodic, config: {interval: 24h}}
  trigger:
  - {name: t1, type: counts, config: {label: t1}}
  - {name: t2, type: counts, config: {label: t2}}
  - {name: t3, type: counts, config: {label: t3}}
  - {name: e, type: counts, config: {label: e}}
profiles:
- name: p
  operational:
    transitions: [{check: c1, next: maintenance-required, trigger: t1}]
  maintenance-required:
    notify: told
    transitions: [{check: c2, next: in-maintenance, trigger: t2}]
  in-maintenance:
    enter: e
    transitions: [{check: c3, next: operational, trigger: t3}]
"""
WAYS = {OPERATIONAL: ("c1", REQUIRED, "t1"), REQUIRED: ("c2", MAINTAINED, "t2"), MAINTAINED: ("c3", OPERATIONAL, "t3")}
ENTER, NOTIFY = {MAINTAINED: "e"}, {REQUIRED: "told"}


def strictly(text: str) -> Any:
    """Read the annotation as Go does: any member that it does not know is an error."""
    found = json.loads(text) if text else {"Profiles": {}, "Notifications": {}}
    assert set(found) == {"Profiles", "Notifications"}
    for entry in found["Profiles"].values():
        assert set(entry) == {"Transition", "Current", "Previous"}
        datetime.fromisoformat(entry["Transition"])
    return found


class GoController:
    """One reconcile of the SAP maintenance-controller (sections 4.3 to 4.6 of its contract), for the file above."""

    def __init__(self, walk: ProfileNode) -> None:
        self.walk = walk
        self.sent = 0

    def step(self) -> None:
        """Reconcile, and write the node."""
        self.walk.now += MINUTE
        walk, now = self.walk, self._now()
        found = strictly(walk.data)
        entry = found["Profiles"].setdefault("p", {"Transition": now, "Current": OPERATIONAL, "Previous": OPERATIONAL})
        before = entry["Current"]
        if entry["Previous"] != before and before in ENTER:
            self._run(ENTER[before])
        self._notify(found["Notifications"], entry, now)
        check, following, trigger = WAYS[before]
        if walk.node.metadata.annotations.get(check) == "yes":
            self._run(trigger)
            entry.update(Transition=now, Current=following)
        entry["Previous"] = before
        walk.label({STATE_LABEL: entry["Current"]})
        walk.annotate(**{DATA_ANNOTATION: json.dumps(found, separators=(",", ":"), sort_keys=False)})

    def _run(self, name: str) -> None:
        self.walk.label({name: str(int(self.walk.labels.get(name, "0")) + 1)})

    def _notify(self, times: dict[str, str], entry: Mapping[str, str], now: str) -> None:
        name = NOTIFY.get(entry["Current"])
        if name is not None:
            last = times.setdefault(name, NEVER)
            if entry["Current"] != entry["Previous"] or last == NEVER:
                times[name] = now
                self.sent += 1

    def _now(self) -> str:
        return self.walk.now.strftime("%Y-%m-%dT%H:%M:%SZ")


def led(turns: Sequence[bool]) -> tuple[ProfileNode, int, list[str]]:
    """Lead a node through a round, with a step of ours wherever a turn says so; return what was sent and written."""
    walk = ProfileNode(FILE, labels={PROFILE_LABEL: "p"})
    go, sent, written = GoController(walk), 0, []
    wishes: dict[int, Callable[[], None]] = {
        1: lambda: walk.annotate(c1="yes"),
        4: lambda: walk.annotate(c2="yes"),
        7: lambda: walk.annotate(c1=None, c3="yes"),
    }
    for number, is_ours in enumerate(turns):
        wishes.get(number, lambda: None)()
        if is_ours:
            sent += len(walk.reconcile().notifications)
        else:
            go.step()
        strictly(walk.data)
        written.append(walk.data)
    return walk, sent + go.sent, written


TURNS = 12


@settings(max_examples=60, derandomize=True)
@given(st.lists(st.booleans(), min_size=TURNS, max_size=TURNS))
def test_whoever_takes_over_goes_on_where_the_other_was(turns: list[bool]) -> None:
    walk, sent, _ = led(turns)
    assert walk.states() == {"p": OPERATIONAL}
    assert {item: walk.labels.get(item) for item in ("t1", "t2", "t3", "e")} == dict.fromkeys(
        ("t1", "t2", "t3", "e"), "1"
    )
    assert (walk.labels[STATE_LABEL], sent) == (OPERATIONAL, 1)


@pytest.mark.parametrize("handed_over", range(TURNS + 1))
def test_both_write_the_same_but_for_what_nothing_hangs_on(handed_over: int) -> None:
    """`Previous` may be a step ahead with us, where there is nothing to do on entering."""
    _, _, ours = led([True] * TURNS)
    _, _, theirs = led([False] * TURNS)
    _, _, mixed = led([False] * handed_over + [True] * (TURNS - handed_over))
    for number, text in enumerate(mixed):
        expected = {_without_previous(item[number]) for item in (ours, theirs)}
        assert _without_previous(text) in expected, f"step {number}"
    assert mixed[-1] == ours[-1] == theirs[-1]


def test_what_is_idle_is_not_written_again() -> None:
    """A take-over alone changes no byte, so that it wakes nobody."""
    for first in (True, False):
        _, _, written = led([first] * TURNS + [not first] * 3)
        assert len(set(written[TURNS:])) == 1
        assert all(before == after for before, after in pairwise(written[TURNS - 1 :]))


def _without_previous(text: str) -> str:
    found = strictly(text)
    for entry in found["Profiles"].values():
        del entry["Previous"]
    return json.dumps(found)
