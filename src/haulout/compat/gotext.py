"""Go string literals: in double quotes with escapes, `'x'`, and raw ones in backquotes."""

import re

_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|([^\\])", re.DOTALL)
_MAX_BYTE = 0xFF
_MAX_RUNE = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def unquote(quoted: str) -> str:
    """Return the text of a literal. Raise ValueError."""
    quote = quoted[:1]
    if len(quoted) < len('""') or quote not in {'"', "'", "`"} or not quoted.endswith(quote):
        raise ValueError(f"expected a text in quotes, found {quoted}")
    inside = quoted[1:-1]
    if quote == "`":
        if "`" in inside:
            raise ValueError(f"expected one text in backquotes, found {quoted}")
        return inside.replace("\r", "")
    if "\n" in inside:
        raise ValueError(f"expected the closing {quote} in the same line")
    text = _unescaped(inside, quote)
    if quote == "'" and len(text) != 1:
        raise ValueError(f'expected one character in single quotes, found {quoted}; texts are in double quotes: "…"')
    return text


def _unescaped(inside: str, quote: str) -> str:
    # \x and \123 denote bytes, not characters, so the text is assembled as bytes.
    parts = bytearray()
    position = 0
    while position < len(inside):
        found = _ESCAPE.match(inside, position)
        if found is None or found[0] == quote:
            raise ValueError(f"expected {quote} only at the end, or as \\{quote}")
        parts += _bytes_of(found, quote)
        position = found.end()
    return parts.decode(errors="replace")


def _bytes_of(found: re.Match[str], quote: str) -> bytes:
    in_hex, in_octal, short, long, simple, plain = found.groups()
    if plain is not None:
        return str(plain).encode(errors="replace")
    if in_hex or in_octal:
        byte = int(in_hex, 16) if in_hex else int(in_octal, 8)
        if byte <= _MAX_BYTE:
            return bytes([byte])
    elif short or long:
        code = int(short or long, 16)
        if code <= _MAX_RUNE and code not in _SURROGATES:
            return chr(code).encode()
    elif simple == quote or simple in _SIMPLE:
        return (quote if simple == quote else _SIMPLE[simple]).encode()
    raise ValueError(f"expected a known escape such as \\n or \\u00e9, found {found[0]}")
