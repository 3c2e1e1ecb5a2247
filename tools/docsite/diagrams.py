"""Mermaid diagrams as SVG, drawn when the site is built.

GitHub draws Mermaid in the browser. The site must not load a script from the network, so the diagrams become part of
the pages. The package mermaidx has Mermaid and an interpreter for it, and needs no browser. Without that package, the
site shows the source of the diagrams.

The style that Mermaid embeds is removed. site.css has the colours instead, so that diagrams follow the light and dark
theme.
"""

import re
from collections.abc import Callable
from hashlib import sha256
from html import escape

DrawDiagram = Callable[[str], str]

_ID = "my-svg"  # Mermaid's: the same in each diagram, but a page may have several
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
_TITLE = re.compile(r"^\s*accTitle:\s*(.+?)\s*$", re.MULTILINE)


class DiagramError(Exception):
    """A diagram cannot be drawn: what Mermaid says, or what the diagram lacks."""


def find_drawing() -> DrawDiagram | None:
    """Return the function that draws diagrams; None if the package for it is not installed."""
    try:
        import mermaidx
    except ImportError:
        return None

    def draw(source: str) -> str:
        try:
            return str(mermaidx.render(source).svg())
        except RuntimeError as error:
            raise DiagramError(str(error).splitlines()[0]) from error

    return draw


def diagram_figure(source: str, draw: DrawDiagram) -> str:
    """Return a diagram as HTML. Its title, `accTitle` of Mermaid, is what screen readers say."""
    title = _TITLE.search(source)
    # The figure has the role img, so that screen readers say only its label.
    if title is None:
        raise DiagramError("it has no accTitle, which screen readers need")
    svg = _STYLE.sub("", draw(source)).replace(_ID, f"diagram-{sha256(source.encode()).hexdigest()[:8]}")
    return f'<figure class="diagram" role="img" aria-label="{escape(title[1])}">{svg}</figure>\n'
