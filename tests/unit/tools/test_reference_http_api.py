"""The reference page and the OpenAPI document are made from the shapes, and are not stale."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from haulout.web.api import shapes
from haulout.web.api.meanings import meanings
from haulout.web.api.openapi import ENDPOINTS, described
from haulout.web.api.routes import _ASKS
from tools.reference.http_api import PAGE, page

FILE = Path(__file__).parents[3] / "docs" / "reference" / PAGE
SCHEMAS: dict[str, Any] = described()["components"]["schemas"]


def test_the_page_is_not_stale() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), "make reference"


def test_every_address_is_described() -> None:
    assert {f"/{path}" for path in _ASKS} <= {it.path for it in ENDPOINTS}


def test_comments_in_the_code_are_what_readers_are_told() -> None:
    assert meanings()["Tile", "hold"] == "who holds it back from maintenance, and why"
    assert SCHEMAS["Tile"]["properties"]["isReady"].get("description") is None
    assert SCHEMAS["Tile"]["properties"]["hold"]["description"] == meanings()["Tile", "hold"]
    assert "`planned`: somebody announced" in SCHEMAS["NodeState"]["description"]


@pytest.mark.parametrize("name", [name for name in dir(shapes) if name in SCHEMAS])
def test_what_is_sent_by_default_fits_the_description(name: str) -> None:
    shape = getattr(shapes, name)
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct):
        known = {it.encode_name for it in msgspec.structs.fields(shape)}
        assert known == set(SCHEMAS[name]["properties"])
        assert set(SCHEMAS[name].get("required", ())) == {
            it.encode_name for it in msgspec.structs.fields(shape) if it.required
        }
