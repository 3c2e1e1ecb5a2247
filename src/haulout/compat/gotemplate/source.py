"""Positions in the text of a template.

Lexer, parser, evaluator and type checker use offsets; an offset is converted to line and column only for an error.
`Problem` is an error at an unknown offset, inside a function or a method. The caller, who knows the offset, converts it
to a `TemplateError`.
"""

from dataclasses import dataclass

from haulout.errors import TemplateError


class Problem(ValueError):
    """An error whose position is unknown."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a template, and its name."""

    text: str
    name: str

    def error(self, at: int, problem: str) -> TemplateError:
        """Return the error for a problem at an offset."""
        line, column = self.position(at)
        return TemplateError(problem, name=self.name, line=line, column=column)

    def position(self, at: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1."""
        return self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
