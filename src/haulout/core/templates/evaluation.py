"""A template filled in with data.

Evaluation walks the tree. `dot` is the thing at hand, variables are a stack that is cut back at the `end` of what they
were declared in, and each template that is called has a stack of its own. Every problem is told with the place of the
operand that has it.
"""

from collections.abc import Iterable
from typing import Final

from haulout.core.shaped import meant
from haulout.core.templates import comparison, printing, strings
from haulout.core.templates.functions import FUNCTIONS, Builtin
from haulout.core.templates.limits import MOST_CALLS, Budget, Sink
from haulout.core.templates.members import fits, in_words, member, not_iterable, wrong_method_count
from haulout.core.templates.nodes import (
    Action,
    Block,
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
from haulout.core.templates.numbers import MAX_INT
from haulout.core.templates.source import Problem, Source
from haulout.core.templates.types import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    STRING,
    Field,
    Kind,
    Maybe,
    Method,
    Type,
    Value,
    entries,
    of,
    pointed,
    typed,
    without_interface,
)
from haulout.errors import TemplateError


class _Nothing:
    """No argument came through a pipe; None is one that did."""


_NOTHING: Final = _Nothing()


class _Left(Exception):
    """No error: how `break` and `continue` get out of blocks."""

    def __init__(self, *, goes_on: bool) -> None:
        self.goes_on = goes_on


def render(source: Source, tree: Tree, data: object) -> str:
    """Return a template filled in with data; raises `TemplateError`."""
    run = _Run(source, tree)
    try:
        run.begin(data)
    except RecursionError:
        raise source.error(run.at, "the template or its data are too deep") from None
    return strings.shown(run.text)


class _Run:
    def __init__(self, source: Source, tree: Tree) -> None:
        self._source = source
        self._tree = tree
        self._budget = Budget()
        self._sink = Sink(self._budget)
        self._variables: list[tuple[str, Maybe]] = []
        self._calls = 0
        self.at = 0  # the piece that was last begun

    @property
    def text(self) -> str:
        return self._sink.text

    def begin(self, data: object) -> None:
        try:
            dot = of(data)
        except Problem as problem:
            raise self._error(0, str(problem)) from None
        self._variables = [("$", dot)]
        self._block(self._tree.body, dot)

    def _error(self, at: int, problem: str) -> TemplateError:
        return self._source.error(at, problem)

    # -- pieces

    def _block(self, block: Block, dot: Maybe) -> None:
        for piece in block:
            self.at = piece.at
            try:
                self._budget.step()
                self._piece(piece, dot)
            except Problem as problem:
                raise self._error(piece.at, str(problem)) from None

    def _piece(self, piece: Piece, dot: Maybe) -> None:
        match piece:
            case Text():
                self._sink.write(piece.text)
            case Action():
                value = self._pipe(piece.pipe, dot)
                if not piece.pipe.variables:
                    self._sink.write(printing.show(value, self._budget))
            case Choice():
                self._choice(piece, dot)
            case Range():
                self._range(piece, dot)
            case Include():
                self._include(piece, dot)
            case Leave():
                raise _Left(goes_on=piece.goes_on)

    def _choice(self, choice: Choice, dot: Maybe) -> None:
        mark = len(self._variables)
        for branch in choice.branches:
            value = self._pipe(branch.pipe, dot)
            if comparison.is_true(value):
                self._block(branch.body, value if choice.is_with else dot)
                break
        else:
            self._block(choice.otherwise, dot)
        del self._variables[mark:]

    def _range(self, loop: Range, dot: Maybe) -> None:
        mark = len(self._variables)
        turns = self._turns(loop, without_interface(pointed(self._pipe(loop.pipe, dot))))
        inside = len(self._variables)
        ran = False
        try:
            for index, element in turns:
                ran = True
                self._budget.step()
                self._turn(loop, index, element)
                del self._variables[inside:]
        except _Left:
            pass
        if not ran:
            self._block(loop.otherwise, dot)
        del self._variables[mark:]

    def _turn(self, loop: Range, index: Maybe, element: Maybe) -> None:
        names = loop.pipe.variables
        values = (element,) if len(names) == 1 else (index, element)
        for offset, (name, value) in enumerate(zip(names, values, strict=False)):
            if loop.pipe.assigns:
                self._assign(name, value)
            else:
                self._variables[len(self._variables) - len(names) + offset] = (name.text, value)
        try:
            self._block(loop.body, element)
        except _Left as left:
            if not left.goes_on:
                raise

    def _turns(self, loop: Range, over: Maybe) -> Iterable[tuple[Maybe, Maybe]]:
        match over:
            case None:
                return ()
            case Value(type=Type(kind=Kind.MAP, element=Type() as element)):
                self._budget.step(len(over.data or ()))  # they are sorted, even if the first turn leaves
                return ((Value(STRING, key), typed(element, raw)) for key, raw in entries(over))
            case Value(type=Type(kind=Kind.SLICE, element=Type() as element)):
                return ((Value(INT, at), typed(element, raw)) for at, raw in enumerate(over.data or ()))
            case Value(type=Type(kind=Kind.INT | Kind.UINT)) if len(loop.pipe.variables) < 2:  # noqa: PLR2004 - a pair
                return ((None, Value(over.type, number)) for number in range(over.data))
        raise self._error(loop.pipe.at, not_iterable(over.type))

    def _include(self, include: Include, dot: Maybe) -> None:
        body = self._tree.defined.get(include.name)
        if body is None:
            hint = meant(include.name, self._tree.defined)
            raise self._error(include.at, f"there is no template {strings.quoted(include.name)}{hint}")
        if self._calls >= MOST_CALLS:
            raise self._error(include.at, f"more than {MOST_CALLS} templates call each other")
        argument = None if include.pipe is None else self._pipe(include.pipe, dot)
        outside = self._variables
        self._variables = [("$", argument)]
        self._calls += 1
        self._block(body, argument)
        self._calls -= 1
        self._variables = outside

    # -- pipes

    def _pipe(self, pipe: Pipe, dot: Maybe) -> Maybe:
        value: Maybe | _Nothing = _NOTHING
        for command in pipe.commands:
            self._budget.step()
            value = without_interface(self._command(command, dot, value))
        result = None if isinstance(value, _Nothing) else value
        for name in pipe.variables:
            if pipe.assigns:
                self._assign(name, result)
            else:
                self._variables.append((name.text, result))
        return result

    def _command(self, command: Command, dot: Maybe, last: Maybe | _Nothing) -> Maybe:
        operand = command.operand
        match operand:
            case Function():
                return self._function(operand, command.arguments, dot, last)
            case Path():
                return self._path(operand, command.arguments, dot, last)
            case Nil():
                raise self._error(operand.at, "nil alone is no value to print or to test")
        if command.arguments or not isinstance(last, _Nothing):
            raise self._error(operand.at, "expected a function or a method, found a value that takes no arguments")
        return self._operand(operand, dot)

    def _operand(self, operand: Operand, dot: Maybe) -> Maybe:  # noqa: PLR0911 - one line for each kind of operand
        match operand:
            case Dot():
                return dot
            case Constant(value=bool()):
                return Value(BOOL, operand.value)
            case Constant():
                return Value(STRING, operand.value)
            case Number():
                return self._number(operand)
            case Variable():
                return self._variable(operand)
            case Function():
                return self._function(operand, (), dot, _NOTHING)
            case Path():
                return self._path(operand, (), dot, _NOTHING)
            case Pipe():
                return self._pipe(operand, dot)
        return None

    def _number(self, number: Number) -> Value:
        literal = number.value
        if literal.is_fraction:
            return Value(FLOAT, literal.fraction)
        if literal.whole is None or literal.whole > MAX_INT:
            raise self._error(number.at, f"expected a number of at most 63 bits, found {number.text}")
        return Value(INT, literal.whole)

    def _variable(self, variable: Variable) -> Maybe:
        for name, value in reversed(self._variables):
            if name == variable.name:
                return value
        raise self._error(
            variable.at, f"{variable.name} has no value here: it was declared in a block that was not run"
        )

    def _assign(self, name: Name, value: Maybe) -> None:
        for at in range(len(self._variables) - 1, -1, -1):
            if self._variables[at][0] == name.text:
                self._variables[at] = (name.text, value)
                return
        raise self._error(name.at, f"there is no variable {name.text} to assign to; declare it with :=")

    # -- functions

    def _function(
        self, function: Function, arguments: tuple[Operand, ...], dot: Maybe, last: Maybe | _Nothing
    ) -> Maybe:
        builtin = FUNCTIONS[function.name]
        count = len(arguments) + (0 if isinstance(last, _Nothing) else 1)
        expected = builtin.wrong_count(count)
        if expected:
            raise self._error(function.at, f"{function.name} takes {expected}, found {count}")
        if function.name in ("and", "or"):
            return self._short_circuit(arguments, dot, last, until=function.name == "or")
        values = self._builtin_arguments(function, builtin, arguments, dot, last)
        try:
            self._budget.spend(sum(len(each.data) for each in values if each and isinstance(each.data, str)))
            return builtin.call(self._budget, *values)
        except Problem as problem:
            raise self._error(function.at, f"{function.name}: {problem}") from None

    def _short_circuit(
        self, arguments: tuple[Operand, ...], dot: Maybe, last: Maybe | _Nothing, *, until: bool
    ) -> Maybe:
        value: Maybe = None
        for argument in arguments:
            value = self._argument(argument, dot, ANY)
            if comparison.is_true(value) == until:
                return value
        return value if isinstance(last, _Nothing) else last

    def _builtin_arguments(
        self,
        function: Function,
        builtin: Builtin,
        arguments: tuple[Operand, ...],
        dot: Maybe,
        last: Maybe | _Nothing,
    ) -> list[Maybe]:
        fixed = builtin.parameters
        wanted = [fixed[at] if at < len(fixed) else ANY for at in range(len(arguments) + 1)]
        values = [self._argument(each, dot, type_) for each, type_ in zip(arguments, wanted, strict=False)]
        if not isinstance(last, _Nothing):
            values.append(self._fitting(function.at, last, wanted[-1]))
        return values

    # -- fields and methods

    def _path(self, path: Path, arguments: tuple[Operand, ...], dot: Maybe, last: Maybe | _Nothing) -> Maybe:
        if isinstance(path.of, Nil):
            raise self._error(path.at, "nil has no fields")
        value = self._operand(path.of, dot)
        for name in path.names[:-1]:
            value = self._field(value, name, (), dot, _NOTHING)
        return self._field(value, path.names[-1], arguments, dot, last)

    def _field(
        self, owner: Maybe, name: Name, arguments: tuple[Operand, ...], dot: Maybe, last: Maybe | _Nothing
    ) -> Maybe:
        if owner is None:
            return None
        type_ = owner.type.pointed
        is_nil = owner.type.kind in (Kind.INTERFACE, Kind.POINTER) and owner.data is None
        found = member(type_, name.text)
        if isinstance(found, str):
            raise self._error(name.at, found)
        if is_nil and isinstance(found, Method) and found.of_nothing is not None and not arguments:
            return typed(found.result, found.of_nothing)
        if is_nil:
            raise self._error(name.at, f"there is no .{name.text} of nothing: what stands before it is empty")
        if isinstance(found, Method):
            return self._method(owner, name, found, arguments, dot, last)
        if arguments or not isinstance(last, _Nothing):
            raise self._error(name.at, f".{name.text} is no method: it takes no arguments")
        if isinstance(found, Field):
            return typed(found.type, found.get(owner.data))
        data = owner.data or {}
        return typed(found, data[name.text]) if name.text in data else None

    def _method(
        self,
        owner: Value,
        name: Name,
        method: Method,
        arguments: tuple[Operand, ...],
        dot: Maybe,
        last: Maybe | _Nothing,
    ) -> Value:
        wanted = method.parameters
        count = len(arguments) + (0 if isinstance(last, _Nothing) else 1)
        if count != len(wanted):
            raise self._error(name.at, wrong_method_count(name.text, method, count))
        values = [self._argument(each, dot, type_) for each, type_ in zip(arguments, wanted, strict=False)]
        if not isinstance(last, _Nothing):
            values.append(self._fitting(name.at, last, wanted[-1]))
        data = [each.data if each else None for each in values]
        self._budget.spend(sum(len(each) for each in data if isinstance(each, str)))
        try:
            return typed(method.result, method.call(owner.data, *data))
        except Problem as problem:
            raise self._error(name.at, f".{name.text}: {problem}") from None

    # -- arguments

    def _argument(self, operand: Operand, dot: Maybe, wanted: Type) -> Maybe:
        if isinstance(operand, Nil):
            if wanted is not ANY:
                raise self._error(operand.at, f"expected {in_words(wanted)}, found nil")
            return None
        if isinstance(operand, Number) and wanted is not ANY:
            return self._number_as(operand, wanted)
        return self._fitting(operand.at, self._operand(operand, dot), wanted)

    def _number_as(self, number: Number, wanted: Type) -> Value:
        literal = number.value
        if wanted.kind is Kind.FLOAT:
            return Value(wanted, literal.fraction)
        if wanted.kind not in (Kind.INT, Kind.UINT) or literal.whole is None:
            raise self._error(number.at, f"expected {in_words(wanted)}, found {number.text}")
        return typed(wanted, literal.whole)

    def _fitting(self, at: int, value: Maybe, wanted: Type) -> Maybe:
        if wanted is ANY:
            return without_interface(value)
        value = pointed(without_interface(value))
        if value is None:
            raise self._error(at, f"expected {in_words(wanted)}, found nothing")
        if not fits(value.type, wanted):
            raise self._error(at, f"expected {in_words(wanted)}, found a value of type {value.type.name}")
        return Value(wanted, value.data)
