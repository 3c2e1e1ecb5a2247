"""Third-party plugins are found by entry points, tested with the example package."""

import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from haulout.controllers.profiles.config.dry_run import dry_run
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.plugin import Check, State
from haulout.controllers.profiles.plugins import registry
from support.builders.objects import a_node
from support.fakes.cluster_view import FakeClusterView
from tools.reference.plugins import own_plugins

EXAMPLE = Path(__file__).parents[5] / "examples" / "plugin-moonphase"
FULL_MOON = datetime(2024, 4, 23, 23, 49, tzinfo=UTC)
NEW_MOON = datetime(2024, 5, 8, 3, 22, tzinfo=UTC)


def install(folder: Path, points: dict[str, str]) -> None:
    """Create the metadata of an installed package with these entry points."""
    info = folder / "haulout_moonphase-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: haulout-moonphase\nVersion: 1.0.0\n")
    lines = [f"[{registry.ENTRY_POINT_GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder on the import path, together with the example's source."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLE / "src")
    yield tmp_path
    sys.modules.pop("haulout_moonphase", None)


def declared() -> dict[str, str]:
    points: dict[str, str] = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"][
        registry.ENTRY_POINT_GROUP
    ]
    return points


def load_registries() -> Registries:
    return registry.registries.__wrapped__()


def moon_phase(**options: object) -> Check:
    plugin: Check = load_registries().checks["moonPhase"](**options)
    return plugin


def test_installed_plugin_is_registered_beside_builtin_ones(folder: Path) -> None:
    install(folder, declared())
    assert {"moonPhase", "hasLabel"} <= set(load_registries().checks)
    assert "moonPhase" not in own_plugins(load_registries()).checks


def test_configuration_of_an_installed_plugin_is_validated(folder: Path) -> None:
    install(folder, declared())
    text = (EXAMPLE / "README.md").read_text().split("```yaml\n")[1].split("```")[0]
    good = dry_run(text.encode(), load_registries(), {}, file="maintenance.yaml")
    assert (good.errors, [str(item) for item in good.warnings]) == ((), [])
    bad = dry_run(text.replace("[new]", "[nwe]").encode(), load_registries(), {}, file="maintenance.yaml")
    assert [str(item) for item in bad.errors] == [
        "maintenance.yaml:6: instances.check[0].config.phases: expected new, waxing, full, waning, found 'nwe'"
    ]


@pytest.mark.parametrize(("now", "phase"), [(FULL_MOON, "full"), (NEW_MOON, "new")])
def test_installed_plugin_states_reason_and_requeue_time(folder: Path, now: datetime, phase: str) -> None:
    install(folder, declared())
    cluster = FakeClusterView(a_node("n1"))
    result = moon_phase(phases=("new",)).evaluate(cluster.plugin_context("n1", state=State.OPERATIONAL, now=now))
    assert result.passed is (phase == "new")
    assert result.reason.startswith(f"the moon is {phase}")
    assert result.requeue_at is not None
    assert timedelta(days=2) < result.requeue_at - now < timedelta(days=5.5)
    again = moon_phase(phases=("new",)).evaluate(
        cluster.plugin_context("n1", state=State.OPERATIONAL, now=result.requeue_at)
    )
    assert again.info["phase"] != phase


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("nowhere:MoonPhase", "cannot be loaded"),
        ("haulout_moonphase:PHASES", "is not a plugin"),
        ("haulout.controllers.profiles.plugins.checks.has_label:HasLabel", "is ignored: another plugin has its type"),
    ],
)
def test_unusable_plugin_is_skipped_and_logged(
    folder: Path, value: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(load_registries().checks)
    install(folder, {"other": value})
    assert set(load_registries().checks) == before
    assert words in caplog.text


def test_second_plugin_of_the_same_type_is_skipped_and_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(folder, declared() | {"again": declared()["moonPhase"]})
    assert moon_phase(phases=("new",)).type == "moonPhase"
    assert "plugin moonPhase of haulout_moonphase:MoonPhase is ignored: another plugin has its type" in caplog.text
