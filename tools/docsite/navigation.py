"""What there is to read, and in which order: docs/README.md says it, for the forge and for the site.

Its second-level headings are sections. A list is a list of pages, one that is indented below another belongs to it; in
a table the first cell names a group, and the links of the others are its pages. A page that is named twice counts
where it is named first.
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
    page: str = ""  # its path below docs/
    children: list["Entry"] = field(default_factory=list)

    def pages(self) -> Iterator[str]:
        """Yield all pages of it."""
        if self.page:
            yield self.page
        for entry in self.children:
            yield from entry.pages()


def parse_index(index: str) -> list[Entry]:
    """Return the sections that an index has, with their pages."""
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
    """Yield lines, those that go on in the next one as one: a link may be broken in its middle."""
    yield from re.sub(r"(?<=.)\n(?![\n#|]|\s*- )[ \t]*(?=\S)", " ", text).splitlines()


def _plain(text: str) -> str:
    return text.replace("`", "").strip()
