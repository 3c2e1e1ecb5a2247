"""The alerts, as Prometheus itself reads and evaluates them: promtool tries the rules of all packages.

It is here as `make test-cluster` may build programs. tests/unit/app/test_metrics.py tries the alerts without it.
"""

import subprocess
from pathlib import Path

import pytest
import yaml

from controlplane import promtool
from support.metrics.alert_cases import ABSENT_CASES, FIRING_CASES, QUIET_CASES, AlertCase, promtool_test_file
from support.packaging.helm import REPOSITORY, only_object, render_chart
from tools.metrics.files import ALERTS as RULES

ALL = (*FIRING_CASES, *ABSENT_CASES)


@pytest.fixture(scope="module")
def program() -> Path:
    return promtool.find()


def run_promtool_tests(
    program: Path, folder: Path, cases: tuple[AlertCase, ...], rules: Path = REPOSITORY / RULES
) -> None:
    """Have promtool run tests."""
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump(promtool_test_file(cases, rules)))
    done = subprocess.run([program, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", ALL, ids=lambda it: f"{it.name} {'fires' if it.labels is not None else 'is quiet'}")
def test_alert_fires_with_its_labels_and_annotations(case: AlertCase, program: Path, tmp_path: Path) -> None:
    run_promtool_tests(program, tmp_path, (case,))


def test_no_alert_fires_for_a_healthy_operator(program: Path, tmp_path: Path) -> None:
    run_promtool_tests(program, tmp_path, QUIET_CASES)


def test_promtool_accepts_the_rules_of_every_package(program: Path, tmp_path: Path) -> None:
    monitoring = REPOSITORY / "deploy" / "kustomize" / "components" / "monitoring" / "monitoring.yaml"
    values = {"metrics": {"prometheusRule": {"enabled": True}}}
    packages = {
        "chart": only_object("PrometheusRule", render_chart(values))["spec"],
        "kustomize": only_object("PrometheusRule", yaml.safe_load_all(monitoring.read_text()))["spec"],
        "file": yaml.safe_load((REPOSITORY / RULES).read_text()),
    }
    for name, rules in packages.items():
        assert rules == packages["file"], name
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(rules))
        done = subprocess.run([program, "check", "rules", file], capture_output=True, text=True, check=False)
        assert (done.returncode, "SUCCESS" in done.stdout) == (0, True), done.stdout + done.stderr
