"""Messages of drain outcomes: one sentence with the result and what is left."""

from datetime import timedelta

from haulout.core import duration, text
from haulout.drain.progress import DrainProgress

_MAX_NAMED = 5  # pods per sentence


def drained_message(progress: DrainProgress) -> str:
    message = f"node {progress.node} is drained: {text.format_pod_count(progress.gone)} left it"
    if progress.returning:
        message += f"; these pods were recreated on the node and stay: {_format_list(progress.returning)}"
    return f"{message}; {progress.left_attached}" if progress.left_attached else message


def timed_out_message(progress: DrainProgress, timeout: timedelta | None) -> str:
    within = f" within {duration.format(timeout)}" if timeout is not None else ""
    if not progress.pods:
        return (
            f"node {progress.node} was not drained{within}: {progress.stale_reason or 'its pods could not be listed'}"
        )
    remaining = f"{text.format_pod_count(len(progress.pods))} left: {_format_list(tuple(map(str, progress.pods)))}"
    return f"node {progress.node} was not drained{within}, {remaining}"


def _format_list(texts: tuple[str, ...]) -> str:
    more = f" and {len(texts) - _MAX_NAMED} more" if len(texts) > _MAX_NAMED else ""
    return "; ".join(texts[:_MAX_NAMED]) + more
