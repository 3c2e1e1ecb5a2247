import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haulout.compat.gotemplate import check, parse
from haulout.compat.gotemplate.types import to_typed_value
from haulout.errors import TemplateError
from support.builders.go_values import PERSON

ANN = {"Name": "Ann", "Age": 41, "Tags": ["x"], "Labels": {"a": "1"}, "Boss": {"Name": "Bob"}, "Any": {"k": {"l": 1}}}


def problems(text: str) -> list[str]:
    return [str(problem) for problem in check(parse(text), PERSON)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ .Nmae }}", "message:1:4: there is no .Nmae in main.Person; did you mean Name?"),
        ("{{ .name }}", "message:1:4: there is no .name in main.Person; did you mean Name?"),
        ("{{ .Boss.Boss.Agee }}", "message:1:14: there is no .Agee in main.Person; did you mean Age?"),
        ("{{ .Name.x }}", "message:1:9: there is no .x in string; it has no fields"),
        ("{{ .Labels.a.b }}", "message:1:13: there is no .b in string; it has no fields"),
        ("{{ with .Boss }}{{ .Nam }}{{ end }}", "message:1:20: there is no .Nam in main.Person; did you mean Name?"),
        ("{{ $x := .Boss }}{{ $x.Nam }}", "message:1:23: there is no .Nam in main.Person; did you mean Name?"),
        ("{{ range .Tags }}{{ .x }}{{ end }}", "message:1:21: there is no .x in string; it has no fields"),
        ("{{ range $k, $v := .Labels }}{{ $v.x }}{{ end }}", "message:1:35: there is no .x in string; it has no fiel"),
        ("{{ if .Age }}{{ else }}{{ .Nope }}{{ end }}", "message:1:27: there is no .Nope in main.Person; there are Na"),
        ("{{ range .Name }}{{ end }}", "message:1:10: range needs a map, a list or a whole number, found a value of"),
        ("{{ (index .Tags 0).x }}", "message:1:19: there is no .x in string; it has no fields"),
        ("{{ index .Age 0 }}", "message:1:4: expected a map, a list or a text to index, found a value of type int"),
        ("{{ index .Tags `a` }}", "message:1:4: expected a whole number as an index, found a value of type string"),
        ("{{ len .Age }}", "message:1:4: len: expected a map, a list or a text, found a value of type int"),
        ("{{ slice .Labels 1 }}", "message:1:4: slice: expected a list or a text, found a value of type map[string]"),
        ("{{ eq .Age `x` }}", "message:1:4: eq: expected two values of one kind to compare, found int and string"),
        ("{{ eq .Age }}", "message:1:4: eq: expected something to compare with"),
        ("{{ .Greet }}", "message:1:4: .Greet takes 1 argument (a text), found 0"),
        ("{{ .Greet .Age }}", "message:1:11: expected a text, found a value of type int"),
        ("{{ .Sum 1 2.5 }}", "message:1:11: expected a whole number, found 2.5"),
        ("{{ .Age | .Greet }}", "message:1:11: expected a text, found a value of type int"),
        ("{{ .Name 1 }}", "message:1:4: .Name is no method: it takes no arguments"),
        ("{{ call .Name }}", "message:1:4: call is not supported here: no value is a function"),
        ('{{ template "x" }}', 'message:1:4: there is no template "x"'),
        ('{{ define "d" }}{{ .Agee }}{{ end }}{{ template "d" . }}', "message:1:20: there is no .Agee in main.Person"),
        ('{{ define "never" }}{{ len 1 2 }}{{ end }}', "message:1:24: len takes 1 argument, found 2"),
        ('{{ printf "%d" .Name }}', 'message:1:4: the format does not fit its values: it would write "%!d(string=)"'),
        ('{{ printf "%s %s" .Name }}', "message:1:4: the format does not fit its values: it would write"),
        ("{{ $x = 1 }}", "message:1:4: there is no variable $x to assign to; declare it with :="),
        ("{{ nil }}", "message:1:4: nil alone is no value to print or to test"),
    ],
)
def test_type_checker_reports_templates_that_always_fail(text: str, problem: str) -> None:
    assert [each[: len(problem)] for each in problems(text)] == [problem]


@pytest.mark.parametrize(
    "text",
    [
        "{{ .Name }} {{ .Boss.Boss.Name }} {{ .Labels.anything }} {{ .Any.open.to.all }}",
        '{{ .Greet "hi" }} {{ "hi" | .Greet }} {{ .Sum 1 2e0 }} {{ .Half 3 }} {{ (.Boss).Greet .Name }}',
        '{{ index .Labels "a" }} {{ index .Tags 0 }} {{ (index .Any "k").l }} {{ slice .Name 1 }} {{ len .Tags }}',
        "{{ range $i, $tag := .Tags }}{{ if $i }}, {{ end }}{{ $tag }}{{ end }}{{ range 3 }}{{ . }}{{ end }}",
        "{{ $last := `` }}{{ range .Tags }}{{ if $last }}{{ $last.x }}{{ end }}{{ $last = $.Any }}{{ end }}",
        '{{ printf "%s is %d, %v%%" .Name .Age .Any }} {{ printf "%s" .Boss }} {{ printf "100%%!" }}',
        '{{ define "d" }}{{ if .Boss }}{{ template "d" .Boss }}{{ end }}{{ .Name }}{{ end }}{{ template "d" . }}',
        "{{ with .Boss }}{{ $.Age }}{{ .Age }}{{ end }}{{ eq .Boss nil }}{{ or .Any.x .Name }}{{ and .Age 1 }}",
    ],
)
def test_type_checker_accepts_templates_that_can_succeed(text: str) -> None:
    assert problems(text) == []


def test_all_type_errors_are_reported_in_text_order() -> None:
    found = problems("{{ .A }}\n{{ if .Name }}{{ .B }}{{ else }}{{ .C }}{{ end }}\n{{ range .Tags }}{{ .D }}{{ end }}")
    assert [each.split(" in ")[0] for each in found] == [
        "message:1:4: there is no .A",
        "message:2:18: there is no .B",
        "message:2:36: there is no .C",
        "message:3:21: there is no .D",
    ]


WORDS = [
    *(
        ".Name",
        ".Age",
        ".Tags",
        ".Labels",
        ".Boss",
        ".Boss.Name",
        ".Any",
        ".Nope",
        ".Labels.a",
        ".Greet",
        ".Sum",
        "nil",
    ),
    *("1", "2.5", '"x"', "true", "len", "index", "slice", "print", "ne", "lt", "not", "html", "|", "(len .Tags)", "."),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join))
def test_each_reported_type_error_fails_at_rendering(action: str) -> None:
    """A single action is always run, so each problem that the check finds in it must fail."""
    try:
        template = parse(f"{{{{ {action} }}}}")
    except TemplateError:
        return
    if not check(template, PERSON):
        return
    with pytest.raises(TemplateError):
        template.render(to_typed_value(PERSON, ANN))
