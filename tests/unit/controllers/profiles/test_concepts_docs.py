"""The examples of the pages about profiles and notices are valid."""

from pathlib import Path

from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.config.dry_run import dry_run
from haulout.controllers.profiles.config.lint import reachable_states
from haulout.controllers.profiles.plugin import State
from haulout.controllers.profiles.plugins.registry import registries

FOLDER = Path(__file__).parents[4] / "docs" / "concepts"
PAGE = (FOLDER / "profiles.md").read_text()
NOTICES = (FOLDER / "notices.md").read_text()


def test_documented_profile_loads_without_warnings() -> None:
    text = PAGE.split("```yaml\n")[1].split("```")[0]
    found = dry_run(text.encode(), registries(), {}, file="profiles.md")
    assert [str(item) for item in (*found.errors, *found.warnings)] == []
    assert found.loaded is not None
    assert reachable_states(found.loaded.configuration.profiles["os"]) == set(State)


def test_documented_default_profile_is_the_actual_one() -> None:
    assert NOTICES.split("```yaml\n")[1].split("```")[0] == default_profile.text()


def test_documented_file_without_actions_loads() -> None:
    text = NOTICES.split("```yaml\n")[2].split("```")[0]
    found = dry_run(text.encode(), registries(), {}, file="notices.md")
    assert found.errors == ()
    assert found.loaded is not None
    assert set(found.loaded.configuration.profiles) == {"nothing"}
