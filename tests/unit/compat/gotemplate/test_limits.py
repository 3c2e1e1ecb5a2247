"""Any template ends within its limits and accesses only its data."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haulout.compat.gotemplate import parse
from haulout.compat.gotemplate.errors import MAX_OUTPUT
from haulout.errors import TemplateError

WORDS = [
    *("{{", "}}", "{{-", "-}}", " ", "\n", "|", "(", ")", ":=", "=", ",", ".", "$", "$x", ".a", ".b.c", ".Format"),
    *("if ", "else ", "end", "range ", "with ", "define ", "template ", "block ", "break", "continue", "nil", "true"),
    *("len ", "index ", "slice ", "print ", "printf ", "println ", "html ", "js ", "urlquery ", "and ", "or ", "not "),
    *("eq ", "ne ", "lt ", "le ", "gt ", "ge ", "call ", '"x"', '"%v %5d %q %[2]*.3f"', "`raw`", "'c'", "0", "1", "-1"),
    *("0x1f", "1e3", "2.5", "1_000", '"2006-01-02"', "{{end}}", "{{if .a}}", "{{range $k, $v := .}}", "{{else}}", "/*"),
    *("*/", "\\", '"', "`", "'", "é", "\x00", "{{.}}", "{{$x := .a}}", '{{define "x"}}', '{{template "x" .}}'),
]
TEXTS = st.one_of(st.text(), st.lists(st.sampled_from(WORDS), max_size=25).map("".join))
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes() | st.timedeltas(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcx"), inner, max_size=4),
    max_leaves=12,
)


def refusal(text: str, data: Any) -> TemplateError | None:
    try:
        parse(text).render(data)
    except TemplateError as error:
        return error
    return None


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, data=DATA)
def test_any_text_and_data_render_or_raise_template_error(text: str, data: Any) -> None:
    wrong = refusal(text, data)
    assert wrong is None or 1 <= (wrong.line or 0) <= text.count("\n") + 1


@settings(max_examples=300, deadline=None)
@given(body=st.lists(st.sampled_from(WORDS[10:]), max_size=6).map(" ".join), data=DATA)
def test_any_action_renders_or_raises_template_error(body: str, data: Any) -> None:
    refusal(f"{{{{ {body} }}}}", data)


@settings(max_examples=300, deadline=None)
@given(form=st.text(st.sampled_from("%+-# 0123456789.*[]vTtdxXobcqUeEfFgGsOwp!é")), value=DATA, other=DATA)
def test_printf_formats_any_value_with_any_format(form: str, value: Any, other: Any) -> None:
    wrong = refusal("{{ printf .form .value .other }}", {"form": form, "value": value, "other": other})
    assert wrong is None or "characters" in wrong.problem  # a width that is too much


@given(layout=st.text() | st.text(st.sampled_from("0123456789JanMonPMST_Z:-.,")), when=st.datetimes())
def test_format_writes_any_time_with_any_layout(layout: str, when: datetime) -> None:
    parse("{{ .when.Format .layout }}").render({"when": when, "layout": layout})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ range 1000000000 }}{{ end }}", "did not end within 100,000 steps"),
        ("{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}", "did not end within 100,000 steps"),
        ("{{ range 10000 }}" + "x" * 1000 + "{{ end }}", "longer than 1,000,000 characters"),
        ('{{ $x := "xx" }}{{ range 99 }}{{ $x = print $x $x }}{{ end }}', "characters"),
        ('{{ printf "%999999d%999999d" 1 2 }}', "characters"),
        ('{{ $x := printf "%900000d" 1 }}{{ range 99999 }}{{ $x = html $x }}{{ end }}', "characters"),
        ('{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}', "more than 50 templates call each other"),
        (
            '{{ define "a" }}{{ template "a" }}{{ template "a" }}{{ end }}{{ template "a" }}',
            "call each other",
        ),
    ],
)
def test_template_beyond_a_limit_is_stopped(text: str, problem: str) -> None:
    template = parse(text)
    with pytest.raises(TemplateError) as error:
        template.render({})
    assert problem in str(error.value)


@pytest.mark.parametrize("text", ["{{ (" + "(" * 500 + "1" + ")" * 501 + " }}", "{{ if 1 }}" * 500 + "{{ end }}" * 500])
def test_too_deep_nesting_is_rejected(text: str) -> None:
    with pytest.raises(TemplateError, match="inside each other"):
        parse(text)


def test_long_chain_of_else_if_is_not_nested() -> None:
    chain = "".join(f"{{{{ else if eq .n {number} }}}}{number}" for number in range(300))
    assert parse(f"{{{{ if false }}}}{chain}{{{{ end }}}}").render({"n": 299}) == "299"


def test_deeply_nested_data_are_truncated() -> None:
    data: list[Any] = []
    for _ in range(5000):
        data = [data]
    assert parse("{{ . }}").render(data).startswith("[[[[")


def test_a_message_of_the_largest_size_is_rendered() -> None:
    assert len(parse("{{ range 1000 }}" + "x" * 1000 + "{{ end }}").render(None)) == MAX_OUTPUT


class ObjectWithSecret:
    """An object with an attribute that must not be accessible."""

    secret = "s3cr3t"


@pytest.mark.parametrize(
    "data", [ObjectWithSecret(), {"a": ObjectWithSecret()}, {"a": [ObjectWithSecret()]}, {"a": print}, {"a": {1: 2}}]
)
def test_undeclared_objects_cannot_be_used(data: Any) -> None:
    for text in ["{{ . }}", "{{ .a }}{{ . }}", "{{ printf `%v` . }}", "{{ range $k, $v := .a }}{{ $v }}{{ end }}"]:
        if text == "{{ range $k, $v := .a }}{{ $v }}{{ end }}" and not isinstance(data, dict):
            continue
        with pytest.raises(TemplateError) as error:
            parse(text).render(data)
        assert "cannot use" in str(error.value)


@pytest.mark.parametrize("name", ["__class__", "upper", "keys", "items", "real", "isoformat", "days", "append"])
def test_attributes_of_python_values_are_not_accessible(name: str) -> None:
    data = {"text": "t", "map": {"x": 1}, "list": [1], "number": 1, "time": datetime(2024, 1, 1), "gap": timedelta(1)}  # noqa: DTZ001 - taken for UTC
    for owner in ("text", "list", "number", "time", "gap"):
        with pytest.raises(TemplateError, match="there is no"):
            parse(f"{{{{ .{owner}.{name} }}}}").render(data)
    assert parse(f"{{{{ .map.{name} }}}}").render(data) == "<no value>"
