"""Pages are followed by running their commands."""

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


def test_page_commands_are_found_with_their_output() -> None:
    assert list(page_commands(PAGE)) == [
        PageCommand("one | two", ("seen",)),
        PageCommand("three"),
        PageCommand("four", ("it  runs…",), "background"),
    ]


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [(["a", "c d"], True), (["c d", "a"], False), (["…b…"], True), (["b"], False), ([], True), (["a."], False)],
)
def test_output_lines_match_in_order_with_others_in_between(wanted: list[str], holds: bool) -> None:  # noqa: FBT001 - a case
    assert output_matches("a\n  abc\nc   d\n", wanted) is holds


def test_failing_command_or_other_output_fails_the_page(tmp_path: Path) -> None:
    reader = Reader(Shell(tmp_path))
    reader.follow(
        "```console background\n$ sh -c 'echo up; exec sleep 60'\nup\n```\n```console stop\n$ echo down\ndown\n```\n"
    )
    with pytest.raises(AssertionError, match="ended with code 1"):
        reader.follow("```console\n$ false\n```\n")
    with pytest.raises(AssertionError, match="The page shows:\ntwo"):
        reader.follow("```console\n$ echo one\ntwo\n```\n")


def test_placeholders_are_substituted_in_commands(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.run("echo run REGISTRY/haulout", substitutions={"REGISTRY": "example"}) == "run example/haulout\n"
    assert shell.run("haulout version").startswith("haulout ")


def test_here_documents_are_part_of_their_command() -> None:
    page = "```console\n$ cat <<EOF\none\nEOF\n$ one\n```\n"
    assert list(page_commands(page)) == [PageCommand("cat <<EOF\none\nEOF"), PageCommand("one")]


def test_exported_variables_persist_and_blocks_may_expect_failure(tmp_path: Path) -> None:
    reader = Reader(Shell(tmp_path))
    reader.follow('```console\n$ export A=~/a B="$PWD"\n$ echo $A $B\n…/a /…\n```\n```console fails\n$ false\n```\n')
    with pytest.raises(AssertionError, match="ended with code 0"):
        reader.follow("```console fails\n$ true\n```\n")
