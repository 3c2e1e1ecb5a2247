"""Is a CustomResourceDefinition one? What is wrong with it, in the words and the order of the real server.

Follows `apiextensions-apiserver/pkg/apis/apiextensions/validation` of Kubernetes 1.36. There, what all versions have in
common (schema, subresources, columns, selectable fields: always so with one version) moves to the top of the spec
before anything is checked, so errors name `spec.validation` rather than `spec.versions[0].schema`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from haulout_sandbox.apiserver import schema_problems, schema_rules, structural
from haulout_sandbox.apiserver.fields import duplicate, forbidden, invalid, not_supported, required, too_many
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.names import label_problems, subdomain_problems

_APPROVAL = "api-approved.kubernetes.io"
_APPROVAL_LINK = "see https://github.com/kubernetes/enhancements/pull/1111"
_PER_VERSION = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MOST_SELECTABLE = 8
_LONGEST_WARNING = 256
_IMMUTABLE = "field is immutable"


def problems(crd: JsonObject, old: JsonObject | None = None) -> list[JsonObject]:
    """Return what is wrong with a definition that has its defaults, as causes of an Invalid."""
    spec = crd.get("spec") or {}
    found = list(_name(crd)) if old is None else []
    found += _spec(spec)
    if old is not None:
        found += _changes(spec, old["spec"], established=_is_established(old))
    found += _stored(spec, crd.get("status") or {})
    found += _approval(crd, old)
    if spec.get("preserveUnknownFields"):
        why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        found.append(invalid("spec.preserveUnknownFields", True, why))
    return found


def status_problems(crd: JsonObject) -> list[JsonObject]:
    """Return what is wrong with a status that somebody writes."""
    return list(_stored(crd.get("spec") or {}, crd.get("status") or {}))


def _name(crd: JsonObject) -> Iterator[JsonObject]:
    spec, name = crd.get("spec") or {}, crd["metadata"].get("name", "")
    for problem in subdomain_problems(name):
        yield invalid("metadata.name", name, problem)
    if name != f"{(spec.get('names') or {}).get('plural', '')}.{spec.get('group', '')}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _spec(spec: JsonObject) -> Iterator[JsonObject]:
    yield from _group_and_scope(spec.get("group", ""), spec.get("scope", ""))
    versions = spec.get("versions") or []
    for at, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield required(f"spec.versions[{at}].schema.openAPIV3Schema")
    common = _common(versions)
    yield from _versions(versions, common)
    names = spec.get("names") or {}
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            yield required(f"spec.names.{name}")
    yield from _names(names, "spec.names")
    if common:
        yield from _shared(versions[0], common)
    yield from _conversion(spec.get("conversion") or {})


def _group_and_scope(group: str, scope: str) -> Iterator[JsonObject]:
    if not group:
        yield required("spec.group")
    elif problems_found := subdomain_problems(group):
        yield invalid("spec.group", group, ",".join(problems_found))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield not_supported("spec.scope", scope, ("Cluster", "Namespaced"))


def _common(versions: list[JsonObject]) -> frozenset[str]:
    """Return what is the same in all versions."""
    if not versions:
        return frozenset()
    first = versions[0]
    return frozenset(name for name in _PER_VERSION if all(it.get(name) == first.get(name) for it in versions))


def _versions(versions: list[JsonObject], common: frozenset[str]) -> Iterator[JsonObject]:
    for at, version in enumerate(versions):
        path = f"spec.versions[{at}]"
        if wrong := label_problems(version.get("name", "")):
            yield invalid(f"{path}.name", version.get("name", ""), ",".join(wrong))
        for problem in _deprecation(version):
            yield invalid(f"{path}.deprecationWarning", version["deprecationWarning"], problem)
        yield from _version_parts(version, path, frozenset(_PER_VERSION) - common, schema_at=f"{path}.schema")
    names = [version.get("name") for version in versions]
    if len(set(names)) < len(names):
        yield invalid("spec.versions", _internal(versions, common), "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        rule = "must have exactly one version marked as storage version"
        yield invalid("spec.versions", _internal(versions, common), rule)
    if versions and (wrong := label_problems(versions[0].get("name", ""))):
        yield invalid("spec.version", versions[0].get("name", ""), ",".join(wrong))


def _shared(version: JsonObject, common: frozenset[str]) -> Iterator[JsonObject]:
    yield from _version_parts(version, "spec", common, schema_at="spec.validation")


def _version_parts(version: JsonObject, path: str, parts: frozenset[str], *, schema_at: str) -> Iterator[JsonObject]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if "schema" in parts and schema:
        yield from schema_problems.problems(schema, f"{schema_at}.openAPIV3Schema")
    if "subresources" in parts:
        yield from _scale((version.get("subresources") or {}).get("scale"), f"{path}.subresources")
    if "additionalPrinterColumns" in parts:
        for at, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _column(column, f"{path}.additionalPrinterColumns[{at}]")
    if "selectableFields" in parts and schema:
        yield from _selectable(version.get("selectableFields") or [], schema, f"{path}.selectableFields")


def _deprecation(version: JsonObject) -> list[str]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return []
    if not version.get("deprecated"):
        return ["can only be set for deprecated versions"]
    found = [f"must be <= {_LONGEST_WARNING} characters long"] if len(warning.encode()) > _LONGEST_WARNING else []
    return found if warning else [*found, "must not be an empty string"]


def _scale(scale: JsonObject | None, path: str) -> Iterator[JsonObject]:
    if scale is None:
        return
    for name, roots in (
        ("specReplicasPath", (".spec",)),
        ("statusReplicasPath", (".status",)),
        ("labelSelectorPath", (".spec", ".status")),
    ):
        where, given = f"{path}.scale.{name}", scale.get(name)
        if not given:
            if name != "labelSelectorPath":
                yield required(where)
        elif not given.startswith("."):
            yield invalid(where, given, "must be a simple json path starting with .")
        elif not given.startswith(tuple(f"{root}." for root in roots)):
            under = roots[0] if len(roots) == 1 else f"either {' or '.join(roots)}"
            yield invalid(where, given, f"should be a json path under {under}")


def _column(column: JsonObject, path: str) -> Iterator[JsonObject]:
    kind, form, json_path = (column.get(name, "") for name in ("type", "format", "jsonPath"))
    if not column.get("name"):
        yield required(f"{path}.name")
    rule = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        yield required(f"{path}.type", rule)
    elif kind not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", kind, rule)
    if form and form not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not json_path:
        yield required(f"{path}.JSONPath")
    elif not json_path.startswith("."):
        yield invalid(f"{path}.JSONPath", json_path, "must be a simple json path starting with .")


def _selectable(selectable: list[JsonObject], schema: JsonObject, path: str) -> Iterator[JsonObject]:
    seen: set[str] = set()
    for at, field in enumerate(selectable):
        where, given = f"{path}[{at}].jsonPath", field.get("jsonPath", "")
        if not given:
            yield required(where)
            continue
        node = structural.compiled(schema)
        found = schema_rules.field_path(given, node)
        if "[" in given or found is None:
            why = "array notation is not allowed" if "[" in given else "does not refer to a valid field"
            yield invalid(where, given, f"is an invalid path: {why}")
            continue
        if found.split(".")[0] == "metadata":
            yield invalid(where, given, "must not point to fields in metadata")
        if _type_at(found, node) not in ("string", "boolean", "integer"):
            rule = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats"
            )
            yield invalid(where, given, f"{rule} are allowed.")
        if found in seen:
            yield duplicate(where, given)
        seen.add(found)
    if len(seen) > _MOST_SELECTABLE:
        yield too_many(path, len(seen), _MOST_SELECTABLE)


def _type_at(path: str, node: structural.Node) -> str:
    below: structural.Node | None = node
    for name in path.split("."):
        below = below.below(name) if below else None
    return below.type if below else ""


def _names(names: JsonObject, path: str) -> Iterator[JsonObject]:
    for name in ("plural", "singular", "kind", "listKind"):
        given = names.get(name, "")
        mixed = "may have mixed case, but should otherwise match: " if name in ("kind", "listKind") else ""
        wrong = label_problems(given.lower() if mixed else given)
        if given and wrong:
            yield invalid(f"{path}.{name}", given, f"{mixed}{','.join(wrong)}")
    yield from _labels(names.get("shortNames") or (), f"{path}.shortNames")
    if names.get("kind") and names["kind"] == names.get("listKind"):
        yield invalid(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
    yield from _labels(names.get("categories") or (), f"{path}.categories")


def _labels(names: Iterable[str], path: str) -> Iterator[JsonObject]:
    for at, name in enumerate(names):
        if wrong := label_problems(name):
            yield invalid(f"{path}[{at}]", name, ",".join(wrong))


def _conversion(conversion: JsonObject) -> Iterator[JsonObject]:
    strategy, webhook = conversion.get("strategy", "None"), conversion.get("webhook")
    if strategy not in ("None", "Webhook"):
        yield not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook" and not (webhook or {}).get("clientConfig"):
        yield required("spec.conversion.webhookClientConfig", "required when strategy is set to Webhook")
    if strategy == "Webhook" and not (webhook or {}).get("conversionReviewVersions"):
        yield required("spec.conversion.conversionReviewVersions")
    if strategy != "Webhook" and (webhook or {}).get("clientConfig"):
        rule = "should not be set when strategy is not set to Webhook"
        yield forbidden("spec.conversion.webhookClientConfig", rule)


# What is not the spec alone


def _stored(spec: JsonObject, status: JsonObject) -> Iterator[JsonObject]:
    path, stored = "status.storedVersions", status.get("storedVersions") or []
    if not stored:
        yield invalid(path, None, "must have at least one stored version")
        return
    left = dict.fromkeys(stored)
    for version in spec.get("versions") or ():
        name = version.get("name", "")
        if version.get("storage") and name not in left:
            yield invalid(path, stored, f"must have the storage version {name}")
        left.pop(name, None)
    for at, name in enumerate(stored):
        if name in left:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                "spec.versions until a storage migration ensures no data remains persisted in "
                f"{name} and removes {name} from status.storedVersions"
            )
            yield invalid(f"{path}[{at}]", name, why)


def _approval(crd: JsonObject, old: JsonObject | None) -> Iterator[JsonObject]:
    group = (crd.get("spec") or {}).get("group", "")
    if not group.endswith((".k8s.io", ".kubernetes.io")) and group not in ("k8s.io", "kubernetes.io"):
        return
    given = (crd["metadata"].get("annotations") or {}).get(_APPROVAL, "")
    if old is not None and given == (old["metadata"].get("annotations") or {}).get(_APPROVAL, ""):
        return
    path, rule = f"metadata.annotations[{_APPROVAL}]", f'protected groups must have approval annotation "{_APPROVAL}"'
    if not given:
        yield required(path, f"{rule}, {_APPROVAL_LINK}")
    elif not given.startswith("unapproved") and "://" not in given:
        either = 'with either a URL or a reason starting with "unapproved"'
        yield invalid(path, given, f"{rule} {either}, {_APPROVAL_LINK}")


def _is_established(crd: JsonObject) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any((it["type"], it["status"]) == ("Established", "True") for it in conditions)


def _changes(spec: JsonObject, old: JsonObject, *, established: bool) -> Iterator[JsonObject]:
    names, before = spec.get("names") or {}, old.get("names") or {}
    if established and spec.get("scope") != old.get("scope"):
        yield invalid("spec.scope", spec.get("scope", ""), _IMMUTABLE)
    if established and names.get("kind") != before.get("kind"):
        yield invalid("spec.names.kind", names.get("kind", ""), _IMMUTABLE)
    if spec.get("group") != old.get("group"):
        yield invalid("spec.group", spec.get("group", ""), _IMMUTABLE)
    if names.get("plural") != before.get("plural"):
        yield invalid("spec.names.plural", names.get("plural", ""), _IMMUTABLE)


def _internal(versions: list[JsonObject], common: frozenset[str]) -> Any:
    """Return versions as Go prints the server's own type for them, as far as they are plain."""
    return [
        (
            {
                "Name": version.get("name", ""),
                "Served": bool(version.get("served")),
                "Storage": bool(version.get("storage")),
                "Deprecated": bool(version.get("deprecated")),
                "DeprecationWarning": version.get("deprecationWarning"),
                **{name[0].upper() + name[1:]: None if name in common else version.get(name) for name in _PER_VERSION},
            }
        )
        for version in versions
    ]
