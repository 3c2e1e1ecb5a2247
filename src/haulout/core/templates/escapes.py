"""Texts made safe for HTML, JavaScript and the query of a URL, as text/template does it."""

import re
from urllib.parse import quote_plus

from haulout.core.templates.strings import is_printable, to_bytes, whole

_HTML = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"},
)
_JS = {"\\": "\\\\", "'": "\\'", '"': '\\"'}
_JS_SPECIAL = re.compile("[\\\\'\"<>&=\0-\x1f]|[^\0-\x7f\udc80-\udcff]")


def html(text: str) -> str:
    """Return a text as it may stand in HTML."""
    return text.translate(_HTML)


def js(text: str) -> str:
    """Return a text as it may stand in a JavaScript string."""
    return _JS_SPECIAL.sub(lambda special: _js_character(special[0]), whole(text))


def url_query(text: str) -> str:
    """Return a text as it may stand in the query of a URL."""
    return quote_plus(to_bytes(text))


def _js_character(character: str) -> str:
    if not character.isascii() and is_printable(character):
        return character
    return _JS.get(character) or f"\\u{ord(character):04X}"
