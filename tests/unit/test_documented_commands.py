"""Every command in the documentation is run by a test, or it is said why not."""

import re

import click
import pytest

from haulout.cli.entry import haulout
from support.docs.documented_commands import (
    FOLLOWED_PAGES,
    NOT_RUN,
    ROOT,
    DocumentedCommand,
    all_documented_commands,
    documented_commands,
)

ALL = all_documented_commands()
PAGE = """\
Text with `kubectl get nodes` in it.

    haulout check a.yaml    # what is wrong
    NAME   STATUS
    $ kubectl get nodes

    haulout why NODE [--config FILE]

- a list

  ```console
  $ make run
  kubectl is not a command here
  ```

```sh
kubectl apply -f - <<EOF
kind: Node
EOF
haulout manifests \\
  | kubectl apply -f -
```

```yaml
kubectl: no
```
"""


def test_commands_are_found_wherever_they_are() -> None:
    found = list(documented_commands("p.md", PAGE))
    assert [(item.line, item.text) for item in found] == [
        (3, "haulout check a.yaml"),
        (5, "kubectl get nodes"),
        (7, "haulout why NODE [--config FILE]"),
        (12, "make run"),
        (17, "kubectl apply -f - <<EOF\nkind: Node\nEOF"),
        (20, "haulout manifests | kubectl apply -f -"),
    ]
    assert [item.text for item in found if item.is_followed] == ["make run"]
    assert [item.line for item in found if item.is_synopsis] == [7]


def test_what_is_removed_as_a_whole_may_be_gone_already() -> None:
    """A namespace takes along what is in it, before or after kubectl comes to that."""
    whole = [item for item in ALL if re.search(r"kubectl\b.* delete\b.* -[fk] ", f"{item.text} ")]
    assert whole
    assert [item.text for item in whole if "--ignore-not-found" not in item.text] == []


def test_a_page_to_be_followed_is_followed_by_a_test() -> None:
    assert {item.page for item in ALL if item.is_followed} == set(FOLLOWED_PAGES)


@pytest.mark.parametrize(("page", "test"), FOLLOWED_PAGES.items())
def test_the_test_that_follows_a_page_speaks_of_it(page: str, test: str) -> None:
    assert page.rpartition("/")[2] in (ROOT / test).read_text(encoding="utf-8")


def test_what_is_not_run_is_there() -> None:
    stale = [start for start in NOT_RUN if not any(item.starts_with(start) for item in ALL)]
    assert stale == []


SYNOPSES = [it for it in ALL if it.is_synopsis and it.text.startswith("haulout ")]


@pytest.mark.parametrize("command", SYNOPSES, ids=lambda it: f"{it.page}:{it.line}")
def test_a_synopsis_names_options_that_there_are(command: DocumentedCommand) -> None:
    found: click.Command = haulout
    for word in command.text.split()[1:]:
        inner = getattr(found, "commands", {}).get(word)
        if inner is None:
            break
        found = inner
    options = {name for parameter in found.params for name in parameter.opts} | {"--help"}
    assert found is not haulout
    assert [
        parameter for parameter in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", command.text) if parameter not in options
    ] == []
