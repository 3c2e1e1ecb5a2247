"""The reference page and the OpenAPI document are generated from the structs and up to date."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from haulout.dashboard.api import types
from haulout.dashboard.api.openapi import ENDPOINTS, build_document, field_docs
from haulout.dashboard.api.routes import _HANDLERS
from tools.reference.http_api import PAGE, page

FILE = Path(__file__).parents[3] / "docs" / "reference" / PAGE
SCHEMAS: dict[str, Any] = build_document()["components"]["schemas"]


def test_reference_page_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), "make reference"


def test_reference_describes_each_endpoint() -> None:
    assert {f"/{path}" for path in _HANDLERS} <= {endpoint.path for endpoint in ENDPOINTS}


def test_field_descriptions_are_taken_from_code_comments() -> None:
    assert field_docs()["NodeSummary", "hold"] == "who keeps maintenance off the node, and why"
    assert SCHEMAS["NodeSummary"]["properties"]["isReady"].get("description") is None
    assert SCHEMAS["NodeSummary"]["properties"]["hold"]["description"] == field_docs()["NodeSummary", "hold"]
    assert "`planned`: maintenance is announced" in SCHEMAS["NodeState"]["description"]


@pytest.mark.parametrize("name", [name for name in dir(types) if name in SCHEMAS])
def test_schemas_match_the_fields_of_the_structs(name: str) -> None:
    shape = getattr(types, name)
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        known = {field_.encode_name for field_ in msgspec.structs.fields(shape)}
        assert known == set(SCHEMAS[name]["properties"])
        assert set(SCHEMAS[name].get("required", ())) == {
            field_.encode_name for field_ in msgspec.structs.fields(shape) if field_.required
        }
