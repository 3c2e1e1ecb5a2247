"""What is wrong with a template can often be told before there are data.

A shape is the type of what the template will get. The check walks the template along it, into every branch, with types
in the place of values: a field that does not exist, a method with the wrong arguments, a range over a text, a `printf`
whose verbs do not fit are found when the configuration is loaded, and not at three in the morning when the message is
needed. What has no known type (elements of open maps, variables that are assigned to) is let pass: the check tells only
what would fail whenever it is reached.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from haulout.core.shaped import meant
from haulout.core.templates import printf, strings
from haulout.core.templates.functions import FUNCTIONS
from haulout.core.templates.limits import Budget
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
    Name,
    Nil,
    Number,
    Operand,
    Path,
    Piece,
    Pipe,
    Range,
    Tree,
    Variable,
)
from haulout.core.templates.source import Problem, Source
from haulout.core.templates.types import ANY, BOOL, BYTE, FLOAT, INT, STRING, Field, Kind, Method, Type, typed
from haulout.errors import TemplateError

_Known: TypeAlias = Type | None  # None: not known before there are data
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_BASIC = {
    Kind.BOOL: "bool",
    Kind.INT: "whole",
    Kind.UINT: "whole",
    Kind.FLOAT: "fraction",
    Kind.STRING: "text",
}
_WITH_LENGTH = (Kind.STRING, Kind.SLICE, Kind.MAP)


def check_tree(source: Source, tree: Tree, shape: Type) -> tuple[TemplateError, ...]:
    """Return all that is wrong with a template for data of a shape, in the order of the text."""
    walk = _Walk(source, tree)
    walk.template(tree.body, shape)
    walk.uncalled()
    return tuple(source.error(at, problem) for at, problem in sorted(walk.problems))


@dataclass(frozen=True, slots=True)
class _Arguments:
    """What a function or a method is given: where each stands, its type, and the operand unless it came by a pipe."""

    types: tuple[_Known, ...]
    places: tuple[int, ...]
    operands: tuple[Operand | None, ...]

    def __len__(self) -> int:
        return len(self.types)

    def __iter__(self) -> Iterator[tuple[_Known, int, Operand | None]]:
        return zip(self.types, self.places, self.operands, strict=True)


class _Walk:
    def __init__(self, source: Source, tree: Tree) -> None:
        self.problems: set[tuple[int, str]] = set()
        self._source = source
        self._tree = tree
        self._assigned = set(_assigned(tree.body)).union(*(_assigned(body) for body in tree.defined.values()))
        self._variables: list[tuple[str, _Known]] = []
        self._seen: set[tuple[str, str]] = set()  # templates and the types they were walked with

    def template(self, body: Block, dot: _Known) -> None:
        """Walk a template with a stack of its own."""
        outside = self._variables
        self._variables = [("$", dot)]
        self._block(body, dot)
        self._variables = outside

    def uncalled(self) -> None:
        """Walk the templates that nobody calls: what is wrong in itself is wrong there, too."""
        called = {name for name, _ in self._seen}
        for name, body in self._tree.defined.items():
            if name not in called and body is not self._tree.body:
                self.template(body, None)

    def _wrong(self, at: int, problem: str) -> None:
        self.problems.add((at, problem))

    # -- pieces

    def _block(self, block: Block, dot: _Known) -> None:
        mark = len(self._variables)
        for piece in block:
            self._piece(piece, dot)
        del self._variables[mark:]

    def _piece(self, piece: Piece, dot: _Known) -> None:
        match piece:
            case Action():
                # Not through _block: the variables of an action live on.
                self._pipe(piece.pipe, dot)
            case Choice():
                mark = len(self._variables)
                for branch in piece.branches:
                    found = self._pipe(branch.pipe, dot)
                    self._block(branch.body, found if piece.is_with else dot)
                self._block(piece.otherwise, dot)
                del self._variables[mark:]
            case Range():
                self._range(piece, dot)
            case Include():
                self._include(piece, dot)

    def _range(self, loop: Range, dot: _Known) -> None:
        mark = len(self._variables)
        over = _pointed(self._pipe(loop.pipe, dot))
        key, element = self._elements(loop, over)
        names = loop.pipe.variables
        for name, type_ in zip(names, (element,) if len(names) == 1 else (key, element), strict=False):
            self._declare(name, type_)
        self._block(loop.body, element)
        self._block(loop.otherwise, dot)
        del self._variables[mark:]

    def _elements(self, loop: Range, over: _Known) -> tuple[_Known, _Known]:
        match over:
            case None:
                return None, None
            case Type(kind=Kind.MAP):
                return STRING, _known(over.element)
            case Type(kind=Kind.SLICE):
                return INT, _known(over.element)
            case Type(kind=Kind.INT | Kind.UINT) if len(loop.pipe.variables) < 2:  # noqa: PLR2004 - a pair
                return None, over
        self._wrong(loop.pipe.at, not_iterable(over))
        return None, None

    def _include(self, include: Include, dot: _Known) -> None:
        argument = None if include.pipe is None else self._pipe(include.pipe, dot)
        body = self._tree.defined.get(include.name)
        if body is None:
            hint = meant(include.name, self._tree.defined)
            self._wrong(include.at, f"there is no template {strings.quoted(include.name)}{hint}")
            return
        seen = (include.name, argument.name if argument else "")
        if seen not in self._seen:
            self._seen.add(seen)
            self.template(body, argument)

    # -- pipes

    def _declare(self, name: Name, type_: _Known) -> None:
        self._variables.append((name.text, None if name.text in self._assigned else type_))

    def _pipe(self, pipe: Pipe, dot: _Known) -> _Known:
        result = self._command(pipe.commands[0], dot, ())
        for command in pipe.commands[1:]:
            result = self._command(command, dot, (result,))
        if not pipe.assigns:
            for name in pipe.variables:
                self._declare(name, result)
            return result
        known = {name for name, _ in self._variables}
        for name in pipe.variables:
            if name.text not in known:
                self._wrong(name.at, f"there is no variable {name.text} to assign to; declare it with :=")
        return result

    def _command(self, command: Command, dot: _Known, last: tuple[_Known, ...]) -> _Known:
        operand = command.operand
        if not isinstance(operand, Function | Path):
            if isinstance(operand, Nil):
                self._wrong(operand.at, "nil alone is no value to print or to test")
            if command.arguments or last:
                self._wrong(operand.at, "expected a function or a method, found a value that takes no arguments")
            return self._operand(operand, dot)
        arguments = _Arguments(
            (*(self._operand(each, dot) for each in command.arguments), *last),
            (*(each.at for each in command.arguments), *(operand.at for _ in last)),
            (*command.arguments, *(None for _ in last)),
        )
        return self._called(operand, arguments, dot)

    def _operand(self, operand: Operand, dot: _Known) -> _Known:  # noqa: PLR0911 - one line for each kind of operand
        match operand:
            case Dot():
                return dot
            case Constant():
                return BOOL if isinstance(operand.value, bool) else STRING
            case Number():
                return FLOAT if operand.value.is_fraction else INT
            case Variable():
                return next((type_ for name, type_ in reversed(self._variables) if name == operand.name), None)
            case Function() | Path():
                return self._called(operand, _Arguments((), (), ()), dot)
            case Pipe():
                return self._pipe(operand, dot)
        return None

    def _called(self, operand: Function | Path, arguments: _Arguments, dot: _Known) -> _Known:
        if isinstance(operand, Function):
            return self._function(operand, arguments)
        owner = self._operand(operand.of, dot)
        for name in operand.names[:-1]:
            owner = self._member(owner, name, _Arguments((), (), ()))
        return self._member(owner, operand.names[-1], arguments)

    # -- functions

    def _function(self, function: Function, arguments: _Arguments) -> _Known:
        builtin = FUNCTIONS[function.name]
        expected = builtin.wrong_count(len(arguments))
        if expected:
            self._wrong(function.at, f"{function.name} takes {expected}, found {len(arguments)}")
            return builtin.result
        match function.name:
            case "call":
                self._wrong(function.at, "call is of no use here: no value is a function")
            case "and" | "or":
                same = all(type_ is arguments.types[0] for type_ in arguments.types)
                return arguments.types[0] if same else None
            case "index":
                return self._indexed(function, arguments)
            case "slice" | "len":
                return self._measured(function, arguments)
            case "printf":
                self._printf(function, arguments)
        if function.name in _COMPARISONS:
            self._compared(function, arguments.types)
        return builtin.result

    def _indexed(self, function: Function, arguments: _Arguments) -> _Known:
        item = _pointed(arguments.types[0])
        for index in arguments.types[1:]:
            if item is None:
                return None
            if item.kind not in _WITH_LENGTH:
                self._wrong(
                    function.at, f"expected a map, a list or a text to index, found a value of type {item.name}"
                )
                return None
            wanted = STRING if item.kind is Kind.MAP else INT
            if index is not None and _BASIC.get(index.kind) != _BASIC[wanted.kind]:
                self._wrong(function.at, f"expected {in_words(wanted)} as an index, found a value of type {index.name}")
            item = BYTE if item.kind is Kind.STRING else _pointed(_known(item.element))
        return item

    def _measured(self, function: Function, arguments: _Arguments) -> _Known:
        item = _pointed(arguments.types[0])
        is_length = function.name == "len"
        if item is not None and item.kind not in (_WITH_LENGTH if is_length else _WITH_LENGTH[:2]):
            what = "a map, a list or a text" if is_length else "a list or a text"
            self._wrong(function.at, f"{function.name}: expected {what}, found a value of type {item.name}")
        return INT if is_length else item

    def _compared(self, function: Function, types: Sequence[_Known]) -> None:
        first = types[0]
        if function.name == "eq" and len(types) == 1:
            self._wrong(function.at, "eq: expected something to compare with")
        for other in types[1:]:
            if first is None or other is None or _BASIC.get(first.kind) == _BASIC.get(other.kind):
                continue
            found = f"found {first.name} and {other.name}"
            self._wrong(function.at, f"{function.name}: expected two values of one kind to compare, {found}")

    def _printf(self, function: Function, arguments: _Arguments) -> None:
        form, types = arguments.operands[0], arguments.types[1:]
        self._fits(arguments.types[0], STRING, arguments.places[0], form)
        if not isinstance(form, Constant) or not isinstance(form.value, str) or "%!" in form.value.replace("%%", "%"):
            return
        if any(type_ is None or type_.kind is Kind.POINTER for type_ in types):
            return
        try:
            written = printf.filled_in(form.value, [typed(type_, None) for type_ in types if type_], Budget())
        except Problem:
            return
        if "%!" in written:
            self._wrong(function.at, f"the format does not fit its values: it would write {strings.quoted(written)}")

    # -- fields and methods

    def _member(self, owner: _Known, name: Name, arguments: _Arguments) -> _Known:
        owner = _pointed(owner)
        if owner is None:
            return None
        found = member(owner, name.text)
        match found:
            case str():
                self._wrong(name.at, found)
                return None
            case Method():
                return self._method(name, found, arguments)
        if len(arguments):
            self._wrong(name.at, f".{name.text} is no method: it takes no arguments")
        return _known(found.type if isinstance(found, Field) else found)

    def _method(self, name: Name, method: Method, arguments: _Arguments) -> _Known:
        if len(arguments) != len(method.parameters):
            self._wrong(name.at, wrong_method_count(name.text, method, len(arguments)))
        else:
            for wanted, (found, at, operand) in zip(method.parameters, arguments, strict=True):
                self._fits(found, wanted, at, operand)
        return _known(method.result)

    def _fits(self, found: _Known, wanted: Type, at: int, operand: Operand | None) -> None:
        if isinstance(operand, Nil):
            self._wrong(at, f"expected {in_words(wanted)}, found nil")
        elif isinstance(operand, Number):
            whole = wanted.kind in (Kind.INT, Kind.UINT) and operand.value.whole is not None
            if not whole and wanted.kind is not Kind.FLOAT:
                self._wrong(at, f"expected {in_words(wanted)}, found {operand.text}")
        elif found is not None and not fits(found.pointed, wanted):
            self._wrong(at, f"expected {in_words(wanted)}, found a value of type {found.name}")


def _known(type_: _Known) -> _Known:
    return None if type_ is ANY else type_


def _pointed(type_: _Known) -> _Known:
    return type_.pointed if type_ is not None else None


def _assigned(block: Block) -> Iterator[str]:
    """Yield the variables that are assigned to somewhere: what they hold depends on the way."""
    for piece in block:
        match piece:
            case Action() | Include(pipe=Pipe()):
                yield from _assigned_in(piece.pipe)
            case Choice():
                for branch in piece.branches:
                    yield from _assigned_in(branch.pipe)
                    yield from _assigned(branch.body)
                yield from _assigned(piece.otherwise)
            case Range():
                yield from _assigned_in(piece.pipe)
                yield from _assigned(piece.body)
                yield from _assigned(piece.otherwise)


def _assigned_in(operand: Operand | None) -> Iterator[str]:
    match operand:
        case Path():
            yield from _assigned_in(operand.of)
        case Pipe():
            if operand.assigns:
                yield from (name.text for name in operand.variables)
            for command in operand.commands:
                for each in (command.operand, *command.arguments):
                    yield from _assigned_in(each)
