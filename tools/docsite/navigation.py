"""The pages of the site in order, as docs/README.md lists them for the forge and for the site.

Its second-level headings are sections. A list is a list of pages, and an indented page belongs to the one above. In a
table, the first cell is the name of a group, and the links in the other cells are its pages. A page that is listed
twice counts only the first time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")
_ROW = re.compile(r"^\|\s*([^|\[\]]+?)\s*\|(.+)\|\s*$")


@dataclass(slots=True)
class Entry:
    """A page, or a group of pages that has only a name."""

    title: str
    page: str = ""  # path below docs/
    children: list["Entry"] = field(default_factory=list)

    def pages(self) -> Iterator[str]:
        """Yield the page and all pages below it."""
        if self.page:
            yield self.page
        for entry in self.children:
            yield from entry.pages()


def parse_index(index: str) -> list[Entry]:
    """Return the sections of an index with their pages."""
    sections: list[Entry] = []
    listed: set[str] = set()
    for line in _joined_lines(index):
        if line.startswith("## "):
            sections.append(Entry(line[3:].strip()))
        elif sections:
            _add(sections[-1], line, listed)
    return [section for section in sections if section.children]


def _add(section: Entry, line: str, listed: set[str]) -> None:
    row = _ROW.match(line)
    found = [Entry(_plain(text), page) for text, page in _LINK.findall(line) if page not in listed]
    listed.update(entry.page for entry in found)
    if row and found:
        section.children.append(Entry(_plain(row[1]), children=found))
    elif line.startswith("  ") and section.children:
        section.children[-1].children += found
    else:
        section.children += found


def _joined_lines(text: str) -> Iterator[str]:
    """Yield lines with continuation lines joined, because a link may be broken across lines."""
    yield from re.sub(r"(?<=.)\n(?![\n#|]|\s*- )[ \t]*(?=\S)", " ", text).splitlines()


def _plain(text: str) -> str:
    return text.replace("`", "").strip()
