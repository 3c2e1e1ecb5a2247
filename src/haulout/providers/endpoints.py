"""Parse endpoint URLs of clouds from environment variables."""

import re
from urllib.parse import urlsplit

from haulout.errors import ConfigError

_HOST = re.compile(r"[-.:\w\[\]]+")


def parse_endpoint(text: str, *, key: str, where: str = "environment") -> str:
    """Return the URL, with https:// if it has no scheme; empty if `text` is. Raise `ConfigError` if it is invalid."""
    value = text.strip()
    if not value:
        return ""
    url = value if "://" in value else f"https://{value}"
    if not _is_url(url):
        raise ConfigError(f"expected an address such as https://host, found {value[:80]!r}", file=where, key=key)
    return url.rstrip("/")


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(
            parts.hostname and parts.port != 0 and _HOST.fullmatch(parts.netloc)
        )
    except ValueError:  # an unclosed bracket, or a port that is no number
        return False
