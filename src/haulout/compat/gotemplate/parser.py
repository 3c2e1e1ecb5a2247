"""The parser: builds a tree from tokens.

The grammar and the scope rules are Go's: a variable is visible from its declaration to the `end` of its block, a
template defined inside another one does not see the variables of that one, and functions must be known. Where Go
reports `unexpected X in Y`, this parser reports what was expected instead.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from haulout.compat.gotemplate import lexer, nodes, numbers, strings
from haulout.compat.gotemplate.errors import Problem, Source
from haulout.compat.gotemplate.lexer import Token, TokenKind
from haulout.compat.gotemplate.numbers import Literal
from haulout.core.yaml_decoder import did_you_mean
from haulout.errors import TemplateError

_MAX_DEPTH = 60  # nested blocks and parentheses; each uses part of Python's stack
_OPERAND_STARTS = frozenset(
    {
        TokenKind.FIELD,
        TokenKind.VARIABLE,
        TokenKind.IDENTIFIER,
        TokenKind.DOT,
        TokenKind.NIL,
        TokenKind.BOOL,
        TokenKind.NUMBER,
        TokenKind.CHARACTER,
        TokenKind.STRING,
        TokenKind.LEFT_PAREN,
    }
)
_WITHOUT_FIELDS = nodes.Constant | nodes.Number | nodes.Nil | nodes.Dot  # a field after one of these is an error
_NOT_CALLABLE = (
    nodes.Constant,
    nodes.Number,
    nodes.Nil,
    nodes.Dot,
)  # these cannot take the result of the previous command


def parse_tree(source: Source, *, functions: frozenset[str]) -> nodes.Tree:
    """Return the tree of a template. Raise `TemplateError`."""
    return _Parser(source, functions).tree()


class _Parser:
    def __init__(self, source: Source, functions: frozenset[str]) -> None:
        self._source = source
        self._functions = functions
        self._tokens = lexer.tokens(source)
        self._pending: list[Token] = []
        self._variables = ["$"]
        self._ranges = 0  # number of enclosing ranges
        self._depth = 0
        self._templates: dict[str, nodes.Block] = {}
        self._statements: dict[str, Callable[[Token], nodes.Node]] = {
            "if": self._conditional,
            "with": self._conditional,
            "range": self._range,
            "template": self._template_call,
            "block": self._block_call,
            "break": self._loop_control,
            "continue": self._loop_control,
        }

    def tree(self) -> nodes.Tree:
        body: list[nodes.Node] = []
        while self._peek().kind is not TokenKind.END:
            if self._at_keyword("define"):
                self._define()
            elif self._at_keyword("end") or self._at_keyword("else"):
                raise self._error(self._peek(1), f"found {self._peek(1)} outside of a block")
            else:
                body.append(self._node())
        # A template may define itself by its own name. Of two definitions, the one with content counts.
        own = self._source.name
        if own in self._templates and _has_content(body) and _has_content(self._templates[own]):
            raise self._source.error(0, f"template {strings.quote(own)} is defined twice")
        return nodes.Tree(tuple(body) if _has_content(body) else self._templates.get(own, tuple(body)), self._templates)

    # -- tokens

    def _peek(self, ahead: int = 0) -> Token:
        while len(self._pending) <= ahead:
            self._pending.append(next(self._tokens))
        return self._pending[ahead]

    def _next(self) -> Token:
        token = self._peek()
        if token.kind is not TokenKind.END:
            self._pending.pop(0)
        return token

    def _expect(self, kind: TokenKind, context: str) -> Token:
        token = self._next()
        if token.kind is not kind:
            raise self._error(token, f"expected {kind.value} {context}, found {token}")
        return token

    def _at_keyword(self, word: str) -> bool:
        if self._peek().kind is not TokenKind.OPEN:
            return False
        return self._peek(1).kind is TokenKind.KEYWORD and self._peek(1).text == word

    def _error(self, place: Token | int, problem: str) -> TemplateError:
        return self._source.error(place if isinstance(place, int) else place.at, problem)

    @contextmanager
    def _nested(self, at: int) -> Iterator[None]:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(at, f"more than {_MAX_DEPTH} blocks and parentheses inside each other")
        yield
        self._depth -= 1

    # -- blocks

    def _block(self, opened: Token, *, allows_else: bool = False) -> nodes.Block:
        """Parse up to `end` (or `else`), which is left for the caller."""
        found: list[nodes.Node] = []
        with self._nested(opened.at):
            while not self._at_keyword("end"):
                if self._at_keyword("else"):
                    if allows_else:
                        break
                    raise self._error(self._peek(1), f"expected end of {opened.text}, found else")
                if self._peek().kind is TokenKind.END:
                    line, _ = self._source.position(opened.at)
                    raise self._error(
                        self._peek(),
                        f"expected {{{{end}}}} for the {opened.text} in line {line}, found {TokenKind.END.value}",
                    )
                if self._at_keyword("define"):
                    raise self._error(self._peek(1), f"a template cannot be defined inside of {opened.text}")
                found.append(self._node())
        return tuple(found)

    def _end(self) -> None:
        self._next()
        word = self._next()
        self._expect(TokenKind.CLOSE, f"after {word}")

    def _node(self) -> nodes.Node:
        token = self._next()
        if token.kind is TokenKind.TEXT:
            return nodes.Text(token.at, token.text)
        word = self._peek()
        if word.kind is not TokenKind.KEYWORD:
            return nodes.Action(word.at, self._pipe("in an action", TokenKind.CLOSE))
        if word.text not in self._statements:
            raise self._error(word, f"expected a value, found {word.text}")
        return self._statements[word.text](self._next())

    def _conditional(self, opened: Token) -> nodes.Conditional:
        scope = len(self._variables)
        branches = [
            nodes.Branch(self._pipe(f"for {opened.text}", TokenKind.CLOSE), self._block(opened, allows_else=True))
        ]
        else_body: nodes.Block = ()
        while self._at_keyword("else"):
            self._next()
            self._next()
            if self._peek().kind is TokenKind.KEYWORD and self._peek().text == opened.text:
                else_keyword = self._next()
                branches.append(
                    nodes.Branch(
                        self._pipe(f"for else {else_keyword.text}", TokenKind.CLOSE),
                        self._block(else_keyword, allows_else=True),
                    )
                )
                continue
            self._expect(TokenKind.CLOSE, f"or {opened.text} after else")
            else_body = self._block(opened)
            break
        self._end()
        del self._variables[scope:]
        return nodes.Conditional(opened.at, tuple(branches), else_body, is_with=opened.text == "with")

    def _range(self, opened: Token) -> nodes.Range:
        scope = len(self._variables)
        pipe = self._pipe("for range", TokenKind.CLOSE, in_range=True)
        self._ranges += 1
        body = self._block(opened, allows_else=True)
        self._ranges -= 1
        else_body: nodes.Block = ()
        if self._at_keyword("else"):
            self._end()
            else_body = self._block(opened)
        self._end()
        del self._variables[scope:]
        return nodes.Range(opened.at, pipe, body, else_body)

    def _loop_control(self, word: Token) -> nodes.LoopControl:
        self._expect(TokenKind.CLOSE, f"after {word}")
        if not self._ranges:
            raise self._error(word, f"found {word.text} outside of a range")
        return nodes.LoopControl(word.at, is_continue=word.text == "continue")

    # -- templates in templates

    def _template_call(self, word: Token) -> nodes.TemplateCall:
        name = self._template_name(word)
        if self._peek().kind is TokenKind.CLOSE:
            self._next()
            return nodes.TemplateCall(word.at, name, None)
        return nodes.TemplateCall(word.at, name, self._pipe("after the name of a template", TokenKind.CLOSE))

    def _block_call(self, word: Token) -> nodes.TemplateCall:
        name = self._template_name(word)
        pipe = self._pipe("after the name of a block", TokenKind.CLOSE)
        self._define_template(word, name)
        return nodes.TemplateCall(word.at, name, pipe)

    def _define(self) -> None:
        self._next()
        word = self._next()
        name = self._template_name(word)
        self._expect(TokenKind.CLOSE, "after the name of a template")
        self._define_template(word, name)

    def _template_name(self, word: Token) -> str:
        token = self._next()
        if token.kind is not TokenKind.STRING:
            raise self._error(token, f"expected the name of a template in quotes after {word}, found {token}")
        return self._unquoted(token)

    def _define_template(self, word: Token, name: str) -> None:
        outside = self._variables, self._ranges
        self._variables, self._ranges = ["$"], 0
        body = self._block(word)
        self._variables, self._ranges = outside
        self._end()
        # As `Tree.add` in Go's src/text/template/parse/parse.go: an empty definition never replaces another one.
        if name in self._templates and _has_content(self._templates[name]):
            if _has_content(body):
                raise self._error(word, f"template {strings.quote(name)} is defined twice")
            return
        self._templates[name] = body

    # -- pipelines

    def _pipe(self, context: str, end: TokenKind, *, in_range: bool = False) -> nodes.Pipeline:
        first = self._peek()
        variables, assigns = self._declarations(context, in_range=in_range)
        commands: list[nodes.Command] = []
        while True:
            token = self._peek()
            if token.kind is end:
                break
            if token.kind not in _OPERAND_STARTS:
                raise self._error(token, f"expected a value or {end.value} {context}, found {token}")
            commands.append(self._command())
        if not commands:
            raise self._error(token, f"expected a value {context}, found {token}")
        for command in commands[1:]:
            if isinstance(command.operand, _NOT_CALLABLE):
                raise self._error(command.at, "expected a function or a method after |, found a value")
        self._next()
        return nodes.Pipeline(first.at, variables, assigns, tuple(commands))

    def _declarations(self, context: str, *, in_range: bool) -> tuple[tuple[nodes.Name, ...], bool]:
        variables: list[nodes.Name] = []
        while self._peek().kind is TokenKind.VARIABLE:
            following = self._peek(1)
            is_comma = following.kind is TokenKind.OTHER and following.text == ","
            if not is_comma and following.kind not in (TokenKind.DECLARE, TokenKind.ASSIGN):
                break
            variable = self._next()
            self._next()
            variables.append(nodes.Name(variable.text, variable.at))
            self._variables.append(variable.text)
            if not is_comma:
                return tuple(variables), following.kind is TokenKind.ASSIGN
            if not in_range:
                raise self._error(following, f"expected one variable {context}, found a second: only range takes two")
            if len(variables) > 1:
                raise self._error(following, f"expected := after two variables, found {following}")
            if self._peek().kind not in (TokenKind.VARIABLE, TokenKind.CLOSE):
                raise self._error(self._peek(), f"expected a second variable after the comma, found {self._peek()}")
        # Go accepts `range $i, $x` without `:=`; $x is then the value to iterate over.
        return tuple(variables), False

    def _command(self) -> nodes.Command:
        operands: list[nodes.Operand] = []
        while True:
            operands.append(self._operand())
            token = self._peek()
            if token.kind is TokenKind.PIPE:
                self._next()
                break
            if token.kind in (TokenKind.CLOSE, TokenKind.RIGHT_PAREN):
                break
            if not (token.has_space_before and token.kind in _OPERAND_STARTS):
                raise self._error(token, f"expected a space, |, ) or }}}} after a value, found {token}")
        return nodes.Command(operands[0].at, operands[0], tuple(operands[1:]))

    def _operand(self) -> nodes.Operand:
        operand = self._term()
        names: list[nodes.Name] = []
        while self._peek().kind is TokenKind.FIELD and not self._peek().has_space_before:
            field = self._next()
            names.append(nodes.Name(field.text[1:], field.at))
        if not names:
            return operand
        if isinstance(operand, nodes.FieldChain):
            return nodes.FieldChain(operand.at, operand.operand, (*operand.names, *names))
        if isinstance(operand, _WITHOUT_FIELDS):
            raise self._error(
                names[0].at, f"expected a space, found .{names[0].text} right after a value without fields"
            )
        return nodes.FieldChain(operand.at, operand, tuple(names))

    def _term(self) -> nodes.Operand:  # noqa: PLR0911 - one line for each kind of term
        token = self._next()
        match token.kind:
            case TokenKind.DOT:
                return nodes.Dot(token.at)
            case TokenKind.NIL:
                return nodes.Nil(token.at)
            case TokenKind.BOOL:
                return nodes.Constant(token.at, value=token.text == "true")
            case TokenKind.STRING:
                return nodes.Constant(token.at, self._unquoted(token))
            case TokenKind.NUMBER | TokenKind.CHARACTER:
                return self._number(token)
            case TokenKind.FIELD:
                return nodes.FieldChain(token.at, nodes.Dot(token.at), (nodes.Name(token.text[1:], token.at),))
            case TokenKind.VARIABLE:
                return self._variable(token)
            case TokenKind.IDENTIFIER:
                return self._function(token)
        with self._nested(token.at):
            return self._pipe("in parentheses", TokenKind.RIGHT_PAREN)

    def _number(self, token: Token) -> nodes.Number:
        try:
            if token.kind is TokenKind.NUMBER:
                return nodes.Number(token.at, token.text, numbers.parse_literal(token.text))
            code = strings.character_number(token.text)
        except Problem as problem:
            raise self._error(token, str(problem)) from None
        return nodes.Number(token.at, token.text, Literal(code, float(code), is_floating=False))

    def _variable(self, token: Token) -> nodes.Variable:
        if token.text not in self._variables:
            raise self._error(
                token, f"there is no variable {token.text} here{did_you_mean(token.text, self._variables[1:])}"
            )
        return nodes.Variable(token.at, token.text)

    def _function(self, token: Token) -> nodes.Function:
        if token.text not in self._functions:
            hint = (
                did_you_mean(token.text, sorted(self._functions)) or f"; a field is written with a dot: .{token.text}"
            )
            raise self._error(token, f"there is no function {token.text}{hint}")
        return nodes.Function(token.at, token.text)

    def _unquoted(self, token: Token) -> str:
        try:
            return strings.unquote(token.text)
        except Problem as problem:
            raise self._error(token, str(problem)) from None


def _has_content(block: list[nodes.Node] | nodes.Block) -> bool:
    """Return whether a block has more than white space: an empty definition does not replace another one."""
    return any(not isinstance(node, nodes.Text) or node.text.strip() for node in block)
