"""The operator in a round: `python -m chaos.patched_operator run …` is `haulout run …` with two hooks.

`CHAOS_CLOCK` names a file with the error of this process's wall clock in seconds; the file may change at any time.
`CHAOS_SABOTAGE` breaks the operator on purpose, to prove that the invariants detect it.
"""

import ctypes
import math
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from haulout.cli import main
from haulout.core.clock import RealClock

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _exit_with_parent() -> None:
    """Have the kernel end this process when the round's process ends, also while it is stopped; on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _shift_clock(file: Path) -> None:
    original: Callable[[RealClock], datetime] = RealClock.now

    def now(clock: RealClock) -> datetime:
        text = file.read_text().strip()
        return original(clock) + timedelta(seconds=float(text or "0"))

    _replace(RealClock, "now", now)


def _replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
    if name not in vars(owner):
        raise AttributeError(f"{owner.__name__} has no {name} any more: the hook must follow the operator's code")
    setattr(owner, name, function)


def _ignore_manual_cordons() -> None:
    """Take every node for one that nobody had cordoned: those that people cordoned are uncordoned in the end."""
    from haulout.drain import cordon

    original = cordon.acquire

    def acquire(node: Any, owner: str, *args: Any, **kwargs: Any) -> Any:
        change = original(node, owner, *args, **kwargs)
        if change is not None and (mark := change["metadata"].get("annotations", {}).get(cordon.CORDON_ANNOTATION)):
            change["metadata"]["annotations"][cordon.CORDON_ANNOTATION] = mark.replace(
                '"unschedulable":true', '"unschedulable":false'
            )
        return change

    _replace(cordon, "acquire", acquire)


def _ignore_budget() -> None:
    """Admit every node to the budget."""
    from haulout.budget.budget_check import BudgetCheck

    _replace(BudgetCheck, "exhausted", lambda *_: None)
    _replace(BudgetCheck, "slot_limits", lambda *_: [])


def _delete_pods() -> None:
    """Delete pods instead of evicting them."""
    from haulout.drain.policy import DrainPolicy

    original = DrainPolicy.__post_init__

    def complete(policy: DrainPolicy) -> None:
        original(policy)
        object.__setattr__(policy, "disable_eviction", True)

    _replace(DrainPolicy, "__post_init__", complete)


def _lose_history() -> None:
    """Write no entry into any record."""
    from haulout.history.writer import HistoryWriter

    _replace(HistoryWriter, "add", lambda *_: None)


def _leave_taint() -> None:
    """Leave the drain taint on released nodes."""
    from haulout.drain import cordon

    original = cordon.release

    def release(*args: Any) -> Any:
        change = original(*args)
        if change is not None:
            change.get("spec", {}).pop("taints", None)
        return change

    _replace(cordon, "release", release)


def _ignore_fencing() -> None:
    """Write as a leader for ever after having led once."""
    from haulout.kube.leaderelection import LeaderElection

    _replace(LeaderElection, "is_leader", lambda _: True)
    _replace(LeaderElection, "_loop_deadline", lambda _: math.inf)


SABOTAGE: dict[str, Callable[[], None]] = {
    "people": _ignore_manual_cordons,
    "budget": _ignore_budget,
    "delete": _delete_pods,
    "history": _lose_history,
    "taint": _leave_taint,
    "fence": _ignore_fencing,
}

if __name__ == "__main__":
    _exit_with_parent()
    if clock := os.environ.get("CHAOS_CLOCK"):
        _shift_clock(Path(clock))
    if broken := os.environ.get("CHAOS_SABOTAGE"):
        SABOTAGE[broken]()
    sys.exit(main())
