"""One version of a custom resource, between what clients see and what is stored.

It outlives changes of its definition: the kinds that came before and the watches that are open share it, so they all
follow a new schema at once. Objects are stored in one version; others see them converted, which is by name only.
Reading prunes and fills in defaults again, since the schema may have changed after the write.
"""

from collections.abc import Mapping

from haulout_sandbox.apiserver import status, validation
from haulout_sandbox.apiserver.apiextensions.crds import ServedVersion
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.patch.merge_schema import MergeSchema, merge_schema_of
from haulout_sandbox.apiserver.serializer.decoder import (
    DecodeError,
    decode_metadata,
    decode_refusal,
    report_unknown_fields,
)

_MAX_CACHED = 10_000


class CustomResourceVersion:
    """The rules of one version, as its definition has them now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_served = False
        self._is_terminating = False
        self._versions: Mapping[str, ServedVersion] = {}
        self._storage = ""
        # By uid: what is stored and what that shows, now and before. Each watch that hears of a change asks for both.
        self._cache: dict[str, tuple[tuple[JsonObject, JsonObject], ...]] = {}

    def update(self, versions: Mapping[str, ServedVersion], *, is_served: bool, is_terminating: bool) -> None:
        """Be as the definition says from now on."""
        self._versions = versions
        self._storage = next(name for name, version in versions.items() if version.is_storage)
        self.is_served = is_served
        self._is_terminating = is_terminating
        self._cache.clear()

    def stop_serving(self) -> None:
        """Be served no more; what was stored can still be shown to those who saw it before."""
        self.is_served = False

    @property
    def current(self) -> ServedVersion:
        """Return how it is served."""
        return self._versions[self.name]

    def from_storage(self, stored: JsonObject) -> JsonObject:
        """Return what is stored as an object of this version."""
        uid = stored["metadata"].get("uid", "")
        cached = self._cache.get(uid, ())
        for source, obj in cached:
            if source is stored:
                return obj
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        obj = self._convert(stored)
        self._cache[uid] = (stored, obj), *cached[:1]
        return obj

    def _convert(self, stored: JsonObject) -> JsonObject:
        stored_version = stored["apiVersion"].rpartition("/")[2]
        schema = self._versions.get(stored_version, self.current).schema
        obj = schema.apply_defaults(schema.prune(stored)[0])
        return obj if stored_version == self.name else self._convert_to(self.current, obj)

    def to_storage(self, obj: JsonObject) -> JsonObject:
        """Return an object of this version as it is stored."""
        return obj if self._storage == self.name else self._convert_to(self._versions[self._storage], obj)

    def _convert_to(self, version: ServedVersion, obj: JsonObject) -> JsonObject:
        return version.schema.prune(obj | {"apiVersion": version.kind.api_version})[0]

    def decode(self, sent: JsonObject, *, query: Mapping[str, str], warnings: list[str]) -> JsonObject:
        """Return what a client sent, or what a patch made, as far as the schema knows it."""
        kind = self.current.kind
        for name, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if sent.get(name) != expected:
                raise status.bad_request(f"{name} must be {expected}, not {sent.get(name) or 'empty'}")
        try:
            metadata, unknown = decode_metadata(sent.get("metadata"))
        except DecodeError as error:
            raise decode_refusal(kind, str(error)) from None
        pruned, pruned_paths = self.current.schema.prune(sent)
        report_unknown_fields(kind, [*unknown, *pruned_paths], query, warnings)
        return pruned | {"metadata": metadata}

    def with_defaults(self, obj: JsonObject) -> JsonObject:
        """Return the object with its defaults."""
        return self.current.schema.apply_defaults(obj)

    def validate(self, new: JsonObject, old: JsonObject | None, *, subresource: str) -> None:
        """Refuse an object, or a change of it, that is wrong."""
        kind, name = self.current.kind, new["metadata"].get("name", "")
        if old is None and self._is_terminating:
            detail = "create not allowed while custom resource definition is terminating"
            raise status.forbidden(kind.group, kind.plural, name, detail)
        causes = validation.validate_create(kind, new) if old is None else validation.validate_update(kind, new, old)
        causes += self.current.schema.validation_causes(new, old, subresource=subresource)
        if causes:
            raise status.invalid(kind.group, kind.kind, name, causes)


def custom_version_of(kind: Kind) -> CustomResourceVersion | None:
    """Return the version that `kind` is, if it is defined in the store."""
    return kind.custom_resource if isinstance(kind.custom_resource, CustomResourceVersion) else None


def merge_schema_for(kind: Kind) -> MergeSchema | None:
    """Return what merging must know about `kind`; None if nobody knows."""
    version = custom_version_of(kind)
    return merge_schema_of(kind.api_version, kind.kind) if version is None else version.current.merge_schema
