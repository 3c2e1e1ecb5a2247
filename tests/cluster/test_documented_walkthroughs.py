"""Walkthrough pages are followed from start to end, and their output is compared."""

from pathlib import Path

import pytest

from controlplane import ControlPlane
from support.docs.page_commands import Reader
from support.docs.repository_clone import a_shell, create_maintenance, install, page_text
from support.servers.sandbox_process import running_sandbox

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize("name", ["docs/tutorials/quickstart.md", "docs/how-to/drain-a-node.md"])
def test_self_contained_page_is_followed_to_its_end(name: str, control_plane: ControlPlane, tmp_path: Path) -> None:
    Reader(a_shell(tmp_path, control_plane)).follow(page_text(name))


def test_operations_pages_are_followed(control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with running_sandbox(tmp_path / "home") as running:
        shell = a_shell(tmp_path, control_plane, kubeconfig=running.kubeconfig)
        create_maintenance(shell, "patch-04", "general-04")
        shell.run("kubectl cordon general-08")
        shell.run("haulout notice create lost --kind Reboot --start +2h --id CHG-99 --allow-unknown-node")
        (tmp_path / "broken.yaml").write_text("instances: {check: [{name: a, type: hasLable, config: {key: a}}]}\n")
        Reader(shell).follow(page_text("docs/operations/troubleshooting.md"))
        install(shell)
        Reader(shell).follow(page_text("docs/operations/high-availability.md"))
        Reader(shell).follow(page_text("docs/operations/upgrading.md"))
