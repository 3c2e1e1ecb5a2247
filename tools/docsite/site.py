"""Writes the site: the pages of docs/, and all files that they link to.

All errors are reported at once: broken links, and pages that docs/README.md does not list. An existing folder is
replaced only if it is a site that was written before.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from tools.docsite.diagrams import DrawDiagram
from tools.docsite.markdown import RenderedPage, contents_of, render
from tools.docsite.navigation import Entry, parse_index
from tools.docsite.urls import DOCS, INDEX, address, is_picture, relative_url

_ASSETS = Path(__file__).parent / "assets"
_STATIC_FILES = ("site.css", "site.js")
_MARKER = ".haulout-docs"


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of a build. With problems, nothing was written."""

    pages: int
    problems: list[str]


def build(root: Path, folder: Path, draw: DrawDiagram | None = None) -> BuildResult:
    """Write the site of a repository; if there are errors, write nothing."""
    pages, pictures = _collect(root, draw)
    sections = parse_index((root / INDEX).read_text(encoding="utf-8"))
    problems = [path for page in pages.values() for path in page.problems]
    listed_pages = {f"{DOCS}{page}" for section in sections for page in section.pages()} | {INDEX}
    problems += [f"docs/README.md does not list {path}" for path in sorted(_all_pages(root) - listed_pages)]
    if not problems:
        _clear(folder)
        _write_pages(folder, pages, sections)
        for path in pictures:
            _copy(root / path, folder / address(path))
    return BuildResult(len(pages), problems)


def _all_pages(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in (root / DOCS).rglob("*.md")}


def _collect(root: Path, draw: DrawDiagram | None) -> tuple[dict[str, RenderedPage], list[str]]:
    """Return all pages, and the pictures on them."""
    pages: dict[str, RenderedPage] = {}
    pictures: set[str] = set()
    pending = [INDEX, *sorted(_all_pages(root) - {INDEX})]
    while pending:
        path = pending.pop(0)
        if is_picture(path):
            pictures.add(path)
        elif path not in pages:
            pages[path] = _folder_page(root, path) if (root / path).is_dir() else render(root, path, draw)
            pending += pages[path].links
    return pages, sorted(pictures)


def _folder_page(root: Path, path: str) -> RenderedPage:
    """Return a page with the content of a folder."""
    files = [f"{path}/{file.name}" for file in sorted((root / path).iterdir()) if file.is_file()]
    page_address = address(path)
    rows = "".join(
        f'<li><a href="{escape(relative_url(page_address, address(file)))}">{escape(file)}</a></li>\n' for file in files
    )
    return RenderedPage(path, f"<h1>{escape(path)}</h1>\n<ul>\n{rows}</ul>\n", [], files)


def _clear(folder: Path) -> None:
    if folder.exists():
        # A mistyped folder must not be deleted.
        if any(folder.iterdir()) and not (folder / _MARKER).exists():
            raise SystemExit(f"{folder} is not empty, and not a site that was made here; remove it first")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / _MARKER).touch()


def _write_pages(folder: Path, pages: Mapping[str, RenderedPage], sections: list[Entry]) -> None:
    template = Template((_ASSETS / "page.html").read_text(encoding="utf-8"))
    order = [INDEX, *(f"{DOCS}{page}" for section in sections for page in section.pages())]
    for path, page in pages.items():
        page_address = address(path)
        html = template.substitute(
            title=escape(page.title if path != INDEX else "Documentation"),
            root=relative_url(page_address, "index.html").removesuffix("index.html"),
            navigation="".join(_navigation(sections, page_address)),
            main=page.html,
            parts="".join(_table_of_contents(page)),
            turns="".join(_previous_and_next(pages, order, path)),
        )
        target = folder / page_address
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(html, encoding="utf-8")
    for name in _STATIC_FILES:
        _copy(_ASSETS / name, folder / name)
    index = json.dumps(list(_search_index(pages)), ensure_ascii=False, separators=(",", ":"))
    # A script rather than JSON: a page that is opened from a file may not fetch other files.
    (folder / "search.js").write_text(f"window.searchIndex = {index};\n", encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _navigation(entries: list[Entry], page_address: str) -> Iterator[str]:
    for section in entries:
        pages = {address(f"{DOCS}{page}") for page in section.pages()}
        is_open = page_address in pages or page_address == address(INDEX)
        yield f"<details{' open' if is_open else ''}><summary>{escape(section.title)}</summary>\n"
        yield from _nested_list(section.children, page_address)
        yield "</details>\n"


def _nested_list(entries: list[Entry], page_address: str) -> Iterator[str]:
    yield "<ul>\n"
    for entry in entries:
        yield f"<li>{_link(entry, page_address) if entry.page else f'<span>{escape(entry.title)}</span>'}"
        if entry.children:
            yield from _nested_list(entry.children, page_address)
        yield "</li>\n"
    yield "</ul>\n"


def _link(entry: Entry, page_address: str) -> str:
    target = address(f"{DOCS}{entry.page}")
    current = ' aria-current="page"' if target == page_address else ""
    return f'<a href="{escape(relative_url(page_address, target))}"{current}>{escape(entry.title)}</a>'


def _table_of_contents(page: RenderedPage) -> Iterator[str]:
    for part in contents_of(page):
        yield f'<li class="{part.level}"><a href="#{escape(part.anchor)}">{escape(part.title)}</a></li>\n'


def _previous_and_next(pages: Mapping[str, RenderedPage], order: list[str], path: str) -> Iterator[str]:
    """Yield the links to the previous and the next page."""
    if path not in order:
        return
    at = order.index(path)
    for label, number in (("prev", at - 1), ("next", at + 1)):
        if 0 <= number < len(order):
            target, caption = order[number], "Before" if label == "prev" else "Next"
            title = "Documentation" if target == INDEX else pages[target].title
            where = escape(relative_url(address(path), address(target)))
            yield f'<a rel="{label}" href="{where}"><small>{caption}</small>{escape(title)}</a>\n'


def _search_index(pages: Mapping[str, RenderedPage]) -> Iterator[list[str]]:
    """Yield the entries of the search index: address, page, heading, text."""
    for path, page in pages.items():
        for part in page.sections:
            anchor = f"#{part.anchor}" if part.level != "h1" else ""
            yield [f"{address(path)}{anchor}", page.title, part.title if anchor else "", part.text]
