"""One version of a custom resource, between what clients see and what is stored.

It outlives changes of its definition: the kinds that came before and the watches that are open share it, so they all
follow a new schema at once. Objects are stored in one version; others see them converted, which is by name only.
Reading prunes and fills in defaults again, since the schema may have changed after the write.
"""

from collections.abc import Mapping

from haulout_sandbox.apiserver import status, validation
from haulout_sandbox.apiserver.crds import Served
from haulout_sandbox.apiserver.decoding import Misfit, complain, fitted_metadata, refused
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.shapes import Shape, shape_of

_MOST_REMEMBERED = 10_000


class CustomVersion:
    """The rules of one version, as its definition has them now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_served = False
        self._is_terminating = False
        self._versions: Mapping[str, Served] = {}
        self._storage = ""
        # By uid: what is stored and what that shows, now and before. Each watch that hears of a change asks for both.
        self._shown: dict[str, tuple[tuple[JsonObject, JsonObject], ...]] = {}

    def follow(self, versions: Mapping[str, Served], *, is_served: bool, is_terminating: bool) -> None:
        """Be as the definition says from now on."""
        self._versions = versions
        self._storage = next(name for name, it in versions.items() if it.storage)
        self.is_served = is_served
        self._is_terminating = is_terminating
        self._shown.clear()

    def end(self) -> None:
        """Be served no more; what was stored can still be shown to those who saw it before."""
        self.is_served = False

    @property
    def now(self) -> Served:
        """Return how it is served."""
        return self._versions[self.name]

    def shown(self, stored: JsonObject) -> JsonObject:
        """Return what is stored as an object of this version."""
        uid = stored["metadata"].get("uid", "")
        known = self._shown.get(uid, ())
        for it, shown in known:
            if it is stored:
                return shown
        if len(self._shown) >= _MOST_REMEMBERED:
            self._shown.clear()
        shown = self._converted(stored)
        self._shown[uid] = (stored, shown), *known[:1]
        return shown

    def _converted(self, stored: JsonObject) -> JsonObject:
        written = stored["apiVersion"].rpartition("/")[2]
        schema = self._versions.get(written, self.now).schema
        obj = schema.defaulted(schema.pruned(stored)[0])
        return obj if written == self.name else self._as(self.now, obj)

    def stored(self, obj: JsonObject) -> JsonObject:
        """Return an object of this version as it is stored."""
        return obj if self._storage == self.name else self._as(self._versions[self._storage], obj)

    def _as(self, version: Served, obj: JsonObject) -> JsonObject:
        return version.schema.pruned(obj | {"apiVersion": version.kind.api_version})[0]

    def received(self, sent: JsonObject, *, query: Mapping[str, str], warnings: list[str]) -> JsonObject:
        """Return what a client sent, or what a patch made, as far as the schema knows it."""
        kind = self.now.kind
        for name, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if sent.get(name) != wanted:
                raise status.bad_request(f"{name} must be {wanted}, not {sent.get(name) or 'empty'}")
        try:
            meta, unknown = fitted_metadata(sent.get("metadata"))
        except Misfit as misfit:
            raise refused(kind, str(misfit)) from None
        pruned, more = self.now.schema.pruned(sent)
        complain(kind, [*unknown, *more], query, warnings)
        return pruned | {"metadata": meta}

    def completed(self, obj: JsonObject) -> JsonObject:
        """Return the object with its defaults."""
        return self.now.schema.defaulted(obj)

    def check(self, new: JsonObject, old: JsonObject | None, *, subresource: str) -> None:
        """Refuse an object, or a change of it, that is wrong."""
        kind, name = self.now.kind, new["metadata"].get("name", "")
        if old is None and self._is_terminating:
            why = "create not allowed while custom resource definition is terminating"
            raise status.forbidden(kind.group, kind.plural, name, why)
        causes = validation.of_new(kind, new) if old is None else validation.of_update(kind, new, old)
        causes += self.now.schema.errors(new, old, subresource=subresource)
        if causes:
            raise status.invalid(kind.group, kind.kind, name, causes)


def version_of(kind: Kind) -> CustomVersion | None:
    """Return the version that `kind` is, if it is defined in the store."""
    return kind.rules if isinstance(kind.rules, CustomVersion) else None


def shape_for(kind: Kind) -> Shape | None:
    """Return what merging must know about `kind`; None if nobody knows."""
    version = version_of(kind)
    return shape_of(kind.api_version, kind.kind) if version is None else version.now.shape
