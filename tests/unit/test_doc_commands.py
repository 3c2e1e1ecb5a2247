"""Pages are followed as a reader follows them."""

import os
from pathlib import Path

import pytest

from support.doc_commands import Command, Reader, commands, shows

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
    assert list(commands(PAGE)) == [
        Command("one | two", ("seen",)),
        Command("three"),
        Command("four", ("it  runs…",), "background"),
    ]


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [(["a", "c d"], True), (["c d", "a"], False), (["…b…"], True), (["b"], False), ([], True), (["a."], False)],
)
def test_lines_must_come_in_their_order_and_others_may_come_between(wanted: list[str], holds: bool) -> None:  # noqa: FBT001 - a case
    assert shows("a\n  abc\nc   d\n", wanted) is holds


def test_a_command_that_fails_or_shows_something_else_fails_the_page(tmp_path: Path) -> None:
    reader = Reader(tmp_path, {"PATH": os.environ["PATH"]})
    reader.follow(
        "```console background\n$ sh -c 'echo up; exec sleep 60'\nup\n```\n```console stop\n$ echo down\ndown\n```\n"
    )
    with pytest.raises(AssertionError, match="ended with code 1"):
        reader.follow("```console\n$ false\n```\n")
    with pytest.raises(AssertionError, match="The page shows:\ntwo"):
        reader.follow("```console\n$ echo one\ntwo\n```\n")
