"""The cookbook shows the tested files, and they load."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from haulout.controllers.profiles.config.dry_run import dry_run
from haulout.controllers.profiles.config.lint import reachable_states
from haulout.controllers.profiles.plugin import State
from haulout.controllers.profiles.plugins.registry import registries
from support.docs.cookbook import ENVIRON, FOLDER

DOCS = Path(__file__).parents[4] / "docs" / "how-to"
INDEX = (DOCS / "cookbook.md").read_text()
AGENT = FOLDER / "kernel-reboot-agent.yaml"
RECIPES = sorted(it for it in FOLDER.glob("*.yaml") if it != AGENT)
each_recipe = pytest.mark.parametrize("file", RECIPES, ids=lambda it: it.stem)


def test_cookbook_has_eight_recipes() -> None:
    assert len(RECIPES) == 8


@each_recipe
def test_recipe_loads_without_warnings(file: Path) -> None:
    found = dry_run(file.read_bytes(), registries(), ENVIRON, file=file.name)
    assert [str(item) for item in (*found.errors, *found.warnings)] == []
    assert found.loaded is not None
    for profile in found.loaded.configuration.profiles.values():
        if profile.name != "default":
            assert reachable_states(profile) == set(State)


@each_recipe
def test_cookbook_page_shows_its_file(file: Path) -> None:
    page = (DOCS / "cookbook" / f"{file.stem}.md").read_text()
    assert page.split("```yaml\n")[1].split("```")[0] == file.read_text()
    assert f"(cookbook/{file.stem}.md)" in INDEX


@each_recipe
def test_cookbook_page_has_all_sections_and_only_keys_of_the_file(file: Path) -> None:
    page, text = (DOCS / "cookbook" / f"{file.stem}.md").read_text(), file.read_text() + AGENT.read_text()
    for part in ("**Use it if**", "## What happens", "## See it", "## Stop it, undo it", "## Pitfalls"):
        assert part in page
    keys = {item.rstrip("-=") for item in re.findall(r"(?:example|nvidia)\.com/[\w.-]+", page)}
    assert [item for item in sorted(keys) if item not in text] == []


# The agent that reboots

FAKE = """#!/bin/sh
echo "{0} $*" >> "$LOG"
{1}
"""


@pytest.mark.skipif(not shutil.which("sh"), reason="needs a shell")
@pytest.mark.parametrize(
    ("sentinel", "labelled", "allowed", "expected_commands"),
    [
        (True, "", "", ["kubectl label node n1 --overwrite example.com/reboot-required=true"]),
        (True, "true", "", []),
        (True, "true", "true", ["nsenter --target 1 --mount /bin/systemctl reboot"]),
        (False, "true", "true", ["kubectl label node n1 example.com/reboot-required-"]),
        (False, "", "true", []),
        (True, "fails", "fails", []),
    ],
)
def test_reboot_agent_labels_the_node_and_reboots_only_with_permission(
    tmp_path: Path,
    sentinel: bool,  # noqa: FBT001 - a case
    labelled: str,
    allowed: str,
    expected_commands: list[str],
) -> None:
    (daemon_set,) = (item for item in yaml.safe_load_all(AGENT.read_text()) if item["kind"] == "DaemonSet")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    answers = f'case "$*" in *reboot-required}}) a={labelled};; *reboot-ok}}) a={allowed};; esac'
    behaviours = {
        "kubectl": f'{answers}; [ "$a" != fails ] || exit 1; printf "%s" "$a"',
        "nsenter": "exit 0",
        "sleep": 'kill "$PPID"',  # one iteration is enough
    }
    for name, behaviour in behaviours.items():
        program = tmp_path / name
        program.write_text(FAKE.format(name, behaviour))
        program.chmod(0o755)
    if sentinel:
        (tmp_path / "reboot-required").touch()
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
        "NODE": "n1",
        "EVERY": "60",
        "SENTINEL": str(tmp_path / "reboot-required"),
    }
    subprocess.run(["/bin/sh", "-c", *container["args"]], env=environment, check=False, timeout=30)
    done = (tmp_path / "log").read_text().splitlines()
    assert [item for item in done if not item.startswith(("kubectl get", "sleep"))] == expected_commands
