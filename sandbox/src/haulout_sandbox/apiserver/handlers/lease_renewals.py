"""Fast path for lease renewals, the most frequent requests in a cluster with controllers.

A leader patches its Lease every 1.5 s for as long as it leads. Such a patch differs from the previous one only in
renewTime and resourceVersion; everything else was validated when it was first written. `try_handle` validates the
difference, and writes byte for byte what `Writer.update` writes; tests compare the two.

It returns None for every other request, and for each renewal that the server would refuse: `RequestHandler` then
answers on the regular path. The same happens while a webhook or a policy is in force, and for a Lease with managed
fields. The caller must authorize the request first.
"""

import re
from datetime import datetime

import msgspec
from msgspec import UNSET, UnsetType

from haulout.core.timestamps import micro_time
from haulout.kube.transport import Request, Response
from haulout_sandbox.apiserver.kinds.kind import LEASE, JsonObject
from haulout_sandbox.apiserver.patch.json_patch import MERGE_PATCH
from haulout_sandbox.apiserver.registry.writer import Writer
from haulout_sandbox.apiserver.status import JSON, json_response
from haulout_sandbox.apiserver.storage.store import Store

_PATH = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/([^/%]+)/leases/([^/%]+)")
_MANAGER = re.compile(r"[a-z0-9._-]{1,128}")  # the regular path validates any other field manager


class _Metadata(msgspec.Struct, forbid_unknown_fields=True):
    resourceVersion: str  # noqa: N815 - the names are those of the API


class _Spec(msgspec.Struct, forbid_unknown_fields=True):
    holderIdentity: str  # noqa: N815
    leaseDurationSeconds: int  # noqa: N815
    acquireTime: str | UnsetType = UNSET  # noqa: N815
    renewTime: str = ""  # noqa: N815
    leaseTransitions: int | UnsetType = UNSET  # noqa: N815


class _Renewal(msgspec.Struct, forbid_unknown_fields=True):
    """The patch that `haulout.kube.leases` sends."""

    metadata: _Metadata
    spec: _Spec


_DECODER = msgspec.json.Decoder(_Renewal)


class LeaseRenewals:
    """Answers merge patches that only renew a Lease."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer

    def try_handle(self, request: Request, *, username: str) -> Response | None:
        """Return the response, or None if the request must take the regular path."""
        if request.method != "PATCH" or request.content_type != MERGE_PATCH or not _has_default_options(request):
            return None
        path = _PATH.fullmatch(request.path)
        renewal = _decode_renewal(request.body or b"") if path else None
        if path is None or renewal is None or self._writer.admission.has_webhooks:
            return None
        key = LEASE.key(path[1], path[2])
        current = self._store.get(LEASE, key)
        if current is None or not _is_valid_renewal(renewal, current):
            return None
        new = current | {"spec": current["spec"] | {"renewTime": renewal.spec.renewTime}}
        return json_response(200, self._store.write(LEASE, key, new, username=username, verb="patch"))


def _has_default_options(request: Request) -> bool:
    """Return whether the only option of a request is its field manager, and the response is JSON."""
    query = request.query
    has_valid_query = not query or (
        len(query) == 1 and query[0][0] == "fieldManager" and _MANAGER.fullmatch(query[0][1])
    )
    return bool(has_valid_query) and request.accept == JSON and not request.headers


def _decode_renewal(body: bytes) -> _Renewal | None:
    """Return the renewal, or None if `body` is anything else, for example JSON with a duplicate key."""
    try:
        renewal = _DECODER.decode(body)
    except msgspec.DecodeError:
        return None
    return renewal if msgspec.json.encode(renewal) == body else None


def _is_valid_renewal(renewal: _Renewal, lease: JsonObject) -> bool:
    """Return whether the renewal is valid for this state of the Lease and changes only the renewTime."""
    meta, spec, sent = lease["metadata"], lease["spec"], renewal.spec
    if "managedFields" in meta or "deletionTimestamp" in meta:
        return False
    return (
        meta["resourceVersion"] == renewal.metadata.resourceVersion
        and spec.get("holderIdentity") == sent.holderIdentity
        and spec.get("leaseDurationSeconds") == sent.leaseDurationSeconds
        and sent.acquireTime in (UNSET, spec.get("acquireTime"))
        and sent.leaseTransitions in (UNSET, spec.get("leaseTransitions", UNSET))
        and spec.get("renewTime") != sent.renewTime
        and _is_micro_time(sent.renewTime)
    )


def _is_micro_time(text: str) -> bool:
    try:
        return micro_time(datetime.fromisoformat(text)) == text
    except ValueError:
        return False
