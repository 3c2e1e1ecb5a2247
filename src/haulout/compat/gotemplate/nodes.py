"""The nodes of a parsed template.

A template is a block: a sequence of nodes. An action contains a pipeline: commands, each of which gets the result of
the previous one as its last argument. A command is an operand with arguments. `at` is the offset in the text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from haulout.compat.gotemplate.numbers import Literal


@dataclass(frozen=True, slots=True)
class Name:
    """A name and its position: each field in a chain has its own."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Dot:
    """A dot: the current value, which `with`, `range` and `template` change."""

    at: int


@dataclass(frozen=True, slots=True)
class Nil:
    """`nil`, which is valid only as an argument of a function."""

    at: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A text in quotes, or one of the words true and false."""

    at: int
    value: str | bool


@dataclass(frozen=True, slots=True)
class Number:
    """A number or a character: its text and its possible values."""

    at: int
    text: str
    value: Literal


@dataclass(frozen=True, slots=True)
class Function:
    """The name of a function; the parser has checked that it exists."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """`$x`, or `$` alone, which is the data of the current template."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class FieldChain:
    """Fields of an operand: `.a.b` (of a `Dot`), `$x.a`, `(pipe).a`."""

    at: int
    operand: "Operand"
    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """An operand with its arguments. A value that is no function or method takes none."""

    at: int
    operand: "Operand"
    arguments: tuple["Operand", ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands that pass on their results, and the variables that get the last one."""

    at: int
    variables: tuple[Name, ...]
    assigns: bool  # assigns to existing variables; otherwise declares new ones
    commands: tuple[Command, ...]


Operand: TypeAlias = Dot | Nil | Constant | Number | Function | Variable | FieldChain | Pipeline


@dataclass(frozen=True, slots=True)
class Text:
    """The text between two actions, after trim markers have removed white space."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """A pipeline whose result is printed, unless it is stored in variables."""

    at: int
    pipe: Pipeline


@dataclass(frozen=True, slots=True)
class Branch:
    """A condition, and the block for the case that it is true."""

    pipe: Pipeline
    body: "Block"


@dataclass(frozen=True, slots=True)
class Conditional:
    """`if`, or `with`, which sets dot to the condition; `else if` and `else with` are further branches."""

    at: int
    branches: tuple[Branch, ...]
    else_body: "Block"
    is_with: bool


@dataclass(frozen=True, slots=True)
class Range:
    """`range`, with an optional `else` for the case that there is nothing to iterate over."""

    at: int
    pipe: Pipeline
    body: "Block"
    else_body: "Block"


@dataclass(frozen=True, slots=True)
class LoopControl:
    """`break` or `continue`, which the parser allows only within a `range`."""

    at: int
    is_continue: bool


@dataclass(frozen=True, slots=True)
class TemplateCall:
    """`template` or `block`: calls another template with its own dot."""

    at: int
    name: str
    pipe: Pipeline | None


Node: TypeAlias = Text | Action | Conditional | Range | LoopControl | TemplateCall
Block: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole template: its body, and the templates that it defines by name."""

    body: Block
    templates: Mapping[str, Block]
