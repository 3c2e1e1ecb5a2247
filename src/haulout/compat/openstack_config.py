"""The settings of an OpenStack project in a `cloudprovider.conf`.

The file format is that of the OpenStack cloud provider: sections, and lines such as `username = "operator"`. Only
`[Global]` is read. Quotes around values are removed; a backslash inside quotes escapes the next character.

No error message contains a password.
"""

import configparser
import re
from dataclasses import dataclass, field

from haulout.errors import ExternalError

DEFAULT_FILE = "./provider/cloudprovider.conf"
SECRET_KEY = "cloudprovider.conf"  # noqa: S105 - the name of a key, not a secret

_SECTION = "Global"
_KEYS = ("auth-url", "username", "password", "region", "domain-name", "tenant-id")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:[#;].*)?')


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStackSettings:
    """The credentials, region and project of an OpenStack client."""

    auth_url: str
    username: str
    password: str = field(repr=False)
    region: str
    domain_name: str  # of the user
    tenant_id: str  # the project


def parse(data: bytes | str, *, source: str) -> OpenStackSettings:
    """Parse a `cloudprovider.conf`. Raise `ExternalError` if it is invalid or incomplete."""
    # Raw: a `%` in a password is no interpolation. Not strict: sections and keys may be repeated.
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#", ";"))
    try:
        parser.read_string(data if isinstance(data, str) else data.decode())
    except UnicodeDecodeError:
        raise ExternalError(f"{source} is not text in UTF-8") from None
    except configparser.Error as error:
        raise ExternalError(f"{source} cannot be read{_line_suffix(error)}: expected key = value") from None
    section = parser[_SECTION] if parser.has_section(_SECTION) else {}
    found = {key: _unquote(section[key]) for key in _KEYS if key in section}
    if missing := [key for key in _KEYS if not found.get(key)]:
        raise ExternalError(f"{source} has no {', '.join(missing)} in [{_SECTION}]")
    return OpenStackSettings(**{key.replace("-", "_"): value for key, value in found.items()})


def _line_suffix(error: configparser.Error) -> str:
    """Return the line of an error. The error's own text repeats the line, which may contain the password."""
    numbers = [number for number, _ in getattr(error, "errors", ())] or [getattr(error, "lineno", 0)]
    return f", line {numbers[0]}" if numbers[0] else ""


def _unquote(value: str) -> str:
    match = _QUOTED.fullmatch(value.strip())
    return re.sub(r"\\(.)", r"\1", match[1]) if match else value.strip()
