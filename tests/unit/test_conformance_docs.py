"""The pages that say which test holds what name tests that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["conformance.md", "conformance-notices.md"])
def test_each_test_that_the_page_names_is_there(page: str) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^(?:async )?def (test_\w+)", text, flags=re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/design" / page).read_text(encoding="utf-8")))
    assert named
    assert named - there == set()
