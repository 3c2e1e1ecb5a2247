"""The entries of a MaintenanceRecord: without duplicates, without omissions and bounded in size."""

import itertools
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api import maintenancerecord
from haulout.api.maintenancerecord import (
    ENDED_UNOBSERVED_REASON,
    MAX_BYTES,
    MAX_DIGESTS,
    MAX_ENTRIES,
    RECONSTRUCTED_REASON,
    DrainFacts,
    Entry,
    LastState,
    NewEntry,
    RecordContent,
    add_entries,
    decode_last_states,
    encode_last_states,
)
from haulout_sandbox.event_loops.virtual_time import EPOCH

STATES = ("operational", "maintenance-required", "in-maintenance")
OPERATIONAL, REQUIRED, MAINTAINED = STATES
OS = "profile/os"
NODE_MAINTENANCE = "NodeMaintenance/patch"


def at(minutes: float) -> datetime:
    return EPOCH + timedelta(minutes=minutes)


def a_transition(number: int, *, what: str = OS, why: str = "") -> NewEntry:
    """Return the transition of this number, a minute after the one before it."""
    before, after = STATES[number % 3], STATES[(number + 1) % 3]
    entry = Entry(time=at(number), object=what, from_=before, to=after, since=at(number - 1), reason=why)
    return NewEntry(entry=entry, initial_state=OPERATIONAL)


def a_claim(state: str, minutes: float) -> NewEntry:
    return NewEntry(entry=Entry(time=at(minutes), object=OS, to=state), initial_state=OPERATIONAL, is_state_claim=True)


def a_node_maintenance(state: str, minutes: float, *, created_at: float = 0) -> NewEntry:
    before = {"Running": "", "Succeeded": "Running", "Ended": "Succeeded"}[state]
    entry = Entry(time=at(minutes), object=NODE_MAINTENANCE, from_=before, to=state)
    return NewEntry(
        entry=msgspec.structs.replace(entry, instance=f"uid-{created_at}"),
        is_state_claim=True,
        created_at=at(created_at),
    )


def state_changes(content: RecordContent) -> list[tuple[str, str]]:
    return [(entry.from_, entry.to) for entry in content.entries]


# Duplicates


def test_a_repeated_entry_is_the_same_entry() -> None:
    once = add_entries(RecordContent(), [a_transition(0)])
    assert add_entries(once, [a_transition(0)]) is once
    assert add_entries(RecordContent(), [a_transition(0), a_transition(0)]) == once


def test_two_reports_of_the_same_transition_are_one_entry() -> None:
    """Time and state identify the transition, not the reason."""
    assert len(add_entries(RecordContent(), [a_transition(0, why="one"), a_transition(0, why="another")]).entries) == 1


def test_pruned_entry_is_not_added_again() -> None:
    full = add_entries(RecordContent(), map(a_transition, range(MAX_ENTRIES + 5)))
    assert add_entries(full, [a_transition(1)]) is full
    alone = RecordContent((), 1, {OS: LastState(state=REQUIRED, since=at(0))})
    assert add_entries(alone, [a_transition(0)]) is alone


def test_transitions_at_the_same_instant_are_all_kept() -> None:
    moves = [
        NewEntry(entry=Entry(time=at(0), object=OS, from_=before, to=after, since=at(0)), initial_state=OPERATIONAL)
        for before, after in itertools.pairwise(STATES)
    ]
    assert state_changes(add_entries(RecordContent(), moves)) == [(OPERATIONAL, REQUIRED), (REQUIRED, MAINTAINED)]


def test_later_transition_is_kept_after_the_clock_is_set_back() -> None:
    early = NewEntry(
        entry=Entry(time=at(-90), object=OS, from_=REQUIRED, to=MAINTAINED, since=at(0)), initial_state=OPERATIONAL
    )
    assert state_changes(add_entries(RecordContent(), [a_transition(0), early])) == [
        (OPERATIONAL, REQUIRED),
        (REQUIRED, MAINTAINED),
    ]


@given(st.lists(st.integers(-120, 120), min_size=30, max_size=30), st.integers(1, 5))
def test_transitions_are_kept_once_and_in_order_for_any_clock_skew(steps: list[int], batch: int) -> None:
    """Each is recorded twice, as by a writer that received no response."""
    new_entries = []
    last = at(0)
    for number, step in enumerate(steps):
        time = at(number + step) + timedelta(microseconds=number)  # no two changes are made at the same instant
        entry = Entry(
            time=time, object=OS, from_=STATES[number % 3], to=STATES[(number + 1) % 3], since=last if number else None
        )
        new_entries.append(NewEntry(entry=entry, initial_state=OPERATIONAL))
        last = time
    content = RecordContent()
    for first in range(0, len(new_entries), batch):
        for _ in range(2):
            content = add_entries(content, new_entries[first : first + batch])
    assert state_changes(content) == [(new_entry.entry.from_, new_entry.entry.to) for new_entry in new_entries]
    assert add_entries(content, new_entries) is content


@given(st.lists(st.integers(-120, 120), min_size=12, max_size=12))
def test_ended_node_maintenances_stay_ended_for_any_clock_skew(steps: list[int]) -> None:
    content = RecordContent()
    for number in range(4):
        for place, state in enumerate(("Running", "Succeeded", "Ended")):
            note = a_node_maintenance(state, number * 10 + place + steps[number * 3 + place], created_at=number)
            content = add_entries(content, [note, note])
    assert state_changes(content) == [("", "Running"), ("Running", "Succeeded"), ("Succeeded", "Ended")] * 4


def test_skipped_change_number_of_an_object_is_recorded_as_a_gap() -> None:
    def change(number: int, state: str) -> NewEntry:
        entry = Entry(time=at(-number), object=NODE_MAINTENANCE, to=state, instance="u", number=number)
        return NewEntry(entry=entry, is_state_claim=True)

    content = add_entries(
        RecordContent(), [change(1, "Running"), change(4, "Failed"), change(2, "Failed"), change(5, "Running")]
    )
    assert state_changes(content) == [("", "Running"), ("", ""), ("Running", "Failed"), ("Failed", "Running")]
    assert content.entries[1].missing == 2
    assert "2 changes of NodeMaintenance/patch are missing" in content.entries[1].reason


def test_record_of_an_older_version_is_continued() -> None:
    """It has neither instances nor numbers."""
    old = RecordContent(
        (Entry(time=at(0), object=NODE_MAINTENANCE, to="Running"),),
        1,
        {NODE_MAINTENANCE: LastState(state="Running", since=at(0))},
    )
    assert add_entries(old, [a_node_maintenance("Running", 0)]) is old
    assert state_changes(add_entries(old, [a_node_maintenance("Succeeded", 5)])) == [
        ("", "Running"),
        ("Running", "Succeeded"),
    ]


def test_unrecorded_cycles_are_recorded_as_a_gap() -> None:
    content = add_entries(add_entries(RecordContent(), [a_transition(0)]), [a_claim(REQUIRED, 9)])
    assert [entry.is_gap for entry in content.entries] == [False, True, False]
    assert "changes of profile/os are missing between" in content.entries[1].reason
    assert add_entries(content, [a_claim(REQUIRED, 9)]) is content


# Gaps


def test_missing_transition_is_reconstructed_from_the_next() -> None:
    content = add_entries(add_entries(RecordContent(), [a_transition(0)]), [a_transition(2)])
    assert state_changes(content) == [(OPERATIONAL, REQUIRED), (REQUIRED, MAINTAINED), (MAINTAINED, OPERATIONAL)]
    assert content.entries[1].reason == RECONSTRUCTED_REASON
    assert content.entries[1].time == at(1)
    assert content.total == 3


def test_history_that_starts_in_the_middle_is_completed_from_the_initial_state() -> None:
    assert state_changes(add_entries(RecordContent(), [a_transition(1)])) == [
        (OPERATIONAL, REQUIRED),
        (REQUIRED, MAINTAINED),
    ]


def test_the_first_state_of_a_profile_is_no_transition() -> None:
    assert add_entries(RecordContent(), [a_claim(OPERATIONAL, 0)]) == RecordContent()
    assert state_changes(add_entries(RecordContent(), [a_transition(0)])) == [(OPERATIONAL, REQUIRED)]


def test_state_claim_is_an_entry_only_if_the_transition_is_not_recorded() -> None:
    recorded = add_entries(RecordContent(), [a_transition(0)])
    assert add_entries(recorded, [a_claim(REQUIRED, 0)]) is recorded
    missed = add_entries(recorded, [a_claim(MAINTAINED, 7)])
    assert missed.entries[-1] == Entry(time=at(7), object=OS, from_=REQUIRED, to=MAINTAINED, since=at(0))


def test_state_claim_from_a_stale_object_adds_no_entry() -> None:
    recorded = add_entries(RecordContent(), [a_transition(0), a_transition(1)])
    assert add_entries(recorded, [a_claim(REQUIRED, 0)]) is recorded


def test_state_claim_and_its_transition_are_one_entry() -> None:
    claimed = add_entries(RecordContent(), [a_claim(REQUIRED, 0)])
    assert add_entries(claimed, [a_transition(0)]) is claimed


@pytest.mark.parametrize("born", [60, -60], ids=["later", "after a clock was set back"])
def test_recreated_node_maintenance_of_the_same_name_is_a_separate_instance(born: float) -> None:
    first = [a_node_maintenance("Running", 0), a_node_maintenance("Succeeded", 5), a_node_maintenance("Ended", 6)]
    again = [a_node_maintenance("Running", born, created_at=born)]
    content = add_entries(RecordContent(), first + again)
    assert state_changes(content) == [
        ("", "Running"),
        ("Running", "Succeeded"),
        ("Succeeded", "Ended"),
        ("", "Running"),
    ]


def test_unobserved_end_is_reconstructed_when_a_node_maintenance_is_recreated() -> None:
    content = add_entries(
        RecordContent(), [a_node_maintenance("Running", 0), a_node_maintenance("Running", 60, created_at=60)]
    )
    assert state_changes(content) == [("", "Running"), ("Running", "Ended"), ("", "Running")]
    end = content.entries[1]
    assert (end.reason, end.reconstructed, end.instance) == (ENDED_UNOBSERVED_REASON, True, "uid-0")


def test_ended_node_maintenance_is_not_restored_from_a_stale_object() -> None:
    ended = add_entries(
        RecordContent(),
        [a_node_maintenance("Running", 0), a_node_maintenance("Succeeded", 5), a_node_maintenance("Ended", 6)],
    )
    pruned = replace(ended, entries=(), past=())
    for content in (ended, pruned):
        assert add_entries(content, [a_node_maintenance("Running", 0), a_node_maintenance("Succeeded", 5)]) is content


def test_missing_start_of_a_node_maintenance_is_reconstructed() -> None:
    content = add_entries(RecordContent(), [a_node_maintenance("Succeeded", 5)])
    assert state_changes(content) == [("", "Running"), ("Running", "Succeeded")]
    assert content.entries[1].since == at(0)


def test_records_of_different_subjects_are_independent() -> None:
    content = add_entries(
        RecordContent(), [a_transition(0), a_transition(0, what="profile/gpu"), a_node_maintenance("Running", 1)]
    )
    assert set(content.last_states) == {OS, "profile/gpu", NODE_MAINTENANCE}


def test_drain_entries_do_not_change_the_state() -> None:
    drain = NewEntry(entry=Entry(time=at(0.5), object=OS, result="Drained", drain=DrainFacts(seconds=3.5, pods=2)))
    content = add_entries(RecordContent(), [a_transition(0), drain, a_transition(1)])
    assert state_changes(content) == [(OPERATIONAL, REQUIRED), ("", ""), (REQUIRED, MAINTAINED)]


@given(st.sets(st.integers(0, 40)))
def test_entries_are_continuous_whichever_transitions_are_lost(lost: set[int]) -> None:
    content = RecordContent()
    for number in range(42):
        if number not in lost or number == 41:
            content = add_entries(content, [a_transition(number)])
        elif number - 1 not in lost and number:  # a successor that observes the current state
            content = add_entries(content, [a_claim(STATES[number % 3], number - 1)])
    state = OPERATIONAL
    is_after_gap = False
    for entry in content.entries:
        if entry.to:
            assert entry.from_ == state or is_after_gap
            state = entry.to
        is_after_gap = entry.is_gap
    assert content.entries[-1].key == a_transition(41).entry.key


# Limits


def test_oldest_entries_are_pruned_first_and_the_total_is_kept() -> None:
    content = add_entries(RecordContent(), map(a_transition, range(MAX_ENTRIES + 7)))
    assert len(content.entries) == MAX_ENTRIES
    assert content.total == MAX_ENTRIES + 7
    assert content.entries[0].time == at(7)
    assert len(content.past) == 7


def test_number_of_digests_of_pruned_entries_is_bounded() -> None:
    content = add_entries(RecordContent(), map(a_transition, range(MAX_ENTRIES + MAX_DIGESTS + 10)))
    assert len(content.past) == MAX_DIGESTS


def test_record_with_long_entries_keeps_fewer_entries() -> None:
    content = add_entries(RecordContent(), (a_transition(number, why="é" * 2_000) for number in range(MAX_ENTRIES)))
    assert len(msgspec.json.encode(content.entries)) <= MAX_BYTES
    assert 10 < len(content.entries) < MAX_ENTRIES
    assert all(entry.reason.endswith("…") for entry in content.entries)


def test_entry_texts_are_one_line() -> None:
    (entry,) = add_entries(RecordContent(), [a_transition(0, why="line\n  breaks\tand\r\nmore")]).entries
    assert entry.reason == "line breaks and more"


def test_last_states_annotation_is_bounded_for_many_names() -> None:
    new_entries = [
        NewEntry(entry=Entry(time=at(number), object=f"NodeMaintenance/{number}", to="Ended")) for number in range(200)
    ]
    last_states = add_entries(RecordContent(), new_entries).last_states
    assert len(last_states) == 50
    assert "NodeMaintenance/199" in last_states
    assert len(encode_last_states(last_states)) < 10_000


# Annotations that others have written


@pytest.mark.parametrize("text", ["", "[]", "{", '{"profile/os": 1}', '{"profile/os": {"state": "x"}}', "null"])
def test_malformed_last_states_annotation_is_ignored(text: str) -> None:
    assert decode_last_states({maintenancerecord.LAST_STATES_ANNOTATION: text}) == {}


def test_encoded_last_states_decode_to_the_same_value() -> None:
    last_states = {OS: LastState(state=REQUIRED, since=at(0.001))}
    assert (
        decode_last_states({maintenancerecord.LAST_STATES_ANNOTATION: encode_last_states(last_states)}) == last_states
    )
