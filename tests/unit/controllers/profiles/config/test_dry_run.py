"""Trying a file where it does not run: which variables it needs, and whether it would load with them."""

import pytest

from haulout.controllers.profiles.config.dry_run import DryRun, dry_run
from haulout.controllers.profiles.plugins.registry import registries

HEAD = "intervals: {requeue: %s}\ninstances:\n  check:\n"


def tried(*checks: str, requeue: str = "1m", assume: bool = True, **environ: str) -> DryRun:
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
def test_a_name_that_is_needed_gets_a_value_that_fits(check: str) -> None:
    found = tried(check)
    assert [str(error) for error in found.errors] == []
    assert found.loaded is not None
    assert "A" in found.unset
    assert tried(check, assume=False).loaded is None
    assert tried(check, assume=False).unset == found.unset


def test_a_name_with_a_default_is_not_missed() -> None:
    found = tried("type: wait, config: {duration: '${A:5m}'}", "type: hasLabel, config: {key: '${B}'}")
    assert found.unset == ("B",)


def test_a_name_that_is_set_is_not_missed_and_an_empty_one_is() -> None:
    check = "type: hasLabel, config: {key: '${A}', value: '${B}'}"
    found = tried(check, A="a", B="")
    assert found.unset == ("B",)
    assert found.values["A"] == "a"


def test_what_is_wrong_otherwise_stays_wrong() -> None:
    found = tried("type: hasLabel, config: {key: '${A}'}", "type: nonsense", requeue="soon")
    assert [error.key for error in found.errors] == ["intervals.requeue", "instances.check[1].type"]
    assert found.unset == ("A",)


def test_many_names_take_no_time() -> None:
    """Each needs one more look at the file, or a few: not all combinations."""
    checks = [f"type: wait, config: {{duration: '${{V{at}}}'}}" for at in range(30)]
    found = tried(*checks)
    assert len(found.unset) == 30
    assert found.errors == ()


def test_secrets_are_not_in_what_it_prints() -> None:
    found = tried("type: hasLabel, config: {key: 'x', value: '${A}'}", A="hunter2")
    assert found.values == {"A": "hunter2"}
    assert "values=" not in repr(found)
