"""The reference page and the schema are generated from the plugin classes and up to date."""

import dataclasses
import textwrap
from pathlib import Path

import pytest

from haulout.controllers.profiles.config.dry_run import dry_run
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.plugin import Check, Notification, Plugin, Schedule, Trigger
from haulout.controllers.profiles.plugins.registry import registries
from support.builders.profile_plugins import REGISTRIES
from tools.reference import plugins as reference

FOLDER = Path(__file__).parents[5] / "docs" / "reference"
OURS = reference.own_plugins(registries())
FAMILIES = {Check: "checks", Trigger: "triggers", Notification: "notifications", Schedule: "schedules"}
# A minimal notification instance to test schedules with.
NOTIFICATION = "instances:\n  notify:\n  - name: it\n    type: post\n    config: {message: hello}\n"
WITH_A_NOTIFICATION = dataclasses.replace(
    OURS, notifications={**OURS.notifications, "post": REGISTRIES.notifications["slack"]}
)
PLUGINS = [plugin for family in FAMILIES.values() for plugin in getattr(OURS, family).values()]


@pytest.mark.parametrize("name", [reference.PAGE, reference.SCHEMA])
def test_reference_files_are_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text() == reference.reference_files(registries())[name], "make reference"


def test_each_plugin_has_a_section_with_its_options() -> None:
    page = reference.page(OURS)
    for plugin in PLUGINS:
        assert f"\n### {plugin.type}\n" in page
        assert f"](#{plugin.type.lower()})" in page


def test_third_party_plugins_are_not_in_the_reference() -> None:
    assert reference.own_plugins(REGISTRIES) == Registries()


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda it: it.type)
def test_example_of_a_plugin_loads_without_warnings(plugin: type[Plugin]) -> None:
    section = reference.page(OURS).split(f"\n### {plugin.type}\n")[1]
    example = section.split("```yaml\n")[1].split("```")[0]
    if issubclass(plugin, Schedule):
        example = NOTIFICATION + textwrap.indent(example, "    ")
    file = f"intervals: {{requeue: 1m}}\n{example}".encode()
    found = dry_run(file, WITH_A_NOTIFICATION, {}, file="example", assume_placeholders=True)
    problems = [*found.errors, *found.warnings]
    assert [str(event) for event in problems if "is used in no chain" not in str(event)] == []


def test_reference_main_writes_its_files_into_a_folder(tmp_path: Path) -> None:
    reference.main([str(tmp_path)])
    assert {item.name for item in tmp_path.iterdir()} == {reference.PAGE, reference.SCHEMA}
    with pytest.raises(SystemExit, match="usage"):
        reference.main([])
