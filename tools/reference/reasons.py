"""The reference page of reasons, conditions, labels, annotations and log keys, generated from the code.

    python -m tools.reference.reasons docs/reference

writes `reasons.md` there. The comment of a constant in `haulout.api` is its meaning. It must have one.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from haulout.api import (
    annotations,
    machinemaintenance,
    maintenancefreeze,
    maintenancenotice,
    nodemaintenance,
    objects,
    reasons,
)
from haulout.api import maintenancenotice as early_start

PAGE = "reasons.md"

_INTRODUCTION = """\
# Reasons, conditions, annotations and log keys

What you may meet in `kubectl describe`, `kubectl get events`, on nodes and in the log of the operator. The page is
generated from `src/haulout/api`: names that predecessors defined are kept.
"""

# The meaning of keys of log lines, which `--log-format json` shows as fields.
LOG_KEYS: Mapping[str, str] = {
    "attempt": "the number of the attempt of a reconcile that failed",
    "cluster": "the workload cluster of a hub, as namespace/name",
    "controller": "the controller that reconciles, such as `NodeMaintenance`",
    "key": "the key of a work queue, such as the name of a node",
    "maintenance": "the name of the NodeMaintenance",
    "node": "the name of the node",
    "notice": "the name of the MaintenanceNotice",
    "profile": "the name of the profile",
    "queue": "the name of the work queue",
    "reason": "the reason of the Event that is recorded as well, or of a condition",
    "server": "the port: webhook, metrics (HTTPS), health or dashboard",
    "state": "the state of the profile",
    "surplus": "how many MaintenanceNotices of an agent exceed its quota",
}

CONDITION_TYPES = (
    ("NodeMaintenance", nodemaintenance, "NodeMaintenanceConditionType"),
    ("MaintenanceNotice", maintenancenotice, "NoticeCondition"),
    ("MachineMaintenance", machinemaintenance, "MachineMaintenanceCondition"),
    ("MaintenanceFreeze", maintenancefreeze, "FreezeCondition"),
    ("Node", objects, "NodeConditionType"),
)


class MissingMeaningError(ValueError):
    """A constant has no comment."""


def page() -> str:
    return "\n".join((*_INTRODUCTION.splitlines(), *_condition_types(), *_reasons(), *_annotations(), *_log_keys(), ""))


def members(module: object, class_name: str) -> list[tuple[str, str]]:
    """Return the values of an enum, each with its comment."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")  # type: ignore[attr-defined]
    body = next(
        node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == class_name
    )
    return list(_assigned(body, source.splitlines(), where=class_name))


def _assigned(body: list[ast.stmt], lines: list[str], *, where: str) -> Iterator[tuple[str, str]]:
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            line = lines[statement.value.lineno - 1]
            _, mark, comment = line.partition("  # ")
            if not mark:
                raise MissingMeaningError(f"{where}: {line.strip()} has no comment with its meaning")
            yield str(statement.value.value), comment.removeprefix("noqa: S105 - ").strip()


def _table(head: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    yield f"| {head} | Meaning |"
    yield "| --- | --- |"
    yield from (f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |" for name, meaning in rows)


def _condition_types() -> Iterator[str]:
    yield from ("", "## Condition types")
    for kind, module, class_name in CONDITION_TYPES:
        yield from ("", f"### Conditions of a {kind}", "")
        yield from _table("Type", members(module, class_name))


def _reasons() -> Iterator[str]:
    yield from ("", "## Reasons")
    classes = [
        (reasons, value) for value in vars(reasons).values() if getattr(value, "__module__", "") == reasons.__name__
    ]
    classes.append((early_start, early_start.EarlyStartAnswer))
    for module, value in classes:
        title = (value.__doc__ or "").splitlines()[0].rstrip(".")
        yield from ("", f"### {title}", "")
        yield from _table("Reason", members(module, value.__name__))


def _annotations() -> Iterator[str]:
    source = Path(annotations.__file__).read_text(encoding="utf-8")
    yield from ("", "## Labels and annotations", "")
    yield from _table("Key", list(_assigned(ast.parse(source).body, source.splitlines(), where="annotations")))


def _log_keys() -> Iterator[str]:
    yield from (
        "",
        "## Log keys",
        "",
        "`--log-format json` writes these fields beside time, level, logger and message.",
        "",
    )
    yield from _table("Key", sorted(LOG_KEYS.items()))


if __name__ == "__main__":
    Path(sys.argv[1], PAGE).write_text(page(), encoding="utf-8")
