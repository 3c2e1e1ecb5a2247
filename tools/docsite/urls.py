"""Addresses on the site: pages of docs/ keep their paths, everything else is below `repository/`.

All addresses are relative and name files, so that the site works from any folder, with or without a server.
"""

import re
from pathlib import PurePosixPath
from posixpath import relpath

DOCS = "docs/"
INDEX = "docs/README.md"


def address(path: str) -> str:
    """Return the address of a file or a folder of the repository."""
    if path == INDEX:
        return "index.html"
    path_on_site = path.removeprefix(DOCS) if path.startswith(DOCS) else f"repository/{path}"
    if is_picture(path):
        return path_on_site
    return f"{path_on_site.removesuffix('.md')}.html"


def is_picture(path: str) -> bool:
    """Return whether a file is copied unchanged."""
    return PurePosixPath(path).suffix in {".png", ".svg"}


def relative_url(source: str, target: str) -> str:
    """Return the relative link from one address to another."""
    return relpath(target, str(PurePosixPath(source).parent))


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as the forge generates it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
