"""What a template consists of, once it is parsed.

A template is a block: a list of pieces, in order. A pipe is what stands in an action: commands, each of which gets the
result of the one before as its last argument. A command is an operand with arguments. `at` is the offset in the text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from haulout.core.templates.numbers import Literal


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
class Path:
    """Fields of something: `.a.b` (of a `Dot`), `$x.a`, `(pipe).a`."""

    at: int
    of: "Operand"
    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """An operand with arguments."""

    at: int
    operand: "Operand"
    arguments: tuple["Operand", ...]


@dataclass(frozen=True, slots=True)
class Pipe:
    """Commands that hand on their results, and the variables that keep the last one."""

    at: int
    variables: tuple[Name, ...]
    assigns: bool  # to variables that there are; otherwise they are new
    commands: tuple[Command, ...]


Operand: TypeAlias = Dot | Nil | Constant | Number | Function | Variable | Path | Pipe


@dataclass(frozen=True, slots=True)
class Text:
    """What stands between actions."""

    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """A pipe whose result is printed, unless variables keep it."""

    at: int
    pipe: Pipe


@dataclass(frozen=True, slots=True)
class Branch:
    """A condition, and what is done if it is true."""

    pipe: Pipe
    body: "Block"


@dataclass(frozen=True, slots=True)
class Choice:
    """`if`, or `with`, which makes the condition the thing at hand; `else if` and `else with` are more branches."""

    at: int
    branches: tuple[Branch, ...]
    otherwise: "Block"
    is_with: bool


@dataclass(frozen=True, slots=True)
class Range:
    """`range`."""

    at: int
    pipe: Pipe
    body: "Block"
    otherwise: "Block"


@dataclass(frozen=True, slots=True)
class Leave:
    """`break` or `continue`."""

    at: int
    goes_on: bool


@dataclass(frozen=True, slots=True)
class Include:
    """`template` or `block`: another template in this place, with its own thing at hand."""

    at: int
    name: str
    pipe: Pipe | None


Piece: TypeAlias = Text | Action | Choice | Range | Leave | Include
Block: TypeAlias = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole template: what it begins with, and the templates that it defines by name."""

    body: Block
    defined: Mapping[str, Block]
