"""The type checker: finds errors in a template before there is data.

It walks the template with types instead of values, into every branch. So a missing field, wrong arguments of a method,
a range over a text and a `printf` whose verbs do not fit are found when the configuration is loaded, and not when the
message must be sent. Values of unknown type (elements of open maps, variables that are assigned to) are accepted: the
checker reports only what always fails when it is executed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from haulout.compat.gotemplate import nodes, printer, strings
from haulout.compat.gotemplate.errors import Problem, Source, WorkBudget
from haulout.compat.gotemplate.functions import FUNCTIONS
from haulout.compat.gotemplate.types import (
    ANY,
    BOOL,
    BYTE,
    FLOAT,
    INT,
    STRING,
    Field,
    Kind,
    Method,
    Type,
    describe_type,
    fits,
    member,
    not_iterable,
    to_typed_value,
    wrong_method_count,
)
from haulout.core.yaml_decoder import did_you_mean
from haulout.errors import TemplateError

_KnownType: TypeAlias = Type | None  # None: unknown without data
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_BASIC = {
    Kind.BOOL: "bool",
    Kind.INT: "whole",
    Kind.UINT: "whole",
    Kind.FLOAT: "fraction",
    Kind.STRING: "text",
}
_WITH_LENGTH = (Kind.STRING, Kind.SLICE, Kind.MAP)


def check_tree(source: Source, tree: nodes.Tree, shape: Type) -> tuple[TemplateError, ...]:
    """Return all errors of a template for data of type `shape`, in the order of the text."""
    checker = _Checker(tree)
    checker.check_template(tree.body, shape)
    checker.check_uncalled()
    return tuple(source.error(at, problem) for at, problem in sorted(checker.problems))


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The arguments of a call: their types, offsets, and operands (None for the argument from the pipeline)."""

    types: tuple[_KnownType, ...]
    offsets: tuple[int, ...]
    operands: tuple[nodes.Operand | None, ...]

    def __len__(self) -> int:
        return len(self.types)

    def __iter__(self) -> Iterator[tuple[_KnownType, int, nodes.Operand | None]]:
        return zip(self.types, self.offsets, self.operands, strict=True)


class _Checker:
    def __init__(self, tree: nodes.Tree) -> None:
        self.problems: set[tuple[int, str]] = set()
        self._tree = tree
        self._assigned = set(_assigned_variables(tree.body)).union(
            *(_assigned_variables(body) for body in tree.templates.values())
        )
        self._variables: list[tuple[str, _KnownType]] = []
        self._visited: set[tuple[str, str]] = set()  # checked templates, with the type of their argument

    def check_template(self, body: nodes.Block, dot: _KnownType) -> None:
        """Check a template with its own variables."""
        outside = self._variables
        self._variables = [("$", dot)]
        self._block(body, dot)
        self._variables = outside

    def check_uncalled(self) -> None:
        """Check the templates that are never called, with an unknown argument."""
        called = {name for name, _ in self._visited}
        for name, body in self._tree.templates.items():
            if name not in called and body is not self._tree.body:
                self.check_template(body, None)

    def _report(self, at: int, problem: str) -> None:
        self.problems.add((at, problem))

    # -- nodes

    def _block(self, block: nodes.Block, dot: _KnownType) -> None:
        mark = len(self._variables)
        for node in block:
            self._node(node, dot)
        del self._variables[mark:]

    def _node(self, node: nodes.Node, dot: _KnownType) -> None:
        match node:
            case nodes.Action():
                # Not through _block: the variables of an action stay visible after it.
                self._pipe(node.pipe, dot)
            case nodes.Conditional():
                mark = len(self._variables)
                for branch in node.branches:
                    found = self._pipe(branch.pipe, dot)
                    self._block(branch.body, found if node.is_with else dot)
                self._block(node.else_body, dot)
                del self._variables[mark:]
            case nodes.Range():
                self._range(node, dot)
            case nodes.TemplateCall():
                self._template_call(node, dot)

    def _range(self, loop: nodes.Range, dot: _KnownType) -> None:
        mark = len(self._variables)
        iterated = _dereferenced(self._pipe(loop.pipe, dot))
        key, element = self._elements(loop, iterated)
        names = loop.pipe.variables
        for name, type_ in zip(names, (element,) if len(names) == 1 else (key, element), strict=False):
            self._declare(name, type_)
        self._block(loop.body, element)
        self._block(loop.else_body, dot)
        del self._variables[mark:]

    def _elements(self, loop: nodes.Range, iterated: _KnownType) -> tuple[_KnownType, _KnownType]:
        match iterated:
            case None:
                return None, None
            case Type(kind=Kind.MAP):
                return STRING, _known_type(iterated.element)
            case Type(kind=Kind.SLICE):
                return INT, _known_type(iterated.element)
            case Type(kind=Kind.INT | Kind.UINT) if len(loop.pipe.variables) < 2:  # noqa: PLR2004 - a pair
                return None, iterated
        self._report(loop.pipe.at, not_iterable(iterated))
        return None, None

    def _template_call(self, include: nodes.TemplateCall, dot: _KnownType) -> None:
        argument = None if include.pipe is None else self._pipe(include.pipe, dot)
        body = self._tree.templates.get(include.name)
        if body is None:
            hint = did_you_mean(include.name, self._tree.templates)
            self._report(include.at, f"there is no template {strings.quote(include.name)}{hint}")
            return
        visit = (include.name, argument.name if argument else "")
        if visit not in self._visited:
            self._visited.add(visit)
            self.check_template(body, argument)

    # -- pipelines

    def _declare(self, name: nodes.Name, type_: _KnownType) -> None:
        self._variables.append((name.text, None if name.text in self._assigned else type_))

    def _pipe(self, pipe: nodes.Pipeline, dot: _KnownType) -> _KnownType:
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
                self._report(name.at, f"there is no variable {name.text} to assign to; declare it with :=")
        return result

    def _command(self, command: nodes.Command, dot: _KnownType, last: tuple[_KnownType, ...]) -> _KnownType:
        operand = command.operand
        if not isinstance(operand, nodes.Function | nodes.FieldChain):
            if isinstance(operand, nodes.Nil):
                self._report(operand.at, "nil alone is no value to print or to test")
            if command.arguments or last:
                self._report(operand.at, "expected a function or a method, found a value that takes no arguments")
            return self._operand(operand, dot)
        arguments = _Arguments(
            (*(self._operand(each, dot) for each in command.arguments), *last),
            (*(each.at for each in command.arguments), *(operand.at for _ in last)),
            (*command.arguments, *(None for _ in last)),
        )
        return self._call(operand, arguments, dot)

    def _operand(self, operand: nodes.Operand, dot: _KnownType) -> _KnownType:  # noqa: PLR0911 - one line per kind
        match operand:
            case nodes.Dot():
                return dot
            case nodes.Constant():
                return BOOL if isinstance(operand.value, bool) else STRING
            case nodes.Number():
                return FLOAT if operand.value.is_floating else INT
            case nodes.Variable():
                return next((type_ for name, type_ in reversed(self._variables) if name == operand.name), None)
            case nodes.Function() | nodes.FieldChain():
                return self._call(operand, _Arguments((), (), ()), dot)
            case nodes.Pipeline():
                return self._pipe(operand, dot)
        return None

    def _call(self, operand: nodes.Function | nodes.FieldChain, arguments: _Arguments, dot: _KnownType) -> _KnownType:
        if isinstance(operand, nodes.Function):
            return self._function(operand, arguments)
        owner = self._operand(operand.operand, dot)
        for name in operand.names[:-1]:
            owner = self._member(owner, name, _Arguments((), (), ()))
        return self._member(owner, operand.names[-1], arguments)

    # -- functions

    def _function(self, function: nodes.Function, arguments: _Arguments) -> _KnownType:
        builtin = FUNCTIONS[function.name]
        expected = builtin.wrong_count(len(arguments))
        if expected:
            self._report(function.at, f"{function.name} takes {expected}, found {len(arguments)}")
            return builtin.result
        match function.name:
            case "call":
                self._report(function.at, "call is not supported here: no value is a function")
            case "and" | "or":
                same = all(type_ is arguments.types[0] for type_ in arguments.types)
                return arguments.types[0] if same else None
            case "index":
                return self._index(function, arguments)
            case "slice" | "len":
                return self._length_or_slice(function, arguments)
            case "printf":
                self._printf(function, arguments)
        if function.name in _COMPARISONS:
            self._comparison(function, arguments.types)
        return builtin.result

    def _index(self, function: nodes.Function, arguments: _Arguments) -> _KnownType:
        item = _dereferenced(arguments.types[0])
        for index in arguments.types[1:]:
            if item is None:
                return None
            if item.kind not in _WITH_LENGTH:
                self._report(
                    function.at, f"expected a map, a list or a text to index, found a value of type {item.name}"
                )
                return None
            index_type = STRING if item.kind is Kind.MAP else INT
            if index is not None and _BASIC.get(index.kind) != _BASIC[index_type.kind]:
                self._report(
                    function.at, f"expected {describe_type(index_type)} as an index, found a value of type {index.name}"
                )
            item = BYTE if item.kind is Kind.STRING else _dereferenced(_known_type(item.element))
        return item

    def _length_or_slice(self, function: nodes.Function, arguments: _Arguments) -> _KnownType:
        item = _dereferenced(arguments.types[0])
        is_length = function.name == "len"
        if item is not None and item.kind not in (_WITH_LENGTH if is_length else _WITH_LENGTH[:2]):
            what = "a map, a list or a text" if is_length else "a list or a text"
            self._report(function.at, f"{function.name}: expected {what}, found a value of type {item.name}")
        return INT if is_length else item

    def _comparison(self, function: nodes.Function, types: Sequence[_KnownType]) -> None:
        first = types[0]
        if function.name == "eq" and len(types) == 1:
            self._report(function.at, "eq: expected something to compare with")
        for other in types[1:]:
            if first is None or other is None or _BASIC.get(first.kind) == _BASIC.get(other.kind):
                continue
            found = f"found {first.name} and {other.name}"
            self._report(function.at, f"{function.name}: expected two values of one kind to compare, {found}")

    def _printf(self, function: nodes.Function, arguments: _Arguments) -> None:
        format_operand, types = arguments.operands[0], arguments.types[1:]
        self._check_argument(arguments.types[0], STRING, arguments.offsets[0], format_operand)
        if (
            not isinstance(format_operand, nodes.Constant)
            or not isinstance(format_operand.value, str)
            or "%!" in format_operand.value.replace("%%", "%")
        ):
            return
        # A nil pointer prints an error for verbs that are right for its target.
        if any(type_ is None or type_.kind is Kind.POINTER for type_ in types):
            return
        try:
            # Formats zero values: whether a verb fits depends only on types, and errors appear in the output.
            formatted = printer.sprintf(
                format_operand.value, [to_typed_value(type_, None) for type_ in types if type_], WorkBudget()
            )
        except Problem:
            return
        if "%!" in formatted:
            self._report(function.at, f"the format does not fit its values: it would write {strings.quote(formatted)}")

    # -- fields and methods

    def _member(self, owner: _KnownType, name: nodes.Name, arguments: _Arguments) -> _KnownType:
        owner = _dereferenced(owner)
        if owner is None:
            return None
        found = member(owner, name.text)
        match found:
            case str():
                self._report(name.at, found)
                return None
            case Method():
                return self._method(name, found, arguments)
        if len(arguments):
            self._report(name.at, f".{name.text} is no method: it takes no arguments")
        return _known_type(found.type if isinstance(found, Field) else found)

    def _method(self, name: nodes.Name, method: Method, arguments: _Arguments) -> _KnownType:
        if len(arguments) != len(method.parameters):
            self._report(name.at, wrong_method_count(name.text, method, len(arguments)))
        else:
            for parameter, (found, at, operand) in zip(method.parameters, arguments, strict=True):
                self._check_argument(found, parameter, at, operand)
        return _known_type(method.result)

    def _check_argument(self, found: _KnownType, parameter: Type, at: int, operand: nodes.Operand | None) -> None:
        if isinstance(operand, nodes.Nil):
            self._report(at, f"expected {describe_type(parameter)}, found nil")
        elif isinstance(operand, nodes.Number):
            is_whole = parameter.kind in (Kind.INT, Kind.UINT) and operand.value.integer is not None
            if not is_whole and parameter.kind is not Kind.FLOAT:
                self._report(at, f"expected {describe_type(parameter)}, found {operand.text}")
        elif found is not None and not fits(found.dereferenced, parameter):
            self._report(at, f"expected {describe_type(parameter)}, found a value of type {found.name}")


def _known_type(type_: _KnownType) -> _KnownType:
    return None if type_ is ANY else type_


def _dereferenced(type_: _KnownType) -> _KnownType:
    return type_.dereferenced if type_ is not None else None


def _assigned_variables(block: nodes.Block) -> Iterator[str]:
    """Yield the variables with an assignment anywhere: their type depends on the execution path."""
    for node in block:
        match node:
            case nodes.Action() | nodes.TemplateCall(pipe=nodes.Pipeline()):
                yield from _assigned_variables_in(node.pipe)
            case nodes.Conditional():
                for branch in node.branches:
                    yield from _assigned_variables_in(branch.pipe)
                    yield from _assigned_variables(branch.body)
                yield from _assigned_variables(node.else_body)
            case nodes.Range():
                yield from _assigned_variables_in(node.pipe)
                yield from _assigned_variables(node.body)
                yield from _assigned_variables(node.else_body)


def _assigned_variables_in(operand: nodes.Operand | None) -> Iterator[str]:
    match operand:
        case nodes.FieldChain():
            yield from _assigned_variables_in(operand.operand)
        case nodes.Pipeline():
            if operand.assigns:
                yield from (name.text for name in operand.variables)
            for command in operand.commands:
                for each in (command.operand, *command.arguments):
                    yield from _assigned_variables_in(each)
