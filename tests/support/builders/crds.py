"""CustomResourceDefinitions for tests: those of Haulout, and some that cover the features of schemas.

`NODE_MAINTENANCE_CRD` and `MACHINE_MAINTENANCE_CRD` are those of the systems that Haulout replaces. Of the others,
`VALUE_CRD` has a field for each kind of invalid value, `DEFAULT_CRD` for each kind of default and pruning, and
`RULE_CRD` for each kind of validation rule. They stay within the cost limits of the real server for rules.
"""

from typing import Any

from haulout_sandbox.apiserver import JsonObject

STRING: JsonObject = {"type": "string"}
INTEGER: JsonObject = {"type": "integer"}


def object_schema(
    odd_properties: JsonObject | None = None, /, *, required: list[str] | None = None, **properties: JsonObject
) -> JsonObject:
    """Return the schema of an object with these properties.

    `odd_properties` are those whose names are none in Python.
    """
    required_fields = {"required": required} if required else {}
    return {"type": "object", "properties": {**(odd_properties or {}), **properties}, **required_fields}


def a_crd(
    plural: str,
    kind: str,
    spec: JsonObject,
    *,
    group: str = "test.haulout.dev",
    status: JsonObject | None = None,
    **version: Any,
) -> JsonObject:
    """Return the definition of a namespaced kind of one version, v1; with a `status` it has that subresource."""
    schema = object_schema(spec=spec) if status is None else object_schema(spec=spec, status=status)
    subresources: JsonObject = {} if status is None else {"subresources": {"status": {}}}
    versions = [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
            **subresources,
            **version,
        }
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": versions,
        },
    }


def a_validation_rule(rule: str, **options: Any) -> JsonObject:
    """Return one of x-kubernetes-validations."""
    return {"rule": rule, **options}


def with_rules(schema: JsonObject, *rules: JsonObject) -> JsonObject:
    """Return the schema with these rules."""
    return schema | {"x-kubernetes-validations": list(rules)}


def schema_of(definition: JsonObject) -> JsonObject:
    """Return the schema of the first version."""
    found: JsonObject = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


NODE_MAINTENANCE_CRD = a_crd(
    "nodemaintenances",
    "NodeMaintenance",
    object_schema(required=["nodeName"], nodeName=STRING, reason=STRING),
    group="nodemaintenance.medik8s.io",
    name="v1beta1",
    status=object_schema(
        phase=STRING,
        drainProgress=INTEGER,
        lastUpdate={"type": "string", "format": "date-time"},
        lastError=STRING,
        pendingPods={"type": "array", "items": STRING},
        pendingPodsRefs={"type": "array", "items": object_schema(namespace=STRING, name=STRING)},
        totalpods=INTEGER,
        evictionPods=INTEGER,
        errorOnLeaseCount=INTEGER,
    ),
)
NODE_MAINTENANCE_CRD["spec"]["scope"] = "Cluster"
NODE_MAINTENANCE_CRD["spec"]["names"]["shortNames"] = ["nm"]
schema_of(NODE_MAINTENANCE_CRD)["properties"] |= {"apiVersion": STRING, "kind": STRING, "metadata": {"type": "object"}}

MACHINE_MAINTENANCE_CRD = a_crd(
    "machinemaintenances",
    "MachineMaintenance",
    object_schema(
        required=["maintenancescheduled", "machineid", "machinelink"],
        maintenancescheduled={"type": "boolean"},
        eventcode=STRING,
        eventid=STRING,
        machineid=STRING,
        machinelink=STRING,
    ),
    group="machinemaintenance.managed.openshift.io",
    name="v1alpha1",
    status={"type": "object"},
    additionalPrinterColumns=[
        {"name": "Machine", "type": "string", "jsonPath": ".spec.machinelink"},
        {"name": "Scheduled", "type": "boolean", "jsonPath": ".spec.maintenancescheduled"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
    selectableFields=[{"jsonPath": ".spec.machineid"}],
)

VALUE_CRD = a_crd(
    "values",
    "Value",
    object_schema(
        whole=INTEGER,
        whole32={"type": "integer", "format": "int32"},
        number={"type": "number"},
        text=STRING,
        flag={"type": "boolean"},
        choice={"type": "string", "enum": ["b", "c"]},
        choiceOfNumbers={"type": "integer", "enum": [1, 2]},
        short={"type": "string", "maxLength": 3},
        long={"type": "string", "minLength": 3},
        shaped={"type": "string", "pattern": "^[a-z]+$"},
        ranged={"type": "integer", "minimum": 1, "maximum": 10},
        between={
            "type": "number",
            "minimum": 0,
            "exclusiveMinimum": True,
            "maximum": 1.5,
            "exclusiveMaximum": True,
        },
        fives={"type": "integer", "multipleOf": 5},
        halves={"type": "number", "multipleOf": 0.5},
        few={"type": "array", "items": STRING, "maxItems": 2, "minItems": 1},
        single={"type": "array", "items": STRING, "maxItems": 1},
        counts={
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 1},
            "maxProperties": 2,
            "minProperties": 1,
        },
        when={"type": "string", "format": "date-time"},
        day={"type": "string", "format": "date"},
        span={"type": "string", "format": "duration"},
        either={"x-kubernetes-int-or-string": True},
        percent={
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^[0-9]+%$",
        },
        free=object_schema(known=object_schema(a=STRING)) | {"x-kubernetes-preserve-unknown-fields": True},
        nullable={"type": "string", "nullable": True},
        set={"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
        named={
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": object_schema(required=["name"], name=STRING, value=INTEGER),
        },
        ports={
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": object_schema(required=["port"], port=INTEGER, protocol=STRING | {"default": "TCP"}),
        },
        template={
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        nested=object_schema(required=["a", "b"], a=STRING, b=object_schema(c=INTEGER)),
        anyOf=object_schema(x=STRING, y=INTEGER)
        | {"anyOf": [{"required": ["x"]}, {"required": ["y"], "properties": {"y": {"minimum": 5}}}]},
        oneOf=object_schema(x=STRING, y=INTEGER) | {"oneOf": [{"required": ["x"]}, {"required": ["y"]}]},
        allOf={"type": "integer", "allOf": [{"minimum": 5}, {"multipleOf": 2}]},
        negated={"type": "string", "not": {"enum": ["bad"]}},
    ),
)

DEFAULT_CRD = a_crd(
    "defaults",
    "Default",
    object_schema(
        mode=STRING | {"default": "auto"},
        count=INTEGER | {"default": 3, "nullable": True},
        nested=object_schema(a=STRING | {"default": "x"}, deep=object_schema(b=INTEGER | {"default": 1}))
        | {"default": {}},
        list={"type": "array", "items": object_schema(p=STRING | {"default": "TCP"}, q=STRING)},
        map={"type": "object", "additionalProperties": object_schema(d={"type": "boolean", "default": True})},
        texts={"type": "object", "additionalProperties": STRING | {"default": "d"}},
        nulls=object_schema(n=STRING, m=STRING | {"nullable": True}),
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        template=object_schema(spec=object_schema(a=STRING)) | {"x-kubernetes-embedded-resource": True},
        items={"type": "array", "items": object_schema(a=STRING)},
    ),
)

_SHORT_STRING = {"type": "string", "maxLength": 20}
RULE_CRD = a_crd(
    "rules",
    "Rule",
    with_rules(
        object_schema(
            min=INTEGER,
            max=INTEGER,
            name=with_rules(_SHORT_STRING, a_validation_rule("self == oldSelf", message="name is immutable")),
            parts={
                "type": "array",
                "maxItems": 5,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": with_rules(
                    object_schema(required=["name"], name=_SHORT_STRING, size=INTEGER),
                    a_validation_rule("self.size >= oldSelf.size", message="parts do not shrink"),
                ),
            },
            since={"type": "string", "format": "date-time"},
            until={"type": "string", "format": "date-time"},
            step={"type": "string", "format": "duration"},
            limit={"type": "string", "format": "duration"},
            options=with_rules(
                object_schema(a=_SHORT_STRING, b=_SHORT_STRING),
                a_validation_rule("has(self.a) || has(self.b)", message="a or b"),
                a_validation_rule("self.a != 'boom'"),
            ),
            labels={
                "type": "object",
                "maxProperties": 5,
                "additionalProperties": with_rules(_SHORT_STRING, a_validation_rule("self < 'm'")),
            },
        ),
        a_validation_rule("!has(self.min) || !has(self.max) || self.min <= self.max", message="min exceeds max"),
        a_validation_rule("!has(self.since) || !has(self.until) || self.since < self.until"),
        a_validation_rule(
            "!has(self.step) || !has(self.limit) || self.step <= self.limit", message="step exceeds limit"
        ),
    ),
    status=object_schema(required=["phase"], phase={"type": "string", "enum": ["A", "B"]}, n=INTEGER),
)
schema_of(RULE_CRD)["x-kubernetes-validations"] = [
    a_validation_rule("self.metadata.name != 'x'", message="x is no name")
]
ALL_CRDS = (NODE_MAINTENANCE_CRD, MACHINE_MAINTENANCE_CRD, VALUE_CRD, DEFAULT_CRD, RULE_CRD)

# Of the hypervisor operator, as little of it as plugins look at.
HYPERVISOR_CRD: JsonObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "hypervisors.kvm.cloud.sap"},
    "spec": {
        "group": "kvm.cloud.sap",
        "scope": "Cluster",
        "names": {
            "plural": "hypervisors",
            "singular": "hypervisor",
            "kind": "Hypervisor",
            "listKind": "HypervisorList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
