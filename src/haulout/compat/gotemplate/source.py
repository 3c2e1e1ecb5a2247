"""Where something stands in the text of a template.

Lexer, parser, evaluation and the check at load all speak of offsets; only when there is something to tell, an offset
becomes a line and a column. `Problem` is what goes wrong where no offset is known, inside a function or a method: who
called it knows, and makes a `TemplateError` of it.
"""

from dataclasses import dataclass

from haulout.errors import TemplateError


class Problem(ValueError):
    """What is wrong, by somebody who does not know where."""


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a template, and its name."""

    text: str
    name: str

    def error(self, at: int, problem: str) -> TemplateError:
        """Return the error for what is wrong at an offset."""
        line, column = self.position(at)
        return TemplateError(problem, name=self.name, line=line, column=column)

    def position(self, at: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1."""
        return self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at)
