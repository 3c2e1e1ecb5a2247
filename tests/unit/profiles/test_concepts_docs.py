"""What the page about profiles shows is true."""

from pathlib import Path

from haulout.profiles.plugin import State
from haulout.profiles.plugins.registry import registries
from haulout.profiles.reviewing import reachable
from haulout.profiles.trial import attempt

PAGE = (Path(__file__).parents[3] / "docs" / "concepts" / "profiles.md").read_text()


def test_the_example_can_be_used_and_nothing_about_it_is_doubtful() -> None:
    text = PAGE.split("```yaml\n")[1].split("```")[0]
    found = attempt(text.encode(), registries(), {}, file="profiles.md")
    assert [str(it) for it in (*found.errors, *found.warnings)] == []
    assert found.loaded is not None
    assert reachable(found.loaded.configuration.profiles["os"]) == set(State)
