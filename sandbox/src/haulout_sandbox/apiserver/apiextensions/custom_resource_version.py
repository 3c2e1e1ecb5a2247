"""One version of a custom resource: conversion between what clients see and what is stored.

An instance outlives changes of its definition: earlier kinds and open watches share it, so that all of them use a new
schema at once. Objects are stored in one version and converted to others, which only changes `apiVersion`. Reading
prunes and applies defaults again, since the schema may have changed after the write.
"""

from collections.abc import Mapping

from haulout_sandbox.apiserver import status, validation
from haulout_sandbox.apiserver.apiextensions.crds import ServedVersion
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.patch.merge_schema import MergeSchema, custom_resource_schema, merge_schema_of
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
        # By uid: pairs of the stored object and its converted form, current and previous. Each watch of a change needs
        # both.
        self._cache: dict[str, tuple[tuple[JsonObject, JsonObject], ...]] = {}

    def update(self, versions: Mapping[str, ServedVersion], *, is_served: bool, is_terminating: bool) -> None:
        """Take over the current state of the definition."""
        self._versions = versions
        self._storage = next(name for name, version in versions.items() if version.is_storage)
        self.is_served = is_served
        self._is_terminating = is_terminating
        self._cache.clear()

    def stop_serving(self) -> None:
        """Stop serving this version; open watches can still show stored objects."""
        self.is_served = False

    @property
    def current(self) -> ServedVersion:
        return self._versions[self.name]

    def from_storage(self, stored: JsonObject) -> JsonObject:
        """Return a stored object in this version."""
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
        """Return an object of this version in the storage version."""
        return obj if self._storage == self.name else self._convert_to(self._versions[self._storage], obj)

    def _convert_to(self, version: ServedVersion, obj: JsonObject) -> JsonObject:
        return version.schema.prune(obj | {"apiVersion": version.kind.api_version})[0]

    def decode(self, sent: JsonObject, *, query: Mapping[str, str], warnings: list[str]) -> JsonObject:
        """Return a sent or patched object without the fields that the schema does not have."""
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
        return self.current.schema.apply_defaults(obj)

    def validate(self, new: JsonObject, old: JsonObject | None, *, subresource: str) -> None:
        """Refuse an invalid object or an invalid change."""
        kind, name = self.current.kind, new["metadata"].get("name", "")
        if old is None and self._is_terminating:
            detail = "create not allowed while custom resource definition is terminating"
            raise status.forbidden(kind.group, kind.plural, name, detail)
        causes = validation.validate_create(kind, new) if old is None else validation.validate_update(kind, new, old)
        causes += self.current.schema.validation_causes(new, old, subresource=subresource)
        if causes:
            raise status.invalid(kind.group, kind.kind, name, causes)


def custom_version_of(kind: Kind) -> CustomResourceVersion | None:
    """Return the custom resource version of `kind`, or None if no definition in the store has it."""
    return kind.custom_resource if isinstance(kind.custom_resource, CustomResourceVersion) else None


def merge_schema_for(kind: Kind) -> MergeSchema | None:
    """Return how patches merge lists of `kind`; None if unknown."""
    return custom_resource_schema() if kind.is_custom else merge_schema_of(kind.api_version, kind.kind)
