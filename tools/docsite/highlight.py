"""The colours of code: Pygments finds the words, the style sheet has the colours.

Blocks that do not say what they are, as indented ones, are told by their looks: a shell session begins with `$ `.
"""

from html import escape

from pygments import highlight as colour
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

_SESSION = "$ "
_FORMATTER = HtmlFormatter(nowrap=True, classprefix="c-")


def highlighted(code: str, language: str) -> str:
    """Return a block of code in HTML."""
    kind = language or ("console" if code.startswith(_SESSION) else "")
    marked = _session(code) if kind == "console" else _coloured(code, kind)
    return f'<pre data-kind="{escape(kind)}" tabindex="0"><code>{marked}</code></pre>\n'


def _coloured(code: str, language: str) -> str:
    try:
        return str(colour(code, get_lexer_by_name(language), _FORMATTER)) if language else escape(code)
    except ClassNotFound:
        return escape(code)


def _session(code: str) -> str:
    """Mark commands, which a reader copies without their prompt; the rest is what they print."""
    lines, goes_on = [], False
    for line in code.splitlines(keepends=True):
        is_command = goes_on or line.startswith(_SESSION)
        prompt = '<span class="prompt">$ </span>' if line.startswith(_SESSION) and not goes_on else ""
        text = escape(line[len(_SESSION) :] if prompt else line)
        kind = "command" if is_command else "said"
        lines.append(f'{prompt}<span class="{kind}">{text}</span>')
        goes_on = is_command and line.rstrip().endswith("\\")
    return "".join(lines)
