"""Dry runs of a configuration: unset variables, and whether it loads with placeholders."""

import pytest

from haulout.controllers.profiles.config.dry_run import DryRun, dry_run
from haulout.controllers.profiles.plugins.registry import registries

HEAD = "intervals: {requeue: %s}\ninstances:\n  check:\n"


def dry_run_of(*checks: str, requeue: str = "1m", assume: bool = True, **environ: str) -> DryRun:
    lines = "".join(f"  - {{name: c{at}, {check}}}\n" for at, check in enumerate(checks))
    text = HEAD % requeue + lines if checks else f"intervals: {{requeue: {requeue}}}\n"
    return dry_run(text.encode(), registries(), environ, file="file", assume_placeholders=assume)


@pytest.mark.parametrize(
    "check",
    [
        "type: hasLabel, config: {key: '${A}'}",
        "type: hasLabel, config: {key: '${A}/${B}'}",
        "type: hasLabel, config: {key: '${A:?say which}'}",
        "type: hasLabel, config: {key: '${A:${B}}'}",
        "type: wait, config: {duration: '${A}'}",
        "type: maxMaintenance, config: {max: '${A}'}",
        "type: clusterSemver, config: {key: x, profileScoped: '${A}'}",
        "type: timeWindow, config: {weekdays: mon, start: '${A}', end: '13:00'}",
        "type: prometheusInstant, config: {url: '${A}', query: q, expr: value > 1}",
    ],
)
def test_unset_variable_gets_a_valid_placeholder(check: str) -> None:
    found = dry_run_of(check)
    assert [str(error) for error in found.errors] == []
    assert found.loaded is not None
    assert "A" in found.unset
    assert dry_run_of(check, assume=False).loaded is None
    assert dry_run_of(check, assume=False).unset == found.unset


def test_variable_with_a_default_is_not_unset() -> None:
    found = dry_run_of("type: wait, config: {duration: '${A:5m}'}", "type: hasLabel, config: {key: '${B}'}")
    assert found.unset == ("B",)


def test_set_variable_is_not_unset_and_an_empty_one_is() -> None:
    check = "type: hasLabel, config: {key: '${A}', value: '${B}'}"
    found = dry_run_of(check, A="a", B="")
    assert found.unset == ("B",)
    assert found.values["A"] == "a"


def test_other_errors_are_reported_despite_placeholders() -> None:
    found = dry_run_of("type: hasLabel, config: {key: '${A}'}", "type: nonsense", requeue="soon")
    assert [error.key for error in found.errors] == ["intervals.requeue", "instances.check[1].type"]
    assert found.unset == ("A",)


def test_dry_run_is_fast_with_many_variables() -> None:
    """Each variable needs a few more parses of the file, not all combinations."""
    checks = [f"type: wait, config: {{duration: '${{V{at}}}'}}" for at in range(30)]
    found = dry_run_of(*checks)
    assert len(found.unset) == 30
    assert found.errors == ()


def test_dry_run_repr_contains_no_secrets() -> None:
    found = dry_run_of("type: hasLabel, config: {key: 'x', value: '${A}'}", A="hunter2")
    assert found.values == {"A": "hunter2"}
    assert "values=" not in repr(found)
