"""What is about to be written, as those who have a say in it are told: the attributes of an admission."""

from dataclasses import dataclass, replace

from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.rbac import User

_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One operation on one object. The objects are values: nobody changes them in place."""

    operation: str  # CREATE, UPDATE, DELETE
    kind: Kind  # of the resource that the URL names
    api_version: str  # of the object, which differs for subresources: policy/v1 of an Eviction
    object_kind: str
    subresource: str = ""
    name: str
    namespace: str
    user: User
    given: JsonObject  # the options of the request
    dry_run: bool = False
    obj: JsonObject | None = None
    old: JsonObject | None = None

    @property
    def options(self) -> JsonObject:
        """Return the options as an object."""
        return {"kind": _OPTIONS[self.operation], "apiVersion": "meta.k8s.io/v1"} | self.given

    @property
    def type(self) -> JsonObject:
        """Return group, version and kind of the object."""
        group, _, version = self.api_version.rpartition("/")
        return {"group": group, "version": version, "kind": self.object_kind}

    @property
    def resource(self) -> JsonObject:
        """Return group, version and resource of the URL."""
        return {"group": self.kind.group, "version": self.kind.version, "resource": self.kind.plural}

    def seen_as(self, kind: Kind) -> "Change":
        """Return the same in another version of the kind."""

        def converted(obj: JsonObject | None) -> JsonObject | None:
            return None if obj is None else kind.shown(self.kind.stored(obj)) | {"apiVersion": kind.api_version}

        return replace(self, kind=kind, api_version=kind.api_version, obj=converted(self.obj), old=converted(self.old))


def admission_request(change: Change, seen: Change) -> JsonObject:
    """Return the AdmissionRequest, without its uid, for who wants to see the `change` as `seen`."""
    user = change.user
    who = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": dict(user.extra)}
    request = {
        "kind": seen.type,
        "resource": seen.resource,
        "subResource": seen.subresource,
        "requestKind": change.type,
        "requestResource": change.resource,
        "requestSubResource": change.subresource,
        "name": change.name,
        "namespace": change.namespace,
        "operation": change.operation,
        "userInfo": {name: value for name, value in who.items() if value},
    }
    request = {name: value for name, value in request.items() if value}
    return request | {"object": seen.obj, "oldObject": seen.old, "dryRun": change.dry_run, "options": change.options}
