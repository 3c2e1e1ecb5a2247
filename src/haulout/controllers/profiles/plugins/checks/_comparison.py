"""Comparisons that checks for labels, annotations and conditions share."""

from typing import Any

from haulout.controllers.profiles.plugin import CheckResult, fails, passes


def compare_value(name: str, found: str | None, wanted: str, *, of: str) -> CheckResult:
    """Return the result for a value that must be present, and equal to `wanted` unless that is empty."""
    if found is None:
        reason = f"{of} has no {name}"
        return fails(reason, reason=reason)
    if wanted not in ("", found):
        return fails(f"{name} of {of} is {found!r}, not {wanted!r}")
    return passes(f"{name} of {of} is {found!r}" if found else f"{of} has the {name}")


def compare_condition(kind: str, current: str | None, wanted: str, *, of: str, details: str = "") -> CheckResult:
    """Return the result for a condition that must have a certain status."""
    if current is None:
        reason = f"{of} has no condition {kind}"
        return fails(reason, reason=reason)
    info: dict[str, Any] = {"current": current, "expected": wanted}
    if current == wanted:
        return passes(f"condition {kind} of {of} is {current}", **info)
    suffix = f" ({details})" if details else ""
    return fails(f"condition {kind} of {of} is {current}{suffix}, not {wanted}", **info)
