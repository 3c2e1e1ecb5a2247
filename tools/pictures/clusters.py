"""The page of a hub, while clusters are in maintenance, and one waits for the budget."""

from pathlib import Path

from playwright.sync_api import expect

from tools.pictures.browser import Camera
from tools.pictures.sandbox import running_hub, running_sandbox

_SCENARIO = str(Path(__file__).with_name("hub.yaml"))
_HUB = ("--cluster-budget", "2", "--cluster-budget", "env=prod:1", "--log-format", "text")
_IN_MAINTENANCE = "shop/prod-eu"
_TEXTS = {_IN_MAINTENANCE: "In maintenance", "shop/prod-us": "Waiting", "science/metal": "In maintenance"}


def take_pictures(camera: Camera) -> None:
    """Take the picture, with the tile of a cluster in maintenance open."""
    with (
        running_sandbox("--scenario", _SCENARIO, "--no-operator") as sandbox,
        running_hub(sandbox.kubeconfig, *_HUB) as address,
    ):
        page = camera.open(f"{address}/#/clusters?open={_IN_MAINTENANCE}", height=960)
        for cluster, text in _TEXTS.items():
            expect(page.locator(f".cluster-tile[data-key='{cluster}']")).to_contain_text(text)
        expect(page.get_by_text("waiting: ").first).to_be_visible()
        camera.take(page, "clusters")
