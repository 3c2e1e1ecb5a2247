"""Texts as Go's %q prints them, which is how the API server shows what somebody sent."""

_SHORT_ESCAPES = {"\a": "a", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\v": "v", '"': '"', "\\": "\\"}
_BASIC_PLANE = 0xFFFF


def quoted(text: str) -> str:
    """Return `text` as Go's %q prints it."""
    return f'"{"".join(_escaped(character) for character in text)}"'


def _escaped(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return f"\\{_SHORT_ESCAPES[character]}"
    if character == " " or (character.isprintable() and not character.isspace()):
        return character
    if character < "\x80":
        return f"\\x{ord(character):02x}"
    return f"\\u{ord(character):04x}" if ord(character) <= _BASIC_PLANE else f"\\U{ord(character):08x}"
