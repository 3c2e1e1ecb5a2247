"""The page of 5,000 nodes, for the picture that shows how the dashboard presents a large cluster."""

from pathlib import Path

from playwright.sync_api import expect

from tools.pictures.browser import Camera
from tools.pictures.sandbox import running_sandbox

_SCENARIO = Path(__file__).with_name("large.yaml")
_TIMEOUT_MS = 300_000
_STATES = ("blocked", "draining", "in-maintenance", "planned")


def take_pictures(camera: Camera) -> None:
    """Take the picture of the map in the dark theme."""
    with running_sandbox("--scenario", str(_SCENARIO)) as sandbox:
        page = camera.open(f"{sandbox.dashboard}/#/fleet", theme="dark")
        for state in _STATES:
            expect(page.locator(f".tile.is-{state}[data-name]").first).to_be_attached(timeout=_TIMEOUT_MS)
        camera.take(page, "fleet-5000")
