"""What stood in a drain's way longest."""

from datetime import datetime, timedelta

from haulout.drain.blockers import Blocker, Kind
from haulout.drain.hindrance import Hindrance, Hindrances
from haulout.drain.progress import Standing
from haulout_sandbox.event_loops.virtual import EPOCH

CART, DESK = "PodDisruptionBudget shop/cart", "PodDisruptionBudget shop/desk"


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def standing(what: str, since: float, *, kind: Kind = Kind.BUDGET, pod: str = "shop/p") -> Standing:
    return Standing(Blocker(kind=kind, pod=pod, uid=pod, object=what, reason="no"), at(since))


def longest(*looks: tuple[float, list[Standing]]) -> Hindrance | None:
    seen = Hindrances()
    for now, there in looks:
        seen = seen.seeing(there, now=at(now))
    return seen.longest


def test_nothing_is_nothing() -> None:
    assert longest((0, []), (5, [])) is None


def test_it_lasts_until_it_is_not_seen_any_more() -> None:
    assert longest((1, [standing(CART, 0)]), (9, [])) == Hindrance(CART, timedelta(seconds=9))


def test_the_longest_is_remembered_when_others_come_later() -> None:
    looks = [(0, [standing(CART, 0)]), (9, [standing(DESK, 9)]), (12, []), (50, [])]
    assert longest(*looks) == Hindrance(CART, timedelta(seconds=9))


def test_pods_that_wait_for_the_same_thing_are_one_hindrance() -> None:
    looks = [
        (0, [standing(CART, 0, pod="shop/a")]),
        (9, [standing(CART, 9, pod="shop/b")]),
        (20, []),
    ]
    assert longest(*looks) == Hindrance(CART, timedelta(seconds=20))


def test_what_goes_its_way_is_no_hindrance() -> None:
    assert longest((0, [standing("", 0, kind=Kind.COMPLETION)]), (90, [])) is None


def test_what_has_no_name_is_called_by_its_kind() -> None:
    found = longest((0, [standing("", 0, kind=Kind.KUBELET)]), (3, []))
    assert found == Hindrance("Kubelet", timedelta(seconds=3))
