"""All pages into a folder: those of docs/, and whatever they lead to.

Everything that is wrong is told at once: links that lead nowhere, pages that docs/README.md does not list. A folder
that was written before is replaced, and only if it is one.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from tools.docsite.contents import Entry, contents
from tools.docsite.rendering import Rendered, listed, render
from tools.docsite.targets import DOCS, INDEX, address, between, is_picture

_ASSETS = Path(__file__).parent / "assets"
_SHIPPED = ("site.css", "site.js")
_MARK = ".haulout-docs"


@dataclass(frozen=True, slots=True)
class Built:
    """What came of it."""

    pages: int
    problems: list[str]


def build(root: Path, folder: Path) -> Built:
    """Write the site of a repository; nothing is written if something is wrong with it."""
    pages, pictures = _gathered(root)
    sections = contents((root / INDEX).read_text(encoding="utf-8"))
    problems = [it for page in pages.values() for it in page.problems]
    named = {f"{DOCS}{page}" for section in sections for page in section.pages()} | {INDEX}
    problems += [f"docs/README.md does not list {it}" for it in sorted(_all(root) - named)]
    if not problems:
        _emptied(folder)
        _written(folder, pages, sections)
        for it in pictures:
            _copied(root / it, folder / address(it))
    return Built(len(pages), problems)


def _all(root: Path) -> set[str]:
    return {it.relative_to(root).as_posix() for it in (root / DOCS).rglob("*.md")}


def _gathered(root: Path) -> tuple[dict[str, Rendered], list[str]]:
    """Return all pages there are, and the pictures on them."""
    pages: dict[str, Rendered] = {}
    pictures: set[str] = set()
    left = [INDEX, *sorted(_all(root) - {INDEX})]
    while left:
        path = left.pop(0)
        if is_picture(path):
            pictures.add(path)
        elif path not in pages:
            pages[path] = _folder(root, path) if (root / path).is_dir() else render(root, path)
            left += pages[path].links
    return pages, sorted(pictures)


def _folder(root: Path, path: str) -> Rendered:
    """Return a page with what is in a folder."""
    files = [f"{path}/{it.name}" for it in sorted((root / path).iterdir()) if it.is_file()]
    here = address(path)
    rows = "".join(f'<li><a href="{escape(between(here, address(it)))}">{escape(it)}</a></li>\n' for it in files)
    return Rendered(path, f"<h1>{escape(path)}</h1>\n<ul>\n{rows}</ul>\n", [], files)


def _emptied(folder: Path) -> None:
    if folder.exists():
        if any(folder.iterdir()) and not (folder / _MARK).exists():
            raise SystemExit(f"{folder} is not empty, and not a site that was made here; remove it first")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()


def _written(folder: Path, pages: Mapping[str, Rendered], sections: list[Entry]) -> None:
    template = Template((_ASSETS / "page.html").read_text(encoding="utf-8"))
    order = [INDEX, *(f"{DOCS}{page}" for section in sections for page in section.pages())]
    for path, page in pages.items():
        here = address(path)
        filled = template.substitute(
            title=escape(page.title if path != INDEX else "Documentation"),
            root=between(here, "index.html").removesuffix("index.html"),
            navigation="".join(_navigation(sections, here)),
            main=page.html,
            parts="".join(_contents(page)),
            turns="".join(_turns(pages, order, path)),
        )
        target = folder / here
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(filled, encoding="utf-8")
    for name in _SHIPPED:
        _copied(_ASSETS / name, folder / name)
    index = json.dumps(list(_index(pages)), ensure_ascii=False, separators=(",", ":"))
    (folder / "search.js").write_text(f"window.searchIndex = {index};\n", encoding="utf-8")


def _copied(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _navigation(entries: list[Entry], here: str) -> Iterator[str]:
    for section in entries:
        pages = {address(f"{DOCS}{it}") for it in section.pages()}
        is_open = here in pages or here == address(INDEX)
        yield f"<details{' open' if is_open else ''}><summary>{escape(section.title)}</summary>\n"
        yield from _listed(section.below, here)
        yield "</details>\n"


def _listed(entries: list[Entry], here: str) -> Iterator[str]:
    yield "<ul>\n"
    for it in entries:
        yield f"<li>{_link(it, here) if it.page else f'<span>{escape(it.title)}</span>'}"
        if it.below:
            yield from _listed(it.below, here)
        yield "</li>\n"
    yield "</ul>\n"


def _link(entry: Entry, here: str) -> str:
    target = address(f"{DOCS}{entry.page}")
    current = ' aria-current="page"' if target == here else ""
    return f'<a href="{escape(between(here, target))}"{current}>{escape(entry.title)}</a>'


def _contents(page: Rendered) -> Iterator[str]:
    for part in listed(page):
        yield f'<li class="{part.level}"><a href="#{escape(part.anchor)}">{escape(part.title)}</a></li>\n'


def _turns(pages: Mapping[str, Rendered], order: list[str], path: str) -> Iterator[str]:
    """Yield where the page before and the one after are."""
    if path not in order:
        return
    at = order.index(path)
    for label, number in (("prev", at - 1), ("next", at + 1)):
        if 0 <= number < len(order):
            target, word = order[number], "Before" if label == "prev" else "Next"
            title = "Documentation" if target == INDEX else pages[target].title
            where = escape(between(address(path), address(target)))
            yield f'<a rel="{label}" href="{where}"><small>{word}</small>{escape(title)}</a>\n'


def _index(pages: Mapping[str, Rendered]) -> Iterator[list[str]]:
    """Yield what is searched: address, page, heading, text."""
    for path, page in pages.items():
        for part in page.parts:
            anchor = f"#{part.anchor}" if part.level != "h1" else ""
            yield [f"{address(path)}{anchor}", page.title, part.title if anchor else "", part.text]
