"""The loader of maintenance.yaml: the configuration, all errors at once, and warnings."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.layout import file_schema
from haulout.controllers.profiles.config.loader import Loaded
from haulout.controllers.profiles.config.model import Configuration, Member, NotificationMember, Profile, StateConfig
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Need, State
from haulout.errors import ConfigErrors
from haulout.kube import selectors
from support.builders.profile_plugins import (
    REGISTRIES,
    AffinityCheck,
    LabelCheck,
    LabelTrigger,
    MessageNotification,
    PeriodicSchedule,
    TimeOfDaySchedule,
)

WHOLE = """
intervals:
  requeue: 30s
dashboard:
  labelFilter: [zone]
instances:
  check:
  - {name: ready, type: hasLabel, config: {key: ready}}
  - {name: urgent, type: hasLabel, config: {key: urgent, value: "true"}}
  - {name: spread, type: affinity, config: null}
  notify:
  - name: chat
    type: slack
    config: {message: "{{ .State }}"}
    schedule: {type: periodic, config: {interval: 5m}}
  - name: daily
    type: slack
    config: {message: hello}
    schedule: {type: SCHEDULED, config: {instant: 11:00, weekdays: mon}}
  trigger:
  - {name: mark, type: alterLabel, config: {key: mark}}
profiles:
- name: flatcar
  operational:
    transitions:
    - check: ready && !(urgent || urgent)
      next: maintenance-required
      trigger: mark && mark
  maintenance-required:
    notify: chat && daily
    transitions:
    - {check: spread, next: in-maintenance}
  in-maintenance:
    enter: mark
    transitions:
    - {check: "!ready", next: operational}
"""
BARE = "intervals: {requeue: 30s}\n"
EMPTY = Configuration(requeue=timedelta(seconds=30), profiles={"default": Profile("default")})


def load(text: str, **environ: str) -> Loaded:
    return loader.load(text.encode(), REGISTRIES, environ, file="m.yaml")


def errors(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        load(text, **environ)
    return [str(error) for error in caught.value.errors]


def warnings(text: str) -> list[str]:
    return [str(each) for each in load(text).warnings]


def test_configuration_needs_notices_if_one_profile_has_on_notice() -> None:
    without = "intervals: {requeue: 30s}\nprofiles:\n- {name: by-label}\n"
    assert load(without).configuration.needs == frozenset()
    assert load(f"{without}- {{name: by-notice, onNotice: true}}\n").configuration.needs == {Need.NOTICES}


def test_file_is_loaded_into_a_configuration() -> None:
    """P22: an unquoted 11:00 stays one."""
    found = load(WHOLE)
    states = found.configuration.profiles["flatcar"].states
    assert found.warnings == ()
    assert found.configuration.requeue == timedelta(seconds=30)
    assert found.configuration.label_filter == ("zone",)
    assert found.configuration.needs == {Need.PODS}
    assert states[State.REQUIRED].transitions[0].check.members == (Member("spread", AffinityCheck()),)
    assert states[State.REQUIRED].notify == (
        NotificationMember(
            "chat", MessageNotification(message="{{ .State }}"), PeriodicSchedule(interval=timedelta(minutes=5))
        ),
        NotificationMember(
            "daily", MessageNotification(message="hello"), TimeOfDaySchedule(instant="11:00", weekdays=("mon",))
        ),
    )
    assert states[State.IN_MAINTENANCE].enter == (Member("mark", LabelTrigger(key="mark")),)


def test_chains_keep_their_order_and_repetitions() -> None:
    """P25, P26."""
    ready, urgent = Member("ready", LabelCheck(key="ready")), Member("urgent", LabelCheck(key="urgent", value="true"))
    mark = Member("mark", LabelTrigger(key="mark"))
    (transition,) = load(WHOLE).configuration.profiles["flatcar"].states[State.OPERATIONAL].transitions
    assert transition.check.members == (ready, urgent, urgent)
    assert transition.check.text == "ready && !(urgent || urgent)"
    assert transition.check.evaluate({"ready": True, "urgent": False}) is True
    assert transition.check.evaluate({"ready": True, "urgent": None}) is None
    assert (transition.next, transition.trigger) == (State.REQUIRED, (mark, mark))


def test_default_profile_always_exists_and_may_be_replaced() -> None:
    assert load(BARE).configuration == EMPTY
    replaced = load(WHOLE.replace("name: flatcar", "name: default")).configuration.profiles
    assert list(replaced) == ["default"]
    assert [member.name for member in replaced["default"].states[State.REQUIRED].notify] == ["chat", "daily"]


@pytest.mark.parametrize("more", ["profiles: ~", "instances: ~", "instances: {check: ~}", "profiles: []", "dashboard:"])
def test_optional_section_may_be_null(more: str) -> None:
    assert load(BARE + more).configuration == EMPTY


def test_profile_state_may_be_null_or_absent() -> None:
    profile = load(f"{BARE}profiles: [{{name: p, operational: ~}}]").configuration.profiles["p"]
    assert profile.states == dict.fromkeys(State, StateConfig())


def test_file_loaded_twice_yields_equal_configurations() -> None:
    assert load(WHOLE).configuration == load(WHOLE).configuration
    assert load(WHOLE).configuration != load(WHOLE.replace("!ready", "ready")).configuration


def test_all_errors_are_reported_at_once_in_line_order() -> None:
    text = """
instances:
  check:
  - {name: a, type: hasLable, config: {key: x}}
  - {name: b, type: hasLabel, config: null}
  - {name: c, type: hasLabel, config: {key: "${TEAM:?say who you are}"}}
  - {name: d, type: hasLabel, config: {key: "a b"}}
  - 5
  notify:
  - {name: m, type: slack, config: {message: x}, schedule: {type: periodic}}
  - {name: o, type: slack, config: {message: x}, schedule: {type: hour, config: {}}}
  - {name: p, type: slack, config: {message: x}}
profiles:
- operational:
    transitions:
    - {check: a b, next: required}
    - {check: "", next: operational, trigger: t}
    - {next: operational}
    - {check: aa}
  in-maintenance:
    enter: t &&
    notify: ms
- name: p
  selector: a b
"""
    ways = "profiles[0].operational.transitions"
    of_notify = "instances.notify"
    unknown = "expected the name of a"
    states = "operational, maintenance-required or in-maintenance"
    assert errors(text)[:-1] == [
        "m.yaml:2: intervals.requeue: expected a duration such as 90s, 5m or 1h30m, found nothing",
        "m.yaml:4: instances.check[0].type: expected a plugin, found 'hasLable'; did you mean hasLabel?",
        "m.yaml:5: instances.check[1].config.key: expected a text, found nothing",
        "m.yaml:6: instances.check[2].config.key: say who you are",
        "m.yaml:7: instances.check[3].config.key: expected a key without blanks",
        "m.yaml:8: instances.check[4]: expected a mapping, found the number 5",
        "m.yaml:10: instances.notify[0].schedule.config: expected a mapping, found nothing; {} is enough",
        f"m.yaml:11: {of_notify}[1].schedule.type: expected a plugin, found 'hour'; known types: periodic, scheduled",
        "m.yaml:12: instances.notify[2].schedule.type: expected a text, found nothing",
        "m.yaml:14: profiles[0].name: expected a text, found nothing",
        f"m.yaml:16: {ways}[0].next: expected {states}, found the text 'required'",
        f"m.yaml:16: {ways}[0].check: expected && or ||, found b at character 3 of 'a b'",
        f"m.yaml:17: {ways}[1].check: expected a text, found an empty text",
        f"m.yaml:17: {ways}[1].trigger: {unknown} trigger instance, found 't'; define it under instances",
        f"m.yaml:18: {ways}[2].check: expected a text, found nothing",
        f"m.yaml:19: {ways}[3].next: expected {states}, found nothing",
        f"m.yaml:19: {ways}[3].check: {unknown} check instance, found 'aa'; did you mean a?",
        "m.yaml:21: profiles[0].in-maintenance.enter: expected a name, found none at character 5 of 't &&'",
        f"m.yaml:22: profiles[0].in-maintenance.notify: {unknown} notification instance, found 'ms'; did you mean m?",
    ]
    assert errors(text)[-1].startswith("m.yaml:24: profiles[1].selector: expected a label selector such as pool=gpu")


@pytest.mark.parametrize("family", ["check", "notify", "trigger"])
@pytest.mark.parametrize(
    "entry",
    [
        "hasLabel: {name: a, key: b}",
        "hasLabel:",
        "type: hasLabel",
        "{type: hasLabel, name: a}",
        "{name: a}",
        "{name: a, type: someOther, config: {key: a}}",
    ],
)
def test_incomplete_instance_is_refused(family: str, entry: str) -> None:
    """P23."""
    assert errors(f"{BARE}instances:\n  {family}:\n  - {entry}\n")


@pytest.mark.parametrize("chain", ["check", "enter", "notify", "trigger"])
def test_unknown_name_is_refused_in_every_chain(chain: str) -> None:
    """P27."""
    lines = {
        "check": "transitions: [{check: invalid&&invalid, next: operational}]",
        "trigger": "transitions: [{check: a, next: operational, trigger: invalid&&invalid}]",
        "enter": "enter: invalid&&invalid",
        "notify": "notify: invalid&&invalid",
    }
    instances = "instances: {check: [{name: a, type: affinity}]}\n"
    found = errors(f"{BARE}{instances}profiles: [{{name: p, operational: {{{lines[chain]}}}}}]")
    assert len(found) == 1
    assert "instance, found 'invalid'" in found[0]


@pytest.mark.parametrize("text", ["", "a", "[]", "5", "{}", "intervals: {requeue: 0}", "intervals: {requeue: -5s}"])
def test_file_without_an_interval_is_refused(text: str) -> None:
    assert errors(text)


def test_missing_file_is_reported() -> None:
    with pytest.raises(ConfigErrors, match=r"nowhere\.yaml: cannot read the file: no such file"):
        loader.load(Path("nowhere.yaml"), REGISTRIES, {})


def test_suspicious_configuration_is_reported_as_warnings() -> None:
    text = """
intervals: {requeue: 30s, notify: 5m}
keys: {state: x}
used: hello
instances:
  check:
  - {name: a, type: hasLabel, config: {key: "${used}", valeu: b}}
  - {name: a, type: hasLabel, config: {key: k}}
  - {name: nobody, type: hasLabel, config: {key: k}}
  - {name: spread, type: affinity}
  - {type: affinity}
  trigger: {t: u}
profiles:
- {name: p}
- name: p
  operational:
    transitions:
    - {check: spread && a, next: maintenance-required}
    - {check: a, next: operational}
  in-maintenance:
    transitions: [{check: a, next: operational}]
"""
    alone = "to have a unique name, found"
    assert warnings(text) == [
        "m.yaml:2: intervals.notify: there is no such key, so it is ignored",
        "m.yaml:3: keys: there is no such key, so it is ignored",
        "m.yaml:7: instances.check[0].config.valeu: there is no such key, so it is ignored; did you mean value?",
        f"m.yaml:8: instances.check[1].name: expected each check {alone} 'a' in line 7 too; the one in line 8 counts",
        "m.yaml:9: instances.check[2].name: check 'nobody' is used in no chain",
        "m.yaml:11: instances.check[4].name: expected a name, found none, so no chain can use this instance",
        "m.yaml:12: instances.trigger: expected a list, found a mapping, which counts as an empty list",
        f"m.yaml:15: profiles[1].name: expected each profile {alone} 'p' in line 14 too; the one in line 15 counts",
        "m.yaml:15: profiles[1].maintenance-required: no transition leads out of it, so a node stays in it",
        "m.yaml:18: profiles[1].operational.transitions[0].check: spread: it works only in maintenance-required",
        "m.yaml:19: profiles[1].operational.transitions[1].next: it leads to operational, where the node already is",
        "m.yaml:20: profiles[1].in-maintenance: no transition leads to it, so nothing in it ever happens",
    ]


def test_a_profile_may_have_a_selector() -> None:
    profile = load(f"{BARE}profiles: [{{name: p, selector: 'pool in (gpu)'}}]").configuration.profiles["p"]
    assert profile.selector == selectors.parse("pool in (gpu)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """A section that another component registers."""

    total: int = option("how many", default=1)


def test_registered_section_is_parsed() -> None:
    sections = {"budgets": Budgets}
    found = loader.load(f"{BARE}budgets: {{total: 3}}\n".encode(), REGISTRIES, {}, sections=sections)
    assert found.configuration.sections == {"budgets": Budgets(total=3)}
    assert found.warnings == ()
    with pytest.raises(ConfigErrors, match=r"budgets\.total: expected a whole number"):
        loader.load(f"{BARE}budgets: {{total: x}}\n".encode(), REGISTRIES, {}, sections=sections)


def test_error_behind_an_alias_is_reported_once() -> None:
    text = f"{BARE}instances:\n  check:\n  - &i {{name: a, type: nothing}}\nprofiles: []\nother: [*i, *i]\n"
    assert len(errors(text)) == 1


def test_schema_of_the_file_contains_the_plugins() -> None:
    found = file_schema(REGISTRIES)
    check = found["properties"]["instances"]["properties"]["check"]["items"]
    assert check["properties"]["type"] == {"enum": ["affinity", "hasLabel", "wait"]}
    assert check["allOf"][1]["then"]["properties"]["config"]["required"] == ["key"]
    profile = found["properties"]["profiles"]["anyOf"][0]["anyOf"][0]["items"]
    assert "maintenance-required" in profile["properties"]


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["a", "a && b", "${A}", "${", "hasLabel", "periodic", "operational", "5m", "", "{{", "$$"]),
    st.text(max_size=5),
)
KEYS = [
    *("intervals", "requeue", "instances", "check", "notify", "trigger", "profiles", "name", "type", "config"),
    *("key", "message", "schedule", "transitions", "next", "enter", "operational", "maintenance-required", "selector"),
]
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)),
    max_leaves=30,
)


@settings(max_examples=200)
@given(values)
def test_any_yaml_is_loaded_or_refused(value: object) -> None:
    try:
        loader.load(yaml.safe_dump(value).encode(), REGISTRIES, {"A": "b,c"})
    except ConfigErrors as refused:
        assert refused.errors  # noqa: PT017 - most files are refused, and none without a reason


@settings(max_examples=200)
@given(st.lists(st.sampled_from([*WHOLE.splitlines(keepends=True), "- {", "  x: &x *x\n", ": \n", "<<: {a: b}\n"])))
def test_any_shuffled_lines_are_loaded_or_refused(lines: list[str]) -> None:
    try:
        loader.load("".join(lines).encode(), REGISTRIES, {})
    except ConfigErrors as refused:
        assert refused.errors  # noqa: PT017 - the same
