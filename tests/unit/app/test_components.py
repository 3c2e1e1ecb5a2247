"""What follows from the list of components: one line registers an integration, and nothing else names it."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest

from haulout.api.objects import Node, ObjectMeta
from haulout.app import components
from haulout.app.components import load_components
from haulout.app.manifests.operator_manifests import Installation, all_objects
from haulout.app.permissions import operator_permissions
from haulout.cli.cordon_owners import OwnerPresence, owners_of_mark
from haulout.core.clock import Clock
from haulout.drain.cordon import Cordon, CordonOwnership
from haulout.kube.rbac import Permission
from haulout.runtime.component import Component, CordonOwner, Leader, SettingsFile

NOW = datetime(2026, 1, 5, tzinfo=UTC)
ROOT = Path(__file__).parents[3]
# Beside the registration. `api` defines the names that users meet; the check plugin kubernikusCount is another feature.
_EVERYWHERE = {"api/annotations.py", "api/reasons.py"}
NAMED_IN = {
    "kubernikus": {*_EVERYWHERE, "controllers/profiles/plugins/checks/kubernikus_count.py"},
    "esx": {*_EVERYWHERE, "app/sandbox/vcenters.py"},
}


class Widgets(Component):
    """A component that an integration could be."""

    name, title = "widgets", "Widgets"
    failure_reason, action = "WidgetsFailed", "RunWidgets"
    settings_file = SettingsFile(
        name="widgets.yaml",
        configures="nodes of Widgets",
        run_help="",
        go_flag="enable-widgets",
        go_flag_help="",
        object_name="haulout-widgets",
        is_secret=True,
        manifests_help="",
    )
    cordon_owner = CordonOwner(
        name="Widgets/wash",
        describe=lambda node: f"{node.name} is washed",
        is_present=lambda node: "wash" in node.metadata.labels,
        release_command=lambda node: f"kubectl label node {node} wash-",
    )

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @classmethod
    def load(cls, path: Path, *, environ: Mapping[str, str], clock: Clock) -> Self:
        del environ, clock
        return cls(path)

    @classmethod
    def permissions(cls, settings: Any, *, namespace: str) -> tuple[Permission, ...]:
        return (Permission(("get",), "example.com", str(settings), namespace, "wash widgets"),)

    async def lead(self, leader: Leader) -> None:
        """Do nothing."""


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the component."""
    components.component_types.cache_clear()
    monkeypatch.setattr(components, "_COMPONENTS", (f"{__name__}.Widgets",))
    yield
    components.component_types.cache_clear()


@pytest.mark.usefixtures("registered")
def test_a_component_runs_if_its_file_is_given(clock: Clock) -> None:
    assert load_components({}, environ={}, clock=clock) == ()
    (found,) = load_components({"widgets": Path("w.yaml")}, environ={}, clock=clock)
    assert isinstance(found, Widgets)
    assert found.path == Path("w.yaml")


def test_an_installation_has_the_file_and_the_permissions_of_a_component() -> None:
    plain, more = Installation(image="x"), Installation(image="x", components={Widgets: "baths"})
    permission = Permission(("get",), "example.com", "baths", "haulout", "wash widgets")
    assert permission in operator_permissions(namespace="haulout", components=more.components)
    assert permission not in operator_permissions(namespace="haulout")
    (before,), (after,) = (
        [item for item in all_objects(installation) if item["kind"] == "Deployment"] for installation in (plain, more)
    )
    assert "widgets" not in str(before)
    pod = after["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == ["run", "--widgets=/widgets/widgets.yaml"]
    assert {"name": "widgets", "secret": {"secretName": "haulout-widgets"}} in pod["volumes"]
    assert {"name": "widgets", "mountPath": "/widgets", "readOnly": True} in pod["containers"][0]["volumeMounts"]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("labels", "presence"), [({"wash": "1"}, OwnerPresence.PRESENT), ({}, OwnerPresence.GONE)])
def test_commands_know_the_cordons_of_a_component(labels: dict[str, str], presence: OwnerPresence) -> None:
    node = Node(metadata=ObjectMeta(name="n1", labels=labels))
    mark = Cordon(owners={"Widgets/wash": CordonOwnership(since=NOW)})
    (owner,) = owners_of_mark(mark, node, {})
    assert (owner.presence, owner.release_command) == (presence, "kubectl label node n1 wash-")


@pytest.mark.parametrize("name", NAMED_IN)
def test_an_integration_is_named_only_where_it_is_registered(name: str) -> None:
    found = _files_with(name, ROOT / "src" / "haulout") - {"app/components.py"}
    assert {path for path in found if not path.startswith(f"controllers/{name}/")} == NAMED_IN[name]
    assert not _files_with(name, ROOT / "tools")


def _files_with(name: str, folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix in (".py", ".js") and name in path.read_text().lower()
    }


def test_each_module_of_package_files_belongs_to_a_component() -> None:
    """Otherwise its alerts and panels would be missing, and no other test would notice."""
    folders = {
        ".".join(path.parent.relative_to(ROOT / "src").parts) for path in (ROOT / "src").rglob("*/package_files.py")
    }
    assert {kind.__module__.rpartition(".")[0] for kind in components.packagings()} == folders - {"haulout.runtime"}


def test_only_components_that_run_are_loaded() -> None:
    """A command knows the options of all components, and the operator loads only what it runs."""
    code = (
        "import sys, haulout.cli.run.command, haulout.cli.run.cluster_mode;"
        "from haulout.app.components import component_types;"
        "folders = [kind.__module__.rpartition('.')[0] for kind in component_types()];"
        "print([name for name in sys.modules if name.rpartition('.')[0] in folders"
        " and name.rpartition('.')[2] not in ('component', 'labels')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_operator_loads_profiles_the_dashboard_and_mail_only_when_they_start() -> None:
    """They take 5 MB, which an operator without them does not need."""
    heavy = (
        "aiosmtplib",
        "haulout.app.operator_backend",
        "haulout.controllers.profiles.controller",
        "haulout.controllers.profiles.decision",
        "haulout.controllers.profiles.view.informers",
        "haulout.dashboard.api.routes",
    )
    code = f"import sys, haulout.cli.run.command, haulout.cli.run.cluster_mode; print({{*{heavy}}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
