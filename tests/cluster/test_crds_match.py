"""Custom resources in the sandbox are those of the real server: what is refused, in which words, and what is stored.

Where the real server goes through a Go map the order of causes is chance, so causes are compared as a set.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane import Answer, ControlPlane
from haulout_sandbox.apiserver import JsonObject, crd_openapi, crds, status
from haulout_sandbox.apiserver.crds import Served
from support.definitions import ALL, STRING, a_definition, a_rule, an_object, schema_of, with_rules

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BY_KIND = {crd["spec"]["names"]["kind"]: crds.served(crds.defaulted(crd))[0] for crd in ALL}

# Objects: each is created, or refused, on both.

WHOLE: list[tuple[str, JsonObject]] = [
    ("NodeMaintenance", {}),
    ("NodeMaintenance", {"spec": {"nodeName": "n"}}),
    ("NodeMaintenance", {"spec": {}}),
    ("NodeMaintenance", {"spec": None}),
    ("NodeMaintenance", {"spec": []}),
    ("NodeMaintenance", {"spec": {"nodeName": 3}}),
    ("NodeMaintenance", {"spec": {"nodeName": None}}),
    ("NodeMaintenance", {"spec": {"nodeName": "n", "odd": 1}, "more": 2, "status": {"phase": "x"}}),
    ("MachineMaintenance", {"spec": {"machineid": "i", "machinelink": "m"}}),
    ("MachineMaintenance", {"spec": {"machineid": "i", "machinelink": "m", "maintenancescheduled": False}}),
    ("Default", {}),
]
NUMBERS: list[Any] = ["string", 1.5, True, 1.0, 10**10, None]
TEXTS: list[Any] = [1, 1.5, {}, [], True, None, '<a&b>\n"é\u2028']
VALUES: list[JsonObject] = [
    *({"whole": it} for it in NUMBERS),
    *({"whole32": it} for it in (10**10, "x", True)),
    *({"number": it} for it in (1, "1", 1e6)),
    *({"text": it} for it in TEXTS),
    *({"flag": it} for it in ("true", 0)),
    *({"choice": it} for it in ("a", "<a>\n")),
    *({"choiceOfNumbers": it} for it in (2, 3, "1")),
    {"short": "abcd"},
    *({"long": it} for it in ("ab", "äöü")),
    *({"shaped": it} for it in ("ab1", "ab\n", "A\tü")),
    *({"ranged": it} for it in (0, 11, 5)),
    *({"between": it} for it in (0, 1.5, 1)),
    {"fives": 7},
    *({"halves": it} for it in (0.75, 1.5, 1)),
    *({"few": it} for it in ([], ["a", "b", "c"], ["a", 1])),
    {"single": ["a", "b"]},
    *({"counts": it} for it in ({}, {"a": 0, "b": "x", "c": 2}, {"a": 1.5})),
    *({"when": it} for it in ("soon", "2024-01-01T00:00:00.5+02:00", "2024-13-01T00:00:00Z", 5, [1])),
    *({"day": it} for it in ("2024-01-01", "2024-1-1")),
    *({"span": it} for it in ("1h", "3 days", "x")),
    *({"uri": it} for it in ("http://a/b", "a", "/a")),
    *({"mail": it} for it in ("a@b", "a", "A <a@b.c>")),
    *({"host": it} for it in ("a.b-c.com", "-a", "a_b")),
    *({"ipv4": it} for it in ("1.2.3.4", "1.2.3", "01.2.3.4")),
    *({"ipv6": it} for it in ("::1", "1.2.3.4")),
    *({"cidr": it} for it in ("10.0.0.0/8", "10.0.0.0/33", "10.0.0.0")),
    *({"uuid": it} for it in ("123e4567-e89b-12d3-a456-426614174000", "x")),
    *({"bytes": it} for it in ("YQ==", "a")),
    *({"mac": it} for it in ("aa:bb:cc:dd:ee:ff", "aa")),
    *({"label": it} for it in ("abc", "Abc")),
    *({"either": it} for it in (1, "a", True, 1.5)),
    *({"percent": it} for it in (5, "5%", "x", False)),
    *({"free": it} for it in ({"a": {"b": [1, None]}, "known": {"a": "x", "z": 1}}, {"a": None})),
    {"nullable": None},
    {"set": ["a", "b", "a", "a"]},
    *({"named": it} for it in ([{"name": "a"}, {"name": "a"}], [{"value": 1}], ["x"], [{"name": "a", "odd": 1}])),
    {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]},
    {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "odd": 1}, "spec": {"a": 1}}},
    *({"template": it} for it in ({"kind": ""}, {"apiVersion": "a/b/c", "kind": "A_b"})),
    *({"nested": it} for it in ({}, {"a": 1, "b": {"c": "x"}})),
    *({"anyOf": it} for it in ({}, {"y": 1}, {"x": "a"})),
    *({"oneOf": it} for it in ({}, {"x": "a", "y": 1}, {"y": 1})),
    *({"allOf": it} for it in (3, 6, 7)),
    *({"negated": it} for it in ("bad", "good")),
    {"whole": "x", "text": 1, "choice": "z", "short": "abcd", "odd": 1},
]
DEFAULTS: list[JsonObject] = [
    {},
    {"mode": None, "count": None, "nested": None},
    {"nested": {"deep": {}}, "list": [{}, {"p": "UDP"}, {"q": None}], "map": {"a": {}, "b": {"d": False}}},
    {"texts": {"x": None, "y": "z"}, "nulls": {"n": None, "m": None}, "free": {"a": None}, "items": [{"a": None}]},
    {"list": [None]},
    {"template": {"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b"}, "zz": 1}, "spec": {"c": 1}}},
    {"items": [{"a": "x", "b": 1}, {"c": {"d": 1}}], "unknown": {"x": 1}},
]
RULES: list[JsonObject] = [
    {"min": 1, "max": 2},
    {"min": 3, "max": 2},
    *({"name": it} for it in ("abc", "bcd", "b" * 21)),
    *({"hosts": it} for it in (["a.com"], ["b.org", "a.com", "c.net"], ["b.com"])),
    {"parts": [{"name": "a", "size": 1}]},
    *({"when": it} for it in ("2019-01-01T00:00:00Z", "2021-01-01T00:00:00Z")),
    *({"grace": it} for it in ("2h", "5m")),
    *({"either": it} for it in ("5%", 0, "x")),
    *({"options": it} for it in ({}, {"a": "y"}, {"b": "x"}, {"a": "boom"})),
    *({"once": it} for it in ("ab", "a")),
    {"labels": {"a": "abc", "b": "abcdef"}},
    *({"odd-name": it} for it in ({"a.b": 1}, {"a.b": 2}, {})),
    {"min": "x", "max": 1},
]
CREATED = [
    *WHOLE,
    *(("Value", {"spec": it}) for it in VALUES),
    *(("Default", {"spec": it}) for it in DEFAULTS),
    *(("Rule", {"spec": it}) for it in RULES),
]

# Changes: the first object exists, and is replaced by one with the second.

PARTS = [{"name": "a", "size": 2}, {"name": "b", "size": 1}]
CHANGED: list[tuple[str, str, JsonObject, JsonObject]] = [
    ("Rule", "", {"spec": {"name": "abc"}}, {"spec": {"name": "abd"}}),
    ("Rule", "", {"spec": {"name": "abc"}}, {"spec": {"name": "abc", "min": 1}}),
    ("Rule", "", {"spec": {"name": "abc"}}, {"spec": {}}),
    ("Rule", "", {"spec": {"parts": PARTS}}, {"spec": {"parts": [{"name": "b", "size": 0}, {"name": "c", "size": 0}]}}),
    ("Rule", "", {"spec": {"once": "ab"}}, {"spec": {"once": "ab"}}),
    ("Rule", "", {"spec": {"once": "ab"}}, {"spec": {"once": "cd"}}),
    ("Rule", "", {"spec": {"min": 1, "max": 2}}, {"spec": {"min": 3, "max": 2}}),
    ("Rule", "status", {}, {"status": {"phase": "A"}}),
    ("Rule", "status", {}, {"status": {"phase": "C", "n": "x"}}),
    ("Rule", "status", {}, {"status": {}}),
    ("Rule", "status", {"spec": {}}, {"status": {"phase": "B", "odd": 1}}),
    ("Value", "", {"spec": {"text": "a"}}, {"spec": {"text": 1}}),
    ("Value", "", {"spec": {"set": ["a"]}}, {"spec": {"set": ["a", "a"]}}),
]


@pytest.fixture(scope="module")
def served(control_plane: ControlPlane) -> Iterator[dict[str, Served]]:
    """Have the real server serve the definitions."""
    for crd in ALL:  # another test may have left one of the same name
        control_plane.kubectl("delete", "crd", crd["metadata"]["name"], "--ignore-not-found")
        made = control_plane.request("POST", DEFINITIONS, crd)
        assert made.status == 201, made.body
    names = [f"crd/{crd['metadata']['name']}" for crd in ALL]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    yield BY_KIND
    for crd in ALL:
        control_plane.request("DELETE", f"{DEFINITIONS}/{crd['metadata']['name']}")


def path_of(of: Served, name: str = "") -> str:
    return of.kind.path(of.kind.key("default", name)).rstrip("/")


def an_object_of(of: Served, name: str, parts: JsonObject) -> JsonObject:
    return {"apiVersion": of.kind.api_version, "kind": of.kind.kind, "metadata": {"name": name}} | parts


def ours(of: Served, obj: JsonObject, old: JsonObject | None = None, *, subresource: str = "") -> JsonObject:
    """Return what the sandbox answers: a Status that refuses, or the object without metadata."""
    new, _ = of.schema.pruned(obj)
    new = of.schema.defaulted(new)
    if of.kind.has_status and not subresource:
        new.pop("status", None)
    if causes := of.schema.errors(new, old, subresource=subresource):
        refusal = status.invalid(of.kind.group, of.kind.kind, obj["metadata"]["name"], causes).status
        return comparable(refusal)
    return comparable(new)


def comparable(answer: JsonObject) -> JsonObject:
    if answer["kind"] != "Status":
        return {name: part for name, part in answer.items() if name != "metadata"}
    causes = answer["details"]["causes"]
    ordered = sorted(causes, key=lambda cause: (cause["field"], cause["message"]))
    message = answer["message"] if len(causes) == 1 else sorted(answer["message"])  # the same parts in any order
    return answer | {"message": message, "details": answer["details"] | {"causes": ordered}}


@pytest.mark.parametrize(("kind", "parts"), CREATED, ids=str)
def test_an_object_is_taken_or_refused_alike(
    control_plane: ControlPlane, served: dict[str, Served], kind: str, parts: JsonObject
) -> None:
    of = served[kind]
    obj = an_object_of(of, "one", parts)
    theirs = control_plane.request("POST", f"{path_of(of)}?dryRun=All", obj).json()
    assert ours(of, obj) == comparable(theirs)


@pytest.mark.parametrize(("kind", "parts"), CREATED, ids=str)
def test_unknown_fields_are_refused_alike(
    control_plane: ControlPlane, served: dict[str, Served], kind: str, parts: JsonObject
) -> None:
    of = served[kind]
    obj = an_object_of(of, "one", parts)
    theirs = control_plane.request("POST", f"{path_of(of)}?dryRun=All&fieldValidation=Strict", obj)
    _, unknown = of.schema.pruned(obj)
    if unknown:
        assert theirs.status == 400, theirs.body
    else:
        assert theirs.status != 400, theirs.body


@pytest.mark.parametrize(("kind", "subresource", "first", "second"), CHANGED, ids=str)
def test_a_change_is_taken_or_refused_alike(
    control_plane: ControlPlane,
    served: dict[str, Served],
    kind: str,
    subresource: str,
    first: JsonObject,
    second: JsonObject,
) -> None:
    of = served[kind]
    path = path_of(of, "one")
    try:
        old = created(control_plane.request("POST", path_of(of), an_object_of(of, "one", first)))
        new = copy.deepcopy(old) | second
        theirs = control_plane.request("PUT", f"{path}/{subresource}".rstrip("/"), new).json()
        assert ours(of, new, old, subresource=subresource) == comparable(theirs)
    finally:
        control_plane.request("DELETE", path)


def created(answer: Answer) -> JsonObject:
    assert answer.status == 201, answer.body
    made: JsonObject = answer.json()
    return made


def test_the_status_of_a_definition_is_alike(control_plane: ControlPlane, served: dict[str, Served]) -> None:
    assert served
    for crd in ALL:
        theirs = control_plane.request("GET", f"{DEFINITIONS}/{crd['metadata']['name']}").json()
        for condition in theirs["status"]["conditions"]:
            condition["lastTransitionTime"] = "now"
        filled = crds.defaulted(crd)
        named = filled | {"status": crds.accepted(filled, [], now="now")}
        assert crds.established(named, now="now") == theirs["status"]
        assert filled["spec"] == theirs["spec"]


def test_schemas_are_explained_alike(control_plane: ControlPlane, served: dict[str, Served]) -> None:
    mine = crd_openapi.document([it for it in served.values() if it.kind.group == "test.haulout.dev"])
    theirs = explained(control_plane, paths=set(mine["paths"]))
    for name, schema in mine["components"]["schemas"].items():
        if name.startswith("dev.haulout."):
            assert undescribed(theirs["components"]["schemas"][name]) == undescribed(schema)


def explained(control_plane: ControlPlane, *, paths: set[str]) -> Any:
    """Return the real server's document; it follows the definitions some moments later."""
    for _ in range(2000):
        answer = control_plane.request("GET", "/openapi/v3/apis/test.haulout.dev/v1")
        if answer.status == 200 and set(answer.json()["paths"]) == paths:
            return answer.json()
    raise AssertionError("the real server does not explain all that it serves")


def undescribed(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            name: undescribed(it) for name, it in schema.items() if name != "description" or not isinstance(it, str)
        }
    return [undescribed(it) for it in schema] if isinstance(schema, list) else schema


# Definitions: each is accepted, or refused, on both.


def with_x(schema: JsonObject) -> JsonObject:
    return a_definition("tries", "Try", an_object(x=schema))


def changed(change: Callable[[JsonObject, JsonObject, JsonObject], Any]) -> JsonObject:
    """Return a definition after `change` did something to its spec, its version and its schema."""
    crd = a_definition("tries", "Try", an_object(a=STRING))
    change(crd["spec"], crd["spec"]["versions"][0], schema_of(crd))
    return crd


def in_group(group: str) -> JsonObject:
    return a_definition("tries", "Try", an_object(a=STRING), group=group)


def a_list(items: JsonObject, **more: Any) -> JsonObject:
    return {"type": "array", "items": items} | {f"x-kubernetes-list-{name}": it for name, it in more.items()}


COLUMNS = [
    {"name": "A", "type": "strin", "jsonPath": "spec.a"},
    {"name": "B", "type": "string", "jsonPath": ".x", "format": "q"},
]
PATHS = [{"jsonPath": path} for path in (".spec.nope", ".spec", ".spec.a", ".spec.a")]
KEYS = ["k", "z"]
DEFINED = [
    changed(lambda spec, *_: spec["names"].update(plural="others")),
    in_group("nodots"),
    in_group("x.k8s.io"),
    changed(lambda spec, *_: spec.update(scope="Everywhere")),
    changed(lambda spec, *_: spec.pop("scope")),
    changed(lambda spec, *_: spec.update(versions=[])),
    changed(lambda spec, *_: spec.update(preserveUnknownFields=True)),
    changed(lambda spec, *_: spec.update(conversion={"strategy": "Webhook"})),
    changed(lambda spec, version, _: spec["versions"].append(version | {"name": "v2"})),
    changed(lambda spec, version, _: spec["versions"].append(dict(version))),
    changed(lambda _, version, __: version.update(storage=False)),
    changed(lambda _, version, __: version.update(name="V1")),
    changed(lambda _, version, __: version.update(deprecationWarning="x")),
    changed(lambda _, version, __: version.pop("schema")),
    changed(lambda _, version, __: version.update(additionalPrinterColumns=COLUMNS)),
    changed(lambda _, version, __: version.update(selectableFields=PATHS)),
    changed(
        lambda _, version, __: version.update(
            subresources={"scale": {"specReplicasPath": ".status.a", "statusReplicasPath": "x"}}
        )
    ),
    changed(lambda spec, *_: spec["names"].update(kind="")),
    changed(lambda spec, *_: spec["names"].update(listKind="Try")),
    changed(lambda spec, *_: spec["names"].update(shortNames=["A_"], categories=["All"])),
    changed(lambda _, __, schema: schema.pop("type")),
    changed(lambda _, __, schema: schema.update(type="array", items=STRING)),
    changed(lambda _, __, schema: schema.update(nullable=True)),
    changed(lambda _, __, schema: schema.update(additionalProperties=True)),
    changed(lambda _, __, schema: schema.update({"x-kubernetes-preserve-unknown-fields": False})),
    changed(lambda _, __, schema: schema["properties"].update(metadata=an_object(labels={"type": "object"}))),
    changed(lambda _, __, schema: schema["properties"].update(metadata=an_object(name=STRING))),
    changed(
        lambda _, __, schema: schema.update(anyOf=[{"properties": {"spec": {"properties": {"y": {"minimum": 1}}}}}])
    ),
    *map(
        with_x,
        [
            {},
            {"type": "array"},
            {"type": "text"},
            a_list({}),
            *(
                {"type": "string", "pattern": it}
                for it in ("[", "^(a", "a)", "*a", "(?=a)", r"\1", "a**", "[[:alpha:]]")
            ),
            an_object(y=STRING) | {"additionalProperties": STRING},
            {"type": "string", "default": 1},
            {"type": "string", "enum": ["a"], "default": "b"},
            {"type": "string", "nullable": True, "default": None},
            an_object(y=STRING) | {"default": {"z": 1}},
            {"type": "object", "anyOf": [{"properties": {"y": STRING}}]},
            {"type": "object", "not": {"type": "object", "description": "x"}},
            a_list(STRING) | {"uniqueItems": True},
            a_list(STRING, type="map"),
            a_list({"type": "object"}, type="bag"),
            a_list({"type": "object"}, type="set"),
            a_list(an_object(k=STRING), type="map") | {"x-kubernetes-list-map-keys": KEYS},
            {"type": "string", "x-kubernetes-list-type": "set"},
            {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True},
            {"type": "object", "x-kubernetes-embedded-resource": True},
            with_rules(STRING, a_rule("")),
            with_rules(STRING, a_rule("self.foo")),
            with_rules(STRING, a_rule("self.nope()")),
            with_rules(STRING, a_rule("self == ")),
            with_rules(STRING, a_rule("other == 1")),
            with_rules(STRING, a_rule("true", reason="Bad")),
            with_rules(STRING, a_rule("true", fieldPath=".a")),
            with_rules(STRING, a_rule("true", optionalOldSelf=True)),
            with_rules(STRING, a_rule("self.size() > 1", messageExpression="other")),
            with_rules(an_object(y=STRING), a_rule("self.z == 'a'", message="m")),
            with_rules(an_object(y=STRING), a_rule("has(self.z)")),
            a_list(with_rules(STRING, a_rule("self == oldSelf"))) | {"maxItems": 3},
        ],
    ),
]


@pytest.mark.parametrize("crd", DEFINED, ids=str)
def test_a_definition_is_taken_or_refused_alike(control_plane: ControlPlane, crd: JsonObject) -> None:
    theirs = control_plane.request("POST", f"{DEFINITIONS}?dryRun=All", crd).json()
    if causes := crds.problems(crds.defaulted(crd)):
        name = crd["metadata"]["name"]
        refusal = status.invalid("apiextensions.k8s.io", "CustomResourceDefinition", name, causes)
        assert comparable(refusal.status) == comparable(theirs)
    else:
        assert theirs["kind"] == "CustomResourceDefinition", theirs
