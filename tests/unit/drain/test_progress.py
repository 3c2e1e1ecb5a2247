"""The longest blocker of a drain."""

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


def longest_blocker_after(*observations: tuple[float, list[ActiveBlocker]]) -> LongestBlocker | None:
    tracker = LongestBlockerTracker()
    for now, blockers in observations:
        tracker = tracker.observe(blockers, now=at(now))
    return tracker.longest


def test_longest_blocker_is_none_without_blockers() -> None:
    assert longest_blocker_after((0, []), (5, [])) is None


def test_blocker_lasts_until_it_is_no_longer_observed() -> None:
    assert longest_blocker_after((1, [an_active_blocker(CART, 0)]), (9, [])) == LongestBlocker(
        CART, timedelta(seconds=9)
    )


def test_longest_blocker_is_kept_when_others_follow() -> None:
    observations = [(0, [an_active_blocker(CART, 0)]), (9, [an_active_blocker(DESK, 9)]), (12, []), (50, [])]
    assert longest_blocker_after(*observations) == LongestBlocker(CART, timedelta(seconds=9))


def test_pods_behind_the_same_object_are_one_blocker() -> None:
    observations = [
        (0, [an_active_blocker(CART, 0, pod="shop/a")]),
        (9, [an_active_blocker(CART, 9, pod="shop/b")]),
        (20, []),
    ]
    assert longest_blocker_after(*observations) == LongestBlocker(CART, timedelta(seconds=20))


def test_progress_is_no_blocker() -> None:
    assert longest_blocker_after((0, [an_active_blocker("", 0, kind=BlockerKind.COMPLETION)]), (90, [])) is None


def test_blocker_without_an_object_is_named_by_its_kind() -> None:
    found = longest_blocker_after((0, [an_active_blocker("", 0, kind=BlockerKind.KUBELET)]), (3, []))
    assert found == LongestBlocker("Kubelet", timedelta(seconds=3))
