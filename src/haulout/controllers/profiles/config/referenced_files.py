"""Validates files that plugins read later, when the configuration is loaded.

`Plugin.files` yields these files and their parsers. A file that cannot be opened here is not reported: it may exist
only where the operator runs. A file with errors is reported at once, with its lines, but never causes the configuration
to be rejected: the plugin handles the error, and recovers as soon as the file is fixed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from haulout.errors import ConfigError, ConfigErrors

_MAX_BYTES = 2 * 1024 * 1024  # more than any parser accepts


def problems_in_files(plugin: Any) -> Iterator[tuple[str, str]]:
    """Yield the errors in the files of a plugin: the key that names the file, and the problem."""
    list_files = getattr(plugin, "files", None)
    for key, path, read in list_files() if callable(list_files) else ():
        data = _content(path)
        if data is None:
            continue
        try:
            read(data)
        except ConfigErrors as found:
            for each in found.errors:
                yield key, str(each)
        except ConfigError as error:
            yield key, str(error)


def _content(path: str) -> bytes | None:
    """Return the content of a file; None if it does not exist or is not a regular file: reading a pipe would block."""
    try:
        if not Path(path).is_file():
            return None
        with Path(path).open("rb") as file:
            return file.read(_MAX_BYTES)
    except (OSError, ValueError):  # a name with a NUL byte raises ValueError
        return None
