"""Writes the site into the given folder."""

import sys
from pathlib import Path

from tools.docsite.diagrams import find_drawing
from tools.docsite.site import build

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> None:
    """Build the site, or print the errors in the pages and exit with a failure."""
    if len(arguments) != 1:
        sys.exit("usage: python -m tools.docsite FOLDER")
    folder = Path(arguments[0])
    draw = find_drawing()
    built = build(ROOT, folder, draw)
    if built.problems:
        sys.exit("\n".join(built.problems))
    if draw is None:
        sys.stdout.write("Diagrams are shown as source: the package mermaidx is not installed.\n")
    sys.stdout.write(f"{built.pages} pages: {(folder / 'index.html').resolve()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
