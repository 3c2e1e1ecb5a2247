"""The CustomResourceDefinitions in the store, and the kinds that are served because of them.

It does what three controllers do in the real server: it gives a definition its names, says that it is established, and
removes its objects when it is deleted. It hears of each write at once,
whoever wrote, and acts in writes of its own, so a watch sees each step. What is compiled from a definition is kept
until its spec changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from haulout_sandbox.apiserver import crd_openapi, crds
from haulout_sandbox.apiserver.builtin_kinds import CUSTOM_RESOURCE_DEFINITION as DEFINITION
from haulout_sandbox.apiserver.catalogue import Catalogue
from haulout_sandbox.apiserver.crds import Served, version_order
from haulout_sandbox.apiserver.custom_versions import CustomVersion
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.store import Write
from haulout_sandbox.apiserver.writes import Target, Writer

_WHO = "apiserver"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Definition:
    made_of: tuple[JsonObject, JsonObject, bool]  # spec, names, and whether it goes
    rules: Mapping[str, CustomVersion]
    versions: Mapping[str, Served]
    kinds: tuple[Kind, ...]  # those that are served, the best first

    @property
    def is_going(self) -> bool:
        return self.made_of[2]

    @property
    def stored(self) -> Kind:
        return next(it.kind for it in self.versions.values() if it.storage)


class Definitions:
    """Keeps a catalogue of kinds in step with the definitions in a store."""

    def __init__(self, writer: Writer, catalogue: Catalogue) -> None:
        self._writer = writer
        self._store = writer.store
        self._catalogue = catalogue
        self._known: dict[str, _Definition] = {}
        self._documents: dict[str, JsonObject] | None = None
        self._store.observers.append(self._hear)

    @property
    def documents(self) -> Mapping[str, JsonObject]:
        """Return the OpenAPI documents of all that is defined, by their paths."""
        if self._documents is None:
            members: dict[str, list[Served]] = {}
            for known in self._known.values():
                for kind in known.kinds:
                    members.setdefault(f"apis/{kind.api_version}", []).append(known.versions[kind.version])
            self._documents = {path: crd_openapi.document(served) for path, served in members.items()}
        return self._documents

    def build_in(self, crd: JsonObject) -> None:
        """Serve what a definition says that is part of the server, and of which nobody sees that it is one."""
        self._serve(crd)

    def _hear(self, write: Write) -> None:
        if write.kind is DEFINITION:
            self._follow(write.key)
        elif write.after is None and (known := self._known.get(write.kind.stored_as)) and known.is_going:
            self._follow(write.kind.stored_as)

    def _follow(self, name: str) -> None:
        """Take the next step; if that is a write, it leads back here."""
        crd = self._store.get(DEFINITION, name)
        if crd is None:
            self._withdraw(name)
            return
        if crds.CLEANUP in (crd["metadata"].get("finalizers") or ()) and "deletionTimestamp" in crd["metadata"]:
            self._clean_up(crd)
            return
        if not _is_whole(crd):
            return
        named = crds.accepted(crd, now=self._writer.now())
        if named != crd.get("status"):
            self._write(crd | {"status": named})
            return
        settled = crds.established(crd, now=self._writer.now())
        if settled != named:
            self._write(crd | {"status": settled})
            return
        self._serve(crd)

    def _serve(self, crd: JsonObject) -> None:
        name, known = crd["metadata"]["name"], self._known.get(crd["metadata"]["name"])
        going = crds.holds(crd, "Terminating")
        made_of = (crd["spec"], crd["status"]["acceptedNames"], going)
        if not crds.holds(crd, "Established") or (known is not None and known.made_of == made_of):
            return
        rules = {it["name"]: CustomVersion(it["name"]) for it in crd["spec"]["versions"]}
        rules |= {version: it for version, it in (known.rules if known else {}).items() if version in rules}
        versions = crds.versions(crd, rules)
        served = sorted((it["name"] for it in crd["spec"]["versions"] if it.get("served")), key=version_order)
        for version, rule in rules.items():
            rule.follow(versions, is_served=version in served, is_terminating=going)
        kinds = tuple(versions[version].kind for version in served)
        self._known[name] = _Definition(made_of=made_of, rules=rules, versions=versions, kinds=kinds)
        self._replace(known, kinds)
        for version, rule in (known.rules if known else {}).items():
            if version not in rules:
                rule.end()

    def _replace(self, known: _Definition | None, kinds: tuple[Kind, ...]) -> None:
        self._documents = None
        self._catalogue.change(remove=known.kinds if known else (), add=kinds)

    def _withdraw(self, name: str) -> None:
        """Serve no more; objects that the test's own hand left over go, too."""
        known = self._known.pop(name, None)
        if known is None:
            return
        for key in self._store.keys(known.stored):
            self._store.write(known.stored, key, None, who=_WHO, verb="delete")
        self._replace(known, ())
        for rule in known.rules.values():
            rule.end()

    def _clean_up(self, crd: JsonObject) -> None:
        """Delete the objects of a definition that is being deleted; those with finalizers are waited for."""
        name, known = crd["metadata"]["name"], self._known.get(crd["metadata"]["name"])
        going = crds.terminating(crd, "InstanceDeletionInProgress", now=self._writer.now())
        if going["status"] != crd["status"]:
            self._write(going)
            return
        if known is not None:
            self._serve(crd)
            for key in self._store.keys(known.stored):
                self._delete(known.stored, key)
            if self._store.get(DEFINITION, name) is None or self._store.keys(known.stored):
                return
        done = crds.terminating(crd, "InstanceDeletionCompleted", now=self._writer.now())
        left = [it for it in crd["metadata"]["finalizers"] if it != crds.CLEANUP]
        done = done | {"metadata": done["metadata"] | {"finalizers": left}}
        self._store.write(DEFINITION, name, DEFINITION.normal(done) if left else None, who=_WHO, verb="update")

    def _delete(self, kind: Kind, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        if self._store.get(kind, key) is not None:
            target = Target(kind=kind, namespace=namespace, name=name, who=_WHO, verb="delete")
            self._writer.delete(target, {})

    def _write(self, crd: JsonObject) -> None:
        self._store.write(DEFINITION, crd["metadata"]["name"], crd, who=_WHO, verb="update")


def _is_whole(crd: JsonObject) -> bool:
    """Tell whether it defines something: a test's own hand may store what no client could."""
    spec = crd.get("spec") or {}
    return bool(spec.get("names") and spec.get("versions"))
