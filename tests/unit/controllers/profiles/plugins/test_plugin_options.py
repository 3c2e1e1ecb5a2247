"""Parsing of plugin options, and errors with line, key, found and expected values."""

import json
from datetime import timedelta
from typing import Any

import pytest

from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.options import options_of
from haulout.controllers.profiles.plugin import Plugin
from haulout.controllers.profiles.plugins.checks.affinity import Affinity
from haulout.controllers.profiles.plugins.checks.any_label import AnyLabel
from haulout.controllers.profiles.plugins.checks.check_hypervisor import CheckHypervisor
from haulout.controllers.profiles.plugins.checks.cluster_semver import ClusterSemver
from haulout.controllers.profiles.plugins.checks.condition import Condition
from haulout.controllers.profiles.plugins.checks.has_annotation import HasAnnotation
from haulout.controllers.profiles.plugins.checks.has_label import HasLabel
from haulout.controllers.profiles.plugins.checks.hypervisor_condition import HypervisorCondition
from haulout.controllers.profiles.plugins.checks.kubernikus_count import KubernikusCount, SecretReference
from haulout.controllers.profiles.plugins.checks.max_maintenance import MaxMaintenance
from haulout.controllers.profiles.plugins.checks.node_count import NodeCount
from haulout.controllers.profiles.plugins.checks.prometheus_instant import PrometheusInstant
from haulout.controllers.profiles.plugins.checks.stagger import Stagger
from haulout.controllers.profiles.plugins.checks.time_window import TimeWindow
from haulout.controllers.profiles.plugins.checks.wait import WaitCheck
from haulout.controllers.profiles.plugins.checks.wait_exclude import WaitExclude
from haulout.controllers.profiles.plugins.notifications.mail import Mail
from haulout.controllers.profiles.plugins.notifications.slack import Slack
from haulout.controllers.profiles.plugins.notifications.slack_thread import SlackThread
from haulout.controllers.profiles.plugins.registry import registries
from haulout.controllers.profiles.plugins.schedules.oneshot import Oneshot
from haulout.controllers.profiles.plugins.schedules.periodic import Periodic
from haulout.controllers.profiles.plugins.schedules.scheduled import Scheduled
from haulout.controllers.profiles.plugins.triggers.alter_annotation import AlterAnnotation
from haulout.controllers.profiles.plugins.triggers.alter_finalizer import AlterFinalizer
from haulout.controllers.profiles.plugins.triggers.alter_hypervisor import AlterHypervisor
from haulout.controllers.profiles.plugins.triggers.alter_label import AlterLabel
from haulout.controllers.profiles.plugins.triggers.eviction import Eviction
from haulout.controllers.profiles.plugins.triggers.replace_machine import ReplaceMachineTrigger
from haulout.errors import ConfigErrors

MINUTE = timedelta(minutes=1)
ALL = registries()
FAMILIES = {"check": ALL.checks, "notify": ALL.notifications, "trigger": ALL.triggers}
OF = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}


def a_file(kind: str, options: str, *, schedule: str = "{type: periodic, config: {}}") -> str:
    """Return a file with one instance, whose options are in line 6 and are used in a chain."""
    family = OF[kind]
    chains = {
        "check": "transitions: [{check: it, next: in-maintenance}]",
        "notify": "notify: it",
        "trigger": "enter: it",
    }
    return f"""intervals: {{requeue: 1m}}
instances:
  {family}:
  - name: it
    type: {kind}
    config: {options}
    {f"schedule: {schedule}" if family == "notify" else ""}
profiles:
- name: p
  maintenance-required:
    {chains[family]}
"""


def built(kind: str, options: str, **more: Any) -> list[Plugin]:
    """Return the plugins of a file with one instance; a notification comes with its schedule."""
    return list(loader.load(a_file(kind, options, **more).encode(), ALL, {}).configuration.plugins())


def refusals(kind: str, options: str, **more: Any) -> list[str]:
    """Return the errors of a file."""
    with pytest.raises(ConfigErrors) as caught:
        built(kind, options, **more)
    assert {error.file for error in caught.value.errors} == {"maintenance.yaml"}
    assert all(error.line for error in caught.value.errors)
    return [f"{error.line} {error.key}: {error.problem}" for error in caught.value.errors]


# What is read


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("{minOperational: 2}", Affinity(min_operational=2)),
        ("null", Affinity()),
        ("", Affinity()),
        ("{key: k, value: v}", HasAnnotation(key="k", value="v")),
        ("{key: k, value: v}", HasLabel(key="k", value="v")),
        ("{key: k, value: v}", AnyLabel(key="k", value="v")),
        ("{key: k, value: v, remove: true}", AlterLabel(key="k", value="v", remove=True)),
        ("{key: k, value: v}", AlterAnnotation(key="k", value="v")),
        ("{key: k, remove: yes}", AlterFinalizer(key="k", remove=True)),
        ("{type: Ready, status: 'True'}", Condition(condition="Ready", status="True")),
        ("{action: drain}", Eviction(action="drain", deletion_timeout=10 * MINUTE, eviction_timeout=10 * MINUTE)),
        (
            "{action: drain, deletionTimeout: 11m, evictionTimeout: 12m, forceEviction: yes}",
            Eviction(action="drain", deletion_timeout=11 * MINUTE, eviction_timeout=12 * MINUTE, force_eviction=True),
        ),
        ("{evicted: true}", CheckHypervisor(fields={"evicted": True})),
        ("{type: Ready, status: 'False'}", HypervisorCondition(condition="Ready", status="False")),
        ("{reboot: true, maintenance: manual}", AlterHypervisor(fields={"reboot": True, "maintenance": "manual"})),
        ("{}", ReplaceMachineTrigger()),
        ("{required: false, surge: yes}", ReplaceMachineTrigger(required=False, surge=True)),
        ("{cluster: c}", KubernikusCount(cluster="c")),
        (
            "{cluster: c, cloudProviderSecret: {name: conf, namespace: ns}}",
            KubernikusCount(cluster="c", cloud_provider_secret=SecretReference(name="conf", namespace="ns")),
        ),
        (
            "{address: 'h:25', from: f@x, to: t@x, subject: s, message: m, auth: true, identity: i, user: u}",
            Mail(address="h:25", from_="f@x", to=("t@x",), subject="s", message="m", auth=True, identity="i", user="u"),
        ),
        ("{max: 2, groupBy: [a, b]}", MaxMaintenance(max=2, group_by=("a", "b"))),
        (
            "{max: 1, profile: p, skipAfter: 30s, groupLabel: g}",
            MaxMaintenance(max=1, profile="p", skip_after=MINUTE / 2, group_label="g"),
        ),
        ("{count: 154}", NodeCount(count=154)),
        (
            "{url: 'http://p:9090', query: up, expr: value < 3}",
            PrometheusInstant(url="http://p:9090", query="up", expr="value < 3"),
        ),
        ("{key: k, profileScoped: yes}", ClusterSemver(key="k", profile_scoped=True)),
        ("{hook: 'https://h/', channel: c, message: m}", Slack(hook="https://h/", channel="c", message="m")),
        (
            "{token: t, channel: c, title: a, message: m, leaseName: l, leaseNamespace: ns, period: 24h}",
            SlackThread(
                token="t",
                channel="c",
                title="a",
                message="m",
                lease_name="l",
                lease_namespace="ns",
                period=timedelta(hours=24),
            ),
        ),
        (
            "{duration: 60, leaseName: l, leaseNamespace: ns}",
            Stagger(duration=MINUTE, lease_name="l", lease_namespace="ns", parallel=1),
        ),
        (
            "{start: 11:00, end: '19:30', weekdays: [monday, tue], exclude: [Feb 2, Dec 24]}",
            TimeWindow(start="11:00", end="19:30", weekdays=("monday", "tue"), exclude=("Feb 2", "Dec 24")),
        ),
        ("{duration: 0h12m}", WaitCheck(duration="0h12m")),
        ("{duration: 0h12m, exclude: tue}", WaitExclude(duration="0h12m", exclude=("tue",))),
    ],
)
def test_options_are_parsed(options: str, expected: Plugin) -> None:
    """I01, I02, I03, I04, I05, I06, I07, I08, I09, I10, I11, I12, I13, I14, I15, I16, I17, I18, I19, I20: parsing."""
    assert built(expected.type, options)[0] == expected


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("{type: periodic, config: {interval: 5m}}", Periodic(interval=5 * MINUTE)),
        ("{type: periodic, config: {}}", Periodic(interval=timedelta(hours=1))),
        (
            "{type: Scheduled, config: {instant: 12:00, weekdays: [monday, wed]}}",
            Scheduled(instant="12:00", weekdays=("monday", "wed")),
        ),
        ("{type: oneshot, config: {delay: 8m}}", Oneshot(delay=8 * MINUTE)),
        ("{type: ONESHOT, config: {}}", Oneshot(delay=MINUTE)),
    ],
)
def test_schedules_are_parsed(schedule: str, expected: Plugin) -> None:
    """P14, P15, P17."""
    options = "{hook: 'https://h/', channel: c, message: m}"
    assert built("slack", options, schedule=schedule)[1] == expected


# What is refused


@pytest.mark.parametrize(("kind", "cls"), [(kind, it) for kinds in FAMILIES.values() for kind, it in kinds.items()])
def test_missing_required_option_is_reported_with_line_and_key(kind: str, cls: type[Plugin]) -> None:
    """2.6; and so if there are no options at all, which made the SAP maintenance-controller crash."""
    required = [item.key for item in options_of(cls) if item.required and item.type is not bool]
    where = f"instances.{OF[kind]}[0].config"
    for options, line in (("{}", 6), ("null", 6)):
        found = refusals(kind, options) if required else []
        missed = [item for item in found if item.endswith((", found nothing", ", found an empty list"))]
        assert [item.split(": expected ")[0] for item in missed] == [f"{line} {where}.{key}" for key in required]


WRONG: dict[Any, tuple[Any, str]] = {
    str: ([1, 2], "expected a text, found a list"),
    int: ("many", "expected a whole number, found the text 'many'"),
    bool: ("perhaps", "expected true or false, found the text 'perhaps'"),
    timedelta: ("soon", "expected a duration such as 90s, 5m or 1h30m"),
}


@pytest.mark.parametrize(
    ("kind", "key", "type"),
    [
        (kind, it.key, it.type)
        for kinds in FAMILIES.values()
        for kind, cls in kinds.items()
        for it in options_of(cls)
        if it.type in WRONG and it.kind is None
    ],
)
def test_value_of_the_wrong_type_is_reported_with_the_expected_type(kind: str, key: str, type: type) -> None:  # noqa: A002 - a table
    value, expected_text = WRONG[type]
    found = refusals(kind, json.dumps({key: value}))
    assert any(item.startswith(f"6 instances.{OF[kind]}[0].config.{key}: {expected_text}") for item in found), found


BAD_PERIOD = "{token: t, channel: c, title: t, message: m, leaseName: n, leaseNamespace: ns, period: 0.5s}"
TIME = "a time of day from 00:00 to 23:59, such as 9:30 or 22:00"


@pytest.mark.parametrize(
    ("kind", "options", "expected_text"),
    [
        ("timeWindow", "{}", ["weekdays: expected at least one weekday such as monday or mon, found none"]),
        ("timeWindow", "{start: '9', end: 9:00, weekdays: mon}", [f"start: expected {TIME}, found '9'"]),
        ("timeWindow", "{start: 8:00, end: '24:00', weekdays: mon}", [f"end: expected {TIME}, found '24:00'"]),
        (
            "timeWindow",
            "{start: 8:00, end: 9:00, weekdays: [abcde]}",
            ["weekdays[0]: expected a weekday such as monday or mon, found 'abcde'"],
        ),
        (
            "timeWindow",
            "{start: '15:00', end: '10:00', weekdays: mon}",
            ["start: expected a time before the end, 10:00, found 15:00"],
        ),
        (
            "timeWindow",
            "{start: 8:00, end: 9:00, weekdays: mon, exclude: [Feb 30]}",
            ["exclude[0]: expected a day such as Dec 24, found 'Feb 30': Feb has no day 30"],
        ),
        ("wait", "{duration: 60}", ['duration: time: missing unit in duration "60": expected numbers with units']),
        ("wait", "{duration: 1d}", ['duration: time: unknown unit "d" in duration "1d": expected numbers with units']),
        (
            "waitExclude",
            "{duration: 1h, exclude: [x]}",
            ["exclude[0]: expected a weekday such as monday or mon, found 'x'"],
        ),
        ("nodeCount", "{count: 0}", ["count: expected a whole number other than zero, found the number 0"]),
        (
            "maxMaintenance",
            "{max: 0}",
            ["max: expected a number other than 0, or a share from 1% to 100%, found the number 0"],
        ),
        (
            "checkHypervisor",
            "{evictd: true}",
            ["evictd: a hypervisor's status has no such field that can be compared; did you mean evicted?"],
        ),
        ("checkHypervisor", "{evicted: 'yes'}", ["evicted: found 'yes', expected true or false"]),
        (
            "alterHypervisor",
            "{rebot: true, reboot: 5}",
            [
                "rebot: a hypervisor's spec has no such field that can be set; did you mean reboot?",
                "reboot: found 5, expected true or false",
            ],
        ),
        ("eviction", "{action: delete}", ["action: found 'delete', expected one of cordon, uncordon, drain"]),
    ],
)
def test_plugin_specific_problem_is_reported_with_line_and_key(
    kind: str, options: str, expected_text: list[str]
) -> None:
    """2.6, I19: plugin-specific configuration errors."""
    found = refusals(kind, options)
    for expected in expected_text:
        assert any(item.startswith(f"6 instances.{OF[kind]}[0].config.{expected}") for item in found), found


@pytest.mark.parametrize("kind", OF)
@pytest.mark.parametrize("options", ["text", "5", "true"])
def test_options_that_are_no_mapping_are_refused(kind: str, options: str) -> None:
    """I06."""
    (found,) = refusals(kind, options)
    assert found.startswith(f"6 instances.{OF[kind]}[0].config: expected a mapping, found ")


SLACK = "{hook: 'https://h/', channel: c, message: m}"


@pytest.mark.parametrize(
    ("schedule", "expected_text"),
    [
        (
            "{type: hourly, config: {}}",
            "type: expected a plugin, found 'hourly'; known types: oneshot, periodic, scheduled",
        ),
        ("{type: periodic}", "config: expected a mapping, found nothing; {} is enough"),
        ("{type: periodic, config: null}", "config: expected a mapping, found nothing; {} is enough"),
        ("{config: {}}", "type: expected a text, found nothing"),
        ("null", "type: expected a text, found nothing"),
        ("{type: periodic, config: {interval: soon}}", "config.interval: expected a duration such as 90s, 5m or 1h30m"),
        ("{type: oneshot, config: {delay: soon}}", "config.delay: expected a duration such as 90s, 5m or 1h30m"),
        ("{type: scheduled, config: {weekdays: mon}}", "config.instant: expected a text, found nothing"),
        (
            "{type: scheduled, config: {instant: 9:00, weekdays: []}}",
            "config.weekdays: expected a list of texts, found",
        ),
        ("{type: scheduled, config: {instant: '25:00', weekdays: mon}}", f"config.instant: expected {TIME}, found"),
    ],
)
def test_invalid_schedule_is_refused(schedule: str, expected_text: str) -> None:
    """P24; 2.6: a notification without `schedule.config`, and an unknown type of schedule."""
    (found,) = refusals("slack", SLACK, schedule=schedule)
    assert found.split(" ", 1)[1].startswith(f"instances.notify[0].schedule.{expected_text}"), found
    assert found.split(" ", 1)[0] in ("4", "7")


@pytest.mark.parametrize(
    ("kind", "options", "expected_text"),
    [
        (
            "slack",
            "{hook: Your hook, channel: c, message: m}",
            "hook: found no valid URL, expected",
        ),
        (
            "mail",
            "{address: nowhere, from: f@x, to: t@x, subject: s, message: m}",
            "address: found 'nowhere', expected host:port, such as smtp.example.com:587",
        ),
        ("slack", "{hook: 'https://h/', channel: c, message: '{{ .Node'}", "message: message:1:9: expected }}"),
        ("prometheusInstant", "{url: nope, query: up, expr: value}", "url: found no valid URL"),
        ("prometheusInstant", "{url: 'http://p/', query: up, expr: value >}", "expr: expected a value at character 8"),
        ("slackThread", BAD_PERIOD, "period: found less than a second, which counts as one, expected a duration"),
        ("alterLabel", "{key: a b}", "key: found 'a b', expected a name such as ready or example.com/ready"),
        ("alterLabel", "{key: a, value: a b}", "value: found 'a b', expected at most 63 letters, digits"),
        ("alterFinalizer", "{key: a b}", "key: found 'a b', expected a name such as ready or example.com/ready"),
        ("condition", "{type: Ready, status: True}", "status: found true, which no condition ever is; expected 'True'"),
    ],
)
def test_problem_that_matters_only_at_execution_is_a_warning(kind: str, options: str, expected_text: str) -> None:
    """2.6, what is not an error: examples in the wild have `hook: Your hook`, and loaded."""
    loaded = loader.load(a_file(kind, options).encode(), ALL, {})
    texts = [f"{item.line} {item.key}: {item.problem}" for item in loaded.warnings]
    assert any(item.startswith(f"6 instances.{OF[kind]}[0].config.{expected_text}") for item in texts), texts


# The file around it


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("", "maintenance.yaml: intervals.requeue: expected a duration such as 90s, 5m or 1h30m, found nothing"),
        ("intervals: {requeue: 0}", "maintenance.yaml:1: intervals.requeue: expected a duration"),
        ("intervals: [", "maintenance.yaml:2: expected YAML or JSON: "),
        ("a: ${", "maintenance.yaml:1: a: "),
        ("yes: 1\nintervals: {requeue: 1m}", "maintenance.yaml:1: expected"),
        ("intervals:\n  requeue: ${NOT_SET}", "maintenance.yaml:2: intervals.requeue: "),
        (
            "intervals: {requeue: 1m}\nprofiles:\n- operational:",
            "maintenance.yaml:3: profiles[0].name: expected a text",
        ),
    ],
)
def test_unusable_file_states_its_problem(text: str, expected_text: str) -> None:
    """2.6: syntax errors, broken or undefined `${…}`, keys that are no texts, what is required."""
    with pytest.raises(ConfigErrors) as caught:
        loader.load(text.encode(), ALL, {})
    assert str(caught.value.errors[0]).startswith(expected_text)


def test_empty_registries_contain_no_plugins() -> None:
    """P21."""
    with pytest.raises(ConfigErrors, match="expected a plugin, found 'hasLabel'"):
        loader.load(a_file("hasLabel", "{key: k}").encode(), Registries(), {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${NAME}", "v"),
        ("${UNSET:text}", "text"),
        ("${NAME:text}", "v"),
        ("${NAME:+text}", "text"),
        ("a${UNSET:+text}b", "ab"),
        ("${UNSET:${NAME:x}}", "v"),
        ("${UNSET:${OTHER:x}}", "x"),
        ("$$${NAME}", "$v"),
        ("a$}b", "a}b"),
        ("$AZ", "$AZ"),
        ("${own}", "from the file"),
    ],
)
def test_every_form_of_interpolation_is_supported(text: str, expected: str) -> None:
    """12.9: env interpolation forms other than `${X}`."""
    file = f"own: from the file\n{a_file('hasLabel', json.dumps({'key': 'k', 'value': text}))}"
    found = loader.load(file.encode(), ALL, {"NAME": "v", "EMPTY": ""}).configuration.plugins()
    assert next(found) == HasLabel(key="k", value=expected)


@pytest.mark.parametrize(
    ("top", "expected"),
    [("own: from the file", "from the file"), ("own: ${own}", "from the environment")],
)
@pytest.mark.parametrize("text", ["${own}", "${own:text}"])
def test_key_of_the_file_hides_the_variable_of_its_name_except_from_itself(top: str, text: str, expected: str) -> None:
    file = f"{top}\n{a_file('hasLabel', json.dumps({'key': 'k', 'value': text}))}"
    found = loader.load(file.encode(), ALL, {"own": "from the environment"}).configuration.plugins()
    assert next(found) == HasLabel(key="k", value=expected)


@pytest.mark.parametrize("text", ["${UNSET}", "${EMPTY}", "${UNSET:?say it}"])
def test_missing_variable_refuses_the_file(text: str) -> None:
    """12.9: env interpolation forms other than `${X}`."""
    file = a_file("hasLabel", json.dumps({"key": "k", "value": text}))
    with pytest.raises(ConfigErrors) as caught:
        loader.load(file.encode(), ALL, {"EMPTY": ""})
    (error,) = caught.value.errors
    assert (error.line, error.key) == (6, "instances.check[0].config.value")
    assert "say it" in error.problem or text[2:-1] in error.problem
