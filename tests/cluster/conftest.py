"""For tests with commands of people: shells, on each kind of cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane import ControlPlane
from support.docs.page_commands import Shell
from support.servers.background_server import a_shell_on_a_control_plane, a_shell_on_the_sandbox


@pytest.fixture(params=["sandbox", "control plane"])
def shell(request: pytest.FixtureRequest, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Shell]:
    """Yield a reader's shell, on a cluster for this test alone: it is about what there is one of in a cluster."""
    if request.param == "sandbox":
        with a_shell_on_the_sandbox(tmp_path, kubectl=control_plane.assets.path("kubectl")) as found:
            yield found
    else:
        with a_shell_on_a_control_plane(tmp_path) as found:
            yield found
