"""What a template consists of, once it is parsed.

A template is a block: a list of pieces, in order. A pipe is what stands in an action: commands, each of which gets the
result of the one before as its last argument. A command is an operand with arguments. `at` is the offset in the text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from haulout.compat.gotemplate.numbers import Literal


@dataclass(frozen=True, slots=True)
class Name:
    """A name, and where it stands: each field of a path has its own place."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Dot:
    """A dot: the thing at hand."""

    at: int


@dataclass(frozen=True, slots=True)
class Nil:
    """`nil`."""

    at: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A text, true or false."""

    at: int
    value: str | bool


@dataclass(frozen=True, slots=True)
class Number:
    """A number or a character, as it was written and what it can stand for."""

    at: int
    text: str
    value: Literal


@dataclass(frozen=True, slots=True)
class Function:
    """The name of a function."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """`$x`, or `$` alone."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class FieldChain:
    """Fields of something: `.a.b` (of a `Dot`), `$x.a`, `(pipe).a`."""

    at: int
    operand: "Operand"
    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """An operand with arguments."""

    at: int
    operand: "Operand"
    arguments: tuple["Operand", ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands that hand on their results, and the variables that keep the last one."""

    at: int
    variables: tuple[Name, ...]
    assigns: bool  # to variables that there are; otherwise they are new
    commands: tuple[Command, ...]


Operand: TypeAlias = Dot | Nil | Constant | Number | Function | Variable | FieldChain | Pipeline


@dataclass(frozen=True, slots=True)
class Text:
    """What stands between actions."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """A pipe whose result is printed, unless variables keep it."""

    at: int
    pipe: Pipeline


@dataclass(frozen=True, slots=True)
class Branch:
    """A condition, and what is done if it is true."""

    pipe: Pipeline
    body: "Block"


@dataclass(frozen=True, slots=True)
class Conditional:
    """`if`, or `with`, which makes the condition the thing at hand; `else if` and `else with` are more branches."""

    at: int
    branches: tuple[Branch, ...]
    else_body: "Block"
    is_with: bool


@dataclass(frozen=True, slots=True)
class Range:
    """`range`."""

    at: int
    pipe: Pipeline
    body: "Block"
    else_body: "Block"


@dataclass(frozen=True, slots=True)
class LoopControl:
    """`break` or `continue`."""

    at: int
    is_continue: bool


@dataclass(frozen=True, slots=True)
class TemplateCall:
    """`template` or `block`: another template in this place, with its own thing at hand."""

    at: int
    name: str
    pipe: Pipeline | None


Node: TypeAlias = Text | Action | Conditional | Range | LoopControl | TemplateCall
Block: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole template: what it begins with, and the templates that it defines by name."""

    body: Block
    templates: Mapping[str, Block]
