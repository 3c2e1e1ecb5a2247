"""Markdown to HTML as the forge renders it: the same dialect and the same heading anchors.

Links are rewritten to the location of their targets on the site. A link to a missing page or heading is an error.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight as colour
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from tools.docsite.diagrams import DiagramError, DrawDiagram, diagram_figure
from tools.docsite.urls import address, anchor, relative_url

# Syntax highlighting: Pygments finds the tokens, the style sheet has the colours. ¶ Blocks without a language, such as
# indented ones, are recognized by content: a shell session begins with `$ `.

_SESSION = "$ "
_FORMATTER = HtmlFormatter(nowrap=True, classprefix="c-")


def highlighted_block(code: str, language: str) -> str:
    """Return a block of code as HTML."""
    kind = language or ("console" if code.startswith(_SESSION) else "")
    marked = _highlighted_session(code) if kind == "console" else _highlighted_code(code, kind)
    return f'<pre data-kind="{escape(kind)}" tabindex="0"><code>{marked}</code></pre>\n'


def _highlighted_code(code: str, language: str) -> str:
    try:
        return str(colour(code, get_lexer_by_name(language), _FORMATTER)) if language else escape(code)
    except ClassNotFound:
        return escape(code)


def _highlighted_session(code: str) -> str:
    """Mark commands, which readers copy without the prompt; other lines are output."""
    lines, goes_on = [], False
    for line in code.splitlines(keepends=True):
        is_command = goes_on or line.startswith(_SESSION)
        prompt = '<span class="prompt">$ </span>' if line.startswith(_SESSION) and not goes_on else ""
        text = escape(line[len(_SESSION) :] if prompt else line)
        kind = "command" if is_command else "said"
        lines.append(f'{prompt}<span class="{kind}">{text}</span>')
        goes_on = is_command and line.rstrip().endswith("\\")
    return "".join(lines)


_EXTERNAL = re.compile(r"[a-z]+:", re.IGNORECASE)
_CONTENTS_LEVELS = ("h2", "h3")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text below it, for the table of contents and the search."""

    level: str
    title: str
    anchor: str
    text: str = ""


@dataclass(slots=True)
class RenderedPage:
    """A rendered page, the files that it links to, and its broken links."""

    title: str
    html: str
    sections: list[Section]
    links: list[str] = field(default_factory=list)  # files and folders of the repository
    problems: list[str] = field(default_factory=list)


def render(root: Path, path: str, draw: DrawDiagram | None = None) -> RenderedPage:
    """Return a page of the repository as HTML. Without `draw`, diagrams are shown as source."""
    text = (root / path).read_text(encoding="utf-8")
    if not path.endswith(".md"):
        return RenderedPage(
            path, f"<h1>{path}</h1>\n{highlighted_block(text, Path(path).suffix[1:])}", [Section("h1", path, "", text)]
        )
    tokens = _MARKDOWN.parse(text)
    sections = list(_sections(tokens))
    page = RenderedPage(sections[0].title if sections else path, "", sections)
    _name_headings(tokens)
    for token in _inline(tokens):
        for name in ("href", "src"):
            if name in token.attrs:
                token.attrs[name] = _rewrite_link(root, path, str(token.attrs[name]), page)
    if draw:
        _draw_diagrams(tokens, path, draw, page)
    page.html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return page


@cache
def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page."""
    return {part.anchor for part in _sections(_MARKDOWN.parse(text))}


def _rewrite_link(root: Path, path: str, link: str, page: RenderedPage) -> str:
    if _EXTERNAL.match(link):
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
    return relative_url(address(path), address(target)) + (f"#{heading}" if heading else "")


def _draw_diagrams(tokens: Sequence[Token], path: str, draw: DrawDiagram, page: RenderedPage) -> None:
    for token in tokens:
        if token.type == "fence" and token.info.strip() == "mermaid":
            try:
                token.type, token.content = "html_block", diagram_figure(token.content, draw)
            except DiagramError as error:
                line = token.map[0] + 1 if token.map else 0
                page.problems.append(f"{path}:{line}: the diagram cannot be drawn: {error}")


def _inline(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _inline(token.children or ())


def _name_headings(tokens: Sequence[Token]) -> None:
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            token.attrs["id"] = anchor(_plain_text(content))


def _sections(tokens: Sequence[Token]) -> Iterator[Section]:
    """Yield the sections of a page with their text."""
    level, title, text = "h1", "", list[str]()
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before and before.type == "heading_open":
            if title:
                yield Section(level, title, anchor(title), " ".join(text))
            level, title, text = before.tag, _plain_text(token), []
        elif token.type in {"inline", "fence", "code_block"}:
            text.append(_plain_text(token) if token.type == "inline" else " ".join(token.content.split()))
    if title:
        yield Section(level, title, anchor(title), " ".join(text))


def _plain_text(token: Token) -> str:
    visible = (child for child in token.children or () if child.type != "html_inline")
    return "".join(" " if child.type == "softbreak" else child.content for child in visible)


def contents_of(page: RenderedPage) -> list[Section]:
    """Return the sections for the table of contents of a page."""
    return [part for part in page.sections if part.level in _CONTENTS_LEVELS]


def _code(tokens: Sequence[Token], index: int, *_: Any) -> str:
    token = tokens[index]
    return highlighted_block(token.content, token.info.split(maxsplit=1)[0] if token.info.strip() else "")


def _wrap(before: str, after: str) -> tuple[Callable[..., str], Callable[..., str]]:
    return (lambda *_: before), (lambda *_: after)


def _make_markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    rules: dict[str, Any] = markdown.renderer.rules  # type: ignore[attr-defined]  # only the protocol lacks it
    rules["fence"] = rules["code_block"] = _code
    # A table may be wider than a phone: the table then scrolls, not the page.
    rules["table_open"], rules["table_close"] = _wrap('<div class="table" tabindex="0"><table>\n', "</table></div>\n")
    return markdown


_MARKDOWN = _make_markdown()
