"""Pages are followed as a reader follows them."""

from pathlib import Path

import pytest

from support.docs.page_commands import PageCommand, Reader, Shell, output_matches, page_commands

PAGE = """
Text.

```console
$ one \\
    | two
seen
$ three
```

```sh
not run
```

  ```console background
  $ four
  it  runs…
  ```
"""


def test_commands_are_found_with_what_they_show() -> None:
    assert list(page_commands(PAGE)) == [
        PageCommand("one | two", ("seen",)),
        PageCommand("three"),
        PageCommand("four", ("it  runs…",), "background"),
    ]


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [(["a", "c d"], True), (["c d", "a"], False), (["…b…"], True), (["b"], False), ([], True), (["a."], False)],
)
def test_lines_must_come_in_their_order_and_others_may_come_between(wanted: list[str], holds: bool) -> None:  # noqa: FBT001 - a case
    assert output_matches("a\n  abc\nc   d\n", wanted) is holds


def test_a_command_that_fails_or_shows_something_else_fails_the_page(tmp_path: Path) -> None:
    reader = Reader(Shell(tmp_path))
    reader.follow(
        "```console background\n$ sh -c 'echo up; exec sleep 60'\nup\n```\n```console stop\n$ echo down\ndown\n```\n"
    )
    with pytest.raises(AssertionError, match="ended with code 1"):
        reader.follow("```console\n$ false\n```\n")
    with pytest.raises(AssertionError, match="The page shows:\ntwo"):
        reader.follow("```console\n$ echo one\ntwo\n```\n")


def test_words_that_the_reader_replaces_are_filled_in(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.run("echo run REGISTRY/haulout", substitutions={"REGISTRY": "example"}) == "run example/haulout\n"
    assert shell.run("haulout version").startswith("haulout ")


def test_a_command_may_be_given_lines_and_is_not_taken_for_them() -> None:
    page = "```console\n$ cat <<EOF\none\nEOF\n$ one\n```\n"
    assert list(page_commands(page)) == [PageCommand("cat <<EOF\none\nEOF"), PageCommand("one")]


def test_what_is_exported_stays_so_and_a_block_may_be_about_failing(tmp_path: Path) -> None:
    reader = Reader(Shell(tmp_path))
    reader.follow('```console\n$ export A=~/a B="$PWD"\n$ echo $A $B\n…/a /…\n```\n```console fails\n$ false\n```\n')
    with pytest.raises(AssertionError, match="ended with code 0"):
        reader.follow("```console fails\n$ true\n```\n")
