"""The CustomResourceDefinitions in the store, and the kinds that the server serves because of them.

This does the work of three controllers of the real server: it accepts a definition's names, sets the Established
condition, and deletes the instances of a deleted definition. It is notified of each write synchronously, whoever made
it, and acts with writes of its own, so that a watch shows each step. What is compiled from a definition is cached until
its spec changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from haulout_sandbox.apiserver.apiextensions import crds
from haulout_sandbox.apiserver.apiextensions.crds import ServedVersion, version_order
from haulout_sandbox.apiserver.apiextensions.custom_resource_version import CustomResourceVersion
from haulout_sandbox.apiserver.kinds.builtin import CUSTOM_RESOURCE_DEFINITION as DEFINITION
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.kinds.rest_mapper import RestMapper
from haulout_sandbox.apiserver.registry.writer import Target, Writer
from haulout_sandbox.apiserver.storage.store import Write

_USERNAME = "apiserver"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServedDefinition:
    source: tuple[JsonObject, JsonObject, bool]  # spec, names, and whether the definition is being deleted
    custom_versions: Mapping[str, CustomResourceVersion]
    versions: Mapping[str, ServedVersion]
    kinds: tuple[Kind, ...]  # the served kinds, the preferred one first

    @property
    def is_terminating(self) -> bool:
        return self.source[2]

    @property
    def storage_kind(self) -> Kind:
        return next(version.kind for version in self.versions.values() if version.is_storage)


class CrdController:
    """Keeps the registry of kinds in sync with the definitions in a store."""

    def __init__(self, writer: Writer, rest_mapper: RestMapper) -> None:
        self._writer = writer
        self._store = writer.store
        self._rest_mapper = rest_mapper
        self._definitions: dict[str, _ServedDefinition] = {}
        self._store.observers.append(self._on_write)

    @property
    def schemas(self) -> Mapping[Kind, JsonObject]:
        """Return the schemas of all served custom resources."""
        return {
            kind: definition.versions[kind.version].schema.raw
            for definition in self._definitions.values()
            for kind in definition.kinds
        }

    def _on_write(self, write: Write) -> None:
        if write.kind is DEFINITION:
            self._sync(write.key)
        elif (
            write.after is None
            and (definition := self._definitions.get(write.kind.stored_as))
            and definition.is_terminating
        ):
            self._sync(write.kind.stored_as)

    def _sync(self, name: str) -> None:
        """Take the next step; if that is a write, its notification calls this again."""
        crd = self._store.get(DEFINITION, name)
        if crd is None:
            self._stop_serving(name)
            return
        if (
            crds.CLEANUP_FINALIZER in (crd["metadata"].get("finalizers") or ())
            and "deletionTimestamp" in crd["metadata"]
        ):
            self._delete_instances(crd)
            return
        if not _is_complete(crd):
            return
        accepted = crds.accepted_status(crd, now=self._writer.now())
        if accepted != crd.get("status"):
            self._write(crd | {"status": accepted})
            return
        established = crds.established_status(crd, now=self._writer.now())
        if established != accepted:
            self._write(crd | {"status": established})
            return
        self._serve(crd)

    def _serve(self, crd: JsonObject) -> None:
        name, previous = crd["metadata"]["name"], self._definitions.get(crd["metadata"]["name"])
        is_terminating = crds.is_condition_true(crd, "Terminating")
        source = (crd["spec"], crd["status"]["acceptedNames"], is_terminating)
        if not crds.is_condition_true(crd, "Established") or (previous is not None and previous.source == source):
            return
        custom_versions = {item["name"]: CustomResourceVersion(item["name"]) for item in crd["spec"]["versions"]}
        custom_versions |= {
            version: item
            for version, item in (previous.custom_versions if previous else {}).items()
            if version in custom_versions
        }
        versions = crds.all_versions(crd, custom_versions)
        served = sorted((item["name"] for item in crd["spec"]["versions"] if item.get("served")), key=version_order)
        for version, custom_version in custom_versions.items():
            custom_version.update(versions, is_served=version in served, is_terminating=is_terminating)
        kinds = tuple(versions[version].kind for version in served)
        self._definitions[name] = _ServedDefinition(
            source=source, custom_versions=custom_versions, versions=versions, kinds=kinds
        )
        self._replace_kinds(previous, kinds)
        for version, custom_version in (previous.custom_versions if previous else {}).items():
            if version not in custom_versions:
                custom_version.stop_serving()

    def _replace_kinds(self, previous: _ServedDefinition | None, kinds: tuple[Kind, ...]) -> None:
        self._rest_mapper.update(remove=previous.kinds if previous else (), add=kinds)

    def _stop_serving(self, name: str) -> None:
        """Stop serving; objects that a test put into the store directly are removed, too."""
        definition = self._definitions.pop(name, None)
        if definition is None:
            return
        for key in self._store.keys(definition.storage_kind):
            self._store.write(definition.storage_kind, key, None, username=_USERNAME, verb="delete")
        self._replace_kinds(definition, ())
        for custom_version in definition.custom_versions.values():
            custom_version.stop_serving()

    def _delete_instances(self, crd: JsonObject) -> None:
        """Delete the instances of a deleted definition; those with finalizers remain until these are removed."""
        name, definition = crd["metadata"]["name"], self._definitions.get(crd["metadata"]["name"])
        terminating = crds.with_terminating_condition(crd, "InstanceDeletionInProgress", now=self._writer.now())
        if terminating["status"] != crd["status"]:
            self._write(terminating)
            return
        if definition is not None:
            self._serve(crd)
            for key in self._store.keys(definition.storage_kind):
                self._delete(definition.storage_kind, key)
            if self._store.get(DEFINITION, name) is None or self._store.keys(definition.storage_kind):
                return
        completed = crds.with_terminating_condition(crd, "InstanceDeletionCompleted", now=self._writer.now())
        finalizers = [finalizer for finalizer in crd["metadata"]["finalizers"] if finalizer != crds.CLEANUP_FINALIZER]
        completed = completed | {"metadata": completed["metadata"] | {"finalizers": finalizers}}
        self._store.write(
            DEFINITION, name, DEFINITION.normalize(completed) if finalizers else None, username=_USERNAME, verb="update"
        )

    def _delete(self, kind: Kind, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        if self._store.get(kind, key) is not None:
            target = Target(kind=kind, namespace=namespace, name=name, username=_USERNAME, verb="delete")
            self._writer.delete(target, {})

    def _write(self, crd: JsonObject) -> None:
        self._store.write(DEFINITION, crd["metadata"]["name"], crd, username=_USERNAME, verb="update")


def _is_complete(crd: JsonObject) -> bool:
    """Return whether the definition is valid; a test may put one into the store that the server would refuse."""
    spec = crd.get("spec") or {}
    return bool(spec.get("names") and spec.get("versions"))
