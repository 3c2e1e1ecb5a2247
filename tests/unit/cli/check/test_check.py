"""`haulout check`: what is wrong with a maintenance.yaml, and what it means."""

import io
import json
import sys
from pathlib import Path

import pytest

from support.cli.command_runner import RunCommand, command_runner

FILE = """\
intervals:
  requeue: 30s
instances:
  check:
  - name: needed
    type: hasLabel
    config: {key: example.com/needed}
  - name: few
    type: maxMaintenance
    config: {max: 2}
profiles:
- name: os
  operational:
    transitions:
    - {check: needed, next: maintenance-required}
  maintenance-required:
    transitions:
    - {check: needed && few, next: in-maintenance}
  in-maintenance:
    transitions:
    - {check: "!needed", next: operational}
"""
UNUSED = FILE.replace("needed && few", "needed")
VARIABLE = FILE.replace("example.com/needed", '"${NEEDED}"').replace("max: 2", 'max: "${MOST:?how many}"')


@pytest.fixture
def haulout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunCommand:
    """Return a way to run a command line, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("NEEDED", "MOST"):
        monkeypatch.delenv(name, raising=False)
    return command_runner(capsys)


def write(text: str) -> str:
    Path("maintenance.yaml").write_text(text)
    return "maintenance.yaml"


def test_valid_file_is_explained(haulout: RunCommand) -> None:
    assert haulout("check", write(FILE)) == (
        0,
        """\
maintenance.yaml can be used.
Checks that query external services are repeated every 30s.

profile default
  nothing happens: nodes stay operational

profile os
  operational
    to maintenance-required when needed
  maintenance-required
    to in-maintenance when needed && few
  in-maintenance
    to operational when !needed

Checks
  needed  hasLabel (key: example.com/needed)
          Passes if the node has a label and, if a value is given, exactly this value.
  few     maxMaintenance (max: 2)
          Passes if fewer than `max` nodes are in maintenance, in the whole cluster or in the node's group.
""",
        "",
    )


def test_quiet_prints_nothing_for_a_valid_file(haulout: RunCommand) -> None:
    assert haulout("check", "-q", write(FILE)) == (0, "", "")


def test_all_errors_are_reported_with_line_key_and_expectation(haulout: RunCommand) -> None:
    broken = FILE.replace("requeue: 30s", "requeue: soon").replace("type: hasLabel", "type: hasLable")
    code, out, _ = haulout("check", write(broken))
    assert code == 2
    first, second, last = out.splitlines()
    assert first.startswith("maintenance.yaml:2: error: intervals.requeue: expected a duration")
    assert "found the text 'soon'" in first
    assert second.startswith("maintenance.yaml:6: error: instances.check[0].type: expected a plugin, found 'hasLable'")
    assert "did you mean" in second
    assert "hasLabel" in second
    assert last == "maintenance.yaml cannot be used: 2 errors."


def test_errors_in_values_and_shape_of_a_trigger_are_reported_together(haulout: RunCommand) -> None:
    trigger = (
        "  trigger:\n  - {name: t, type: eviction, config: {evictionTimeout: soon, drain: {parallel: 0}}}\nprofiles:"
    )
    _, out, _ = haulout("check", "-q", write(FILE.replace("profiles:", trigger)))
    keys = [line.partition("config.")[2].partition(":")[0] for line in out.splitlines()]
    assert keys == ["action", "evictionTimeout", "drain.parallel"]


def test_duration_without_a_unit_is_a_warning(haulout: RunCommand) -> None:
    code, out, _ = haulout("check", "-q", write(FILE.replace("requeue: 30s", "requeue: 24")))
    assert code == 0
    message = "found 24 without a unit, which means seconds: write 24s if so"
    assert out == f"maintenance.yaml:2: warning: intervals.requeue: {message}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("profiles:\n\t- name: os\n", "found a tab, expected spaces"),
        ("profiles: @os\n", "found '@', with which no value"),
    ],
)
def test_invalid_yaml_character_is_named(haulout: RunCommand, text: str, found: str) -> None:
    _, out, _ = haulout("check", "-q", write(text))
    assert found in out


def test_mistyped_key_is_reported_as_warning_beside_the_missing_key(haulout: RunCommand) -> None:
    code, out, _ = haulout("check", "-q", write(FILE.replace("  requeue: 30s", "  requeu: 30s")))
    assert code == 2
    assert "maintenance.yaml:1: error: intervals.requeue: expected a duration" in out
    assert "maintenance.yaml:2: warning: intervals.requeu: " in out


def test_warnings_fail_only_with_strict(haulout: RunCommand) -> None:
    warning = "maintenance.yaml:8: warning: instances.check[1].name: check 'few' is used in no chain\n"
    assert haulout("check", "-q", write(UNUSED)) == (0, warning, "")
    assert haulout("check", "-q", "--strict", write(UNUSED)) == (1, warning, "")
    assert haulout("check", "-q", "--strict", write(FILE)) == (0, "", "")


FREEZES = """\
intervals: {requeue: 30s}
instances:
  check:
  - name: allowed
    type: timeWindow
    config:
      calendars: [good.ics, bad.ics, elsewhere.ics]
profiles:
- name: os
  operational: {transitions: [{check: allowed, next: in-maintenance}]}
  in-maintenance: {transitions: [{check: allowed, next: operational}]}
"""
GOOD = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nEND:VCALENDAR\r\n"
BAD = """\
BEGIN:VCALENDAR
VERSION:2.0
BEGIN:VEVENT
UID:1
DTSTART:tomorrow
END:VEVENT
BEGIN:VEVENT
UID:2
END:VEVENT
END:VCALENDAR
"""


def test_invalid_calendar_file_is_reported_with_its_lines(haulout: RunCommand) -> None:
    """A missing file is no warning, because it may exist where the operator runs."""
    Path("good.ics").write_text(GOOD)
    Path("bad.ics").write_text(BAD)
    Path("elsewhere.ics").mkdir()
    status, output, _ = haulout("check", "-q", write(FREEZES))
    until = "until this is fixed, checks that need the file do not pass"
    start, line = output.splitlines()
    assert status == 0
    prefix = "maintenance.yaml:7: warning: instances.check[0].config.calendars[1]: bad.ics"
    assert start.startswith(f"{prefix}:5: DTSTART: expected a day or a time such as")
    assert line == f"{prefix}:7: VEVENT: expected DTSTART, found none; {until}"
    assert haulout("check", "--strict", "-q", "maintenance.yaml")[0] == 1
    Path("bad.ics").write_text(GOOD)
    assert haulout("check", "--strict", "-q", "maintenance.yaml") == (0, "", "")


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "/dev/zero", ""])
def test_calendar_that_is_no_regular_file_does_not_block(haulout: RunCommand, name: str) -> None:
    file = write(FREEZES.replace("[good.ics, bad.ics, elsewhere.ics]", json.dumps([name])))
    status, output, _ = haulout("check", "-q", file)
    assert (status, "ics" in output) == (0 if name else 2, False)


def test_unset_variables_are_errors_with_a_remedy(haulout: RunCommand) -> None:
    code, out, err = haulout("check", "-q", write(VARIABLE))
    assert code == 2
    assert "instances.check[0].config.key: expected a value for NEEDED" in out
    assert "instances.check[1].config.max: how many" in out
    assert "Not set here: NEEDED, MOST." in err
    assert "--ignore-env" in err
    assert "--env NEEDED=value" in err


def test_ignore_env_accepts_unset_variables(haulout: RunCommand) -> None:
    code, out, err = haulout("check", "--ignore-env", write(VARIABLE))
    assert code == 0
    assert "needed  hasLabel (key: ${NEEDED})" in out
    assert "few     maxMaintenance (max: ${MOST})" in out
    assert err == "Not set here, but assumed to be set where the operator runs: NEEDED, MOST.\n"


def test_values_of_env_flags_are_validated_and_not_printed(haulout: RunCommand) -> None:
    given = ("--env", "NEEDED=token-of-the-king", "--env", "MOST=2")
    code, out, err = haulout("check", *given, write(VARIABLE))
    assert (code, err) == (0, "")
    assert "token-of-the-king" not in out
    assert "(key: ${NEEDED})" in out
    code, out, _ = haulout("check", "--env", "NEEDED=a", "--env", "MOST=many", write(VARIABLE))
    assert code == 2
    assert "found the value of ${MOST:?how many}" in out


def test_ignore_env_does_not_hide_other_errors(haulout: RunCommand) -> None:
    code, out, _ = haulout("check", "-q", "--ignore-env", write(VARIABLE.replace("30s", "soon")))
    assert code == 2
    assert out.count("error") == 1
    assert "intervals.requeue" in out


def test_env_flag_without_a_value_is_a_usage_error(haulout: RunCommand) -> None:
    code, _, err = haulout("check", "--env", "NEEDED", write(FILE))
    assert code == 2
    assert "expected NAME=value, found 'NEEDED'" in err


def test_graph_prints_only_mermaid(haulout: RunCommand) -> None:
    code, out, err = haulout("check", "--graph", write(UNUSED))
    assert code == 0
    assert out.startswith('---\ntitle: "os"\n---\nstateDiagram-v2\n')
    assert "operational --> required : needed" in out
    assert "default" not in out
    assert "warning" in err


def test_machine_readable_output_has_all_fields(haulout: RunCommand) -> None:
    code, out, err = haulout("check", "-o", "json", write(UNUSED))
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["ok"] is True
    assert found["warnings"] == [
        {"line": 8, "key": "instances.check[1].name", "problem": "check 'few' is used in no chain"}
    ]
    os = next(it for it in found["profiles"] if it["name"] == "os")
    assert os["states"][1]["transitions"] == [
        {"next": "in-maintenance", "check": "needed", "checks": ["needed"], "trigger": []}
    ]
    assert found["instances"] == [
        {"family": "check", "name": "needed", "type": "hasLabel", "options": {"key": "example.com/needed"}}
    ]


def test_json_output_has_errors(haulout: RunCommand) -> None:
    code, out, _ = haulout("check", "-o", "json", write("intervals: {requeue: soon}"))
    found = json.loads(out)
    assert (code, found["ok"], found["profiles"]) == (2, False, None)
    assert [it["key"] for it in found["errors"]] == ["intervals.requeue"]


def test_missing_file_is_named(haulout: RunCommand) -> None:
    code, out, err = haulout("check", "nowhere.yaml")
    assert (code, out) == (2, "")
    assert err == "haulout: nowhere.yaml: cannot read the file: no such file or directory\n"


def test_file_is_read_from_standard_input(haulout: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(UNUSED.encode())))
    assert haulout("check", "-q", "-").out.startswith("standard input:8: warning: ")


def test_file_argument_is_required(haulout: RunCommand) -> None:
    assert haulout("check").err == "haulout: Missing argument 'FILE'. See 'haulout check --help'.\n"


def test_schema_is_printed_as_json(haulout: RunCommand) -> None:
    code, out, err = haulout("check", "--schema")
    assert (code, err) == (0, "")
    schema = json.loads(out)
    assert "hasLabel" in schema["properties"]["instances"]["properties"]["check"]["items"]["properties"]["type"]["enum"]


def test_control_characters_are_escaped(haulout: RunCommand) -> None:
    hostile = FILE.replace("name: os", 'name: "os\\e[2J"').replace("  requeue", '  "x\\e[2J": 1\n  requeue')
    out = haulout("check", write(hostile)).out
    assert "\x1b" not in out
    assert "\\x1b[2J" in out


def test_printed_default_passes_the_check(haulout: RunCommand) -> None:
    code, out, err = haulout("check", "--print-default")
    assert (code, err) == (0, "")
    code, explanation, _ = haulout("check", "--strict", write(out))
    assert code == 0
    assert "profile notices (for nodes while maintenance is announced for them)" in explanation
    graph = haulout("check", "--graph", write(out)).out
    assert "operational --> [*] : nothing is announced any more" in graph
    assert json.loads(haulout("check", "-o", "json", write(out)).out)["profiles"][0]["onNotice"] is True


def test_budget_is_explained(haulout: RunCommand) -> None:
    text = "budget:\n- max: 10%\n- {max: 1, groupBy: [zone], selector: pool=gpu}\n"
    explanation = haulout("check", write(FILE + text)).out
    assert "  at most 10% in the whole cluster\n  at most 1 node in each zone, of those with pool=gpu\n" in explanation
    assert "profile os" in explanation
    alone = haulout("check", write(text)).out
    assert "maintenance.yaml can be used." in alone
    assert "There are no profiles" in alone


def test_invalid_budget_is_an_error(haulout: RunCommand) -> None:
    text = "budget:\n- max: 0\n- {max: 1, groupby: zone}\n- max: 1\n  groupBy: [a b]\n- selector: pool=gpu\n"
    found = haulout("check", write(text))
    expected = "expected a number of at least 1, or a share from 1% to 100%"
    assert found.code == 2
    assert f"maintenance.yaml:2: error: budget[0].max: {expected}, found the number 0" in found.out
    assert "maintenance.yaml:3: error: budget[1].groupby: there is no such key; did you mean groupBy?" in found.out
    assert "maintenance.yaml:5: error: budget[2].groupBy[0]: expected the key of a label" in found.out
    assert f"maintenance.yaml:6: error: budget[3].max: {expected}, found nothing" in found.out
    listless = haulout("check", write("budget: {max: 1}\n"))
    assert "maintenance.yaml:1: error: budget: expected a list, found a mapping" in listless.out
