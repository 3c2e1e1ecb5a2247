"""The examples of the page about templates are valid."""

import re
from pathlib import Path

import pytest

from haulout.controllers.profiles.notify.template_data import check_template

PAGE = (Path(__file__).parents[5] / "docs" / "reference" / "templates.md").read_text()
EXAMPLES = [
    block
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE, flags=re.MULTILINE)
    if "{{" in block and "there is no" not in block
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_documented_template_has_no_problem(example: str) -> None:
    assert check_template(re.sub("^    ", "", example, flags=re.MULTILINE)) == ()


def test_page_has_examples() -> None:
    assert len(EXAMPLES) >= 4
