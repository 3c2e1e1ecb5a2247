"""The reference page and the OpenAPI document are made from the shapes, and are not stale."""

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


def test_the_page_is_not_stale() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), "make reference"


def test_every_address_is_described() -> None:
    assert {f"/{path}" for path in _HANDLERS} <= {endpoint.path for endpoint in ENDPOINTS}


def test_comments_in_the_code_are_what_readers_are_told() -> None:
    assert field_docs()["NodeSummary", "hold"] == "who keeps maintenance off the node, and why"
    assert SCHEMAS["NodeSummary"]["properties"]["isReady"].get("description") is None
    assert SCHEMAS["NodeSummary"]["properties"]["hold"]["description"] == field_docs()["NodeSummary", "hold"]
    assert "`planned`: maintenance is announced" in SCHEMAS["NodeState"]["description"]


@pytest.mark.parametrize("name", [name for name in dir(types) if name in SCHEMAS])
def test_what_is_sent_by_default_fits_the_description(name: str) -> None:
    shape = getattr(types, name)
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        known = {field_.encode_name for field_ in msgspec.structs.fields(shape)}
        assert known == set(SCHEMAS[name]["properties"])
        assert set(SCHEMAS[name].get("required", ())) == {
            field_.encode_name for field_ in msgspec.structs.fields(shape) if field_.required
        }
