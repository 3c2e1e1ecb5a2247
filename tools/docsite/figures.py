"""Fills the tables of the page about sizing with benchmark results.

    python -m tools.docsite.figures

rewrites the tables of docs/operations/sizing.md from benchmarks/RESULTS.md. No figure on that page is typed by hand, so
none can differ from what was measured.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PAGE = ROOT / "docs" / "operations" / "sizing.md"

_TABLE_BLOCK = re.compile(r"(<!-- figures: [^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
_NODES = ("1,000", "5,000")
_OF_NODES = {
    "memory": "memory",
    "CPU time per minute when idle": "CPU time per minute when idle",
    "one label processed, median": "one label processed, median",
    "all nodes labelled at once, until the last is processed": "all nodes at once, until the last is processed",
}
_PODS = ("memory per pod, streaming list",)
_DRAINS = (
    "1 node, until empty",
    "10 nodes at once, until empty",
    "30 nodes at once, until empty",
    "100 nodes at once, until empty",
    "1 node by kubectl drain",
    "3 nodes by kubectl drain",
    "100 nodes at once, API calls per pod",
    "the operator's memory at 30 nodes",
)
_NOTICES = (
    "OCI, 1,000 nodes: 10,000 messages",
    "AWS, 1,000 nodes: 10,000 messages",
    "1,000 notices due at once: all nodes cordoned",
)

Figures = Mapping[str, tuple[str, str]]


def fill_tables(page: str, results: str) -> str:
    """Return the page with the figures of these results."""
    figures = parse_results(results)
    tables = iter([_node_table(figures), *(_figure_table(figures, labels) for labels in (_PODS, _DRAINS, _NOTICES))])
    return _TABLE_BLOCK.sub(lambda found: found[1] + "".join(f"{line}\n" for line in next(tables)) + found[2], page)


def parse_results(results: str) -> Figures:
    """Return each figure and its remark by what was measured."""
    rows = re.findall(r"^\| ([^|]+?) *\| ([^|]+?) *\| ([^|]*?) *\|", results, re.MULTILINE)
    return {label: (figure, note) for label, figure, note in rows}


def _node_table(figures: Figures) -> Iterator[str]:
    yield f"| nodes | {' | '.join(_OF_NODES)} |"
    yield f"| --- |{' --- |' * len(_OF_NODES)}"
    for nodes in _NODES:
        yield f"| {nodes} | {' | '.join(figures[f'{nodes} nodes: {node}'][0] for node in _OF_NODES.values())} |"


def _figure_table(figures: Figures, rows: tuple[str, ...]) -> Iterator[str]:
    yield "| what | figure | |"
    yield "| --- | --- | --- |"
    for label in rows:
        yield f"| {label} | {' | '.join(figures[label])} |"


def main() -> None:
    PAGE.write_text(
        fill_tables(PAGE.read_text(encoding="utf-8"), RESULTS.read_text(encoding="utf-8")), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
