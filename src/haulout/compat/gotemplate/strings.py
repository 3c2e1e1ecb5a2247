"""Go strings: bytes that are mostly UTF-8.

`len`, `index` and `slice` count bytes, so a template can split a character. The parts are lone surrogates in Python
strings (`surrogateescape`). They are joined when the strings are concatenated, and remaining ones become U+FFFD in the
final text. This module also quotes strings as Go does (`%q`), and parses literals.
"""

import re
import unicodedata

from haulout.compat.gotemplate.errors import Problem

REPLACEMENT = "\ufffd"
MAX_RUNE = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_ESCAPED_BYTES = range(0xDC80, 0xDD00)  # surrogates for bytes that are not valid UTF-8
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_SHORT = {character: f"\\{letter}" for letter, character in _SIMPLE.items()}
_ESCAPE = re.compile(
    r"\\(?:x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<simple>.))",
    re.DOTALL,
)
_INVALID_BYTES = re.compile("[\udc80-\udcff]")
_BYTE_VALUES = 0x100
_BMP_SIZE = 0x10000


def to_bytes(text: str) -> bytes:
    """Return the bytes that Go would have for a text: UTF-8, with lone surrogates as the bytes they stand for."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # surrogates that do not stand for a byte: JSON can contain them
        return "".join(_replace_lone_surrogate(character) for character in text).encode("utf-8", "surrogateescape")


def from_bytes(data: bytes) -> str:
    """Return a text; bytes that are not valid UTF-8 become lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def join_surrogates(text: str) -> str:
    """Return a text whose split characters are joined where possible."""
    return text if text.isascii() else from_bytes(to_bytes(text))


def replace_invalid(text: str) -> str:
    """Return the final text: each byte that is not valid UTF-8 becomes U+FFFD."""
    return _INVALID_BYTES.sub(REPLACEMENT, join_surrogates(text))


def is_printable(character: str) -> bool:
    """Return whether Go considers a character printable: letters, marks, numbers, punctuation, symbols, ASCII space."""
    return character == " " or unicodedata.category(character)[0] in "LMNPS"


def rune(number: int) -> str:
    """Return the character with this code point, or U+FFFD."""
    return chr(number) if 0 <= number <= MAX_RUNE and number not in _SURROGATES else REPLACEMENT


def quote(text: str, *, quote: str = '"', ascii_only: bool = False) -> str:
    """Return a text as a Go literal."""
    inside = "".join(_escape(character, quote, ascii_only=ascii_only) for character in join_surrogates(text))
    return f"{quote}{inside}{quote}"


def can_backquote(text: str) -> bool:
    """Return whether a text can be a raw string literal in backquotes."""
    return all(
        (character == "\t" or character >= " ") and character not in "`\x7f\ufeff" and ord(character) not in _SURROGATES
        for character in join_surrogates(text)
    )


def unquote(literal: str) -> str:
    """Return the text of a literal in double quotes or backquotes. Raise `Problem`."""
    if literal.startswith("`"):
        return literal[1:-1].replace("\r", "")
    return join_surrogates(_ESCAPE.sub(lambda escape: _unescape(escape, '"')[1], literal[1:-1]))


def character_number(literal: str) -> int:
    """Return the code point of a literal such as 'x'. Raise `Problem`."""
    inside = literal[1:-1]
    escape = _ESCAPE.fullmatch(inside)
    if escape:
        return _unescape(escape, "'")[0]
    if len(inside) != 1 or inside == "\\":
        raise Problem(f"expected one character between single quotes, found {literal}")
    return ord(inside)


def _unescape(escape: re.Match[str], quote: str) -> tuple[int, str]:
    if escape["simple"]:
        character = quote if escape["simple"] == quote else _SIMPLE.get(escape["simple"])
        if character is None:
            raise Problem(f"unknown escape {escape[0]}: Go knows \\n \\t \\r \\\\ \\{quote} \\x41 \\u00e9 and the like")
        return ord(character), character
    number = int(escape["byte"] or escape["short"] or escape["long"] or escape["octal"], 8 if escape["octal"] else 16)
    if escape["short"] or escape["long"]:
        if number > MAX_RUNE or number in _SURROGATES:
            raise Problem(f"{escape[0]} is no character")
        return number, chr(number)
    if number >= _BYTE_VALUES:
        raise Problem(f"{escape[0]} is no byte: \\377 is the largest")
    return number, from_bytes(bytes([number]))


def _escape(character: str, quote: str, *, ascii_only: bool) -> str:
    number = ord(character)
    if number in _ESCAPED_BYTES:
        return f"\\x{number & 0xFF:02x}"
    if character in (quote, "\\"):
        return f"\\{character}"
    if is_printable(character) and (number < 0x80 or not ascii_only):  # noqa: PLR2004 - the end of ASCII
        return character
    if character in _SHORT:
        return _SHORT[character]
    if number < ord(" ") or character == "\x7f":
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < _BMP_SIZE else f"\\U{number:08x}"


def _replace_lone_surrogate(character: str) -> str:
    number = ord(character)
    return REPLACEMENT if number in _SURROGATES and number not in _ESCAPED_BYTES else character
