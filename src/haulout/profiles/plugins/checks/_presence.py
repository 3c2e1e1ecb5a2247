"""What checks for labels, annotations and conditions say alike."""

from typing import Any

from haulout.profiles.plugin import Verdict, fails, passes


def compared(what: str, found: str | None, wanted: str, *, of: str) -> Verdict:
    """Return the verdict on something that must be there, with a certain value if one is `wanted`."""
    if found is None:
        why = f"{of} has no {what}"
        return fails(why, reason=why)
    if wanted not in ("", found):
        return fails(f"{what} of {of} is {found!r}, not {wanted!r}")
    return passes(f"{what} of {of} is {found!r}" if found else f"{of} has the {what}")


def condition(kind: str, current: str | None, wanted: str, *, of: str, because: str = "") -> Verdict:
    """Return the verdict on a condition that must have a certain status."""
    if current is None:
        why = f"{of} has no condition {kind}"
        return fails(why, reason=why)
    info: dict[str, Any] = {"current": current, "expected": wanted}
    if current == wanted:
        return passes(f"condition {kind} of {of} is {current}", **info)
    details = f" ({because})" if because else ""
    return fails(f"condition {kind} of {of} is {current}{details}, not {wanted}", **info)
