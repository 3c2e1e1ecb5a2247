"""Writes the version into pages that name an image, `registry.example.com/haulout:VERSION`, as `make image` tags it.

    python -m tools.reference.image_versions .          # or: make reference

Whatever follows the version, as in `-oci`, is left as it is.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from haulout import __version__

_PATTERNS = ("docs/**/*.md", "README.md", "examples/**/README.md", "examples/**/Dockerfile")
_TAG = re.compile(r'((?:/haulout:|\bnewTag: "))\d(?:[0-9A-Za-z.]*[0-9A-Za-z])?')


def stamped(page: str, version: str) -> str:
    """Return a page whose images have the tag of a version; what follows a tag, as in `-oci`, stays."""
    return _TAG.sub(lambda found: found[1] + version, page)


def files(root: Path) -> Iterator[Path]:
    """Yield the pages that may name an image."""
    for pattern in _PATTERNS:
        yield from sorted(root.glob(pattern))


def main(arguments: list[str]) -> None:
    """Write the version into all pages below the folder that was named."""
    if len(arguments) != 1:
        sys.exit("usage: python -m tools.reference.image_versions FOLDER")
    for path in files(Path(arguments[0])):
        page = path.read_text()
        if (wanted := stamped(page, __version__)) != page:
            path.write_text(wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
