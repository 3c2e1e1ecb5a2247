"""The last words of a drain: one sentence that says how it ended, and what is left."""

from datetime import timedelta

from haulout.core import duration
from haulout.drain import words
from haulout.drain.progress import Progress

_NAMED = 5  # pods in a sentence


def drained(progress: Progress) -> str:
    """Return what is said of a node that is empty."""
    text = f"node {progress.node} is drained: {words.pods(progress.gone)} left it"
    if progress.returning:
        text += f"; these came back and stay, for they would come back again: {_some(progress.returning)}"
    return f"{text}; {progress.left_attached}" if progress.left_attached else text


def timed_out(progress: Progress, timeout: timedelta | None) -> str:
    """Return what is said of a node that was not empty in time."""
    within = f" within {duration.format(timeout)}" if timeout is not None else ""
    if not progress.pods:
        return f"node {progress.node} was not drained{within}: {progress.trouble or 'its pods are not known'}"
    left = f"{words.pods(len(progress.pods))} left: {_some(tuple(map(str, progress.pods)))}"
    return f"node {progress.node} was not drained{within}, {left}"


def _some(texts: tuple[str, ...]) -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return "; ".join(texts[:_NAMED]) + more
