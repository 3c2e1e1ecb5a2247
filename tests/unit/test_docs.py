"""Links of the documentation."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"])
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"^( *)```.*?^\1```|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield file and heading of each relative link of a page."""
    for target in _LINK.findall(_CODE.sub("", page.read_text())):
        if "://" not in target and not target.startswith("mailto:"):
            name, _, anchor = target.partition("#")
            yield ((page.parent / name).resolve() if name else page), anchor


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub generates them."""
    headings = _HEADING.findall(re.sub(r"^( *)```.*?^\1```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda it: str(it.relative_to(ROOT)))
def test_documentation_links_refer_to_existing_pages_and_headings(page: Path) -> None:
    lost = [
        f"{target.name}#{anchor}"
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert lost == []


def test_documentation_readme_lists_each_page() -> None:
    listed = {target for target, _ in links(DOCS / "README.md")}
    assert [
        str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path not in listed and path.parent != DOCS
    ] == []


def test_documented_metrics_exist_in_the_reference() -> None:
    known = (DOCS / "reference" / "metrics.md").read_text()
    mentioned = {(page, name) for page in PAGES for name in re.findall(r"`(haulout_[a-z_]+[a-z])`", page.read_text())}
    assert [f"{page.name}: {name}" for page, name in sorted(mentioned) if f"`{name}`" not in known] == []
