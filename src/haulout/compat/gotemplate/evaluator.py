"""Executes a template with data.

Evaluation walks the tree. `dot` is the current value. Variables are a stack that is truncated at the `end` of the block
that declared them, and each called template has its own stack. Every error has the position of its operand.
"""

from collections.abc import Iterable
from typing import Final

from haulout.compat.gotemplate import functions, nodes, printer, strings
from haulout.compat.gotemplate.errors import MAX_CALLS, BoundedOutput, Problem, Source, WorkBudget
from haulout.compat.gotemplate.functions import FUNCTIONS, Builtin
from haulout.compat.gotemplate.numbers import MAX_INT
from haulout.compat.gotemplate.types import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    STRING,
    Field,
    Kind,
    Method,
    OptionalValue,
    Type,
    Value,
    dereference,
    describe_type,
    fits,
    member,
    not_iterable,
    sorted_entries,
    to_typed_value,
    to_value,
    unwrap_interface,
    wrong_method_count,
)
from haulout.core.yaml_decoder import did_you_mean
from haulout.errors import TemplateError


class _Missing:
    """No argument came through the pipeline. None, in contrast, is an argument."""


_MISSING: Final = _Missing()


class _LoopExit(Exception):
    """Not an error: implements `break` and `continue`."""

    def __init__(self, *, is_continue: bool) -> None:
        self.is_continue = is_continue


def render(source: Source, tree: nodes.Tree, data: object) -> str:
    """Return the text of a template for this data. Raise `TemplateError`."""
    evaluator = _Evaluator(source, tree)
    try:
        evaluator.evaluate(data)
    # The parser limits the depth of the text, but nested data and calls add to it.
    except RecursionError:
        raise source.error(evaluator.at, "the template or its data are too deep") from None
    return strings.replace_invalid(evaluator.text)


class _Evaluator:
    def __init__(self, source: Source, tree: nodes.Tree) -> None:
        self._source = source
        self._tree = tree
        self._budget = WorkBudget()
        self._sink = BoundedOutput(self._budget)
        self._variables: list[tuple[str, OptionalValue]] = []
        self._calls = 0
        self.at = 0  # the offset of the current node

    @property
    def text(self) -> str:
        return self._sink.text

    def evaluate(self, data: object) -> None:
        try:
            dot = to_value(data)
        except Problem as problem:
            raise self._error(0, str(problem)) from None
        self._variables = [("$", dot)]
        self._block(self._tree.body, dot)

    def _error(self, at: int, problem: str) -> TemplateError:
        return self._source.error(at, problem)

    # -- nodes

    def _block(self, block: nodes.Block, dot: OptionalValue) -> None:
        for node in block:
            self.at = node.at
            try:
                self._budget.step()
                self._node(node, dot)
            except Problem as problem:
                raise self._error(node.at, str(problem)) from None

    def _node(self, node: nodes.Node, dot: OptionalValue) -> None:
        match node:
            case nodes.Text():
                self._sink.write(node.text)
            case nodes.Action():
                value = self._pipe(node.pipe, dot)
                if not node.pipe.variables:
                    self._sink.write(printer.print_action(value, self._budget))
            case nodes.Conditional():
                self._conditional(node, dot)
            case nodes.Range():
                self._range(node, dot)
            case nodes.TemplateCall():
                self._template_call(node, dot)
            case nodes.LoopControl():
                raise _LoopExit(is_continue=node.is_continue)

    def _conditional(self, conditional: nodes.Conditional, dot: OptionalValue) -> None:
        mark = len(self._variables)
        for branch in conditional.branches:
            value = self._pipe(branch.pipe, dot)
            if functions.is_true(value):
                self._block(branch.body, value if conditional.is_with else dot)
                break
        else:
            self._block(conditional.else_body, dot)
        del self._variables[mark:]

    def _range(self, loop: nodes.Range, dot: OptionalValue) -> None:
        mark = len(self._variables)
        iterations = self._iterations(loop, unwrap_interface(dereference(self._pipe(loop.pipe, dot))))
        loop_mark = len(self._variables)
        has_iterated = False
        try:
            for index, element in iterations:
                has_iterated = True
                self._budget.step()
                self._iteration(loop, index, element)
                del self._variables[loop_mark:]
        except _LoopExit:
            pass
        if not has_iterated:
            self._block(loop.else_body, dot)
        del self._variables[mark:]

    def _iteration(self, loop: nodes.Range, index: OptionalValue, element: OptionalValue) -> None:
        names = loop.pipe.variables
        # With one variable, Go's `range` gives it the element, not the index.
        values = (element,) if len(names) == 1 else (index, element)
        for offset, (name, value) in enumerate(zip(names, values, strict=False)):
            if loop.pipe.assigns:
                self._assign(name, value)
            else:
                self._variables[len(self._variables) - len(names) + offset] = (name.text, value)
        try:
            self._block(loop.body, element)
        except _LoopExit as loop_exit:
            if not loop_exit.is_continue:
                raise

    def _iterations(self, loop: nodes.Range, iterated: OptionalValue) -> Iterable[tuple[OptionalValue, OptionalValue]]:
        match iterated:
            case None:
                return ()
            case Value(type=Type(kind=Kind.MAP, element=Type() as element)):
                # all entries are sorted, even if the first iteration leaves the loop
                self._budget.step(len(iterated.data or ()))
                return ((Value(STRING, key), to_typed_value(element, raw)) for key, raw in sorted_entries(iterated))
            case Value(type=Type(kind=Kind.SLICE, element=Type() as element)):
                return ((Value(INT, at), to_typed_value(element, raw)) for at, raw in enumerate(iterated.data or ()))
            case Value(type=Type(kind=Kind.INT | Kind.UINT)) if len(loop.pipe.variables) < 2:  # noqa: PLR2004 - a pair
                return ((None, Value(iterated.type, number)) for number in range(iterated.data))
        raise self._error(loop.pipe.at, not_iterable(iterated.type))

    def _template_call(self, call: nodes.TemplateCall, dot: OptionalValue) -> None:
        body = self._tree.templates.get(call.name)
        if body is None:
            hint = did_you_mean(call.name, self._tree.templates)
            raise self._error(call.at, f"there is no template {strings.quote(call.name)}{hint}")
        if self._calls >= MAX_CALLS:
            raise self._error(call.at, f"more than {MAX_CALLS} templates call each other")
        argument = None if call.pipe is None else self._pipe(call.pipe, dot)
        outer_variables = self._variables
        self._variables = [("$", argument)]
        self._calls += 1
        self._block(body, argument)
        self._calls -= 1
        self._variables = outer_variables

    # -- pipelines

    def _pipe(self, pipe: nodes.Pipeline, dot: OptionalValue) -> OptionalValue:
        value: OptionalValue | _Missing = _MISSING
        for command in pipe.commands:
            self._budget.step()
            value = unwrap_interface(self._command(command, dot, value))
        result = None if isinstance(value, _Missing) else value
        for name in pipe.variables:
            if pipe.assigns:
                self._assign(name, result)
            else:
                self._variables.append((name.text, result))
        return result

    def _command(self, command: nodes.Command, dot: OptionalValue, last: OptionalValue | _Missing) -> OptionalValue:
        operand = command.operand
        match operand:
            case nodes.Function():
                return self._function(operand, command.arguments, dot, last)
            case nodes.FieldChain():
                return self._path(operand, command.arguments, dot, last)
            case nodes.Nil():
                raise self._error(operand.at, "nil alone is no value to print or to test")
        if command.arguments or not isinstance(last, _Missing):
            raise self._error(operand.at, "expected a function or a method, found a value that takes no arguments")
        return self._operand(operand, dot)

    def _operand(self, operand: nodes.Operand, dot: OptionalValue) -> OptionalValue:  # noqa: PLR0911 - one line per kind
        match operand:
            case nodes.Dot():
                return dot
            case nodes.Constant(value=bool()):
                return Value(BOOL, operand.value)
            case nodes.Constant():
                return Value(STRING, operand.value)
            case nodes.Number():
                return self._number(operand)
            case nodes.Variable():
                return self._variable(operand)
            case nodes.Function():
                return self._function(operand, (), dot, _MISSING)
            case nodes.FieldChain():
                return self._path(operand, (), dot, _MISSING)
            case nodes.Pipeline():
                return self._pipe(operand, dot)
        return None

    def _number(self, number: nodes.Number) -> Value:
        literal = number.value
        if literal.is_floating:
            return Value(FLOAT, literal.floating)
        if literal.integer is None or literal.integer > MAX_INT:
            raise self._error(number.at, f"expected a number of at most 63 bits, found {number.text}")
        return Value(INT, literal.integer)

    def _variable(self, variable: nodes.Variable) -> OptionalValue:
        for name, value in reversed(self._variables):
            if name == variable.name:
                return value
        raise self._error(
            variable.at, f"{variable.name} has no value here: it was declared in a block that was not run"
        )

    def _assign(self, name: nodes.Name, value: OptionalValue) -> None:
        for at in range(len(self._variables) - 1, -1, -1):
            if self._variables[at][0] == name.text:
                self._variables[at] = (name.text, value)
                return
        raise self._error(name.at, f"there is no variable {name.text} to assign to; declare it with :=")

    # -- functions

    def _function(
        self,
        function: nodes.Function,
        arguments: tuple[nodes.Operand, ...],
        dot: OptionalValue,
        last: OptionalValue | _Missing,
    ) -> OptionalValue:
        builtin = FUNCTIONS[function.name]
        count = len(arguments) + (0 if isinstance(last, _Missing) else 1)
        expected = builtin.wrong_count(count)
        if expected:
            raise self._error(function.at, f"{function.name} takes {expected}, found {count}")
        # Since Go 1.18 they stop at the first argument that decides. The others may be errors.
        if function.name in ("and", "or"):
            return self._short_circuit(arguments, dot, last, stops_at=function.name == "or")
        values = self._builtin_arguments(function, builtin, arguments, dot, last)
        try:
            self._budget.spend_characters(sum(len(each.data) for each in values if each and isinstance(each.data, str)))
            return builtin.call(self._budget, *values)
        except Problem as problem:
            raise self._error(function.at, f"{function.name}: {problem}") from None

    def _short_circuit(
        self,
        arguments: tuple[nodes.Operand, ...],
        dot: OptionalValue,
        last: OptionalValue | _Missing,
        *,
        stops_at: bool,
    ) -> OptionalValue:
        value: OptionalValue = None
        for argument in arguments:
            value = self._argument(argument, dot, ANY)
            if functions.is_true(value) == stops_at:
                return value
        return value if isinstance(last, _Missing) else last

    def _builtin_arguments(
        self,
        function: nodes.Function,
        builtin: Builtin,
        arguments: tuple[nodes.Operand, ...],
        dot: OptionalValue,
        last: OptionalValue | _Missing,
    ) -> list[OptionalValue]:
        parameters = builtin.parameters
        types = [parameters[at] if at < len(parameters) else ANY for at in range(len(arguments) + 1)]
        values = [self._argument(each, dot, type_) for each, type_ in zip(arguments, types, strict=False)]
        if not isinstance(last, _Missing):
            values.append(self._convert(function.at, last, types[-1]))
        return values

    # -- fields and methods

    def _path(
        self,
        path: nodes.FieldChain,
        arguments: tuple[nodes.Operand, ...],
        dot: OptionalValue,
        last: OptionalValue | _Missing,
    ) -> OptionalValue:
        if isinstance(path.operand, nodes.Nil):
            raise self._error(path.at, "nil has no fields")
        value = self._operand(path.operand, dot)
        for name in path.names[:-1]:
            value = self._field(value, name, (), dot, _MISSING)
        return self._field(value, path.names[-1], arguments, dot, last)

    def _field(
        self,
        owner: OptionalValue,
        name: nodes.Name,
        arguments: tuple[nodes.Operand, ...],
        dot: OptionalValue,
        last: OptionalValue | _Missing,
    ) -> OptionalValue:
        if owner is None:
            return None
        type_ = owner.type.dereferenced
        is_nil = owner.type.kind in (Kind.INTERFACE, Kind.POINTER) and owner.data is None
        found = member(type_, name.text)
        if isinstance(found, str):
            raise self._error(name.at, found)
        if is_nil and isinstance(found, Method) and found.on_nil is not None and not arguments:
            return to_typed_value(found.result, found.on_nil)
        if is_nil:
            raise self._error(name.at, f"cannot read .{name.text}: the value before it is nil")
        if isinstance(found, Method):
            return self._method(owner, name, found, arguments, dot, last)
        if arguments or not isinstance(last, _Missing):
            raise self._error(name.at, f".{name.text} is no method: it takes no arguments")
        if isinstance(found, Field):
            return to_typed_value(found.type, found.get(owner.data))
        data = owner.data or {}
        return to_typed_value(found, data[name.text]) if name.text in data else None

    def _method(
        self,
        owner: Value,
        name: nodes.Name,
        method: Method,
        arguments: tuple[nodes.Operand, ...],
        dot: OptionalValue,
        last: OptionalValue | _Missing,
    ) -> Value:
        parameters = method.parameters
        count = len(arguments) + (0 if isinstance(last, _Missing) else 1)
        if count != len(parameters):
            raise self._error(name.at, wrong_method_count(name.text, method, count))
        values = [self._argument(each, dot, type_) for each, type_ in zip(arguments, parameters, strict=False)]
        if not isinstance(last, _Missing):
            values.append(self._convert(name.at, last, parameters[-1]))
        data = [each.data if each else None for each in values]
        self._budget.spend_characters(sum(len(each) for each in data if isinstance(each, str)))
        try:
            return to_typed_value(method.result, method.call(owner.data, *data))
        except Problem as problem:
            raise self._error(name.at, f".{name.text}: {problem}") from None

    # -- arguments

    def _argument(self, operand: nodes.Operand, dot: OptionalValue, type_: Type) -> OptionalValue:
        if isinstance(operand, nodes.Nil):
            if type_ is not ANY:
                raise self._error(operand.at, f"expected {describe_type(type_)}, found nil")
            return None
        if isinstance(operand, nodes.Number) and type_ is not ANY:
            return self._number_as(operand, type_)
        return self._convert(operand.at, self._operand(operand, dot), type_)

    def _number_as(self, number: nodes.Number, type_: Type) -> Value:
        literal = number.value
        if type_.kind is Kind.FLOAT:
            return Value(type_, literal.floating)
        if type_.kind not in (Kind.INT, Kind.UINT) or literal.integer is None:
            raise self._error(number.at, f"expected {describe_type(type_)}, found {number.text}")
        return to_typed_value(type_, literal.integer)

    def _convert(self, at: int, value: OptionalValue, type_: Type) -> OptionalValue:
        if type_ is ANY:
            return unwrap_interface(value)
        value = dereference(unwrap_interface(value))
        if value is None:
            raise self._error(at, f"expected {describe_type(type_)}, found nothing")
        if not fits(value.type, type_):
            raise self._error(at, f"expected {describe_type(type_)}, found a value of type {value.type.name}")
        return Value(type_, value.data)
