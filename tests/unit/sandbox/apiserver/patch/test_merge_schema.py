from haulout_sandbox.apiserver.patch.merge_schema import MergeSchema, custom_resource_schema, merge_schema_of


def nested(schema: MergeSchema | None, *names: str) -> MergeSchema:
    for name in names:
        assert schema is not None
        schema = schema.field(name)
    assert schema is not None
    return schema


def test_a_merged_list_names_its_merge_key() -> None:
    containers = nested(merge_schema_of("apps/v1", "Deployment"), "spec", "template", "spec", "containers")

    assert (containers.patch_strategy, containers.merge_key) == ("merge", "name")
    assert (containers.list_type, containers.map_keys) == ("map", ("name",))
    assert not containers.is_atomic
    assert containers.items
    assert containers.items.name == "core.v1.Container"


def test_the_key_of_an_item_may_have_a_default() -> None:
    ports = nested(merge_schema_of("v1", "Service"), "spec", "ports")

    assert ports.map_keys == ("port", "protocol")
    assert ports.merge_key == "port"
    assert ports.items
    assert ports.items.default("protocol") == "TCP"


def test_atomic_values_are_distinguished_from_granular_ones() -> None:
    node = merge_schema_of("v1", "Node")

    assert nested(node, "spec", "taints").is_atomic
    assert not nested(node, "metadata", "labels").is_atomic
    assert not nested(node, "status", "conditions").is_atomic
    assert nested(merge_schema_of("apps/v1", "Deployment"), "spec", "selector").is_atomic, "the type says so"
    assert nested(merge_schema_of("v1", "Service"), "spec", "selector").is_atomic, "the field says so"


def test_a_map_has_anything_and_declares_nothing() -> None:
    labels = nested(merge_schema_of("v1", "Pod"), "metadata", "labels")

    assert nested(labels, "any/name").kind == "string"
    assert not labels.declared_fields


def test_a_field_that_does_not_exist_has_no_shape() -> None:
    assert nested(merge_schema_of("v1", "Pod"), "spec").field("unheardOf") is None


def test_a_kind_that_is_not_built_in_has_no_shape() -> None:
    assert merge_schema_of("example.com/v1", "Thing") is None
    assert merge_schema_of("v1", "Deployment") is None


def test_types_that_contain_themselves_can_be_followed_as_deep_as_one_likes() -> None:
    versions = nested(merge_schema_of("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "spec", "versions")
    schema = nested(versions.items, "schema", "openAPIV3Schema")

    assert nested(schema, "properties", "a", "properties", "b", "properties", "c").name == schema.name


def test_a_custom_resource_has_typed_metadata_and_atomic_lists() -> None:
    shape = custom_resource_schema()
    assert nested(shape, "metadata", "ownerReferences").map_keys == ("uid",)
    assert nested(shape, "kind").kind == "string"
    assert nested(shape, "spec", "rows").kind == "deduced"
