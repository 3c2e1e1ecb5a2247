"""The page about `haulout notice` on a real control plane: each command and its output."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane import ControlPlane
from support.builders.objects import a_node
from support.docs.page_commands import Reader, Shell

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "notice.md"


@pytest.fixture
def isolated() -> Iterator[ControlPlane]:
    """Run a control plane for this test alone, because it lists all notices."""
    with ControlPlane() as control_plane:
        yield control_plane


def test_page_commands_succeed(isolated: ControlPlane, tmp_path: Path) -> None:
    assert isolated.request("POST", "/api/v1/nodes", a_node("n1")).status == 201
    shell = Shell(tmp_path, kubeconfig=isolated.kubeconfig(), kubectl=isolated.assets.path("kubectl"))
    Reader(shell).follow(PAGE.read_text())
    table = shell.run("kubectl get mn").splitlines()
    assert [line.split()[2:4] for line in table[1:]] == [["2030-12-01T02:00:00Z", "2030-12-01T03:00:00Z"]]
    assert "Cancelled" in shell.run("haulout notice list n1 --all")
