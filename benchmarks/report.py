"""What was measured, as Markdown that reads well both in a terminal and in RESULTS.md.

Figures are medians over interleaved rounds. A comparison shows each library's own figure, and how many times less or
more that is than ours in the same run: on a machine that others use, too, only the ratios mean much.
"""

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from textwrap import fill

from client_libraries import OPENERS, OURS

_QUIET = 0.05
_LIBRARIES = ("haulout", "aiohttp", "msgspec", "uvloop", "lightkube", "kubernetes_asyncio")


@dataclass(frozen=True, slots=True)
class Section:
    """A table with what must be known to read it."""

    title: str
    text: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Unit:
    """How a figure is written, and which is better."""

    show: Callable[[float], str]
    more_is_better: bool


SECONDS = Unit(lambda seconds: f"{seconds:,.1f} s", more_is_better=False)
SHARE = Unit(lambda share: f"{share:.1%}", more_is_better=False)
RATE = Unit(lambda per_second: f"{per_second:,.0f}/s", more_is_better=True)
MICROSECONDS = Unit(lambda seconds: f"{seconds * 1e6:,.0f} µs", more_is_better=False)
MILLISECONDS = Unit(lambda seconds: f"{seconds * 1e3:,.1f} ms", more_is_better=False)
KILOBYTES = Unit(lambda size: f"{size / 1e3:,.2f} KB", more_is_better=False)
MEGABYTES = Unit(lambda size: f"{size / 1e6:,.0f} MB", more_is_better=False)


@dataclass(frozen=True, slots=True)
class TargetComparison:
    """Holds our figures against their targets; not those of a quick run, which is too small to tell."""

    is_fair: bool

    def row(
        self, label: str, figures: Sequence[float], unit: Unit, *, target: float | None, note: str
    ) -> tuple[str, ...]:
        """Return what it is, our figure, what else is known of it, the target, and whether it is met."""
        figure = median(figures)
        if target is None:
            return label, unit.show(figure), note, "", ""
        met = figure >= target if unit.more_is_better else figure <= target
        bound = ">=" if unit.more_is_better else "<="
        result = ("met" if met else "**missed**") if self.is_fair else "not judged"
        return label, unit.show(figure), note, f"{bound} {unit.show(target)}", result


def comparison_row(label: str, figures: Mapping[str, Sequence[float]], unit: Unit) -> tuple[str, ...]:
    """Return the row of a comparison: what, our figure, and each other library's with its ratio to ours."""
    haulout_figure = median(figures[OURS])
    cells = []
    for contender in OPENERS:
        figure = median(figures[contender])
        cells.append(unit.show(figure) + ("" if contender == OURS else f" ({_ratio(figure, haulout_figure)})"))
    return label, *cells


def _ratio(figure: float, haulout_figure: float) -> str:
    factor = haulout_figure / figure
    return f"1/{factor:,.1f}" if factor > 1 else f"{1 / factor:,.1f}x"


def document(sections: Iterable[Section], *, at: datetime, machine: str, others: float, before: str = "") -> str:
    """Return the report: these sections, and those of the report `before` that were not measured anew.

    `machine` is what they were measured on and with, `others` the part of it that other processes took meanwhile.
    """
    others_text = f"Other processes used {others:.0%} of the CPU meanwhile{_caution(others)}."
    measured_text = f"Measured on {at:%Y-%m-%d %H:%M} UTC. {others_text}"
    parts = _sections(before) | {section.title: _section(section, measured_text) for section in sections}
    introduction = "`make bench` writes this file. Each section shows when it was measured."
    return "\n\n".join(["# Benchmarks", introduction, _paragraph(machine), *parts.values()]) + "\n"


def _sections(report: str) -> dict[str, str]:
    """Return the sections of a report, by their titles."""
    _, *found = report.split("\n## ")
    return {section.partition("\n")[0]: f"## {section.strip()}" for section in found}


def _caution(others: float) -> str:
    return "" if others < _QUIET else ": **rates are lower than on a quiet one**, so CPU times say more"


def _section(section: Section, measured: str) -> str:
    table = _table([section.header, *section.rows])
    return f"## {section.title}\n\n{_paragraph(section.text)}\n\n{table}\n\n{_paragraph(measured)}"


def _paragraph(text: str) -> str:
    return fill(" ".join(text.split()), width=120, break_long_words=False, break_on_hyphens=False)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    header, *body = ["| " + " | ".join(_padded(row, widths)) + " |" for row in rows]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([header, rule, *body])


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]


def this_machine() -> str:
    """Return the machine, and the versions of what is measured on it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{library} {version(library)}" for library in _LIBRARIES)
    return (
        f"Machine: {os.cpu_count()} cores, {_processor()}, {memory:.0f} GiB, {platform.system()} {platform.machine()}. "
        f"{platform.python_implementation()} {platform.python_version()}, {versions}."
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or "unknown processor"
