"""The documentation site: built from the pages, without external resources, with a check of links."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tools.docsite import figures
from tools.docsite.diagrams import DiagramError
from tools.docsite.navigation import Entry, parse_index
from tools.docsite.site import build

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site and return its folder."""
    folder = tmp_path_factory.mktemp("made") / "site"
    assert build(ROOT, folder).problems == []
    return folder


class Links(HTMLParser):
    """Collects the resources, links and anchors of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record resources, links and anchors."""
        attributes = {name: value or "" for name, value in attrs}
        self.anchors |= {attributes["id"]} if "id" in attributes else set()
        self.loads += [attributes["src"]] if "src" in attributes else []
        if "href" in attributes:
            (self.loads if tag == "link" else self.links).append(attributes["href"])


@pytest.fixture(scope="module")
def found(site: Path) -> dict[Path, Links]:
    """Return the links of each page."""
    return {page: Links(page) for page in sorted(site.rglob("*.html"))}


def test_site_contains_each_documentation_page(site: Path) -> None:
    missing = [
        path
        for path in DOCS.rglob("*.md")
        if path.name != "README.md" and not _page_on_site(site, path.relative_to(DOCS)).exists()
    ]
    assert missing == []
    assert (site / "index.html").exists()


def _page_on_site(site: Path, page: Path) -> Path:
    return site / page.with_suffix(".html")


def test_site_links_refer_to_existing_pages_and_headings(site: Path, found: dict[Path, Links]) -> None:
    lost = [
        f"{page.relative_to(site)}: {link}"
        for page, links in found.items()
        for link in links.links
        if not re.match(r"[a-z]+:", link) and not _link_exists(found, page, link)
    ]
    assert lost == []


def _link_exists(found: dict[Path, Links], page: Path, link: str) -> bool:
    name, _, heading = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if target.suffix == ".png":
        return target.exists()
    return target in found and (not heading or heading in found[target].anchors)


def test_site_loads_no_external_resources(site: Path, found: dict[Path, Links]) -> None:
    loaded = {(page, load) for page, links in found.items() for load in links.loads if load != "data:,"}
    assert [load for page, load in loaded if not (page.parent / load).exists()] == []
    for name in ("site.css", "site.js"):
        assert "://" not in (site / name).read_text(encoding="utf-8")


def test_site_contains_repository_files_that_pages_link_to(site: Path) -> None:
    recipe = (site / "repository/examples/cookbook/os-patching.yaml.html").read_text(encoding="utf-8")
    assert "maintenance-required" in recipe
    assert (site / "repository/examples/cookbook.html").exists()


def test_search_index_contains_each_heading(site: Path) -> None:
    text = (site / "search.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("window.searchIndex = ").rstrip(";\n"))
    found = {address: (page, heading) for address, page, heading, _ in index}
    assert found["how-to/drain-a-node.html"] == ("Drain a node", "")
    assert found["how-to/drain-a-node.html#put-it-back"] == ("Drain a node", "Put it back")


def a_repository(folder: Path, **files: str) -> Path:
    for name, text in {"README": "# All\n\n## Part\n\n- [One](one.md)\n", "one": "# One\n", **files}.items():
        (folder / "docs").mkdir(exist_ok=True)
        (folder / "docs" / f"{name}.md").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"one": "[x](two.md)"}, "docs/one.md: two.md leads nowhere"),
        ({"one": "# One\n[x](README.md#no)"}, "docs/one.md: README.md#no: there is no such heading"),
        ({"two": "# Two"}, "docs/README.md does not list docs/two.md"),
        ({"one": "[x](../../elsewhere.md)"}, "docs/one.md: ../../elsewhere.md leads nowhere"),
    ],
)
def test_documentation_errors_are_reported_and_nothing_is_written(
    tmp_path: Path, files: dict[str, str], problem: str
) -> None:
    folder = tmp_path / "site"
    assert build(a_repository(tmp_path, **files), folder).problems == [problem]
    assert not folder.exists()


DIAGRAM = "# One\n\n```mermaid\nflowchart LR\n    accTitle: From a to b\n    a --> b\n```\n"


def test_diagrams_become_part_of_the_page(tmp_path: Path) -> None:
    def draw(source: str) -> str:
        assert "a --> b" in source
        return '<svg id="my-svg"><style>#my-svg{fill:red}</style><path marker-end="url(#my-svg_end)"/></svg>'

    assert build(a_repository(tmp_path, one=DIAGRAM), tmp_path / "site", draw).problems == []
    page = (tmp_path / "site/one.html").read_text(encoding="utf-8")
    figure = page[page.index("<figure") : page.index("</figure>")]
    assert 'aria-label="From a to b"' in figure
    assert re.search(r'<svg id="(diagram-\w+)"><path marker-end="url\(#\1_end\)"/></svg>', figure)


def test_without_what_draws_diagrams_their_source_is_shown(tmp_path: Path) -> None:
    assert build(a_repository(tmp_path, one=DIAGRAM), tmp_path / "site").problems == []
    assert '<pre data-kind="mermaid"' in (tmp_path / "site/one.html").read_text(encoding="utf-8")


def test_a_diagram_that_cannot_be_drawn_is_an_error_with_its_line(tmp_path: Path) -> None:
    def draw(source: str) -> str:
        raise DiagramError(f"{len(source.splitlines())} lines of nonsense")

    problems = build(a_repository(tmp_path, one=DIAGRAM), tmp_path / "site", draw).problems
    assert problems == ["docs/one.md:3: the diagram cannot be drawn: 3 lines of nonsense"]


def test_diagrams_have_a_title_for_screen_readers(tmp_path: Path) -> None:
    untitled = DIAGRAM.replace("accTitle", "%% title")
    problems = build(a_repository(tmp_path, one=untitled), tmp_path / "site", lambda _: "<svg/>").problems
    assert problems == ["docs/one.md:3: the diagram cannot be drawn: it has no accTitle, which screen readers need"]


def test_every_diagram_has_a_title() -> None:
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
    diagrams = [
        (page.name, source)
        for page in pages
        for source in re.findall(r"```mermaid\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    assert diagrams
    assert [name for name, source in diagrams if "accTitle: " not in source] == []


def test_folder_that_is_no_site_is_not_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "site"
    mine.mkdir()
    (mine / "thesis.txt").write_text("ten years")
    with pytest.raises(SystemExit, match="remove it first"):
        build(a_repository(tmp_path), mine)
    assert (mine / "thesis.txt").exists()


def test_readme_is_parsed_to_the_table_of_contents() -> None:
    listed = "## How\n\n- [A `b`](a.md)\n  - [C\n    d](c.md)\n"
    index = f"{listed}\n## Words\n\n| | |\n| --- | --- |\n| of it | [X](x.md), [A](a.md) |\n"
    assert parse_index(index) == [
        Entry("How", children=[Entry("A b", "a.md", [Entry("C d", "c.md")])]),
        Entry("Words", children=[Entry("of it", children=[Entry("X", "x.md")])]),
    ]


def test_sizing_tables_contain_the_measured_figures() -> None:
    page = figures.PAGE.read_text(encoding="utf-8")
    assert page == figures.fill_tables(page, figures.RESULTS.read_text(encoding="utf-8")), "make reference"


def test_sizing_figures_are_copied_from_the_results() -> None:
    results = figures.RESULTS.read_text(encoding="utf-8")
    memory = figures.parse_results(results)["1,000 nodes: memory"][0]
    others = results.replace(f"| {memory} ", "| 999 MB ")
    assert "| 1,000 | 999 MB |" in figures.fill_tables(figures.PAGE.read_text(encoding="utf-8"), others)
