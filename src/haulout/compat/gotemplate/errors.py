"""Errors of templates: their positions in the text, and limits on the work of a template.

Lexer, parser, evaluator and type checker use offsets; an offset is converted to line and column only for an error.
`Problem` is an error at an unknown offset, inside a function or a method. The caller, who knows the offset, converts it
to a `TemplateError`.

The owner of the cluster writes the templates, but a mistake must not stop the operator: `range 1000000000`, a template
that calls itself, a variable that doubles in a loop. So steps, text and depth are counted, and a template that exceeds
a limit fails with an error that says so.
"""

from dataclasses import dataclass

from haulout.errors import TemplateError

MAX_OUTPUT = 1_000_000  # characters of the result
MAX_STEPS = 100_000  # nodes, commands and loop iterations
MAX_WORK = 10_000_000  # characters that functions read and produce
MAX_CALLS = 50  # depth of template calls


class Problem(ValueError):
    """An error whose position is unknown where it is raised."""


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


class TemplateLimitExceeded(Problem):
    """A template exceeded a limit on its work. Its output so far is discarded."""


@dataclass(slots=True)
class WorkBudget:
    """The work that is left for one rendering of a template."""

    steps: int = MAX_STEPS
    work: int = MAX_WORK

    def step(self, count: int = 1) -> None:
        """Spend steps. Raise `TemplateLimitExceeded` if none are left."""
        self.steps -= count
        if self.steps < 0:
            raise TemplateLimitExceeded(f"the template was stopped: it did not end within {MAX_STEPS:,} steps")

    def spend_characters(self, characters: int) -> None:
        """Spend characters. Raise `TemplateLimitExceeded` if none are left."""
        self.work -= characters
        if self.work < 0:
            raise TemplateLimitExceeded(f"the template was stopped: it built more than {MAX_WORK:,} characters")


class BoundedOutput:
    """Collects output up to `MAX_OUTPUT`, and spends the budget for each character."""

    def __init__(self, budget: WorkBudget) -> None:
        self._budget = budget
        self._pieces: list[str] = []
        self._length = 0

    def write(self, text: str) -> None:
        """Add a text. Raise `TemplateLimitExceeded` if the output is too long."""
        self._budget.spend_characters(len(text))
        self._length += len(text)
        if self._length > MAX_OUTPUT:
            raise TemplateLimitExceeded(f"the text is longer than {MAX_OUTPUT:,} characters")
        self._pieces.append(text)

    @property
    def text(self) -> str:
        return "".join(self._pieces)
