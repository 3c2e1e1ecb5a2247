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


def parse_strictly(text: str) -> Any:
    """Parse the annotation like Go: an unknown member is an error."""
    found = json.loads(text) if text else {"Profiles": {}, "Notifications": {}}
    assert set(found) == {"Profiles", "Notifications"}
    for entry in found["Profiles"].values():
        assert set(entry) == {"Transition", "Current", "Previous"}
        datetime.fromisoformat(entry["Transition"])
    return found


class GoController:
    """One reconcile of the SAP maintenance-controller (sections 4.3 to 4.6 of its contract), for the file above."""

    def __init__(self, profile_node: ProfileNode) -> None:
        self.profile_node = profile_node
        self.sent = 0

    def step(self) -> None:
        """Reconcile, and write the node."""
        self.profile_node.now += MINUTE
        profile_node, now = self.profile_node, self._now()
        found = parse_strictly(profile_node.data)
        entry = found["Profiles"].setdefault("p", {"Transition": now, "Current": OPERATIONAL, "Previous": OPERATIONAL})
        before = entry["Current"]
        if entry["Previous"] != before and before in ENTER:
            self._run(ENTER[before])
        self._notify(found["Notifications"], entry, now)
        check, following, trigger = WAYS[before]
        if profile_node.node.metadata.annotations.get(check) == "yes":
            self._run(trigger)
            entry.update(Transition=now, Current=following)
        entry["Previous"] = before
        profile_node.label({STATE_LABEL: entry["Current"]})
        profile_node.annotate(**{DATA_ANNOTATION: json.dumps(found, separators=(",", ":"), sort_keys=False)})

    def _run(self, name: str) -> None:
        self.profile_node.label({name: str(int(self.profile_node.labels.get(name, "0")) + 1)})

    def _notify(self, times: dict[str, str], entry: Mapping[str, str], now: str) -> None:
        name = NOTIFY.get(entry["Current"])
        if name is not None:
            last = times.setdefault(name, NEVER)
            if entry["Current"] != entry["Previous"] or last == NEVER:
                times[name] = now
                self.sent += 1

    def _now(self) -> str:
        return self.profile_node.now.strftime("%Y-%m-%dT%H:%M:%SZ")


def run_alternately(turns: Sequence[bool]) -> tuple[ProfileNode, int, list[str]]:
    """Run a full cycle in which `turns` chooses the controller of each step; return notifications and annotations."""
    profile_node = ProfileNode(FILE, labels={PROFILE_LABEL: "p"})
    go, sent, written = GoController(profile_node), 0, []
    changes: dict[int, Callable[[], None]] = {
        1: lambda: profile_node.annotate(c1="yes"),
        4: lambda: profile_node.annotate(c2="yes"),
        7: lambda: profile_node.annotate(c1=None, c3="yes"),
    }
    for number, is_ours in enumerate(turns):
        changes.get(number, lambda: None)()
        if is_ours:
            sent += len(profile_node.reconcile().notifications)
        else:
            go.step()
        parse_strictly(profile_node.data)
        written.append(profile_node.data)
    return profile_node, sent + go.sent, written


TURNS = 12


@settings(max_examples=60, derandomize=True)
@given(st.lists(st.booleans(), min_size=TURNS, max_size=TURNS))
def test_either_controller_continues_where_the_other_stopped(turns: list[bool]) -> None:
    profile_node, sent, _ = run_alternately(turns)
    assert profile_node.states() == {"p": OPERATIONAL}
    assert {item: profile_node.labels.get(item) for item in ("t1", "t2", "t3", "e")} == dict.fromkeys(
        ("t1", "t2", "t3", "e"), "1"
    )
    assert (profile_node.labels[STATE_LABEL], sent) == (OPERATIONAL, 1)


@pytest.mark.parametrize("handed_over", range(TURNS + 1))
def test_both_controllers_write_the_same_data_except_previous(handed_over: int) -> None:
    """Our `Previous` may be a step ahead where there is no enter chain."""
    _, _, ours = run_alternately([True] * TURNS)
    _, _, theirs = run_alternately([False] * TURNS)
    _, _, mixed = run_alternately([False] * handed_over + [True] * (TURNS - handed_over))
    for number, text in enumerate(mixed):
        expected = {_without_previous(item[number]) for item in (ours, theirs)}
        assert _without_previous(text) in expected, f"step {number}"
    assert mixed[-1] == ours[-1] == theirs[-1]


def test_takeover_of_an_idle_node_writes_no_change() -> None:
    """A takeover alone changes no byte, so it triggers no reconcile."""
    for first in (True, False):
        _, _, written = run_alternately([first] * TURNS + [not first] * 3)
        assert len(set(written[TURNS:])) == 1
        assert all(before == after for before, after in pairwise(written[TURNS - 1 :]))


def _without_previous(text: str) -> str:
    found = parse_strictly(text)
    for entry in found["Profiles"].values():
        del entry["Previous"]
    return json.dumps(found)
