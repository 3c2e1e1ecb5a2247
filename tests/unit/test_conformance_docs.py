"""The conformance pages refer to existing tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["conformance.md", "conformance-notices.md"])
def test_conformance_pages_refer_to_existing_tests(page: str) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^(?:async )?def (test_\w+)", text, flags=re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/design" / page).read_text(encoding="utf-8")))
    assert named
    assert named - there == set()
