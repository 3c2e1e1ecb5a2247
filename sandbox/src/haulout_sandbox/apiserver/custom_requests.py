"""What clients send about custom resources.

Only their metadata has a built-in type. The rest is pruned to what the schema knows; what is dropped is told
or refused, as the request's `fieldValidation` says.
"""

from collections.abc import Mapping

from haulout_sandbox.apiserver.apply import APPLY_PATCH
from haulout_sandbox.apiserver.custom_versions import CustomVersion
from haulout_sandbox.apiserver.decoding import Misfit, complain, refused
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.object_meta import drop_repeated_owners
from haulout_sandbox.apiserver.patches import JSON_PATCH, MERGE_PATCH
from haulout_sandbox.apiserver.status import Refused, bad_request, failure

_PATCHES = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)


def check_patch(kind: Kind, content_type: str) -> None:
    """Refuse a patch that custom resources do not take: nobody knows how their lists merge."""
    if kind.rules is not None and content_type not in _PATCHES:
        said = "the body of the request was in an unknown format - accepted media types include"
        raise Refused(failure(415, "UnsupportedMediaType", f"{said}: {', '.join(_PATCHES)}"))


def check_type(sent: JsonObject, kind: Kind) -> None:
    """Refuse what does not say which kind it is, or is of another version."""
    if not sent.get("kind"):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): it names no kind")
    version = sent.get("apiVersion") or ""
    if version != kind.api_version:
        said = f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        raise bad_request(said)


def received(sent: JsonObject, version: CustomVersion, *, query: Mapping[str, str], warnings: list[str]) -> JsonObject:
    """Return the object that was sent, or that a patch made, as far as its schema knows it."""
    try:
        obj, unknown = version.coerced(sent)
    except Misfit as misfit:
        raise refused(version.now.kind, str(misfit)) from None
    complain(version.now.kind, unknown, query, warnings)
    drop_repeated_owners(obj["metadata"])
    return obj
