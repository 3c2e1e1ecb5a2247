"""Redacts secrets whose values are known, wherever they occur, but short ones never inside another word."""

import re
from collections.abc import Iterable

REDACTED = "(hidden)"
MIN_VALUE_LENGTH = 4  # characters; a shorter value occurs in other text by chance
_MIN_LENGTH_INSIDE_WORDS = 8  # characters; a value this long is replaced inside words, too, as in a path or a query


def redact_values(text: str, values: Iterable[str]) -> str:
    """Return `text` without `values`. The longest is replaced first, because it may contain another one."""
    for value in sorted(values, key=len, reverse=True):
        text = replace_value(text, value, REDACTED)
    return text


def replace_value(text: str, value: str, replacement: str) -> str:
    """Return `text` with `value` replaced. A short value is replaced only as a separate word."""
    if not value or value not in text:
        return text
    if len(value) >= _MIN_LENGTH_INSIDE_WORDS:
        return text.replace(value, replacement)
    return re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", lambda _: replacement, text)
