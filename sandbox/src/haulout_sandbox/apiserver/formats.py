r"""The string formats and the regular expressions of schemas, read as Go reads them.

`KNOWN` are the formats that Kubernetes 1.36 enforces on strings (`apiextensions-apiserver/pkg/apiserver/validation/
formats.go`); others say nothing. Names are compared without hyphens. Those of the book and card trade (isbn,
creditcard, ssn, rgbcolor) are known and accept every text: no Kubernetes object has them.

Patterns are RE2's. What differs from Python is translated: `$` and `\z` mean the very end, classes are ASCII, and
POSIX and Unicode classes are spelled out.
"""

import functools
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

from haulout.core import duration

_ESCAPE_SIZE = 2
_LONGEST_HOST, _LONGEST_LABEL = 255, 63
_LONGEST_LONG_NAME = 253
_POSIX = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "space": r"\t\n\v\f\r ",
    "punct": r"!-/:-@\[-`{-~",
    "word": "a-zA-Z0-9_",
    "xdigit": "0-9A-Fa-f",
}
_UNICODE = {"L": r"[^\W\d_]", "Ll": r"[^\W\d_A-Z]", "Lu": "[A-Z]", "N": r"\d", "Nd": r"\d"}
_CLASS_ITEM = re.compile(r"\[:(\^?)(\w+):\]")

_PERL = re.compile(r"(?<!\\)\(\?(?:=|!|<=|<!)")
_SLIPS = {
    "unterminated character set": "missing closing ]",
    "missing ), unterminated subpattern": "missing closing )",
    "unbalanced parenthesis": "unexpected )",
    "nothing to repeat": "missing argument to repetition operator",
    "multiple repeat": "invalid nested repetition operator",
    "bad escape (end of pattern)": "trailing backslash at end of expression",
}

_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")
_SCALA_DURATION = re.compile(r"(\d+)\s*([A-Za-z\u00b5]+)")
_SCALA_UNITS = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_SHORT_UNITS = ("ns", "us", "\u00b5s", "ms", "s", "m", "h", "hr", "d", "w", "wk")
_HOST_LABEL = re.compile(r"[^\W_]([^\W_]|-(?!$))*")
_SHORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONG_NAME = re.compile(rf"{_SHORT_NAME.pattern}(\.{_SHORT_NAME.pattern})*")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_MAC = re.compile(
    r"[0-9a-f]{2}(([:-])[0-9a-f]{2}(\2[0-9a-f]{2}){4}((\2[0-9a-f]{2}){2}|(\2[0-9a-f]{2}){14})?)|"
    r"([0-9a-f]{4}\.){2}[0-9a-f]{4}(\.[0-9a-f]{4})?((\.[0-9a-f]{4}){6})?",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"""("[^"]+"|[\w!#$%&'*+/=?^`{|}~-]+(\.[\w!#$%&'*+/=?^`{|}~-]+)*)@[\w.-]+""")
_OBJECT_ID = re.compile("[0-9a-fA-F]{24}")
_COLOUR = re.compile("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


class PatternError(ValueError):
    """A text that is no regular expression of RE2's."""


def known(name: str) -> bool:
    """Tell whether strings are checked for the format `name`."""
    return name.replace("-", "") in KNOWN


def matches(name: str, text: str) -> bool:
    """Tell whether `text` has the format `name`, which is known."""
    return KNOWN[name.replace("-", "")](text)


@functools.cache
def pattern(source: str) -> re.Pattern[str]:
    """Return the compiled RE2 pattern; raise `PatternError`, in RE2's words for common slips, for what is none."""
    if perl := _PERL.search(source):
        raise PatternError(f"invalid or unsupported Perl syntax: `{perl[0]}`")
    try:
        return re.compile(_translated(source), re.ASCII if not _needs_unicode(source) else re.NOFLAG)
    except re.error as error:
        raise PatternError(_in_re2_words(error, source)) from None


def is_duration(text: str) -> bool:
    """Tell whether Go, or Scala, would read a duration here."""
    try:
        duration.parse_nanoseconds(text)
    except duration.DurationError:
        units = [unit.lower() for _, unit in _SCALA_DURATION.findall(text)]
        return any(unit in _SHORT_UNITS or unit.startswith(_SCALA_UNITS) for unit in units)
    return True


def is_date(text: str) -> bool:
    """Tell whether this is a full-date of RFC 3339."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_date_time(text: str) -> bool:
    day, _, time = text.lower().partition("t")
    found = _TIME.fullmatch(time)
    return bool(found and is_date(day) and found[1] <= "23" and found[2] <= "59" and found[3] <= "59")


def _is_uri(text: str) -> bool:
    if not text or re.search(r"[\x00-\x20\x7f]|%(?![0-9a-fA-F]{2})", text):
        return False
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return (bool(parts.scheme) and port != 0) or text.startswith("/")


def _is_email(text: str) -> bool:
    found = re.fullmatch(r".*<(.*)>\s*", text)
    return bool(_ADDRESS.fullmatch(found[1] if found else text.strip()))


def _is_hostname(text: str) -> bool:
    labels = text.split(".")
    fits = len(text.encode()) <= _LONGEST_HOST and all(len(label.encode()) <= _LONGEST_LABEL for label in labels)
    last = labels[-1]
    return fits and all(map(_HOST_LABEL.fullmatch, labels)) and (len(labels) == 1 or (len(last) > 1 and last.isalpha()))


def _is_ipv4(text: str) -> bool:
    return "." in text and _is_ip(text)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(_without_leading_zeros(text))
    except ValueError:
        return False
    return "%" not in text


def _is_cidr(text: str) -> bool:
    address, slash, bits = text.partition("/")
    if not slash or not bits.isdecimal() or not _is_ip(address):
        return False
    return int(bits) <= (128 if ":" in address else 32)


def _without_leading_zeros(text: str) -> str:
    return re.sub(r"(?<![0-9a-fA-F:])0+(?=\d)", "", text) if "." in text and ":" not in text else text


def _uuid(third: str, fourth: str) -> Callable[[str], bool]:
    shape = re.compile(f"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}", re.IGNORECASE)
    return lambda text: bool(shape.fullmatch(text))


def _full(shape: re.Pattern[str], longest: int | None = None) -> Callable[[str], bool]:
    return lambda text: bool(shape.fullmatch(text)) and (longest is None or len(text) <= longest)


def _anything(_: str) -> bool:
    return True


KNOWN: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _full(_OBJECT_ID),
    "uri": _is_uri,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": lambda text: ":" in text and _is_ip(text),
    "cidr": _is_cidr,
    "mac": _full(_MAC),
    "uuid": _uuid("[0-9a-f]{4}", "[0-9a-f]{4}"),
    "uuid3": _uuid("3[0-9a-f]{3}", "[0-9a-f]{4}"),
    "uuid4": _uuid("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "uuid5": _uuid("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "isbn": _anything,
    "isbn10": _anything,
    "isbn13": _anything,
    "creditcard": _anything,
    "ssn": _anything,
    "hexcolor": _full(_COLOUR),
    "rgbcolor": _anything,
    "byte": _full(_BASE64),
    "password": _anything,
    "date": is_date,
    "duration": is_duration,
    "datetime": _is_date_time,
    "k8sshortname": _full(_SHORT_NAME, _LONGEST_LABEL),
    "k8slongname": _full(_LONG_NAME, _LONGEST_LONG_NAME),
}


def _in_re2_words(error: re.error, source: str) -> str:
    words = _SLIPS.get(error.msg, error.msg)
    at = (error.pos or 0) - words.startswith("invalid nested")
    if words.startswith("missing argument"):
        return f"{words}: `{source[at : at + 1]}`"
    return f"{words}: `{source if words.endswith((')', 'parenthesis')) else source[at:]}`"


def _needs_unicode(source: str) -> bool:
    return r"\p" in source or r"\P" in source


def _translated(source: str) -> str:
    result, at, in_class = [], 0, False
    while at < len(source):
        here = source[at]
        step = 1
        if here == "\\":
            here, step = _escape(source, at)
        elif in_class and (found := _CLASS_ITEM.match(source, at)) and not found[1] and found[2] in _POSIX:
            here, step = _POSIX[found[2]], len(found[0])
        elif here == "[" and in_class:
            here = r"\["
        elif here == "[":
            in_class = True
            lead = re.compile(r"\[\^?\]?").match(source, at)
            here, step = (lead[0].replace("]", r"\]"), len(lead[0])) if lead else ("[", 1)
        elif here == "]":
            in_class = False
        elif here == "$" and not in_class:
            here = r"\Z"
        result.append(here)
        at += step
    return "".join(result)


def _escape(source: str, at: int) -> tuple[str, int]:
    escape = source[at : at + _ESCAPE_SIZE]
    if escape[1:].isdecimal() and escape != r"\0":
        raise PatternError(f"invalid escape sequence: `{escape}`")
    if escape == r"\z":
        return r"\Z", _ESCAPE_SIZE
    if escape in (r"\p", r"\P"):
        found = re.compile(r"\\[pP](?:\{(\^?\w+)\}|(\w))").match(source, at)
        name = (found[1] or found[2]) if found else ""
        if found is None or name not in _UNICODE or escape == r"\P":
            raise PatternError(f"invalid character class range: `{source[at:]}`")
        return _UNICODE[name], len(found[0])
    return escape, len(escape)
