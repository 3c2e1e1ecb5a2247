"""The page "Install, upgrade, remove", command by command, on a real control plane. There are no nodes to run pods."""

from pathlib import Path

from controlplane import ControlPlane
from support.docs.page_commands import Reader, Shell
from support.packaging.helm import HELM, REPOSITORY

PAGE = REPOSITORY / "docs" / "operations" / "install.md"


def test_page_commands_succeed(tmp_path: Path) -> None:
    with ControlPlane() as cluster:
        cluster.start_controllers(("namespace-controller",), scheduler=False)
        shell = Shell(tmp_path, kubeconfig=cluster.kubeconfig(), kubectl=cluster.assets.path("kubectl"))
        (tmp_path / "bin" / "helm").symlink_to(HELM)
        for folder in ("deploy", "examples"):
            (tmp_path / folder).symlink_to(REPOSITORY / folder)
        Reader(shell).follow(PAGE.read_text())
