"""Markdown to HTML, as the forge shows it: the same dialect, the same names of headings.

Links are followed while they are written, and changed to where their targets are on the site. One that leads nowhere
is a problem, and so is a heading that is not there.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tools.docsite.highlight import highlighted
from tools.docsite.targets import address, anchor, between

_ELSEWHERE = re.compile(r"[a-z]+:", re.IGNORECASE)
_IN_CONTENTS = ("h2", "h3")


@dataclass(frozen=True, slots=True)
class Part:
    """A heading and the text below it, for the list of contents and for the search."""

    level: str
    title: str
    anchor: str
    text: str = ""


@dataclass(slots=True)
class Rendered:
    """A page."""

    title: str
    html: str
    parts: list[Part]
    links: list[str] = field(default_factory=list)  # files and folders of the repository
    problems: list[str] = field(default_factory=list)


def render(root: Path, path: str) -> Rendered:
    """Return a page of the repository, as HTML."""
    text = (root / path).read_text(encoding="utf-8")
    if not path.endswith(".md"):
        return Rendered(
            path, f"<h1>{path}</h1>\n{highlighted(text, Path(path).suffix[1:])}", [Part("h1", path, "", text)]
        )
    tokens = _MARKDOWN.parse(text)
    parts = list(_parts(tokens))
    page = Rendered(parts[0].title if parts else path, "", parts)
    _name_headings(tokens)
    for token in _inline(tokens):
        for name in ("href", "src"):
            if name in token.attrs:
                token.attrs[name] = _followed(root, path, str(token.attrs[name]), page)
    page.html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return page


@cache
def anchors(text: str) -> set[str]:
    """Return the names of the headings of a page."""
    return {it.anchor for it in _parts(_MARKDOWN.parse(text))}


def _followed(root: Path, path: str, link: str, page: Rendered) -> str:
    if _ELSEWHERE.match(link):
        return link
    name, _, heading = link.partition("#")
    target = normpath(join(dirname(path), name)) if name else path
    file = root / target
    if target.startswith("..") or not file.exists():
        page.problems.append(f"{path}: {link} leads nowhere")
    elif heading and (file.suffix != ".md" or heading not in anchors(file.read_text(encoding="utf-8"))):
        page.problems.append(f"{path}: {link}: there is no such heading")
    else:
        page.links.append(target)
    return between(address(path), address(target)) + (f"#{heading}" if heading else "")


def _inline(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _inline(token.children or ())


def _name_headings(tokens: Sequence[Token]) -> None:
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            token.attrs["id"] = anchor(_plain(content))


def _parts(tokens: Sequence[Token]) -> Iterator[Part]:
    """Yield the page by its headings, with the words below each."""
    level, title, words = "h1", "", list[str]()
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before and before.type == "heading_open":
            if title:
                yield Part(level, title, anchor(title), " ".join(words))
            level, title, words = before.tag, _plain(token), []
        elif token.type in {"inline", "fence", "code_block"}:
            words.append(_plain(token) if token.type == "inline" else " ".join(token.content.split()))
    if title:
        yield Part(level, title, anchor(title), " ".join(words))


def _plain(token: Token) -> str:
    shown = (it for it in token.children or () if it.type != "html_inline")
    return "".join(" " if it.type == "softbreak" else it.content for it in shown)


def listed(page: Rendered) -> list[Part]:
    """Return what the list of contents of a page has."""
    return [it for it in page.parts if it.level in _IN_CONTENTS]


def _code(tokens: Sequence[Token], index: int, *_: Any) -> str:
    token = tokens[index]
    return highlighted(token.content, token.info.split(maxsplit=1)[0] if token.info.strip() else "")


def _around(before: str, after: str) -> tuple[Callable[..., str], Callable[..., str]]:
    return (lambda *_: before), (lambda *_: after)


def _markdown() -> MarkdownIt:
    made = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    rules: dict[str, Any] = made.renderer.rules  # type: ignore[attr-defined]  # only the protocol lacks it
    rules["fence"] = rules["code_block"] = _code
    # A table may be wider than a phone: it is what is scrolled then, not the page.
    rules["table_open"], rules["table_close"] = _around('<div class="table" tabindex="0"><table>\n', "</table></div>\n")
    return made


_MARKDOWN = _markdown()
