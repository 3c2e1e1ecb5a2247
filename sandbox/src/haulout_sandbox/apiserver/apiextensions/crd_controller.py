"""The CustomResourceDefinitions in the store, and the kinds that are served because of them.

It does what three controllers do in the real server: it gives a definition its names, says that it is established, and
removes its objects when it is deleted. It hears of each write at once,
whoever wrote, and acts in writes of its own, so a watch sees each step. What is compiled from a definition is kept
until its spec changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from haulout_sandbox.apiserver.apiextensions import crd_openapi, crds
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
    source: tuple[JsonObject, JsonObject, bool]  # spec, names, and whether it goes
    custom_versions: Mapping[str, CustomResourceVersion]
    versions: Mapping[str, ServedVersion]
    kinds: tuple[Kind, ...]  # those that are served, the best first

    @property
    def is_terminating(self) -> bool:
        return self.source[2]

    @property
    def storage_kind(self) -> Kind:
        return next(version.kind for version in self.versions.values() if version.is_storage)


class CrdController:
    """Keeps a catalogue of kinds in step with the definitions in a store."""

    def __init__(self, writer: Writer, rest_mapper: RestMapper) -> None:
        self._writer = writer
        self._store = writer.store
        self._rest_mapper = rest_mapper
        self._definitions: dict[str, _ServedDefinition] = {}
        self._openapi_documents: dict[str, JsonObject] | None = None
        self._store.observers.append(self._on_write)

    @property
    def openapi_documents(self) -> Mapping[str, JsonObject]:
        """Return the OpenAPI documents of all that is defined, by their paths."""
        if self._openapi_documents is None:
            members: dict[str, list[ServedVersion]] = {}
            for definition in self._definitions.values():
                for kind in definition.kinds:
                    members.setdefault(f"apis/{kind.api_version}", []).append(definition.versions[kind.version])
            self._openapi_documents = {path: crd_openapi.document(served) for path, served in members.items()}
        return self._openapi_documents

    def serve_builtin(self, crd: JsonObject) -> None:
        """Serve what a definition says that is part of the server, and of which nobody sees that it is one."""
        self._serve(crd)

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
        """Take the next step; if that is a write, it leads back here."""
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
        self._openapi_documents = None
        self._rest_mapper.update(remove=previous.kinds if previous else (), add=kinds)

    def _stop_serving(self, name: str) -> None:
        """Serve no more; objects that the test's own hand left over go, too."""
        definition = self._definitions.pop(name, None)
        if definition is None:
            return
        for key in self._store.keys(definition.storage_kind):
            self._store.write(definition.storage_kind, key, None, username=_USERNAME, verb="delete")
        self._replace_kinds(definition, ())
        for custom_version in definition.custom_versions.values():
            custom_version.stop_serving()

    def _delete_instances(self, crd: JsonObject) -> None:
        """Delete the objects of a definition that is being deleted; those with finalizers are waited for."""
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
    """Tell whether it defines something: a test's own hand may store what no client could."""
    spec = crd.get("spec") or {}
    return bool(spec.get("names") and spec.get("versions"))
