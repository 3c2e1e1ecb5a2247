"""The text of a template, cut into tokens.

Between actions there is text; inside an action there are words. Trim markers and comments end here: the parser never
sees them. Space matters only in that `.a .b` are two operands and `.a.b` is one, so each token says whether there was
space before it. Tokens come one by one: who reads them hears of the first thing that is wrong, not of the last.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from haulout.core.templates.source import Source
from haulout.core.templates.strings import is_printable
from haulout.errors import TemplateError

KEYWORDS = frozenset(
    {"block", "break", "continue", "define", "else", "end", "if", "range", "template", "with"},
)
_SPACE = " \t\r\n"
_OPEN = "{{"
_CLOSE = "}}"
_ENDS_A_WORD = f"{_SPACE}.,|:)("
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?"
    r"|0[oO][0-7_]*(?:\.[0-7_]*)?|0[bB][01_]*(?:\.[01_]*)?"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)
_QUOTED = {
    '"': (re.compile(r'"(?:[^"\\\n]|\\[^\n])*"'), "a closing quotation mark in the same line"),
    "'": (re.compile(r"'(?:[^'\\\n]|\\[^\n])*'"), "a closing single quote in the same line"),
    "`": (re.compile(r"`[^`]*`"), "a closing backquote"),
}


class Kind(Enum):
    """What a token is, in words for people."""

    TEXT = "text"
    OPEN = "{{"
    CLOSE = "}}"
    FIELD = "a field"
    VARIABLE = "a variable"
    IDENTIFIER = "a function"
    KEYWORD = "a keyword"
    DOT = "."
    NIL = "nil"
    BOOL = "true or false"
    NUMBER = "a number"
    CHARACTER = "a character"
    STRING = "a text in quotes"
    PIPE = "|"
    DECLARE = ":="
    ASSIGN = "="
    LEFT = "("
    RIGHT = ")"
    OTHER = "a character that means nothing here"
    END = "the end of the template"


_SINGLE = {"=": Kind.ASSIGN, "|": Kind.PIPE, "(": Kind.LEFT, ")": Kind.RIGHT}
_QUOTED_KINDS = {'"': Kind.STRING, "`": Kind.STRING, "'": Kind.CHARACTER}
_WORDS = {"nil": Kind.NIL, "true": Kind.BOOL, "false": Kind.BOOL}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a template."""

    kind: Kind
    text: str
    at: int
    spaced: bool = False  # space stands before it

    def __str__(self) -> str:
        return self.kind.value if self.kind is Kind.END else self.text


def tokens(source: Source) -> Iterator[Token]:
    """Yield the tokens of a template, an END last; raises `TemplateError`."""
    return _Lexer(source).run()


class _Lexer:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._text = source.text
        self._at = 0
        self._depth = 0  # of parentheses
        self._trims = False  # the last action ended with a trim marker

    def run(self) -> Iterator[Token]:
        while True:
            opening = self._text.find(_OPEN, self._at)
            end = len(self._text) if opening < 0 else opening
            text = self._between(end)
            if text:
                yield Token(Kind.TEXT, text, self._at)
            self._at = end
            if opening < 0:
                break
            self._open()
            if self._text.startswith("/*", self._at):
                self._comment()
                continue
            yield Token(Kind.OPEN, _OPEN, opening)
            yield from self._action()
        yield Token(Kind.END, "", len(self._text))

    def _between(self, end: int) -> str:
        """Return the text up to `end`, without what trim markers take away."""
        if self._trims:
            while self._at < end and self._text[self._at] in _SPACE:
                self._at += 1
            self._trims = False
        text = self._text[self._at : end]
        return text.rstrip(_SPACE) if self._has_trim_marker(end) else text

    def _has_trim_marker(self, opening: int) -> bool:
        after = opening + len(_OPEN)
        return self._text.startswith("-", after) and self._is_space(after + 1)

    def _open(self) -> None:
        self._at += len(_OPEN) + (2 if self._has_trim_marker(self._at) else 0)
        self._depth = 0

    def _comment(self) -> None:
        end = self._text.find("*/", self._at + 2)
        if end < 0:
            raise self._error(self._at, "a comment begins here and does not end; expected */}}")
        self._at = end + 2
        if not self._closes():
            raise self._error(self._at, f"expected }}}} right after the end of a comment, found {self._here()}")

    def _closes(self) -> bool:
        """Go past the end of the action, if it is here."""
        trims = self._is_space(self._at) and self._text.startswith(f"-{_CLOSE}", self._at + 1)
        if trims or self._text.startswith(_CLOSE, self._at):
            self._trims = trims
            self._at += len(_CLOSE) + (2 if trims else 0)
            return True
        return False

    def _action(self) -> Iterator[Token]:
        spaced = False
        while True:
            start = self._at
            if self._closes():
                if self._depth:
                    raise self._error(start, "expected ), found }}: a parenthesis is not closed")
                yield Token(Kind.CLOSE, _CLOSE, start, spaced=spaced)
                return
            if self._is_space(start):
                self._at += 1
                spaced = True
                continue
            kind = self._word()
            yield Token(kind, self._text[start : self._at], start, spaced=spaced)
            spaced = False

    def _word(self) -> Kind:
        """Go past the word that is here, and return its kind."""
        start = self._at
        if start == len(self._text):
            raise self._error(start, f"expected {_CLOSE}, found the end of the template: an action is not closed")
        character = self._text[start]
        if character in _QUOTED:
            return self._quoted(character)
        if character in ".$":
            return self._field_or_variable(character)
        if character in "+-" or character in "0123456789":
            return self._number()
        if _is_alphanumeric(character):
            return self._identifier()
        return self._mark(character)

    def _mark(self, character: str) -> Kind:
        self._at += 1
        if character == ":":
            if not self._text.startswith("=", self._at):
                raise self._error(self._at - 1, f"expected :=, found :{self._here()}")
            self._at += 1
            return Kind.DECLARE
        self._depth += {"(": 1, ")": -1}.get(character, 0)
        if self._depth < 0:
            raise self._error(self._at - 1, "found ) without a ( before it")
        if character in _SINGLE:
            return _SINGLE[character]
        if character.isascii() and is_printable(character):
            return Kind.OTHER
        raise self._error(self._at - 1, f"expected a value, found {character!r}, which means nothing in an action")

    def _quoted(self, quote: str) -> Kind:
        pattern, expected = _QUOTED[quote]
        literal = pattern.match(self._text, self._at)
        if literal is None:
            raise self._error(self._at, f"a text begins here and does not end; expected {expected}")
        self._at = literal.end()
        return _QUOTED_KINDS[quote]

    def _field_or_variable(self, first: str) -> Kind:
        following = self._text[self._at + 1 : self._at + 2]
        if first == "." and (not following or following in "0123456789"):
            return self._number()
        self._at += 1
        kind = Kind.FIELD if first == "." else Kind.VARIABLE
        if self._word_ends_here():
            return Kind.DOT if kind is Kind.FIELD else kind
        self._pass_word()
        return kind

    def _identifier(self) -> Kind:
        start = self._at
        self._pass_word()
        word = self._text[start : self._at]
        return Kind.KEYWORD if word in KEYWORDS else _WORDS.get(word, Kind.IDENTIFIER)

    def _pass_word(self) -> None:
        while self._at < len(self._text) and _is_alphanumeric(self._text[self._at]):
            self._at += 1
        if not self._word_ends_here():
            raise self._error(self._at, f"expected a space or }}}} after a name, found {self._here()}")

    def _word_ends_here(self) -> bool:
        following = self._text[self._at : self._at + 1]
        return following in _ENDS_A_WORD or self._text.startswith(_CLOSE, self._at)

    def _number(self) -> Kind:
        start = self._at
        number = _NUMBER.match(self._text, start)
        self._at = number.end() if number else start
        following = self._text[self._at : self._at + 1]
        if following and (_is_alphanumeric(following) or following in "+-"):
            raise self._error(start, f"expected a number, found {self._text[start : self._at + 1]}")
        return Kind.NUMBER

    def _is_space(self, at: int) -> bool:
        return at < len(self._text) and self._text[at] in _SPACE

    def _here(self) -> str:
        return repr(self._text[self._at]) if self._at < len(self._text) else Kind.END.value

    def _error(self, at: int, problem: str) -> TemplateError:
        return self._source.error(at, problem)


def _is_alphanumeric(character: str) -> bool:
    category = unicodedata.category(character)
    return character == "_" or category[0] == "L" or category == "Nd"
