"""Plugins of a configuration in words."""

import textwrap

from haulout.profiles import inwords
from haulout.profiles.plugins.registry import registries
from haulout.profiles.trial import Trial, attempt
from tools.reference.plugins import own

OURS = own(registries())
# Some must be addresses, and none minds to be one.
SECRETS = {
    name: f"https://hunter2.example/{name}"
    for name in ("SLACK_TOKEN", "SMTP_PASSWORD", "HOOK_SECRET", "SLACK_HOOK", "TEAMS_WORKFLOW")
}


def everything() -> Trial:
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
    check, notify, trigger = (" && ".join(names[it]) for it in ("check", "notify", "trigger"))
    lines += ["profiles:", "- name: all", "  maintenance-required:", f"    notify: {notify}", "    transitions:"]
    lines += [f"    - {{check: {check}, next: in-maintenance, trigger: {trigger}}}"]
    return attempt("\n".join(lines).encode(), OURS, SECRETS, file="all", assume=True)


def test_every_plugin_can_be_told() -> None:
    found = everything()
    assert [str(it) for it in found.errors] == []
    assert found.loaded is not None
    told = inwords.tell_all(found.loaded.configuration, found.values)
    assert {it.type for it in told} == {*OURS.checks, *OURS.notifications, *OURS.triggers}
    for it in told:
        assert it.prose.endswith(".")
        assert "object at 0x" not in it.settings


def test_nothing_secret_is_told() -> None:
    found = everything()
    assert found.loaded is not None
    told = inwords.tell_all(found.loaded.configuration, found.values)
    assert "hunter2" not in " ".join(it.settings for it in told)
    slack = next(it for it in told if it.type == "slack")
    assert slack.options["hook"] == "(hidden)"
    assert slack.options["schedule"] == "periodic interval 24h0m0s"


def test_a_secret_inside_of_a_text_is_told_by_its_name() -> None:
    plugin = OURS.checks["hasLabel"](key="x", value="prefix-hunter2-suffix")
    assert inwords.settings_of(plugin, {"PASSWORD": "hunter2"})["value"] == "prefix-${PASSWORD}-suffix"


def test_what_is_as_usual_is_not_told() -> None:
    assert inwords.settings_of(OURS.checks["hasLabel"](key="x"), {}) == {"key": "x"}


def test_credentials_in_an_address_are_not_told() -> None:
    plugin = OURS.checks["prometheusInstant"](url="https://ada:hunter2@prometheus.example/x")
    assert inwords.settings_of(plugin, {})["url"] == "https://(hidden)@prometheus.example/x"
