"""All triggers and notifications describe themselves for the generated reference page."""

from typing import Any

import pytest
import yaml

from haulout.controllers.profiles.config.options import REST, options_of
from haulout.controllers.profiles.plugin import Plugin
from haulout.controllers.profiles.plugins.notifications.mail import Mail
from haulout.controllers.profiles.plugins.notifications.slack import Slack
from haulout.controllers.profiles.plugins.notifications.slack_thread import SlackThread
from haulout.controllers.profiles.plugins.notifications.teams import Teams
from haulout.controllers.profiles.plugins.notifications.webhook import Webhook
from haulout.controllers.profiles.plugins.triggers.alter_annotation import AlterAnnotation
from haulout.controllers.profiles.plugins.triggers.alter_finalizer import AlterFinalizer
from haulout.controllers.profiles.plugins.triggers.alter_hypervisor import AlterHypervisor
from haulout.controllers.profiles.plugins.triggers.alter_label import AlterLabel
from haulout.controllers.profiles.plugins.triggers.eviction import Eviction
from haulout.controllers.profiles.plugins.triggers.replace_machine import ReplaceMachineTrigger

PLUGINS: list[Any] = [
    *(AlterAnnotation, AlterFinalizer, AlterHypervisor, AlterLabel, Eviction, ReplaceMachineTrigger),
    *(Mail, Slack, SlackThread, Teams, Webhook),
]


def keys(plugin: Any) -> set[str]:
    """Return the keys of a plugin's configuration; `*` for any."""
    return {"*" if option.kind is REST else option.key for option in options_of(plugin)}


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.type)
def test_plugin_describes_itself(plugin: type[Plugin]) -> None:
    assert plugin.__doc__
    assert len(plugin.__doc__.splitlines()[0]) > 20
    assert all(option.description.endswith(".") for option in options_of(plugin))
    example = yaml.safe_load(plugin.example)
    assert isinstance(example, dict)
    assert "*" in keys(plugin) or set(example) <= keys(plugin)
    assert {option.key for option in options_of(plugin) if option.required} <= set(example)


def test_option_keys_are_stable() -> None:
    assert {plugin.type: keys(plugin) for plugin in PLUGINS} == {
        "alterAnnotation": {"key", "value", "remove"},
        "alterFinalizer": {"key", "remove"},
        "alterHypervisor": {"*"},
        "alterLabel": {"key", "value", "remove"},
        "eviction": {"action", "deletionTimeout", "evictionTimeout", "forceEviction", "drain"},
        "mail": {"address", "from", "to", "subject", "message", "auth", "identity", "user", "password"},
        "replaceMachine": {"required", "surge"},
        "slack": {"hook", "channel", "message"},
        "slackThread": {"token", "channel", "title", "message", "leaseName", "leaseNamespace", "period", "url"},
        "teams": {"url", "title", "message", "facts"},
        "webhook": {"url", "secret", "token", "body"},
    }
