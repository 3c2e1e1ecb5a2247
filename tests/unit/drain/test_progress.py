"""What stood in a drain's way longest."""

from datetime import datetime, timedelta

from haulout.drain.blockers import Blocker, BlockerKind
from haulout.drain.progress import ActiveBlocker, LongestBlocker, LongestBlockerTracker
from haulout_sandbox.event_loops.virtual_time import EPOCH

CART, DESK = "PodDisruptionBudget shop/cart", "PodDisruptionBudget shop/desk"


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def an_active_blocker(
    what: str, since: float, *, kind: BlockerKind = BlockerKind.DISRUPTION_BUDGET, pod: str = "shop/p"
) -> ActiveBlocker:
    return ActiveBlocker(Blocker(kind=kind, pod=pod, uid=pod, object=what, reason="no"), at(since))


def longest_after(*looks: tuple[float, list[ActiveBlocker]]) -> LongestBlocker | None:
    seen = LongestBlockerTracker()
    for now, there in looks:
        seen = seen.observe(there, now=at(now))
    return seen.longest


def test_nothing_is_nothing() -> None:
    assert longest_after((0, []), (5, [])) is None


def test_it_lasts_until_it_is_not_seen_any_more() -> None:
    assert longest_after((1, [an_active_blocker(CART, 0)]), (9, [])) == LongestBlocker(CART, timedelta(seconds=9))


def test_the_longest_is_remembered_when_others_come_later() -> None:
    looks = [(0, [an_active_blocker(CART, 0)]), (9, [an_active_blocker(DESK, 9)]), (12, []), (50, [])]
    assert longest_after(*looks) == LongestBlocker(CART, timedelta(seconds=9))


def test_pods_that_wait_for_the_same_thing_are_one_hindrance() -> None:
    looks = [
        (0, [an_active_blocker(CART, 0, pod="shop/a")]),
        (9, [an_active_blocker(CART, 9, pod="shop/b")]),
        (20, []),
    ]
    assert longest_after(*looks) == LongestBlocker(CART, timedelta(seconds=20))


def test_what_goes_its_way_is_no_hindrance() -> None:
    assert longest_after((0, [an_active_blocker("", 0, kind=BlockerKind.COMPLETION)]), (90, [])) is None


def test_what_has_no_name_is_called_by_its_kind() -> None:
    found = longest_after((0, [an_active_blocker("", 0, kind=BlockerKind.KUBELET)]), (3, []))
    assert found == LongestBlocker("Kubelet", timedelta(seconds=3))
