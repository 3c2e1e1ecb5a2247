"""A structural schema as a tree, parsed from the `openAPIV3Schema` of a CustomResourceDefinition."""

import functools
import re
from datetime import datetime
from typing import Any

import msgspec
from msgspec import field


class Rule(msgspec.Struct, frozen=True, eq=False):
    """One of `x-kubernetes-validations`."""

    rule: str
    message: str = ""

    @property
    def is_transition_rule(self) -> bool:
        return "oldSelf" in self.rule


class Node(msgspec.Struct, frozen=True, eq=False, rename="camel"):
    type: str = ""
    format: str = ""
    nullable: bool = False
    default: Any = None
    enum: tuple[Any, ...] = ()
    pattern: str = ""
    min_length: int | None = None
    max_length: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    required: tuple[str, ...] = ()
    properties: dict[str, "Node"] = {}
    min_properties: int | None = None
    max_properties: int | None = None
    additional: "Node | bool | None" = field(name="additionalProperties", default=None)
    items: "Node | None" = None
    min_items: int | None = None
    max_items: int | None = None
    all_of: tuple["Node", ...] = ()
    any_of: tuple["Node", ...] = ()
    one_of: tuple["Node", ...] = ()
    not_schema: "Node | None" = field(name="not", default=None)
    preserves_unknown_fields: bool = field(name="x-kubernetes-preserve-unknown-fields", default=False)
    is_embedded_resource: bool = field(name="x-kubernetes-embedded-resource", default=False)
    int_or_string: bool = field(name="x-kubernetes-int-or-string", default=False)
    list_type: str = field(name="x-kubernetes-list-type", default="atomic")
    list_keys: tuple[str, ...] = field(name="x-kubernetes-list-map-keys", default=())
    rules: tuple[Rule, ...] = field(name="x-kubernetes-validations", default=())

    def __post_init__(self) -> None:
        compile_pattern(self.pattern)

    @property
    def types(self) -> tuple[str, ...]:
        """Return the allowed JSON types; an empty tuple means all."""
        if self.int_or_string:
            return ("integer", "string")
        return (self.type,) if self.type else ()

    def property_node(self, name: str) -> "Node | None":
        return self.properties.get(name) or (self.additional if isinstance(self.additional, Node) else None)

    def matching_item(self, item: Any, items: Any) -> Any:
        """Return the one of `items` with the same map keys as `item`, if this is a list of type map."""
        if self.list_type != "map" or not isinstance(item, dict) or not isinstance(items, list):
            return None
        keys = self.item_key(item)
        return next((each for each in items if isinstance(each, dict) and self.item_key(each) == keys), None)

    def item_key(self, item: dict[str, Any]) -> list[Any]:
        """Return the values of the map keys of a list item."""
        return [item.get(key) for key in self.list_keys]


@functools.cache
def compile_pattern(source: str) -> re.Pattern[str]:
    """Return a compiled RE2 pattern, as far as Python's syntax agrees; `$` matches only at the very end."""
    try:
        return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", source), re.ASCII)
    except re.error as error:
        raise ValueError(f"{source} is no regular expression: {error}") from None


def parse_timestamp(text: str) -> datetime:
    """Return the instant of an RFC 3339 string; raise `ValueError` if it is invalid."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None or "T" not in text.upper():
        raise ValueError(text)
    return time
