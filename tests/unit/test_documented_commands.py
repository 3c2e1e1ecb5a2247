"""Each command in the documentation is run by a test, or excluded with a reason."""

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


def test_documented_commands_are_found_in_all_block_types() -> None:
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


def test_documented_deletes_of_files_ignore_missing_objects() -> None:
    """A deleted namespace deletes its objects, possibly before kubectl does."""
    whole = [item for item in ALL if re.search(r"kubectl\b.* delete\b.* -[fk] ", f"{item.text} ")]
    assert whole
    assert [item.text for item in whole if "--ignore-not-found" not in item.text] == []


def test_each_page_to_be_followed_has_a_test() -> None:
    assert {item.page for item in ALL if item.is_followed} == set(FOLLOWED_PAGES)


@pytest.mark.parametrize(("page", "test"), FOLLOWED_PAGES.items())
def test_test_of_a_followed_page_refers_to_it(page: str, test: str) -> None:
    assert page.rpartition("/")[2] in (ROOT / test).read_text(encoding="utf-8")


def test_commands_excluded_from_tests_exist() -> None:
    stale = [start for start in NOT_RUN if not any(item.starts_with(start) for item in ALL)]
    assert stale == []


SYNOPSES = [it for it in ALL if it.is_synopsis and it.text.startswith("haulout ")]


@pytest.mark.parametrize("command", SYNOPSES, ids=lambda it: f"{it.page}:{it.line}")
def test_synopses_use_existing_options(command: DocumentedCommand) -> None:
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
