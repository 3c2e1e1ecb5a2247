"""How much a template may do.

A template is written by the owner of the cluster, but a mistake in it must not stop the operator: `range 1000000000`, a
template that calls itself, a variable that doubles in a loop. So steps, text and depth are counted, and a template that
uses too much of one fails with an error that says so.
"""

from dataclasses import dataclass

from haulout.core.templates.source import Problem

MOST_OUTPUT = 1_000_000  # characters of a message
MOST_STEPS = 100_000  # pieces, commands and turns of a range
MOST_WORK = 10_000_000  # characters that functions read and make on the way
MOST_CALLS = 50  # templates inside each other


class Exhausted(Problem):
    """A template did too much."""


@dataclass(slots=True)
class Budget:
    """What is left."""

    steps: int = MOST_STEPS
    work: int = MOST_WORK

    def step(self, count: int = 1) -> None:
        """Count steps."""
        self.steps -= count
        if self.steps < 0:
            raise Exhausted(f"the template does not come to an end: it was stopped after {MOST_STEPS:,} steps")

    def spend(self, characters: int) -> None:
        """Count characters."""
        self.work -= characters
        if self.work < 0:
            raise Exhausted(f"the template was stopped: it made more than {MOST_WORK:,} characters on the way")


class Sink:
    """Text that comes piece by piece, up to a limit."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._pieces: list[str] = []
        self._length = 0

    def write(self, text: str) -> None:
        """Add a piece."""
        self._budget.spend(len(text))
        self._length += len(text)
        if self._length > MOST_OUTPUT:
            raise Exhausted(f"the text is longer than {MOST_OUTPUT:,} characters")
        self._pieces.append(text)

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._pieces)
