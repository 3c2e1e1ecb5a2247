"""Writes the version of `src/haulout/__init__.py` into all other files that contain it.

    python -m tools.reference.versions .          # or: make reference

These are pages that name an image, `registry.example.com/haulout:VERSION`, as `make image` tags it, and the
distribution haulout-sandbox, which always has the same version. A suffix of a tag, such as `-oci`, is kept.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from haulout import __version__

_PATTERNS = ("docs/**/*.md", "README.md", "examples/**/README.md", "examples/**/Dockerfile")
_TAG = re.compile(r'((?:/haulout:|\bnewTag: "))\d(?:[0-9A-Za-z.]*[0-9A-Za-z])?')
_VERSION_FILES = {
    "pyproject.toml": re.compile(r'("haulout-sandbox==)[^"]+'),
    "sandbox/pyproject.toml": re.compile(r'("haulout==)[^"]+'),
    "sandbox/src/haulout_sandbox/__init__.py": re.compile(r'(__version__ = ")[^"]+'),
}


def with_version(text: str, version: str, pattern: re.Pattern[str] = _TAG) -> str:
    """Return a text with each match of the pattern replaced by this version."""
    return pattern.sub(lambda found: found[1] + version, text)


def files(root: Path) -> Iterator[tuple[Path, re.Pattern[str]]]:
    """Yield the files that may contain a version, and the pattern of the version in each."""
    for pattern in _PATTERNS:
        yield from ((path, _TAG) for path in sorted(root.glob(pattern)))
    yield from ((root / name, pattern) for name, pattern in _VERSION_FILES.items())


def main(arguments: list[str]) -> None:
    """Write the version into all files below the given folder."""
    if len(arguments) != 1:
        sys.exit("usage: python -m tools.reference.versions FOLDER")
    for path, pattern in files(Path(arguments[0])):
        text = path.read_text()
        if (wanted := with_version(text, __version__, pattern)) != text:
            path.write_text(wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
