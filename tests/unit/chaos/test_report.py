"""The report of `make chaos`."""

from datetime import date
from pathlib import Path

import pytest

from chaos.faults import CLASSES
from chaos.report import BEGIN, END, Round, Run, insert_table, summary, table
from chaos.suite import UnknownClass, select_classes

PAGE = Path(__file__).parents[3] / "docs" / "operations" / "reliability.md"
RUN = Run(
    day=date(2026, 1, 5),
    kubernetes="v1.36.3",
    machine="2 cores",
    rounds=[
        Round(fault="lag", seed=1, recovery_seconds=1.0),
        Round(fault="lag", seed=2, recovery_seconds=3.0, violations=["budget: too many"]),
        Round(fault="lag", seed=3, recovery_seconds=2.0),
        Round(fault="overload", seed=1),
    ],
)


def test_report_table_has_a_line_for_each_fault_class() -> None:
    assert table(RUN, ["overload", "kill", "lag"]).splitlines() == [
        "Measured on 2026-01-05, Kubernetes v1.36.3, 2 cores: 4 rounds, seeds 1 to 3, 1 violation.",
        "",
        "| class | rounds | violations | recovery p50 | recovery p99 |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| `overload` | 1 | 0 | never | never |",
        "| `lag` | 3 | 1 | 2.0 s | 3.0 s |",
    ]


def test_report_table_replaces_the_text_between_the_markers() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert insert_table(page, "new") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert insert_table(insert_table(page, "new"), "new") == insert_table(page, "new")


def test_page_without_markers_is_rejected() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        insert_table("before", "new")


def test_report_contains_commands_to_replay_rounds_with_violations() -> None:
    assert summary(RUN)["replay"] == ["make chaos CLASSES=lag SEED=2 ROUNDS=1"]


def test_fault_classes_are_selected_by_name_or_prefix() -> None:
    assert select_classes("kill,lag, kill-both") == ["kill-leader", "kill-both", "kill-apiserver", "lag"]
    assert select_classes("") == list(CLASSES)
    with pytest.raises(UnknownClass, match="no class is called nothing; there are kill-leader"):
        select_classes("nothing")


def test_reliability_page_explains_each_fault_class_and_has_markers() -> None:
    page = PAGE.read_text()
    assert [name for name in CLASSES if f"| `{name}` |" not in page.partition("## Fault classes")[2]] == []
    assert insert_table(page, "new").count("new\n\n<!--") == 1


def test_each_fault_class_has_a_docstring() -> None:
    assert len(CLASSES) >= 16
    assert [name for name, fault in CLASSES.items() if not fault.__doc__] == []
