"""Hostile responses: the decoder returns an object or raises a HauloutError, whatever a server sends."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.objects import Bookmark, Lease, Node, Pod, RawObject, UndecodableObject, WatchEvent
from haulout.errors import HauloutError, MalformedResponse
from haulout.kube import responses
from haulout.kube.transport import DecodedEvent

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=8)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner)
)
FIELD_NAMES = [
    "metadata",
    "spec",
    "status",
    "labels",
    "name",
    "conditions",
    "taints",
    "type",
    "object",
    "items",
    "nodeName",
]
hostile = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELD_NAMES), inner, max_size=6),
    max_leaves=40,
)


@given(body=st.binary() | anything.map(lambda value: json.dumps(value).encode()))
def test_decoder_raises_only_haulout_errors_for_any_bytes(body: bytes) -> None:
    for model in (Node, Pod, Lease, RawObject):
        with contextlib.suppress(HauloutError):
            responses.decode(model, body, doing="test")
        with contextlib.suppress(HauloutError):
            responses.decode_page(model, body, doing="test")
        with contextlib.suppress(HauloutError):
            responses.decode_event(model, body, doing="test")
        assert isinstance(responses.error_from_response(500, {}, body, doing="test"), HauloutError)


@given(spec=hostile, status=hostile)
def test_malformed_object_does_not_affect_its_neighbours_in_a_list(spec: Any, status: Any) -> None:
    good = {"metadata": {"name": "good", "namespace": "shop"}}
    bad = {"metadata": {"name": "bad", "namespace": "shop"}, "spec": spec, "status": status}
    page = responses.decode_page(Pod, json.dumps({"items": [good, bad, good]}).encode(), doing="test")
    assert [item.key for item in page.items] == ["shop/good", "shop/bad", "shop/good"]
    assert isinstance(page.items[0], Pod)
    event = responses.decode_event(Pod, json.dumps({"type": "MODIFIED", "object": bad}).encode(), doing="test")
    assert isinstance(event, WatchEvent)
    assert isinstance(event.object, Pod | UndecodableObject)


def test_deeply_nested_json_is_a_malformed_response() -> None:
    deep = b'{"metadata":{"name":"deep"},"spec":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    for model in (Node, RawObject):
        with pytest.raises(MalformedResponse):
            responses.decode(model, deep, doing="test")
        with pytest.raises(MalformedResponse):
            responses.decode_page(model, b'{"items":[' + deep + b"]}", doing="test")
        with pytest.raises(MalformedResponse):
            responses.decode_event(model, b'{"type":"ADDED","object":' + deep + b"}", doing="test")


@pytest.mark.parametrize("annotation", ["true", "false", None])
def test_bookmark_with_null_lists_is_decoded(annotation: str | None) -> None:
    """The real server sends a bookmark's object with nulls where its kind has lists."""
    annotations = {responses.INITIAL_EVENTS_END: annotation} if annotation else {}
    hollow = {
        "metadata": {"resourceVersion": "12", "creationTimestamp": None, "annotations": annotations},
        "spec": {"containers": None, "volumes": None},
        "status": {"conditions": None},
    }
    written = json.dumps({"type": "BOOKMARK", "object": hollow}).encode()
    for line in (written, DecodedEvent("BOOKMARK", hollow)):
        bookmark = responses.decode_event(Pod, line, doing="test")
        assert bookmark == Bookmark(resource_version="12", ends_initial_list=annotation == "true")


@pytest.mark.parametrize("moment", ["2026-02-30T00:00:00Z", "yesterday", "9999-99-99T00:00:00Z", 7])
def test_impossible_timestamp_makes_an_object_undecodable(moment: Any) -> None:
    pod = {"metadata": {"name": "p", "namespace": "n"}, "status": {"conditions": [{"lastTransitionTime": moment}]}}
    page = responses.decode_page(Pod, json.dumps({"items": [pod]}).encode(), doing="test")
    assert isinstance(page.items[0], UndecodableObject)
    assert "lastTransitionTime" in page.items[0].problem


@pytest.mark.parametrize(
    "metadata",
    [b'{"name":"odd","labels":null}', b'{"name":"odd","ownerReferences":[{"controller":"yes"}]}'],
)
def test_undecodable_metadata_keeps_the_object_name(metadata: bytes) -> None:
    body = b'{"items":[{"metadata":' + metadata + b'},{"metadata":{"name":"good"}}]}'
    odd, good = responses.decode_page(Node, body, doing="test").items
    assert (type(odd), odd.key) == (UndecodableObject, "odd")
    assert (type(good), good.key) == (Node, "good")


@pytest.mark.parametrize("place", [b'{"metadata":{"name":"\xff"}}', b'{"spec":{"taints":7,"x":"\xff"}}', b'"\xff"'])
@pytest.mark.parametrize("model", [Node, RawObject])
def test_invalid_utf8_makes_only_its_own_object_undecodable(place: bytes, model: Any) -> None:
    good = b'{"metadata":{"name":"good"}}'
    page = responses.decode_page(model, b'{"items":[' + place + b"," + good + b"]}", doing="test")
    assert isinstance(page.items[0], UndecodableObject)
    assert isinstance(page.items[1], model if model is Node else dict)
    event = responses.decode_event(model, b'{"type":"ADDED","object":' + place + b"}", doing="test")
    assert isinstance(event, WatchEvent)
    assert isinstance(event.object, UndecodableObject)
