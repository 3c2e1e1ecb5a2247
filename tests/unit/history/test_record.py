"""What a record holds: nothing twice, nothing left out, and not too much."""

import itertools
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.history import record
from haulout.history.record import (
    COMPLETED,
    ENDED_UNSEEN,
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_PAST,
    Content,
    DrainFacts,
    Entry,
    Note,
    Stand,
    added,
    read_standing,
    write_standing,
)
from haulout_sandbox.event_loops.virtual import EPOCH

STATES = ("operational", "maintenance-required", "in-maintenance")
OPERATIONAL, REQUIRED, MAINTAINED = STATES
OS = "profile/os"
ORDER = "NodeMaintenance/patch"


def at(minutes: float) -> datetime:
    return EPOCH + timedelta(minutes=minutes)


def a_transition(number: int, *, what: str = OS, why: str = "") -> Note:
    """Return the transition of this number, a minute after the one before it."""
    before, after = STATES[number % 3], STATES[(number + 1) % 3]
    entry = Entry(time=at(number), what=what, from_=before, to=after, since=at(number - 1), why=why)
    return Note(entry=entry, begins_in=OPERATIONAL)


def a_claim(state: str, minutes: float) -> Note:
    return Note(entry=Entry(time=at(minutes), what=OS, to=state), begins_in=OPERATIONAL, is_claim=True)


def an_order(state: str, minutes: float, *, born: float = 0) -> Note:
    before = {"Running": "", "Succeeded": "Running", "Ended": "Succeeded"}[state]
    entry = Entry(time=at(minutes), what=ORDER, from_=before, to=state)
    return Note(entry=msgspec.structs.replace(entry, instance=f"uid-{born}"), is_claim=True, born=at(born))


def ways(content: Content) -> list[tuple[str, str]]:
    return [(it.from_, it.to) for it in content.entries]


# The same is the same


def test_a_repeated_entry_is_the_same_entry() -> None:
    once = added(Content(), [a_transition(0)])
    assert added(once, [a_transition(0)]) is once
    assert added(Content(), [a_transition(0), a_transition(0)]) == once


def test_what_two_have_to_tell_of_the_same_transition_is_one_entry() -> None:
    """The time and the state make it the same, whatever words they have for it."""
    assert len(added(Content(), [a_transition(0, why="one"), a_transition(0, why="another")]).entries) == 1


def test_an_entry_that_has_given_way_to_newer_ones_does_not_come_back() -> None:
    full = added(Content(), map(a_transition, range(MOST_ENTRIES + 5)))
    assert added(full, [a_transition(1)]) is full
    alone = Content((), 1, {OS: Stand(state=REQUIRED, since=at(0))})
    assert added(alone, [a_transition(0)]) is alone


def test_states_that_are_passed_at_the_same_instant_are_all_there() -> None:
    moves = [
        Note(entry=Entry(time=at(0), what=OS, from_=before, to=after, since=at(0)), begins_in=OPERATIONAL)
        for before, after in itertools.pairwise(STATES)
    ]
    assert ways(added(Content(), moves)) == [(OPERATIONAL, REQUIRED), (REQUIRED, MAINTAINED)]


def test_what_follows_is_kept_though_the_clock_was_set_back() -> None:
    early = Note(entry=Entry(time=at(-90), what=OS, from_=REQUIRED, to=MAINTAINED, since=at(0)), begins_in=OPERATIONAL)
    assert ways(added(Content(), [a_transition(0), early])) == [(OPERATIONAL, REQUIRED), (REQUIRED, MAINTAINED)]


@given(st.lists(st.integers(-120, 120), min_size=30, max_size=30), st.integers(1, 5))
def test_whatever_clocks_say_each_transition_is_there_once_and_in_order(steps: list[int], batch: int) -> None:
    """Each is told twice, as by a writer that heard no answer."""
    notes = []
    last = at(0)
    for number, step in enumerate(steps):
        time = at(number + step) + timedelta(microseconds=number)  # no two changes are made at the same instant
        entry = Entry(
            time=time, what=OS, from_=STATES[number % 3], to=STATES[(number + 1) % 3], since=last if number else None
        )
        notes.append(Note(entry=entry, begins_in=OPERATIONAL))
        last = time
    content = Content()
    for first in range(0, len(notes), batch):
        for _ in range(2):
            content = added(content, notes[first : first + batch])
    assert ways(content) == [(it.entry.from_, it.entry.to) for it in notes]
    assert added(content, notes) is content


@given(st.lists(st.integers(-120, 120), min_size=12, max_size=12))
def test_whatever_clocks_say_an_order_that_has_ended_is_ended(steps: list[int]) -> None:
    content = Content()
    for number in range(4):
        for place, state in enumerate(("Running", "Succeeded", "Ended")):
            note = an_order(state, number * 10 + place + steps[number * 3 + place], born=number)
            content = added(content, [note, note])
    assert ways(content) == [("", "Running"), ("Running", "Succeeded"), ("Succeeded", "Ended")] * 4


def test_changes_are_numbered_by_the_object_and_a_number_that_is_skipped_is_a_gap() -> None:
    def change(number: int, state: str) -> Note:
        entry = Entry(time=at(-number), what=ORDER, to=state, instance="u", number=number)
        return Note(entry=entry, is_claim=True)

    content = added(Content(), [change(1, "Running"), change(4, "Failed"), change(2, "Failed"), change(5, "Running")])
    assert ways(content) == [("", "Running"), ("", ""), ("Running", "Failed"), ("Failed", "Running")]
    assert content.entries[1].missing == 2
    assert "2 changes of NodeMaintenance/patch are missing" in content.entries[1].why


def test_a_record_of_an_older_version_goes_on() -> None:
    """It has neither instances nor numbers."""
    old = Content((Entry(time=at(0), what=ORDER, to="Running"),), 1, {ORDER: Stand(state="Running", since=at(0))})
    assert added(old, [an_order("Running", 0)]) is old
    assert ways(added(old, [an_order("Succeeded", 5)])) == [("", "Running"), ("Running", "Succeeded")]


def test_rounds_that_nobody_wrote_down_are_a_gap() -> None:
    content = added(added(Content(), [a_transition(0)]), [a_claim(REQUIRED, 9)])
    assert [it.is_gap for it in content.entries] == [False, True, False]
    assert "changes of profile/os are missing between" in content.entries[1].why
    assert added(content, [a_claim(REQUIRED, 9)]) is content


# Nothing is left out


def test_a_transition_that_nobody_wrote_down_is_completed_by_the_next() -> None:
    content = added(added(Content(), [a_transition(0)]), [a_transition(2)])
    assert ways(content) == [(OPERATIONAL, REQUIRED), (REQUIRED, MAINTAINED), (MAINTAINED, OPERATIONAL)]
    assert content.entries[1].why == COMPLETED
    assert content.entries[1].time == at(1)
    assert content.total == 3


def test_a_history_that_begins_in_the_middle_says_so() -> None:
    assert ways(added(Content(), [a_transition(1)])) == [(OPERATIONAL, REQUIRED), (REQUIRED, MAINTAINED)]


def test_the_first_state_of_a_profile_is_no_transition() -> None:
    assert added(Content(), [a_claim(OPERATIONAL, 0)]) == Content()
    assert ways(added(Content(), [a_transition(0)])) == [(OPERATIONAL, REQUIRED)]


def test_a_claim_is_an_entry_only_if_nobody_wrote_that_down() -> None:
    told = added(Content(), [a_transition(0)])
    assert added(told, [a_claim(REQUIRED, 0)]) is told
    missed = added(told, [a_claim(MAINTAINED, 7)])
    assert missed.entries[-1] == Entry(time=at(7), what=OS, from_=REQUIRED, to=MAINTAINED, since=at(0))


def test_a_claim_from_an_old_copy_adds_nothing() -> None:
    told = added(Content(), [a_transition(0), a_transition(1)])
    assert added(told, [a_claim(REQUIRED, 0)]) is told


def test_a_claim_and_the_transition_that_it_knows_of_are_one_entry() -> None:
    claimed = added(Content(), [a_claim(REQUIRED, 0)])
    assert added(claimed, [a_transition(0)]) is claimed


@pytest.mark.parametrize("born", [60, -60], ids=["later", "after a clock was set back"])
def test_an_order_that_comes_again_under_the_same_name_is_another_one(born: float) -> None:
    first = [an_order("Running", 0), an_order("Succeeded", 5), an_order("Ended", 6)]
    again = [an_order("Running", born, born=born)]
    content = added(Content(), first + again)
    assert ways(content) == [("", "Running"), ("Running", "Succeeded"), ("Succeeded", "Ended"), ("", "Running")]


def test_an_order_that_vanished_unseen_has_ended_when_another_takes_its_name() -> None:
    content = added(Content(), [an_order("Running", 0), an_order("Running", 60, born=60)])
    assert ways(content) == [("", "Running"), ("Running", "Ended"), ("", "Running")]
    end = content.entries[1]
    assert (end.why, end.reconstructed, end.instance) == (ENDED_UNSEEN, True, "uid-0")


def test_an_order_that_has_ended_does_not_come_back_from_an_old_copy() -> None:
    ended = added(Content(), [an_order("Running", 0), an_order("Succeeded", 5), an_order("Ended", 6)])
    forgotten = replace(ended, entries=(), past=())
    for told in (ended, forgotten):
        assert added(told, [an_order("Running", 0), an_order("Succeeded", 5)]) is told


def test_an_order_whose_beginning_nobody_wrote_down_is_completed() -> None:
    content = added(Content(), [an_order("Succeeded", 5)])
    assert ways(content) == [("", "Running"), ("Running", "Succeeded")]
    assert content.entries[1].since == at(0)


def test_things_do_not_disturb_each_other() -> None:
    content = added(Content(), [a_transition(0), a_transition(0, what="profile/gpu"), an_order("Running", 1)])
    assert set(content.standing) == {OS, "profile/gpu", ORDER}


def test_what_happens_in_between_changes_no_state() -> None:
    drain = Note(entry=Entry(time=at(0.5), what=OS, result="Drained", drain=DrainFacts(seconds=3.5, pods=2)))
    content = added(Content(), [a_transition(0), drain, a_transition(1)])
    assert ways(content) == [(OPERATIONAL, REQUIRED), ("", ""), (REQUIRED, MAINTAINED)]


@given(st.sets(st.integers(0, 40)))
def test_whichever_transitions_are_lost_no_two_entries_leave_a_gap(lost: set[int]) -> None:
    content = Content()
    for number in range(42):
        if number not in lost or number == 41:
            content = added(content, [a_transition(number)])
        elif number - 1 not in lost and number:  # a successor that sees where it stands
            content = added(content, [a_claim(STATES[number % 3], number - 1)])
    stands = OPERATIONAL
    is_after_gap = False
    for it in content.entries:
        if it.to:
            assert it.from_ == stands or is_after_gap
            stands = it.to
        is_after_gap = it.is_gap
    assert content.entries[-1].key == a_transition(41).entry.key


# Not too much


def test_the_oldest_go_first_and_the_number_of_all_is_known() -> None:
    content = added(Content(), map(a_transition, range(MOST_ENTRIES + 7)))
    assert len(content.entries) == MOST_ENTRIES
    assert content.total == MOST_ENTRIES + 7
    assert content.entries[0].time == at(7)
    assert len(content.past) == 7


def test_what_is_remembered_of_entries_that_have_given_way_is_bounded() -> None:
    content = added(Content(), map(a_transition, range(MOST_ENTRIES + MOST_PAST + 10)))
    assert len(content.past) == MOST_PAST


def test_long_entries_make_it_fewer() -> None:
    content = added(Content(), (a_transition(number, why="é" * 2_000) for number in range(MOST_ENTRIES)))
    assert len(msgspec.json.encode(content.entries)) <= MOST_BYTES
    assert 10 < len(content.entries) < MOST_ENTRIES
    assert all(it.why.endswith("…") for it in content.entries)


def test_texts_are_one_line() -> None:
    (entry,) = added(Content(), [a_transition(0, why="line\n  breaks\tand\r\nmore")]).entries
    assert entry.why == "line breaks and more"


def test_names_that_come_and_go_do_not_fill_the_annotation() -> None:
    notes = [Note(entry=Entry(time=at(it), what=f"NodeMaintenance/{it}", to="Ended")) for it in range(200)]
    standing = added(Content(), notes).standing
    assert len(standing) == 50
    assert "NodeMaintenance/199" in standing
    assert len(write_standing(standing)) < 10_000


# What others made of it


@pytest.mark.parametrize("text", ["", "[]", "{", '{"profile/os": 1}', '{"profile/os": {"state": "x"}}', "null"])
def test_an_annotation_that_somebody_wrote_over_counts_for_nothing(text: str) -> None:
    assert read_standing({record.STANDING: text}) == {}


def test_where_things_stand_survives_the_wire() -> None:
    standing = {OS: Stand(state=REQUIRED, since=at(0.001))}
    assert read_standing({record.STANDING: write_standing(standing)}) == standing
