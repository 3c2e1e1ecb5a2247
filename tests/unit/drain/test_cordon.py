"""A release undoes only the changes of Haulout, and only when the last owner releases the node."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.objects import Node, RawObject, Taint
from haulout.drain.cordon import (
    CORDON_ANNOTATION,
    CORDON_BACKUP_ANNOTATION,
    Cordon,
    CordonRequest,
    InvalidCordonAnnotation,
    acquire,
    clear_cordon,
    cordon_by_hand,
    cordon_of,
    describe_tampering,
    release,
    repair,
    state_before,
    uncordon_by_hand,
)

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
DRAIN = Taint(key="medik8s.io/drain", effect="NoSchedule")
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
FOREIGN = Taint(key="dummy", value="x", effect="PreferNoSchedule", time_added=NOW)
EXCLUDE = "remediation.medik8s.io/exclude-from-remediation"
MEDIK8S = CordonRequest(taints=(UNSCHEDULABLE, DRAIN), labels={EXCLUDE: "true"})


def a_node(**fields: Any) -> Node:
    spec = {name: fields[name] for name in ("unschedulable", "taints") if name in fields}
    metadata = {"name": "n1", "uid": "u1", "resourceVersion": "7", "labels": {"zone": "a"} | fields.get("labels", {})}
    return msgspec.convert(msgspec.to_builtins({"metadata": metadata, "spec": spec}), Node)


def apply_change(node: Node, change: RawObject | None) -> Node:
    """Apply a merge patch, as the server would."""
    if change is None:
        return node
    assert (change["metadata"]["uid"], change["metadata"]["resourceVersion"]) == (node.uid, node.resource_version)
    return msgspec.convert(_merged(msgspec.to_builtins(node), json.loads(msgspec.json.encode(change))), Node)


def _merged(target: RawObject, patch: RawObject) -> RawObject:
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merged(result.get(key) or {}, value)
        else:
            result[key] = value
    return result


def test_acquire_sets_cordon_taints_and_labels_in_one_patch() -> None:
    node = a_node(taints=[FOREIGN])
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    assert held.spec.unschedulable
    assert held.spec.taints == (UNSCHEDULABLE, DRAIN, FOREIGN)
    assert held.metadata.labels == {"zone": "a", EXCLUDE: "true"}
    mark = cordon_of(held)
    assert mark is not None
    assert mark.owners["nm/a"].since == NOW


def test_last_owner_restores_the_node_on_release() -> None:
    node = a_node(taints=[FOREIGN])
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    assert apply_change(held, release(held, "nm/a")) == node


def test_acquire_and_release_write_nothing_when_nothing_changes() -> None:
    held = apply_change(a_node(), acquire(a_node(), "nm/a", MEDIK8S, now=NOW))
    assert acquire(held, "nm/a", MEDIK8S, now=NOW + timedelta(hours=1)) is None
    assert release(held, "nm/b") is None
    assert release(a_node(), "nm/a") is None


def test_a_node_cordoned_by_a_person_stays_cordoned() -> None:
    node = a_node(unschedulable=True, taints=[UNSCHEDULABLE])
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    restored = apply_change(held, release(held, "nm/a"))
    assert restored == node


def test_existing_labels_and_taints_are_kept_on_release() -> None:
    node = a_node(taints=[DRAIN], labels={EXCLUDE: "maybe"})
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    assert held.metadata.labels[EXCLUDE] == "true"
    assert apply_change(held, release(held, "nm/a")) == node


def test_cordon_lasts_until_its_last_owner_releases_it() -> None:
    other = CordonRequest(taints=(Taint(key="haulout.dev/drain", effect="NoSchedule"),))
    node = a_node()
    first = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    both = apply_change(first, acquire(first, "profile/b", other, now=NOW))
    only_b = apply_change(both, release(both, "nm/a"))
    assert only_b.spec.unschedulable
    assert only_b.spec.taints == (UNSCHEDULABLE, *other.taints)
    assert only_b.metadata.labels == {"zone": "a"}
    assert apply_change(only_b, release(only_b, "profile/b")) == node


def test_taint_requested_by_two_owners_stays_for_the_second() -> None:
    node = a_node()
    first = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    both = apply_change(first, acquire(first, "nm/b", MEDIK8S, now=NOW))
    only_b = apply_change(both, release(both, "nm/a"))
    assert only_b.spec.taints == (UNSCHEDULABLE, DRAIN)
    assert only_b.metadata.labels[EXCLUDE] == "true"


def test_acquire_restores_a_cordon_that_others_removed() -> None:
    held = apply_change(a_node(), acquire(a_node(), "nm/a", MEDIK8S, now=NOW))
    loosened = apply_change(held, {"metadata": {"uid": "u1", "resourceVersion": "7"}, "spec": {"unschedulable": None}})
    assert not loosened.spec.unschedulable
    assert apply_change(loosened, acquire(loosened, "nm/a", MEDIK8S, now=NOW)).spec.unschedulable


def test_label_changed_by_others_is_kept_on_release() -> None:
    held = apply_change(a_node(), acquire(a_node(), "nm/a", MEDIK8S, now=NOW))
    meta = {"uid": "u1", "resourceVersion": "7", "labels": {EXCLUDE: "false"}}
    changed = apply_change(held, {"metadata": meta})
    assert apply_change(changed, release(changed, "nm/a")).metadata.labels[EXCLUDE] == "false"


def test_taints_added_meanwhile_are_kept_on_release() -> None:
    held = apply_change(a_node(), acquire(a_node(), "nm/a", MEDIK8S, now=NOW))
    tainted = a_node(unschedulable=True, taints=[*held.spec.taints, FOREIGN], labels=held.metadata.labels)
    tainted = msgspec.structs.replace(tainted, metadata=held.metadata)
    assert apply_change(tainted, release(tainted, "nm/a")).spec.taints == (FOREIGN,)


@pytest.mark.parametrize("raw", ["", "{", "[]", '{"owners": 7}'])
def test_overwritten_cordon_annotation_is_reported_as_invalid(raw: str) -> None:
    node = apply_change(
        a_node(), {"metadata": {"uid": "u1", "resourceVersion": "7", "annotations": {CORDON_ANNOTATION: raw}}}
    )
    with pytest.raises(InvalidCordonAnnotation, match=r"annotation haulout\.dev/cordon of node n1"):
        release(node, "nm/a")


_taints = st.lists(st.sampled_from([DRAIN, UNSCHEDULABLE, FOREIGN]), unique=True, max_size=3)
_requests = st.builds(
    lambda taints, labels: CordonRequest(taints=tuple(taints), labels=labels),
    _taints,
    st.dictionaries(st.sampled_from(["zone", "x"]), st.sampled_from(["a", "b"]), max_size=2),
)


@given(
    unschedulable=st.booleans(),
    taints=_taints,
    requests=st.lists(_requests, min_size=1, max_size=3),
    order=st.randoms(use_true_random=False),
)
def test_node_is_as_before_after_all_owners_released_it_in_any_order(
    *, unschedulable: bool, taints: list[Taint], requests: list[CordonRequest], order: Any
) -> None:
    # Owners request equal label values: otherwise they would overwrite each other for ever.
    agreed = {key: value for each in requests for key, value in each.labels.items()}
    # Kubernetes sets and removes its own taint with the cordon; the drain taint marks the cordon of a NodeMaintenance.
    foreign = [it for it in taints if it != (DRAIN if unschedulable else UNSCHEDULABLE)]
    before = a_node(unschedulable=unschedulable, taints=foreign)
    node = before
    for number, each in enumerate(requests):
        request = CordonRequest(taints=each.taints, labels={key: agreed[key] for key in each.labels})
        node = apply_change(node, acquire(node, f"owner/{number}", request, now=NOW))
        assert node.spec.unschedulable
    leaving = list(range(len(requests)))
    order.shuffle(leaving)
    for number in leaving:
        assert node.spec.unschedulable
        node = apply_change(node, release(node, f"owner/{number}"))
    assert node.metadata == before.metadata
    assert node.spec.unschedulable == before.spec.unschedulable
    assert set(map(str, node.spec.taints)) == set(map(str, before.spec.taints))


# Manual cordons


def test_cordon_by_hand_behaves_like_kubectl_on_a_node_without_owners() -> None:
    node = a_node(taints=[FOREIGN])
    cordoned = apply_change(node, cordon_by_hand(node))
    assert cordoned.spec.unschedulable
    assert CORDON_ANNOTATION not in cordoned.metadata.annotations
    assert cordon_by_hand(cordoned) is None
    assert apply_change(cordoned, uncordon_by_hand(cordoned)) == node
    assert uncordon_by_hand(node) is None


def test_node_cordoned_by_hand_while_held_stays_cordoned_after_release() -> None:
    held = apply_change(a_node(), acquire(a_node(), "nm/a", MEDIK8S, now=NOW))
    cordoned = apply_change(held, cordon_by_hand(held))
    assert list((cordon_of(cordoned) or Cordon()).owners) == ["nm/a"]
    released = apply_change(cordoned, release(cordoned, "nm/a"))
    assert released == a_node(unschedulable=True)


def test_uncordon_by_hand_keeps_the_cordon_of_owners() -> None:
    node = a_node(unschedulable=True)
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    taken_back = apply_change(held, uncordon_by_hand(held))
    assert taken_back.spec.unschedulable
    assert taken_back.spec.taints == held.spec.taints
    assert apply_change(taken_back, release(taken_back, "nm/a")) == a_node()


def test_uncordon_by_hand_releases_owners_that_no_longer_exist() -> None:
    node = a_node(unschedulable=True, taints=[FOREIGN])
    one = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    two = apply_change(one, acquire(one, "nm/b", CordonRequest(labels={"b": "1"}), now=NOW))
    left = apply_change(two, uncordon_by_hand(two, without=["nm/a"]))
    assert left.spec.unschedulable
    assert left.metadata.labels == {"zone": "a", "b": "1"}
    assert left.spec.taints == (UNSCHEDULABLE, FOREIGN)
    assert apply_change(two, uncordon_by_hand(two, without=["nm/a", "nm/b", "nm/c"])) == a_node(taints=[FOREIGN])


def test_clear_cordon_removes_an_unreadable_cordon_annotation() -> None:
    node = a_node(unschedulable=True, taints=[DRAIN])
    broken = msgspec.structs.replace(
        node, metadata=msgspec.structs.replace(node.metadata, annotations={CORDON_ANNOTATION: "?", "mine": "1"})
    )
    with pytest.raises(InvalidCordonAnnotation):
        cordon_by_hand(broken)
    forgotten = apply_change(broken, clear_cordon(broken))
    assert forgotten.metadata.annotations == {"mine": "1"}
    assert not forgotten.spec.unschedulable
    assert forgotten.spec.taints == (DRAIN,)


# Cordons of another operator


def test_cordon_of_another_operator_is_adopted_and_released() -> None:
    node = a_node(unschedulable=True, taints=[UNSCHEDULABLE, DRAIN, FOREIGN], labels={EXCLUDE: "true"})
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW, adopting=True))
    assert (held.spec, held.metadata.labels) == (node.spec, node.metadata.labels), "only the annotation is new"
    free = apply_change(held, release(held, "nm/a"))
    assert free == a_node(taints=[FOREIGN])


def test_adopting_completes_a_partial_cordon() -> None:
    node = a_node(taints=[DRAIN])
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW, adopting=True))
    assert held.spec.unschedulable
    assert set(held.spec.taints) == {UNSCHEDULABLE, DRAIN}
    assert apply_change(held, release(held, "nm/a")) == a_node()


def test_node_with_a_cordon_annotation_is_not_adopted_again() -> None:
    node = a_node(unschedulable=True)
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    both = apply_change(held, acquire(held, "nm/b", MEDIK8S, now=NOW, adopting=True))
    alone = apply_change(both, release(both, "nm/a"))
    assert apply_change(alone, release(alone, "nm/b")) == node, "it was cordoned before"


def test_unschedulable_taint_stays_while_another_owner_holds_the_node() -> None:
    """Kubernetes would restore the taint at once, so two owners would patch the node in a hot loop."""
    node = a_node()
    one = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    two = apply_change(one, acquire(one, "profile/os", CordonRequest(), now=NOW))
    left = apply_change(two, release(two, "nm/a"))
    assert left.spec.taints == (UNSCHEDULABLE,)
    assert acquire(left, "profile/os", CordonRequest(), now=NOW) is None
    assert apply_change(left, release(left, "profile/os")) == node


# Edited cordon annotations


def edited(node: Node, *, spec: RawObject | None = None, **annotations: str | None) -> Node:
    """Return a node after a user edited it: `mark` and `backup` are the cordon annotations."""
    keys = {"mark": CORDON_ANNOTATION, "backup": CORDON_BACKUP_ANNOTATION}
    metadata = {"uid": "u1", "resourceVersion": "7", "annotations": {keys[it]: annotations[it] for it in annotations}}
    return apply_change(node, {"metadata": metadata, "spec": spec or {}})


def cordon_annotation(**fields: Any) -> str:
    """Return the text of a cordon annotation with these fields replaced."""
    owners = {"nm/a": {"since": "2026-01-05T09:00:00Z", "wishes": msgspec.to_builtins(MEDIK8S)}}
    return json.dumps({"owners": owners} | fields)


LOST = pytest.mark.parametrize("mark", [None, "{}", '{"owners": {}}', "?", "", "[]", '{"owners": 7}'])
WAS_CORDONED = pytest.mark.parametrize("was_cordoned", [False, True])


@LOST
@WAS_CORDONED
def test_node_with_a_lost_cordon_annotation_is_restored_on_release(*, mark: str | None, was_cordoned: bool) -> None:
    node = a_node(unschedulable=was_cordoned, taints=[UNSCHEDULABLE] if was_cordoned else [])
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    tampered = edited(held, mark=mark)
    assert apply_change(tampered, release(tampered, "nm/a")) == node
    restored = apply_change(tampered, acquire(tampered, "nm/a", MEDIK8S, now=NOW + timedelta(hours=1)))
    assert restored == held
    assert apply_change(tampered, repair(tampered, ["nm/a"])) == held
    assert repair(tampered, ["nm/b"]) is None, "nm/b is no owner"


@LOST
def test_lost_cordon_annotation_keeps_all_owners(mark: str | None) -> None:
    node = a_node()
    one = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    two = apply_change(one, acquire(one, "profile/b", CordonRequest(), now=NOW))
    tampered = edited(two, mark=mark)
    left = apply_change(tampered, release(tampered, "nm/a"))
    assert left.spec.unschedulable
    assert list((cordon_of(left) or Cordon()).owners) == ["profile/b"]
    assert apply_change(left, release(left, "profile/b")) == node


@pytest.mark.parametrize("backup", [None, "{}", "?"])
def test_lost_cordon_backup_is_written_again(backup: str | None) -> None:
    node = a_node()
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    tampered = edited(held, backup=backup)
    assert apply_change(tampered, acquire(tampered, "nm/a", MEDIK8S, now=NOW)) == held
    assert apply_change(tampered, release(tampered, "nm/a")) == node


@LOST
@WAS_CORDONED
def test_owner_with_its_own_copy_needs_no_annotation(*, mark: str | None, was_cordoned: bool) -> None:
    node = a_node(unschedulable=was_cordoned, taints=[FOREIGN])
    copy = state_before(node, MEDIK8S)
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    tampered = edited(held, mark=mark, backup=mark)
    assert apply_change(tampered, release(tampered, "nm/a", requested=MEDIK8S, before=copy)) == node
    restored = apply_change(tampered, acquire(tampered, "nm/a", MEDIK8S, now=NOW, before=copy))
    assert restored == held


def test_node_that_was_also_uncordoned_is_schedulable_after_release_despite_the_copy() -> None:
    node = a_node(unschedulable=True)
    copy = state_before(node, MEDIK8S)
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    free = edited(held, spec={"unschedulable": None}, mark=None, backup=None)
    again = apply_change(free, acquire(free, "nm/a", MEDIK8S, now=NOW, before=copy))
    assert again.spec.unschedulable
    assert apply_change(again, release(again, "nm/a")) == a_node()


def test_owner_edited_out_of_the_annotation_leaves_nothing_behind_on_release() -> None:
    node = a_node()
    copy = state_before(node, MEDIK8S)
    one = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    two = apply_change(one, acquire(one, "profile/b", CordonRequest(), now=NOW))
    without = json.dumps({"owners": {"profile/b": {"since": "2026-01-05T09:00:00Z"}}, "before": {}})
    tampered = edited(two, mark=without)
    left = apply_change(tampered, release(tampered, "nm/a", requested=MEDIK8S, before=copy))
    assert left.spec.unschedulable
    assert (left.spec.taints, left.metadata.labels) == ((UNSCHEDULABLE,), {"zone": "a"})
    assert not apply_change(left, release(left, "profile/b")).spec.unschedulable


def test_owner_is_restored_in_the_annotation_from_the_backup() -> None:
    one = apply_change(a_node(), acquire(a_node(), "nm/a", MEDIK8S, now=NOW))
    two = apply_change(one, acquire(one, "profile/b", CordonRequest(), now=NOW))
    tampered = edited(two, mark=cordon_annotation())
    assert apply_change(tampered, repair(tampered, ["profile/b"])) == two
    assert apply_change(tampered, acquire(tampered, "nm/a", MEDIK8S, now=NOW)) == two
    left = apply_change(tampered, release(tampered, "nm/a"))
    assert list((cordon_of(left) or Cordon()).owners) == ["profile/b"]


@pytest.mark.parametrize(
    "mark",
    [
        cordon_annotation(),
        cordon_annotation(before={}),
        cordon_annotation(before={"taints": {"medik8s.io/drain:NoSchedule": True}}),
    ],
)
def test_edited_state_before_the_cordon_does_not_keep_own_taints(mark: str) -> None:
    node = a_node()
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    tampered = edited(held, mark=mark)
    again = apply_change(tampered, acquire(tampered, "nm/a", MEDIK8S, now=NOW))
    assert apply_change(again, release(again, "nm/a")) == node
    assert apply_change(tampered, release(tampered, "nm/a")) == node


def test_user_may_edit_the_annotation_so_that_the_node_stays_cordoned() -> None:
    node = a_node()
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    tampered = edited(held, mark=cordon_annotation(before={"unschedulable": True}))
    left = apply_change(tampered, release(tampered, "nm/a"))
    assert left.spec.unschedulable
    assert DRAIN not in left.spec.taints


def test_requests_edited_out_of_the_annotation_are_undone_on_release() -> None:
    node = a_node()
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    tampered = edited(held, mark=cordon_annotation(owners={"nm/a": {"since": "2026-01-05T09:00:00Z"}}))
    assert apply_change(tampered, release(tampered, "nm/a", requested=MEDIK8S)) == node


def test_cordon_with_a_drain_taint_is_not_taken_for_the_state_before() -> None:
    """Without annotation, backup and copy, the taint shows that the cordon belongs to a NodeMaintenance."""
    node = a_node(unschedulable=True, taints=[UNSCHEDULABLE, DRAIN, FOREIGN], labels={EXCLUDE: "true"})
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    assert apply_change(held, release(held, "nm/a")) == a_node(taints=[FOREIGN])


def test_taint_of_another_operator_does_not_make_its_cordon_that_of_a_profile() -> None:
    node = a_node(unschedulable=True, taints=[DRAIN])
    held = apply_change(node, acquire(node, "profile/os", CordonRequest(), now=NOW))
    assert apply_change(held, release(held, "profile/os")) == node


def test_annotation_of_an_earlier_version_is_valid_without_a_backup() -> None:
    node = a_node()
    held = edited(apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW)), backup=None)
    assert list((cordon_of(held) or Cordon()).owners) == ["nm/a"]
    assert apply_change(held, release(held, "nm/a")) == node


def test_backup_left_by_an_earlier_version_holds_no_node() -> None:
    """The earlier version removes the annotation and uncordons the node, but ignores the backup."""
    held = apply_change(a_node(), acquire(a_node(), "nm/a", MEDIK8S, now=NOW))
    free = edited(held, spec={"unschedulable": None, "taints": None}, mark=None)
    assert cordon_of(free) is None
    again = apply_change(free, acquire(free, "nm/b", MEDIK8S, now=NOW))
    assert list((cordon_of(again) or Cordon()).owners) == ["nm/b"]


@pytest.mark.parametrize("is_cordoned_again", [True, False])
def test_node_uncordoned_by_a_user_while_held_is_schedulable_after_release(*, is_cordoned_again: bool) -> None:
    node = a_node(unschedulable=True)
    held = apply_change(node, acquire(node, "nm/a", MEDIK8S, now=NOW))
    loosened = edited(held, spec={"unschedulable": None})
    if is_cordoned_again:
        loosened = apply_change(loosened, acquire(loosened, "nm/a", MEDIK8S, now=NOW))
        assert loosened.spec.unschedulable
    assert apply_change(loosened, release(loosened, "nm/a")) == a_node()


def test_describe_tampering_lists_what_others_changed() -> None:
    held = apply_change(a_node(), acquire(a_node(), "nm/a", MEDIK8S, now=NOW))
    assert describe_tampering(held, MEDIK8S) == []
    assert describe_tampering(edited(held, mark=None), MEDIK8S) == ["annotation haulout.dev/cordon was removed"]
    assert describe_tampering(edited(held, mark="{}"), MEDIK8S) == ["annotation haulout.dev/cordon was emptied"]
    assert describe_tampering(edited(held, mark="?"), MEDIK8S) == ["annotation haulout.dev/cordon was overwritten"]
    free = edited(held, spec={"unschedulable": None, "taints": None})
    free = msgspec.structs.replace(free, metadata=msgspec.structs.replace(free.metadata, labels={}))
    assert describe_tampering(free, MEDIK8S) == [
        "the node was uncordoned",
        "taint node.kubernetes.io/unschedulable was removed",
        "taint medik8s.io/drain was removed",
        f"label {EXCLUDE} was changed",
    ]
