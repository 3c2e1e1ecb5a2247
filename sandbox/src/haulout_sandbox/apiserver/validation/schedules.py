"""Whether a text is a schedule of a CronJob, and what the real server's parser (robfig/cron) says if not."""

import re

_DESCRIPTORS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMES = {3: {name: at for at, name in enumerate(_MONTHS, 1)}, 4: {name: at for at, name in enumerate(_DAYS)}}
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_FIELDS = 5
_DURATION = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+")


def problem(text: str) -> str:
    """Return what is wrong with a schedule; nothing if it is one."""
    bare = re.sub(r"^(?:CRON_)?TZ=\S*\s+", "", text)
    if bare.startswith("@"):
        return _descriptor(bare)
    fields = bare.split()
    if len(fields) != _FIELDS:
        listed = " ".join(fields)
        return f"expected exactly {_FIELDS} fields, found {len(fields)}: [{listed}]"
    return next((found for at, field in enumerate(fields) if (found := _field(field, at))), "")


def _descriptor(text: str) -> str:
    if text in _DESCRIPTORS:
        return ""
    if not text.startswith("@every "):
        return f"unrecognized descriptor: {text}"
    duration = text.removeprefix("@every ")
    if _DURATION.fullmatch(duration):
        return ""
    return f'failed to parse duration {text}: time: invalid duration "{duration}"'


def _field(text: str, at: int) -> str:
    return next((found for part in text.split(",") if part and (found := _range(part, at))), "")


def _range(text: str, at: int) -> str:
    span, *steps = text.split("/")
    first, *rest = span.split("-")
    low, high = _BOUNDS[at]
    if first in ("*", "?"):
        begin, end = low, high
    else:
        for part in (first, *rest[:1]):
            if _number(part, at) is None:
                return _no_number(part)
        if len(rest) > 1:
            return f"too many hyphens: {text}"
        begin = _number(first, at) or 0
        end = (_number(rest[0], at) or 0) if rest else high if steps else begin
    return _step(text, steps) or _bounds(text, (begin, end), (low, high))


def _step(text: str, steps: list[str]) -> str:
    if len(steps) > 1:
        return f"too many slashes: {text}"
    if steps and not steps[0].isdecimal():
        return _no_number(steps[0])
    return f"step of range should be a positive number: {text}" if steps and int(steps[0]) == 0 else ""


def _bounds(text: str, span: tuple[int, int], allowed: tuple[int, int]) -> str:
    (begin, end), (low, high) = span, allowed
    if begin < low:
        return f"beginning of range ({begin}) below minimum ({low}): {text}"
    if end > high:
        return f"end of range ({end}) above maximum ({high}): {text}"
    return f"beginning of range ({begin}) beyond end of range ({end}): {text}" if begin > end else ""


def _number(text: str, at: int) -> int | None:
    return _NAMES.get(at, {}).get(text.lower(), int(text) if text.isdecimal() else None)


def _no_number(text: str) -> str:
    return f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'
