"""How much a template may do.

A template is written by the owner of the cluster, but a mistake in it must not stop the operator: `range 1000000000`, a
template that calls itself, a variable that doubles in a loop. So steps, text and depth are counted, and a template that
uses too much of one fails with an error that says so.
"""

from dataclasses import dataclass

from haulout.compat.gotemplate.source import Problem

MAX_OUTPUT = 1_000_000  # characters of a message
MAX_STEPS = 100_000  # pieces, commands and turns of a range
MAX_WORK = 10_000_000  # characters that functions read and make on the way
MAX_CALLS = 50  # templates inside each other


class TemplateLimitExceeded(Problem):
    """A template did too much."""


@dataclass(slots=True)
class WorkBudget:
    """What is left."""

    steps: int = MAX_STEPS
    work: int = MAX_WORK

    def step(self, count: int = 1) -> None:
        """Count steps."""
        self.steps -= count
        if self.steps < 0:
            raise TemplateLimitExceeded(
                f"the template does not come to an end: it was stopped after {MAX_STEPS:,} steps"
            )

    def spend_characters(self, characters: int) -> None:
        """Count characters."""
        self.work -= characters
        if self.work < 0:
            raise TemplateLimitExceeded(
                f"the template was stopped: it made more than {MAX_WORK:,} characters on the way"
            )


class BoundedOutput:
    """Text that comes piece by piece, up to a limit."""

    def __init__(self, budget: WorkBudget) -> None:
        self._budget = budget
        self._pieces: list[str] = []
        self._length = 0

    def write(self, text: str) -> None:
        """Add a piece."""
        self._budget.spend_characters(len(text))
        self._length += len(text)
        if self._length > MAX_OUTPUT:
            raise TemplateLimitExceeded(f"the text is longer than {MAX_OUTPUT:,} characters")
        self._pieces.append(text)

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._pieces)
