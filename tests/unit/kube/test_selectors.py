"""Label selectors, as text and as objects."""

from typing import Any

import pytest

from haulout.kube.selectors import EVERYTHING, Selector, SelectorError, from_label_selector, parse

CART = {"app": "cart", "tier": "web", "size": "7"}


@pytest.mark.parametrize(
    ("text", "selects"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("!canary", True),
        ("app=cart", True),
        ("app==cart,tier=web", True),
        ("app=cart,tier=api", False),
        ("app!=cart", False),
        ("canary!=yes", True),
        ("app in (cart, shop)", True),
        ("app notin (cart,shop),tier", False),
        ("canary notin (yes)", True),
        ("size>6", True),
        ("size<7", False),
        ("app>1", False),
        ("example.dev/app=cart", False),
    ],
)
def test_selector_text_matches_as_in_kubectl(text: str, *, selects: bool) -> None:
    selector = parse(text)
    assert selector.matches(CART) is selects
    assert parse(str(selector)) == selector


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ({}, True),
        ({"matchLabels": {"app": "cart"}}, True),
        ({"matchLabels": {"app": "cart", "tier": "api"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["cart"]}]}, True),
        ({"matchExpressions": [{"key": "canary", "operator": "NotIn", "values": ["yes"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_label_selector_object_matches_as_on_the_server(selector: dict[str, Any], *, selects: bool) -> None:
    assert from_label_selector(selector).matches(CART) is selects


def test_text_and_object_parse_to_the_same_selector() -> None:
    assert from_label_selector({"matchLabels": {"app": "cart"}}) == parse("app=cart")
    assert from_label_selector({}) == EVERYTHING == Selector()


@pytest.mark.parametrize(
    "text", ["app=", "app=cart,", "=cart", "app in cart", "app=a b", "-app", "a//b", "app>x", "A/b"]
)
def test_malformed_selector_text_is_rejected(text: str) -> None:
    if text == "app=":  # an empty value is a value
        assert parse(text).matches({"app": ""})
        return
    with pytest.raises(SelectorError, match="expected"):
        parse(text)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ({"matchLabel": {}}, "matchLabel: unknown, expected matchLabels or matchExpressions"),
        ({"matchLabels": ["app"]}, "matchLabels: found ['app'], expected labels and their values"),
        ({"matchLabels": {"app": 1}}, "matchLabels.app: found 1, expected the value of a label"),
        ({"matchExpressions": {}}, ""),
        ({"matchExpressions": {"a": 1}}, "matchExpressions: found {'a': 1}, expected a list"),
        ({"matchExpressions": ["app"]}, "matchExpressions[0]: found 'app', expected key, operator and values"),
        (
            {"matchExpressions": [{"key": "app", "operator": "Is"}]},
            "matchExpressions[0].operator: found 'Is', expected In, NotIn, Exists or DoesNotExist",
        ),
        (
            {"matchExpressions": [{"key": "app", "operator": "In"}]},
            "matchExpressions[0].values: found (), expected a list of values for In",
        ),
        (
            {"matchExpressions": [{"operator": "Exists"}]},
            "matchExpressions[0]: found None, expected the name of a label",
        ),
    ],
)
def test_malformed_label_selector_object_is_rejected_with_its_path(selector: dict[str, Any], message: str) -> None:
    if not message:
        assert from_label_selector(selector) == EVERYTHING
        return
    with pytest.raises(SelectorError) as caught:
        from_label_selector(selector)
    assert str(caught.value) == message
