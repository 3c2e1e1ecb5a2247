"""The lexer: splits a template into tokens, as Go's src/text/template/parse/lex.go does.

Outside actions there is text; inside an action there are words. Trim markers and comments are handled here: the parser
never sees them. Space is significant only because `.a .b` is two operands and `.a.b` is one, so each token tells
whether space precedes it. Tokens are produced lazily, so the first error in the text is reported first.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from haulout.compat.gotemplate.errors import Source
from haulout.compat.gotemplate.strings import is_printable
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


class TokenKind(Enum):
    """The kind of a token, with its name in messages."""

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
    LEFT_PAREN = "("
    RIGHT_PAREN = ")"
    OTHER = "an unexpected character"
    END = "the end of the template"


_SYMBOLS = {"=": TokenKind.ASSIGN, "|": TokenKind.PIPE, "(": TokenKind.LEFT_PAREN, ")": TokenKind.RIGHT_PAREN}
_QUOTED_KINDS = {'"': TokenKind.STRING, "`": TokenKind.STRING, "'": TokenKind.CHARACTER}
_LITERAL_WORDS = {"nil": TokenKind.NIL, "true": TokenKind.BOOL, "false": TokenKind.BOOL}


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a template, with its offset for error messages."""

    kind: TokenKind
    text: str
    at: int
    has_space_before: bool = False  # space precedes the token

    def __str__(self) -> str:
        return self.kind.value if self.kind is TokenKind.END else self.text


def tokens(source: Source) -> Iterator[Token]:
    """Yield the tokens of a template, and finally an END. Raise `TemplateError`."""
    return _Lexer(source).run()


class _Lexer:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._text = source.text
        self._at = 0
        self._depth = 0  # of parentheses
        self._trims_next = False  # the last action ended with a trim marker

    def run(self) -> Iterator[Token]:
        while True:
            opening = self._text.find(_OPEN, self._at)
            end = len(self._text) if opening < 0 else opening
            text = self._text_until(end)
            if text:
                yield Token(TokenKind.TEXT, text, self._at)
            self._at = end
            if opening < 0:
                break
            self._open()
            if self._text.startswith("/*", self._at):
                self._comment()
                continue
            yield Token(TokenKind.OPEN, _OPEN, opening)
            yield from self._action()
        yield Token(TokenKind.END, "", len(self._text))

    def _text_until(self, end: int) -> str:
        """Return the text up to `end`, without the space that trim markers remove."""
        if self._trims_next:
            while self._at < end and self._text[self._at] in _SPACE:
                self._at += 1
            self._trims_next = False
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
        if not self._accept_close():
            raise self._error(
                self._at, f"expected }}}} right after the end of a comment, found {self._describe_here()}"
            )

    def _accept_close(self) -> bool:
        """Skip the end of the action, if it is at this position."""
        has_trim_marker = self._is_space(self._at) and self._text.startswith(f"-{_CLOSE}", self._at + 1)
        if has_trim_marker or self._text.startswith(_CLOSE, self._at):
            self._trims_next = has_trim_marker
            self._at += len(_CLOSE) + (2 if has_trim_marker else 0)
            return True
        return False

    def _action(self) -> Iterator[Token]:
        spaced = False
        while True:
            start = self._at
            if self._accept_close():
                if self._depth:
                    raise self._error(start, "expected ), found }}: a parenthesis is not closed")
                yield Token(TokenKind.CLOSE, _CLOSE, start, has_space_before=spaced)
                return
            if self._is_space(start):
                self._at += 1
                spaced = True
                continue
            kind = self._word()
            yield Token(kind, self._text[start : self._at], start, has_space_before=spaced)
            spaced = False

    def _word(self) -> TokenKind:
        """Skip the word at this position, and return its kind."""
        start = self._at
        if start == len(self._text):
            raise self._error(start, f"expected {_CLOSE}, found the end of the template: an action is not closed")
        character = self._text[start]
        if character in _QUOTED:
            return self._quoted(character)
        if character in ".$":
            return self._field_or_variable(character)
        # A sign always begins a number here: there is no arithmetic in templates.
        if character in "+-" or character in "0123456789":
            return self._number()
        if _is_alphanumeric(character):
            return self._identifier()
        return self._symbol(character)

    def _symbol(self, character: str) -> TokenKind:
        self._at += 1
        if character == ":":
            if not self._text.startswith("=", self._at):
                raise self._error(self._at - 1, f"expected :=, found :{self._describe_here()}")
            self._at += 1
            return TokenKind.DECLARE
        self._depth += {"(": 1, ")": -1}.get(character, 0)
        if self._depth < 0:
            raise self._error(self._at - 1, "found ) without a ( before it")
        if character in _SYMBOLS:
            return _SYMBOLS[character]
        if character.isascii() and is_printable(character):
            return TokenKind.OTHER
        raise self._error(self._at - 1, f"expected a value, found {character!r}, which is not valid in an action")

    def _quoted(self, quote: str) -> TokenKind:
        pattern, expected = _QUOTED[quote]
        literal = pattern.match(self._text, self._at)
        if literal is None:
            raise self._error(self._at, f"a text begins here and does not end; expected {expected}")
        self._at = literal.end()
        return _QUOTED_KINDS[quote]

    def _field_or_variable(self, first: str) -> TokenKind:
        following = self._text[self._at + 1 : self._at + 2]
        if first == "." and (not following or following in "0123456789"):
            return self._number()
        self._at += 1
        kind = TokenKind.FIELD if first == "." else TokenKind.VARIABLE
        if self._is_at_word_end():
            return TokenKind.DOT if kind is TokenKind.FIELD else kind
        self._skip_word()
        return kind

    def _identifier(self) -> TokenKind:
        start = self._at
        self._skip_word()
        word = self._text[start : self._at]
        return TokenKind.KEYWORD if word in KEYWORDS else _LITERAL_WORDS.get(word, TokenKind.IDENTIFIER)

    def _skip_word(self) -> None:
        while self._at < len(self._text) and _is_alphanumeric(self._text[self._at]):
            self._at += 1
        if not self._is_at_word_end():
            raise self._error(self._at, f"expected a space or }}}} after a name, found {self._describe_here()}")

    def _is_at_word_end(self) -> bool:
        following = self._text[self._at : self._at + 1]
        return following in _ENDS_A_WORD or self._text.startswith(_CLOSE, self._at)

    def _number(self) -> TokenKind:
        start = self._at
        number = _NUMBER.match(self._text, start)
        self._at = number.end() if number else start
        following = self._text[self._at : self._at + 1]
        if following and (_is_alphanumeric(following) or following in "+-"):
            raise self._error(start, f"expected a number, found {self._text[start : self._at + 1]}")
        return TokenKind.NUMBER

    def _is_space(self, at: int) -> bool:
        return at < len(self._text) and self._text[at] in _SPACE

    def _describe_here(self) -> str:
        return repr(self._text[self._at]) if self._at < len(self._text) else TokenKind.END.value

    def _error(self, at: int, problem: str) -> TemplateError:
        return self._source.error(at, problem)


def _is_alphanumeric(character: str) -> bool:
    category = unicodedata.category(character)
    return character == "_" or category[0] == "L" or category == "Nd"
