"""Writes the files generated from the catalogue of metrics: reference tables, Prometheus rules, the Grafana dashboard.

    python -m tools.metrics.files .

In the reference page, only the text between two marker comments is generated; the rest is written by hand.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from haulout.core.metrics import Metric, MetricKind
from tools.metrics import alerts, grafana
from tools.metrics.catalogue import GROUPS, Group

REFERENCE = Path("docs", "reference", "metrics.md")
ALERTS = Path("deploy", "prometheus", "alerts.yaml")
DASHBOARD = Path("deploy", "grafana", "haulout.json")
_GENERATED_BLOCK = re.compile(r"(<!-- begin (?P<name>[a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_ALERTS_HEADER = (
    "# Made by `make docs` from tools.metrics.alerts. Load it as a file of rules, or in a PrometheusRule.\n"
)


def files(root: Path) -> dict[Path, str]:
    """Return the content of the files by path; the reference keeps its handwritten text."""
    return {
        REFERENCE: reference((root / REFERENCE).read_text()),
        ALERTS: _ALERTS_HEADER + yaml.safe_dump(alerts.rules(), sort_keys=False, width=120, allow_unicode=True),
        DASHBOARD: json.dumps(grafana.dashboard(), indent=1, ensure_ascii=False) + "\n",
    }


def reference(page: str) -> str:
    """Return the page with its tables regenerated."""
    tables = {group.name: "\n".join(_table(group)) for group in GROUPS}
    tables["alerts"] = "\n".join(_alerts())
    return _GENERATED_BLOCK.sub(lambda part: f"{part[1]}\n{tables[part['name']]}\n\n{part[4]}", page)


def _table(group: Group) -> Iterator[str]:
    yield "| name | type | labels | meaning |"
    yield "| --- | --- | --- | --- |"
    for metric in group.metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {_meaning(metric)} |"


def _meaning(metric: Metric) -> str:
    text = f"{metric.help.removesuffix('.')}; {metric.details}" if metric.details else metric.help.removesuffix(".")
    if metric.kind is not MetricKind.HISTOGRAM:
        return text
    return f"{text}. Buckets up to {', '.join(_seconds(bucket) for bucket in metric.buckets)}"


def _seconds(number: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}s"


def _alerts() -> Iterator[str]:
    yield "| alert | severity | for | says |"
    yield "| --- | --- | --- | --- |"
    for alert in alerts.ALERTS:
        summary = re.sub(r"\{\{ \$(labels\.)?(\w+).*?\}\}", r"`\2`", alert.summary)
        name = f"[{alert.name}](../operations/alerts.md#{alert.name.lower()})"
        yield f"| {name} | {alert.severity} | {alert.for_ or 'at once'} | {summary} |"


def main(arguments: list[str]) -> None:
    """Write the files below the given folder."""
    if len(arguments) != 1:
        sys.exit("usage: python -m tools.metrics.files FOLDER")
    root = Path(arguments[0])
    for path, text in files(root).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
