"""Files that plugins will ask for, looked at while the configuration is read.

A plugin says by `Plugin.files` which these are, and what reads them. What cannot be opened here is no news: the file
may be there only where the operator runs. What is there and broken is told at once, with its lines, and never refuses a
configuration: the plugin copes with it, and goes on as soon as the file is mended.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from haulout.errors import ConfigError, ConfigErrors

_MAX_BYTES = 2 * 1024 * 1024  # more than any reader takes


def problems_in_files(plugin: Any) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the files of a plugin: the key that names the file, and the problem."""
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
    """Return what a file holds; None if it is not there, or is no file: a pipe would be waited for."""
    try:
        if not Path(path).is_file():
            return None
        with Path(path).open("rb") as file:
            return file.read(_MAX_BYTES)
    except (OSError, ValueError):  # a name with a zero byte is a ValueError
        return None
