"""Descriptions of plugin instances."""

import textwrap

from haulout.controllers.profiles.config import description
from haulout.controllers.profiles.config.dry_run import DryRun, dry_run
from haulout.controllers.profiles.plugins.registry import registries
from tools.reference.plugins import own_plugins

OURS = own_plugins(registries())
# Some options require a URL, and all accept one.
SECRETS = {
    name: f"https://hunter2.example/{name}"
    for name in ("SLACK_TOKEN", "SMTP_PASSWORD", "HOOK_SECRET", "SLACK_HOOK", "TEAMS_WORKFLOW")
}


def everything() -> DryRun:
    """Return a file that uses each plugin as its example does, in one profile."""
    lines = ["intervals: {requeue: 1m}", "instances:"]
    names: dict[str, list[str]] = {}
    for family, plugins in (("check", OURS.checks), ("notify", OURS.notifications), ("trigger", OURS.triggers)):
        lines.append(f"  {family}:")
        for at, (kind, plugin) in enumerate(plugins.items()):
            names.setdefault(family, []).append(f"{family}{at}")
            lines += [f"  - name: {family}{at}", f"    type: {kind}", "    config:"]
            lines.append(textwrap.indent(getattr(plugin, "example", "") or "{}", " " * 6))
            lines += ["    schedule: {type: periodic, config: {interval: 24h}}"] if family == "notify" else []
    check, notify, trigger = (" && ".join(names[item]) for item in ("check", "notify", "trigger"))
    lines += ["profiles:", "- name: all", "  maintenance-required:", f"    notify: {notify}", "    transitions:"]
    lines += [f"    - {{check: {check}, next: in-maintenance, trigger: {trigger}}}"]
    return dry_run("\n".join(lines).encode(), OURS, SECRETS, file="all", assume_placeholders=True)


def test_every_plugin_can_be_described() -> None:
    found = everything()
    assert [str(item) for item in found.errors] == []
    assert found.loaded is not None
    descriptions = description.describe_instances(found.loaded.configuration, found.values)
    assert {item.type for item in descriptions} == {*OURS.checks, *OURS.notifications, *OURS.triggers}
    for item in descriptions:
        assert item.summary.endswith(".")
        assert "object at 0x" not in item.settings


def test_description_hides_secrets() -> None:
    found = everything()
    assert found.loaded is not None
    descriptions = description.describe_instances(found.loaded.configuration, found.values)
    assert "hunter2" not in " ".join(event.settings for event in descriptions)
    slack = next(event for event in descriptions if event.type == "slack")
    assert slack.options["hook"] == "(hidden)"
    assert slack.options["schedule"] == "periodic interval 24h0m0s"


def test_secret_inside_a_value_is_replaced_by_its_variable() -> None:
    plugin = OURS.checks["hasLabel"](key="x", value="prefix-hunter2-suffix")
    assert description.settings_of(plugin, {"PASSWORD": "hunter2"})["value"] == "prefix-${PASSWORD}-suffix"


def test_default_options_are_omitted() -> None:
    assert description.settings_of(OURS.checks["hasLabel"](key="x"), {}) == {"key": "x"}


def test_credentials_in_a_url_are_hidden() -> None:
    plugin = OURS.checks["prometheusInstant"](url="https://ada:hunter2@prometheus.example/x")
    assert description.settings_of(plugin, {})["url"] == "https://(hidden)@prometheus.example/x"
