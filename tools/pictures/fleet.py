"""The pages about nodes, of a cluster with maintenance of each kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from playwright.sync_api import expect

from tools.pictures.browser import Camera
from tools.pictures.sandbox import running_sandbox

_FOLDER = Path(__file__).parent
_SPEED = 60
_TIMEOUT_MS = 400_000  # two hours of the cluster pass, and on a busy machine they pass slowly
_HOURS_BEFORE, _HOURS_AFTER = 1, 4

# The nodes that fleet.yaml has in these states from 1h45m on. The last change decides when pictures are taken.
_STATES = {
    "data-02": "blocked",
    "memory-07": "blocked",
    "gpu-02": "draining",
    "gpu-05": "draining",
    "memory-02": "in-maintenance",
    "general-09": "in-maintenance",
    "general-06": "recovering",
    "general-14": "planned",
    "general-08": "planned",
}
_BLOCKED, _HOVERED = "data-02", "gpu-02"


def take_pictures(camera: Camera) -> None:
    with _configuration() as file:
        scenario = str(_FOLDER / "fleet.yaml")
        arguments = ("--scenario", scenario, "--config", file.name, "--speed", str(_SPEED))
        with running_sandbox(*arguments, folder=file.parent) as sandbox:
            address = sandbox.dashboard
            _wait_for_states(camera, address)
            _take_fleet(camera, address)
            _take_node(camera, address)
            _take_other_pages(camera, address)
            _take_what_if(camera, address)
            _take_broken_configuration(camera, address, file)


@contextmanager
def _configuration() -> Iterator[Path]:
    """Write the configuration, with a time window around now."""
    now = datetime.now(UTC).replace(minute=0)  # noqa: TID251 - the sandbox begins at the real time, too
    start, end = now - timedelta(hours=_HOURS_BEFORE), now + timedelta(hours=_HOURS_AFTER)
    across = ", acrossMidnight: true" if end.date() > start.date() else ""
    template = Template((_FOLDER / "maintenance.yaml").read_text(encoding="utf-8"))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "maintenance.yaml"
        file.write_text(template.substitute(start=f"{start:%H:%M}", end=f"{end:%H:%M}", across=across), "utf-8")
        yield file


def _wait_for_states(camera: Camera, address: str) -> None:
    page = camera.open(f"{address}/#/fleet")
    for name, state in _STATES.items():
        expect(page.locator(f".tile.is-{state}[data-name={name}]")).to_be_attached(timeout=_TIMEOUT_MS)
    page.context.close()


def _take_fleet(camera: Camera, address: str) -> None:
    page = camera.open(f"{address}/#/fleet", height=1000)
    expect(page.locator(f".tile[data-name={_HOVERED}]")).to_be_visible()
    camera.keep(page, "fleet")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.locator(f".tile[data-name={_HOVERED}]").hover()
    expect(page.get_by_role("tooltip")).to_be_visible()
    camera.take(page, "fleet-card")

    page = camera.open(f"{address}/#/fleet?view=list&sort=state")
    expect(page.locator("tbody tr:not(.spacer)").first).to_be_visible()
    camera.take(page, "fleet-list")

    page = camera.open(f"{address}/#/fleet", width="phone", theme="dark")
    expect(page.locator("tbody tr:not(.spacer), .tile[data-name]").first).to_be_visible()
    camera.take(page, "fleet-phone")


def _take_node(camera: Camera, address: str) -> None:
    page = camera.open(f"{address}/#/nodes/{_BLOCKED}", height=1150)
    expect(page.get_by_role("heading", name="Drain")).to_be_visible()
    camera.take(page, "node")


def _take_other_pages(camera: Camera, address: str) -> None:
    page = camera.open(f"{address}/#/timeline?span=6h")
    expect(page.locator(".tl-bar").first).to_be_attached()
    camera.take(page, "timeline")

    page = camera.open(f"{address}/#/history")
    expect(page.locator("tbody tr:not(.spacer)").first).to_be_attached()
    camera.take(page, "history")

    page = camera.open(f"{address}/#/notices")
    page.get_by_role("button", name="Details of oci-").first.click()
    camera.take(page, "notices")

    page = camera.open(f"{address}/#/health", height=1150)
    expect(page.locator("tbody tr:not(.spacer)").first).to_be_attached()
    camera.take(page, "health")


def _take_what_if(camera: Camera, address: str) -> None:
    page = camera.open(f"{address}/#/configuration?tab=try", height=1150)
    editor = page.locator(".editor-field")
    expect(editor).not_to_be_empty()
    editor.fill(editor.input_value().replace("approved && ", ""))
    expect(page.get_by_text("this would change:")).to_be_visible()
    camera.take(page, "what-if")


def _take_broken_configuration(camera: Camera, address: str, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("type: hasLabel", "type: hasLable", 1).replace("check: approved", "check: aproved"))
    page = camera.open(f"{address}/#/configuration")
    expect(page.get_by_text("cannot be used")).to_be_visible()
    camera.take(page, "configuration")
