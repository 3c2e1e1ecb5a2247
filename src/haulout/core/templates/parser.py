"""Tokens put together to a tree.

The grammar is Go's, with its rules of scope: a variable lives from its declaration to the `end` of what it was declared
in, a template that is defined inside another sees none of the other's variables, and a function must be known. Where Go
says `unexpected X in Y`, this says what was expected instead.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from haulout.core.shaped import meant
from haulout.core.templates import lexer, numbers, strings
from haulout.core.templates.lexer import Kind, Token
from haulout.core.templates.nodes import (
    Action,
    Block,
    Branch,
    Choice,
    Command,
    Constant,
    Dot,
    Function,
    Include,
    Leave,
    Name,
    Nil,
    Number,
    Operand,
    Path,
    Piece,
    Pipe,
    Range,
    Text,
    Tree,
    Variable,
)
from haulout.core.templates.numbers import Literal
from haulout.core.templates.source import Problem, Source
from haulout.errors import TemplateError

_DEEPEST = 60  # blocks and parentheses in each other; each takes some of Python's stack
_BEGINS_AN_OPERAND = frozenset(
    {
        Kind.FIELD,
        Kind.VARIABLE,
        Kind.IDENTIFIER,
        Kind.DOT,
        Kind.NIL,
        Kind.BOOL,
        Kind.NUMBER,
        Kind.CHARACTER,
        Kind.STRING,
        Kind.LEFT,
    }
)
_WITHOUT_FIELDS = Constant | Number | Nil | Dot  # a dot after one of these is a mistake
_NOT_LATER = (Constant, Number, Nil, Dot)  # what cannot take the result of the command before it


def parse_tree(source: Source, *, functions: frozenset[str]) -> Tree:
    """Return the tree of a template; raises `TemplateError`."""
    return _Parser(source, functions).tree()


class _Parser:
    def __init__(self, source: Source, functions: frozenset[str]) -> None:
        self._source = source
        self._functions = functions
        self._tokens = lexer.tokens(source)
        self._pending: list[Token] = []
        self._variables = ["$"]
        self._ranges = 0  # around this place
        self._depth = 0
        self._defined: dict[str, Block] = {}
        self._statements: dict[str, Callable[[Token], Piece]] = {
            "if": self._choice,
            "with": self._choice,
            "range": self._range,
            "template": self._include,
            "block": self._defining_include,
            "break": self._leave,
            "continue": self._leave,
        }

    def tree(self) -> Tree:
        """Parse to the end."""
        body: list[Piece] = []
        while self._peek().kind is not Kind.END:
            if self._at_keyword("define"):
                self._define()
            elif self._at_keyword("end") or self._at_keyword("else"):
                raise self._error(self._peek(1), f"found {self._peek(1)} with nothing open that it could belong to")
            else:
                body.append(self._piece())
        own = self._source.name
        if own in self._defined and _says_something(body) and _says_something(self._defined[own]):
            raise self._source.error(0, f"template {strings.quoted(own)} is defined twice")
        return Tree(tuple(body) if _says_something(body) else self._defined.get(own, tuple(body)), self._defined)

    # -- tokens

    def _peek(self, ahead: int = 0) -> Token:
        while len(self._pending) <= ahead:
            self._pending.append(next(self._tokens))
        return self._pending[ahead]

    def _next(self) -> Token:
        token = self._peek()
        if token.kind is not Kind.END:
            self._pending.pop(0)
        return token

    def _expect(self, kind: Kind, where: str) -> Token:
        token = self._next()
        if token.kind is not kind:
            raise self._error(token, f"expected {kind.value} {where}, found {token}")
        return token

    def _at_keyword(self, word: str) -> bool:
        if self._peek().kind is not Kind.OPEN:
            return False
        return self._peek(1).kind is Kind.KEYWORD and self._peek(1).text == word

    def _error(self, place: Token | int, problem: str) -> TemplateError:
        return self._source.error(place if isinstance(place, int) else place.at, problem)

    @contextmanager
    def _deeper(self, at: int) -> Iterator[None]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(at, f"more than {_DEEPEST} blocks and parentheses inside each other")
        yield
        self._depth -= 1

    # -- blocks

    def _block(self, opened: Token, *, may_else: bool = False) -> Block:
        """Parse up to `end` (or `else`), which is left for the caller."""
        pieces: list[Piece] = []
        with self._deeper(opened.at):
            while not self._at_keyword("end"):
                if self._at_keyword("else"):
                    if may_else:
                        break
                    raise self._error(self._peek(1), f"expected end of {opened.text}, found else")
                if self._peek().kind is Kind.END:
                    line, _ = self._source.position(opened.at)
                    raise self._error(
                        self._peek(),
                        f"expected {{{{end}}}} for the {opened.text} in line {line}, found {Kind.END.value}",
                    )
                if self._at_keyword("define"):
                    raise self._error(self._peek(1), f"a template cannot be defined inside of {opened.text}")
                pieces.append(self._piece())
        return tuple(pieces)

    def _end(self) -> None:
        self._next()
        word = self._next()
        self._expect(Kind.CLOSE, f"after {word}")

    def _piece(self) -> Piece:
        token = self._next()
        if token.kind is Kind.TEXT:
            return Text(token.at, token.text)
        word = self._peek()
        if word.kind is not Kind.KEYWORD:
            return Action(word.at, self._pipe("in an action", Kind.CLOSE))
        if word.text not in self._statements:
            raise self._error(word, f"expected a value, found {word.text}")
        return self._statements[word.text](self._next())

    def _choice(self, opened: Token) -> Choice:
        scope = len(self._variables)
        branches = [Branch(self._pipe(f"for {opened.text}", Kind.CLOSE), self._block(opened, may_else=True))]
        otherwise: Block = ()
        while self._at_keyword("else"):
            self._next()
            self._next()
            if self._peek().kind is Kind.KEYWORD and self._peek().text == opened.text:
                again = self._next()
                branches.append(
                    Branch(self._pipe(f"for else {again.text}", Kind.CLOSE), self._block(again, may_else=True))
                )
                continue
            self._expect(Kind.CLOSE, f"or {opened.text} after else")
            otherwise = self._block(opened)
            break
        self._end()
        del self._variables[scope:]
        return Choice(opened.at, tuple(branches), otherwise, is_with=opened.text == "with")

    def _range(self, opened: Token) -> Range:
        scope = len(self._variables)
        pipe = self._pipe("for range", Kind.CLOSE, in_range=True)
        self._ranges += 1
        body = self._block(opened, may_else=True)
        self._ranges -= 1
        otherwise: Block = ()
        if self._at_keyword("else"):
            self._end()
            otherwise = self._block(opened)
        self._end()
        del self._variables[scope:]
        return Range(opened.at, pipe, body, otherwise)

    def _leave(self, word: Token) -> Leave:
        self._expect(Kind.CLOSE, f"after {word}")
        if not self._ranges:
            raise self._error(word, f"found {word.text} outside of a range")
        return Leave(word.at, goes_on=word.text == "continue")

    # -- templates in templates

    def _include(self, word: Token) -> Include:
        name = self._template_name(word)
        if self._peek().kind is Kind.CLOSE:
            self._next()
            return Include(word.at, name, None)
        return Include(word.at, name, self._pipe("after the name of a template", Kind.CLOSE))

    def _defining_include(self, word: Token) -> Include:
        name = self._template_name(word)
        pipe = self._pipe("after the name of a block", Kind.CLOSE)
        self._defined_block(word, name)
        return Include(word.at, name, pipe)

    def _define(self) -> None:
        self._next()
        word = self._next()
        name = self._template_name(word)
        self._expect(Kind.CLOSE, "after the name of a template")
        self._defined_block(word, name)

    def _template_name(self, word: Token) -> str:
        token = self._next()
        if token.kind is not Kind.STRING:
            raise self._error(token, f"expected the name of a template in quotes after {word}, found {token}")
        return self._unquoted(token)

    def _defined_block(self, word: Token, name: str) -> None:
        outside = self._variables, self._ranges
        self._variables, self._ranges = ["$"], 0
        body = self._block(word)
        self._variables, self._ranges = outside
        self._end()
        if name in self._defined and _says_something(self._defined[name]):
            if _says_something(body):
                raise self._error(word, f"template {strings.quoted(name)} is defined twice")
            return
        self._defined[name] = body

    # -- pipes

    def _pipe(self, where: str, end: Kind, *, in_range: bool = False) -> Pipe:
        first = self._peek()
        variables, assigns = self._declarations(where, in_range=in_range)
        commands: list[Command] = []
        while True:
            token = self._peek()
            if token.kind is end:
                break
            if token.kind not in _BEGINS_AN_OPERAND:
                raise self._error(token, f"expected a value or {end.value} {where}, found {token}")
            commands.append(self._command())
        if not commands:
            raise self._error(token, f"expected a value {where}, found {token}")
        for later in commands[1:]:
            if isinstance(later.operand, _NOT_LATER):
                raise self._error(later.at, "expected a function or a method after |, found a value")
        self._next()
        return Pipe(first.at, variables, assigns, tuple(commands))

    def _declarations(self, where: str, *, in_range: bool) -> tuple[tuple[Name, ...], bool]:
        variables: list[Name] = []
        while self._peek().kind is Kind.VARIABLE:
            following = self._peek(1)
            is_comma = following.kind is Kind.OTHER and following.text == ","
            if not is_comma and following.kind not in (Kind.DECLARE, Kind.ASSIGN):
                break
            variable = self._next()
            self._next()
            variables.append(Name(variable.text, variable.at))
            self._variables.append(variable.text)
            if not is_comma:
                return tuple(variables), following.kind is Kind.ASSIGN
            if not in_range:
                raise self._error(following, f"expected one variable {where}, found a second: only range takes two")
            if len(variables) > 1:
                raise self._error(following, f"expected := after two variables, found {following}")
            if self._peek().kind not in (Kind.VARIABLE, Kind.CLOSE):
                raise self._error(self._peek(), f"expected a second variable after the comma, found {self._peek()}")
        # Go lets `range $i, $x` pass, without `:=`; then $x is what is ranged over.
        return tuple(variables), False

    def _command(self) -> Command:
        operands: list[Operand] = []
        while True:
            operands.append(self._operand())
            token = self._peek()
            if token.kind is Kind.PIPE:
                self._next()
                break
            if token.kind in (Kind.CLOSE, Kind.RIGHT):
                break
            if not (token.spaced and token.kind in _BEGINS_AN_OPERAND):
                raise self._error(token, f"expected a space, |, ) or }}}} after a value, found {token}")
        return Command(operands[0].at, operands[0], tuple(operands[1:]))

    def _operand(self) -> Operand:
        operand = self._term()
        names: list[Name] = []
        while self._peek().kind is Kind.FIELD and not self._peek().spaced:
            field = self._next()
            names.append(Name(field.text[1:], field.at))
        if not names:
            return operand
        if isinstance(operand, Path):
            return Path(operand.at, operand.of, (*operand.names, *names))
        if isinstance(operand, _WITHOUT_FIELDS):
            raise self._error(
                names[0].at, f"expected a space, found .{names[0].text} right after a value without fields"
            )
        return Path(operand.at, operand, tuple(names))

    def _term(self) -> Operand:  # noqa: PLR0911 - one line for each kind of term
        token = self._next()
        match token.kind:
            case Kind.DOT:
                return Dot(token.at)
            case Kind.NIL:
                return Nil(token.at)
            case Kind.BOOL:
                return Constant(token.at, value=token.text == "true")
            case Kind.STRING:
                return Constant(token.at, self._unquoted(token))
            case Kind.NUMBER | Kind.CHARACTER:
                return self._number(token)
            case Kind.FIELD:
                return Path(token.at, Dot(token.at), (Name(token.text[1:], token.at),))
            case Kind.VARIABLE:
                return self._variable(token)
            case Kind.IDENTIFIER:
                return self._function(token)
        with self._deeper(token.at):
            return self._pipe("in parentheses", Kind.RIGHT)

    def _number(self, token: Token) -> Number:
        try:
            if token.kind is Kind.NUMBER:
                return Number(token.at, token.text, numbers.literal(token.text))
            code = strings.character_number(token.text)
        except Problem as problem:
            raise self._error(token, str(problem)) from None
        return Number(token.at, token.text, Literal(code, float(code), is_fraction=False))

    def _variable(self, token: Token) -> Variable:
        if token.text not in self._variables:
            raise self._error(token, f"there is no variable {token.text} here{meant(token.text, self._variables[1:])}")
        return Variable(token.at, token.text)

    def _function(self, token: Token) -> Function:
        if token.text not in self._functions:
            hint = meant(token.text, sorted(self._functions)) or f"; a field is written with a dot: .{token.text}"
            raise self._error(token, f"there is no function {token.text}{hint}")
        return Function(token.at, token.text)

    def _unquoted(self, token: Token) -> str:
        try:
            return strings.unquoted(token.text)
        except Problem as problem:
            raise self._error(token, str(problem)) from None


def _says_something(block: list[Piece] | Block) -> bool:
    """Tell whether a block is more than white space: an empty definition does not replace another."""
    return any(not isinstance(piece, Text) or piece.text.strip() for piece in block)
