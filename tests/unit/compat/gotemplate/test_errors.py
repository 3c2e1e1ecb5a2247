from datetime import UTC, datetime

import pytest

from haulout.compat.gotemplate import parse
from haulout.errors import ConfigError, TemplateError


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ .a", "message:1:6: expected }}, found the end of the template: an action is not closed"),
        ("one\n{{ .a + 1 }}", "message:2:7: expected a number, found +"),
        ("{{ lenn .a }}", "message:1:4: there is no function lenn; did you mean len?"),
        ("{{ Node }}", "message:1:4: there is no function Node; a field is written with a dot: .Node"),
        ("{{ $count := 1 }}{{ $cuont }}", "message:1:21: there is no variable $cuont here; did you mean $count?"),
        ("{{ if .a }}\nyes", "message:2:4: expected {{end}} for the if in line 1, found the end of the template"),
        ("{{ end }}", "message:1:4: found end outside of a block"),
        ("{{ break }}", "message:1:4: found break outside of a range"),
        ("{{ (len .a }}", "message:1:12: expected ), found }}: a parenthesis is not closed"),
        ("{{ }}", "message:1:4: expected a value in an action, found }}"),
        ("{{ if }}{{ end }}", "message:1:7: expected a value for if, found }}"),
        ("{{ /* x */ }}", "message:1:4: expected a value or }} in an action, found /"),
        ("{{/* x", "message:1:3: a comment begins here and does not end; expected */}}"),
        ('{{ "x }}', "message:1:4: a text begins here and does not end; expected a closing quotation mark in the same"),
        ('{{ "\\q" }}', "message:1:4: unknown escape \\q: Go knows"),
        ("{{ 2i }}", "message:1:4: expected a real number, found 2i"),
        ("{{ 99999999999999999999 }}", "message:1:4: expected a number of at most 64 bits"),
        ("{{ 1 | 2 }}", "message:1:8: expected a function or a method after |, found a value"),
        ("{{ define x }}{{ end }}", "message:1:11: expected the name of a template in quotes after define, found x"),
        ('{{ define "a" }}1{{ end }}{{ define "a" }}2{{ end }}', 'message:1:30: template "a" is defined twice'),
        ("{{ $x, $y := .a }}", "message:1:6: expected one variable in an action, found a second"),
        ("{{ é! }}", "message:1:5: expected a space or }} after a name, found '!'"),
    ],
)
def test_parse_error_has_position_and_expected_syntax(text: str, problem: str) -> None:
    with pytest.raises(TemplateError) as error:
        parse(text)
    assert str(error.value).startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ .name.first }}", "message:1:9: there is no .first in string; it has no fields"),
        ("a\n  {{ .null.first }}", "message:2:11: cannot read .first: the value before it is nil"),
        ("{{ index .list 7 }}", "message:1:4: index: index 7 is out of range: the length is 2"),
        ("{{ index .list `x` }}", "message:1:4: index: expected a whole number as an index, found a value of type str"),
        ("{{ index .missing 1 }}", "message:1:4: index: there is nothing to index: the value is null or missing"),
        ("{{ len 5 }}", "message:1:4: len: expected a map, a list or a text, found a value of type int"),
        ("{{ len }}", "message:1:4: len takes 1 argument, found 0"),
        ("{{ print | len .name }}", "message:1:12: len takes 1 argument, found 2"),
        ("{{ eq .name 1 }}", "message:1:4: eq: expected two values of one kind to compare, found string and int"),
        ("{{ lt .list 1 }}", "message:1:4: lt: expected a number or a text to compare, found a value of type []inter"),
        ("{{ range .name }}{{ end }}", "message:1:10: range needs a map, a list or a whole number, found a value of"),
        ("{{ range $i, $x := 3 }}{{ end }}", "message:1:10: range with two variables needs a map or a list, found"),
        ('{{ template "x" }}', 'message:1:4: there is no template "x"'),
        ("{{ .time.Format }}", "message:1:9: .Format takes 1 argument (a text), found 0"),
        ("{{ .time.Format 5 }}", "message:1:17: expected a text, found 5"),
        ("{{ .time.Frmat }}", "message:1:9: there is no .Frmat in time.Time; did you mean Format?"),
        ("{{ .time.AddDate 9000 0 0 }}", "message:1:9: .AddDate: a time outside of the years 1 to 9999"),
        ("{{ call .name }}", "message:1:4: call: call is not supported here"),
        ("{{ .name 1 }}", "message:1:4: .name is no method: it takes no arguments"),
        ("{{ $x = 1 }}", "message:1:4: there is no variable $x to assign to; declare it with :="),
        ("{{ printf 5 }}", "message:1:11: expected a text, found 5"),
        ("{{ nil }}", "message:1:4: nil alone is no value to print or to test"),
        ("{{ 18446744073709551615 }}", "message:1:4: expected a number of at most 63 bits"),
    ],
)
def test_render_error_has_position_and_expected_value(text: str, problem: str) -> None:
    data = {"name": "n1", "null": None, "list": [1, 2], "time": datetime(2024, 1, 2, tzinfo=UTC)}
    with pytest.raises(TemplateError) as error:
        parse(text).render(data)
    assert str(error.value).startswith(problem)


def test_template_error_has_file_line_and_column() -> None:
    with pytest.raises(TemplateError) as error:
        parse("ok\n {{ .a ", name="title")
    wrong = error.value
    assert (wrong.file, wrong.line, wrong.column) == ("title", 2, 8)
    assert isinstance(wrong, ConfigError)
    assert isinstance(wrong, ValueError)
