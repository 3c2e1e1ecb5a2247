"""Impersonation headers. The API server authorizes them, and its audit log has both users."""

from collections.abc import Iterable, Mapping
from urllib.parse import quote

Headers = tuple[tuple[str, str], ...]

_NAME_CHARACTERS = "!#$&'*+-.^_`|~"  # besides letters and digits: RFC 9110, 5.6.2


def headers(
    user: str, *, groups: Iterable[str] = (), extra: Mapping[str, Iterable[str]] | None = None, uid: str = ""
) -> Headers:
    """Return the impersonation headers. Raise `ValueError` if a value cannot be sent in a header."""
    found = [("Impersonate-User", user)]
    found += [("Impersonate-Uid", uid)] if uid else []
    found += [("Impersonate-Group", group) for group in groups]
    for key, values in (extra or {}).items():
        name = f"Impersonate-Extra-{quote(key, safe=_NAME_CHARACTERS)}"
        found += [(name, value) for value in values]
    # Whitespace around a header's value is removed in transit: "admin " would arrive as another user.
    if not all(value.isprintable() and value == value.strip() for _, value in found):
        raise ValueError("expected names without line breaks and other control characters, and no space around them")
    return tuple(found)
