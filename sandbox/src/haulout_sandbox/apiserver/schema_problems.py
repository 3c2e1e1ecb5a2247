"""Is a schema one that a CustomResourceDefinition may have? What is wrong with it, in the words of the real server.

First it must be structural: every field has a type, and `anyOf`, `oneOf`, `allOf` and `not` only restrict what is
declared outside them (`apiextensions-apiserver/pkg/apiserver/schema/{validation,complete}.go` of Kubernetes 1.36). Then
its keywords are checked, then its defaults, then its rules; a schema with earlier problems is not asked for later ones.
Of rules, the costs and most types are not checked.
"""

from collections.abc import Iterator
from typing import Any

from haulout_sandbox.apiserver import cel, embedded, formats, schema_rules, schema_values, structural
from haulout_sandbox.apiserver.fields import forbidden, invalid, not_supported, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.structural import META_FIELDS

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_BRANCHES = ("anyOf", "allOf", "oneOf")
_EMPTY_IF_NESTED = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
_NEEDS_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def problems(schema: JsonObject, path: str) -> list[JsonObject]:
    """Return what is wrong with the schema at `path`, as causes of an Invalid."""
    found = []
    if schema.get("nullable"):
        found.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    structure = sorted(
        [*_structure(schema, "root", path), *_completeness(schema, schema, path, path)],
        key=lambda cause: f"{cause['field']}: {cause['message']}",
    )
    defaults = [] if structure else list(_defaults(schema, path, in_meta=False))
    keywords = list(_keywords(schema, path, _Context(root=True)))
    found += structure + defaults + keywords
    return found or list(_rules(schema, path))


# Structure


def _structure(schema: JsonObject, level: str, path: str) -> Iterator[JsonObject]:
    kind, items, more = schema.get("type", ""), schema.get("items"), schema.get("additionalProperties")
    properties: dict[str, JsonObject] = schema.get("properties") or {}
    if kind == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, dict):
        yield from _structure(items, "item", f"{path}.items")
    for name, below in properties.items():
        yield from _structure(below, "field", f"{path}.properties[{name}]")
    if more is not None and level == "root":
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if isinstance(more, dict):
        yield from _structure(more, "field", f"{path}.additionalProperties")
    yield from _extensions(schema, path)
    yield from _branches(
        schema,
        path,
        skip_any=schema.get("anyOf") == _INT_OR_STRING,
        skip_first_all=bool(schema.get("allOf")) and schema["allOf"][0].get("anyOf") == _INT_OR_STRING,
    )
    yield from _resource_structure(schema, level, path)


def _extensions(schema: JsonObject, path: str) -> Iterator[JsonObject]:
    if schema.get("x-kubernetes-int-or-string"):
        for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(name):
                yield invalid(f"{path}.{name}", True, "must be false if x-kubernetes-int-or-string is true")


def _resource_structure(schema: JsonObject, level: str, path: str) -> Iterator[JsonObject]:
    kind, inside = schema.get("type", ""), bool(schema.get("x-kubernetes-embedded-resource"))
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    properties: dict[str, JsonObject] = schema.get("properties") or {}
    if inside and kind != "object":
        rule = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid(f"{path}.type", kind, rule) if kind else required(f"{path}.type", rule)
    elif not kind and not schema.get("x-kubernetes-int-or-string") and not keeps:
        yield required(f"{path}.type", _NEEDS_TYPE[level])
    if inside and schema.get("additionalProperties") is not None:
        yield forbidden(f"{path}.additionalProperties", "must not be used if x-kubernetes-embedded-resource is set")
    if level == "root" and kind not in ("", "object"):
        yield invalid(f"{path}.type", kind, "must be object at the root")
    if level == "root" or inside:
        for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
            given = properties.get(name, {"type": wanted}).get("type", "")
            if given != wanted:
                yield invalid(f"{path}.properties[{name}].type", given, f"must be {wanted}")
    if level == "root" and _says_more(properties.get("metadata", {})):
        rule = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(f"{path}.properties[metadata]", rule)
    if inside and not keeps and not properties:
        rule = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield required(f"{path}.properties", rule)


def _says_more(metadata: JsonObject) -> bool:
    properties = set(metadata.get("properties") or {})
    rest = {name for name, value in metadata.items() if value and name not in ("type", "default")}
    return bool(rest - {"properties"}) or not properties <= {"name", "generateName"}


def _branches(
    schema: JsonObject, path: str, *, skip_any: bool = False, skip_first_all: bool = False
) -> Iterator[JsonObject]:
    for name in _BRANCHES:
        for at, branch in enumerate(schema.get(name) or ()):
            if name == "anyOf" and skip_any:
                continue
            skips = name == "allOf" and at == 0 and skip_first_all
            yield from _nested(branch, f"{path}.{name}[{at}]", skip_any=skips)
    if isinstance(schema.get("not"), dict):
        yield from _nested(schema["not"], f"{path}.not")
    if pattern := schema.get("pattern"):
        try:
            formats.pattern(pattern)
        except formats.PatternError as error:
            rule = f"must be a valid regular expression, but isn't: error parsing regexp: {error}"
            yield invalid(f"{path}.pattern", pattern, rule)


def _nested(schema: JsonObject, path: str, *, skip_any: bool = False) -> Iterator[JsonObject]:
    yield from _branches(schema, path, skip_any=skip_any)
    if isinstance(schema.get("items"), dict):
        yield from _nested(schema["items"], f"{path}.items")
    for name, below in (schema.get("properties") or {}).items():
        yield from _nested(below, f"{path}.properties[{name}]")
    for name, rule in _EMPTY_IF_NESTED.items():
        if schema.get(name) not in (None, "", False, []):
            yield forbidden(f"{path}.{name}", rule)
    if "metadata" in (schema.get("properties") or {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _completeness(branches: JsonObject, schema: JsonObject, path: str, from_path: str) -> Iterator[JsonObject]:
    parts = [
        (branch, f"{from_path}.{name}[{at}]")
        for name in _BRANCHES
        for at, branch in enumerate(branches.get(name) or ())
    ]
    if isinstance(branches.get("not"), dict):
        parts.append((branches["not"], f"{from_path}.not"))
    for branch, where in parts:
        yield from _complete(branch, schema, path, where)


def _complete(branch: JsonObject, schema: JsonObject, path: str, from_path: str) -> Iterator[JsonObject]:
    yield from _completeness(branch, schema, path, from_path)
    declared: dict[str, JsonObject] = schema.get("properties") or {}
    below = [
        (part, declared.get(name), f"properties[{name}]") for name, part in (branch.get("properties") or {}).items()
    ]
    if isinstance(branch.get("items"), dict):
        below.append((branch["items"], schema.get("items"), "items"))
    for part, known, name in below:
        if known is None:
            yield required(f"{path}.{name}", f"because it is defined in {from_path}.{name}")
        else:
            yield from _complete(part, known, f"{path}.{name}", f"{from_path}.{name}")


# Keywords


class _Context:
    """Where in a schema a place is."""

    def __init__(self, *, root: bool = False, in_meta: bool = False, no_default: str = "") -> None:
        self.root, self.in_meta, self.no_default = root, in_meta, no_default


def _keywords(schema: JsonObject, path: str, context: _Context) -> Iterator[JsonObject]:
    yield from _supported(schema, path, context)
    more, properties = schema.get("additionalProperties"), schema.get("properties") or {}
    here = _Context(in_meta=context.in_meta, no_default=context.no_default)
    if more is not None and more is not True and properties:
        rule = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", rule)
    if isinstance(more, dict):
        inside = "inside additionalProperties applying to object metadata" if context.in_meta else context.no_default
        yield from _keywords(more, f"{path}.additionalProperties", _Context(in_meta=here.in_meta, no_default=inside))
    for name, below in sorted(properties.items()):
        of_meta = name in META_FIELDS and (context.root or bool(schema.get("x-kubernetes-embedded-resource")))
        no_default = f"in top-level {name}" if of_meta and context.root else here.no_default
        inner = _Context(in_meta=here.in_meta or of_meta, no_default=no_default)
        yield from _keywords(below, f"{path}.properties[{name}]", inner)
    if isinstance(schema.get("not"), dict):
        yield from _keywords(schema["not"], f"{path}.not", here)
    for name in ("allOf", "oneOf", "anyOf"):
        for at, branch in enumerate(schema.get(name) or ()):
            yield from _keywords(branch, f"{path}.{name}[{at}]", here)
    if isinstance(schema.get("items"), dict):
        yield from _keywords(schema["items"], f"{path}.items", here)
    yield from _list_keywords(schema, path)
    yield from _rule_keywords(schema, path)


def _supported(schema: JsonObject, path: str, context: _Context) -> Iterator[JsonObject]:
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("default") is not None and context.no_default:
        yield forbidden(f"{path}.default", f"must not be set {context.no_default}")
    for name in _UNSUPPORTED:
        if schema.get(name):
            yield forbidden(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if context.in_meta and schema.get("x-kubernetes-embedded-resource"):
        yield forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        rule = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", rule)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")


def _list_keywords(schema: JsonObject, path: str) -> Iterator[JsonObject]:
    kind = schema.get("type", "")
    for name, wanted, known in (
        ("x-kubernetes-map-type", "object", ("atomic", "granular")),
        ("x-kubernetes-list-type", "array", ("atomic", "set", "map")),
    ):
        given = schema.get(name)
        if given is None:
            continue
        if kind != wanted:
            rule = f"must be {wanted} if {name} is specified"
            yield invalid(f"{path}.type", kind, rule) if kind else required(f"{path}.type", rule)
        if given not in known:
            yield not_supported(f"{path}.{name}", given, known)
    keys, list_type = schema.get("x-kubernetes-list-map-keys") or [], schema.get("x-kubernetes-list-type")
    if keys and list_type != "map":
        where, rule = f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty"
        yield required(where, rule) if list_type is None else invalid(where, list_type, rule)
    if list_type == "map":
        yield from _map_keywords(schema, keys, path)
    items = schema.get("items")
    if list_type == "set" and isinstance(items, dict):
        yield from _set_items(items, f"{path}.items")
    if list_type in ("set", "map") and isinstance(items, dict) and items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")


def _set_items(items: JsonObject, path: str) -> Iterator[JsonObject]:
    rule = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type, map_type = items.get("x-kubernetes-list-type"), items.get("x-kubernetes-map-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield invalid(f"{path}.x-kubernetes-list-type", list_type, rule)
    if items.get("type") == "object" and map_type != "atomic":
        yield invalid(f"{path}.x-kubernetes-map-type", list_type, rule)  # the real server shows the list type too


def _map_keywords(schema: JsonObject, keys: list[str], path: str) -> Iterator[JsonObject]:
    if not keys:
        rule = "must not be empty if x-kubernetes-list-type is map"
        yield required(f"{path}.x-kubernetes-list-map-keys", rule)
    items = schema.get("items")
    if items is None:
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        rule = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type", ""), rule)
        return
    properties: dict[str, JsonObject] = items.get("properties") or {}
    for at, key in enumerate(keys):
        if key not in properties:
            rule = "entries must all be names of item properties"
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, rule)
        elif properties[key].get("type") in ("array", "object"):
            rule = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", items["type"], rule)
        if key in keys[:at]:
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must not contain duplicate entries")
    yield from _key_properties(items, keys, path)


def _key_properties(items: JsonObject, keys: list[str], path: str) -> Iterator[JsonObject]:
    properties: dict[str, JsonObject] = items.get("properties") or {}
    why = "this property is in x-kubernetes-list-map-keys, so it"
    for key in [key for key in keys if key in properties]:
        if key not in (items.get("required") or ()) and properties[key].get("default") is None:
            rule = f"{why} must have a default or be a required property"
            yield required(f"{path}.items.properties[{key}].default", rule)
        if properties[key].get("nullable"):
            yield forbidden(f"{path}.items.properties[{key}].nullable", f"{why} cannot be nullable")


def _rule_keywords(schema: JsonObject, path: str) -> Iterator[JsonObject]:
    for at, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        where = f"{path}.x-kubernetes-validations[{at}]"
        text, message = rule.get("rule", "").strip(), rule.get("message", "")
        if not text:
            yield required(f"{where}.rule", "rule is not specified")
        elif message and not message.strip():
            yield invalid(f"{where}.message", message, "must be non-empty if specified")
        elif "\n" in message.strip():
            yield invalid(f"{where}.message", message, "must not contain line breaks")
        elif "\n" in text and not message.strip():
            yield required(f"{where}.message", "message must be specified if rule contains line breaks")
        if rule.get("reason") is not None and rule["reason"] not in _REASONS:
            yield not_supported(f"{where}.reason", rule["reason"], _REASONS)
        if rule.get("fieldPath") and schema_rules.field_path(rule["fieldPath"], structural.compiled(schema)) is None:
            yield invalid(f"{where}.fieldPath", rule["fieldPath"], "must be a valid path")


# Defaults


def _defaults(schema: JsonObject, path: str, *, in_meta: bool) -> Iterator[JsonObject]:
    default = schema.get("default")
    if default is not None and not in_meta:
        node, where = structural.compiled(schema), f"{path}.default"
        if _has_unknown(default, schema):
            yield invalid(where, default, "must not have unknown fields")
        yield from embedded.causes(default, node, where) or schema_values.causes(node, default, at=where)
    if isinstance(schema.get("items"), dict):
        yield from _defaults(schema["items"], f"{path}.items", in_meta=in_meta)
    root = path.endswith("openAPIV3Schema") or bool(schema.get("x-kubernetes-embedded-resource"))
    for name, below in sorted((schema.get("properties") or {}).items()):
        meta = in_meta or (root and name in META_FIELDS)
        yield from _defaults(below, f"{path}.properties[{name}]", in_meta=meta)


def _has_unknown(value: Any, schema: JsonObject | None) -> bool:
    schema = schema or {}
    if isinstance(value, list):
        return any(_has_unknown(item, schema.get("items")) for item in value)
    if not isinstance(value, dict):
        return False
    properties, more = schema.get("properties") or {}, schema.get("additionalProperties")
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return any(_has_unknown(item, properties[name]) for name, item in value.items() if name in properties)
    for name, item in value.items():
        if schema.get("x-kubernetes-embedded-resource") and name in META_FIELDS:
            continue
        if name not in properties and more is None:
            return True
        if _has_unknown(item, properties.get(name, more if isinstance(more, dict) else None)):
            return True
    return False


# Rules


def _rules(schema: JsonObject, path: str, *, root: bool = True, apart: str = "") -> Iterator[JsonObject]:
    """Yield what is wrong with rules; `apart` is the list in which an item has no before, if it is in one."""
    node = structural.compiled(schema)
    if root or node.embedded:
        node = structural.with_resource_meta(node)
    for name, below in sorted((schema.get("properties") or {}).items()):
        yield from _rules(below, f"{path}.properties[{name}]", root=False, apart=apart)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _rules(schema["additionalProperties"], f"{path}.additionalProperties", root=False, apart=apart)
    if isinstance(schema.get("items"), dict):
        inside = apart or ("" if schema.get("x-kubernetes-list-type") == "map" else path)
        yield from _rules(schema["items"], f"{path}.items", root=False, apart=inside)
    for at, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        yield from _rule_problems(rule, f"{path}.x-kubernetes-validations[{at}]", node, apart)


def _rule_problems(rule: JsonObject, where: str, node: structural.Node, apart: str) -> Iterator[JsonObject]:
    variables = {"self": node, "oldSelf": None if rule.get("optionalOldSelf") else node}
    program: cel.Program | None = None
    for name, said in (("rule", "compilation failed"), ("messageExpression", "messageExpression compilation failed")):
        text = rule.get(name)
        if not text:
            continue
        try:
            compiled = cel.compiled(text, variables)
            program = program or compiled
        except cel.CelSyntaxError as error:
            yield invalid(f"{where}.{name}", _internal_rule(rule), f"{said}: {cel.explained(error, text)}")
            return
    if program is None:
        return
    if "oldSelf" in program.names and apart:
        why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {apart}"
        yield invalid(f"{where}.rule", rule["rule"], why)
    elif "oldSelf" not in program.names and rule.get("optionalOldSelf") is not None:
        why = "may not be set if oldSelf is not used in rule"
        yield invalid(f"{where}.optionalOldSelf", rule["optionalOldSelf"], why)


def _internal_rule(rule: JsonObject) -> Any:
    """Return the rule as Go prints the server's own type for it."""
    names = ("Rule", "Message", "MessageExpression", "Reason", "FieldPath", "OptionalOldSelf")
    absent = {"Reason": None, "OptionalOldSelf": None}
    return {name: rule.get(name[0].lower() + name[1:], absent.get(name, "")) for name in names}
