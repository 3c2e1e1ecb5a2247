"""The reference pages of custom resources are generated from the CRDs and up to date."""

import re
from pathlib import Path

import pytest

from haulout.app.components import cloud_types
from haulout.app.machines import MACHINE_VARIABLES
from haulout.app.manifests.operator_manifests import definitions
from tools.reference.resources import page, pages

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SOURCE = Path(__file__).parents[3] / "src" / "haulout"
OF_ALL_APIS = {"status.conditions[].type", "status.conditions[].status"}
ENVIRON_LOOKUP = re.compile(r"""environ(?:\.get\(|\[)\s*f?"([A-Z][A-Z_]+)""")


@pytest.mark.parametrize(("name", "text"), pages().items())
def test_reference_page_of_each_kind_is_up_to_date(name: str, text: str) -> None:
    assert (REFERENCE / "resources" / name).read_text(encoding="utf-8") == text, "make reference"


def test_resource_pages_are_all_generated() -> None:
    assert {path.name for path in (REFERENCE / "resources").iterdir()} == set(pages())


@pytest.mark.parametrize("definition", definitions(with_machines=True), ids=lambda it: it["spec"]["names"]["kind"])
def test_each_crd_field_has_a_description(definition: dict[str, object]) -> None:
    silent = re.findall(
        r"^\| `((?:spec|status|entries|total)[^`]*)` \| (?:Required\. *)?\|", page(definition), re.MULTILINE
    )
    assert set(silent) <= OF_ALL_APIS


def test_reference_lists_each_environment_variable() -> None:
    text = (REFERENCE / "environment.md").read_text(encoding="utf-8")
    in_code = {
        name for file in SOURCE.rglob("*.py") for name in ENVIRON_LOOKUP.findall(file.read_text(encoding="utf-8"))
    }
    of_clouds = {name for kind in cloud_types() for name in (*kind.variables, *kind.enabling_variables)}
    known = {*MACHINE_VARIABLES, *of_clouds, *in_code}
    assert {"NODE_NAME", "KUBERNETES_SERVICE_HOST"} <= in_code
    assert sorted(name for name in known if f"`{name}`" not in text and f"{name}_PROXY" not in text) == []
