"""For tests with commands of people: a shell on a control plane."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.docs.page_commands import Shell
from support.servers.background_server import a_shell_on_a_control_plane


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Yield a shell on a cluster for this test alone, because it changes objects that exist once per cluster."""
    with a_shell_on_a_control_plane(tmp_path) as found:
        yield found
