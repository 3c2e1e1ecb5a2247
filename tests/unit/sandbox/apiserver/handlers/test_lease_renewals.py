"""A renewal of a Lease is answered and written to the byte as any other patch of it is."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from haulout.core.clock import Clock
from haulout.kube.transport import Request
from haulout_sandbox.apiserver import ApiServer, JsonObject, User
from haulout_sandbox.apiserver.handlers.lease_renewals import LeaseRenewals
from support.faults.seeded_chaos import digest

LEASE = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/leader"
MERGE = "application/merge-patch+json"
THEN, NOW = "2026-01-05T09:00:00.000000Z", "2026-01-05T09:00:01.500000Z"
SPEC = {
    "holderIdentity": "a",
    "leaseDurationSeconds": 8,
    "acquireTime": THEN,
    "renewTime": THEN,
    "leaseTransitions": 0,
}
RENEWED = SPEC | {"renewTime": NOW}


def a_patch(body: bytes, **options: Any) -> Callable[[str], Request]:
    """Return a patch of the Lease, given its resourceVersion."""
    kwargs = {"content_type": MERGE, "query": (("fieldManager", "haulout"),)} | options
    return lambda version: Request(
        method="PATCH", path=LEASE, body=body.replace(b"VERSION", version.encode()), **kwargs
    )


def a_renewal(spec: JsonObject = RENEWED, *, metadata: JsonObject | None = None, **options: Any) -> Any:
    change = {"metadata": metadata or {"resourceVersion": "VERSION"}, "spec": spec}
    return a_patch(msgspec.json.encode(change), **options)


@pytest.fixture
def fast_path_results(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return for each request whether it was answered as a renewal."""
    results, try_handle = list[bool](), LeaseRenewals.try_handle

    def record(self: LeaseRenewals, request: Request, *, username: str) -> Any:
        response = try_handle(self, request, username=username)
        results.append(response is not None)
        return response

    monkeypatch.setattr(LeaseRenewals, "try_handle", record)
    return results


async def send_patch(clock: Clock, patch: Callable[[str], Request], lease: JsonObject) -> Any:
    """Return what is answered and what is written."""
    api = ApiServer(clock, namespaces=["shop"])
    api.put(lease)
    version = api.get("leases", "leader", "shop")["metadata"]["resourceVersion"]
    transport = api.transport("operator", latency=timedelta())
    response = await transport.send(patch(version))
    return response.status, response.headers, response.body, digest(api.history)


def a_lease(*, metadata: JsonObject | None = None, **spec: Any) -> JsonObject:
    meta = {"name": "leader", "namespace": "shop"} | (metadata or {})
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": SPEC | spec}


async def is_same_without_fast_path(
    clock: Clock, patch: Callable[[str], Request], lease: JsonObject, monkeypatch: pytest.MonkeyPatch
) -> bool:
    first = await send_patch(clock, patch, lease)
    monkeypatch.setattr(LeaseRenewals, "try_handle", lambda *_, **__: None)
    return bool(first == await send_patch(clock, patch, lease))


@pytest.mark.parametrize(
    ("patch", "lease"),
    [
        (a_renewal(), a_lease()),
        (a_renewal(query=()), a_lease(metadata={"labels": {"a": "b"}, "annotations": {"c": "d"}})),
        (a_renewal({"holderIdentity": "a", "leaseDurationSeconds": 8, "renewTime": NOW}), a_lease()),
    ],
)
async def test_a_renewal_is_answered_and_written_the_same_without_the_usual_checks(
    clock: Clock,
    patch: Callable[[str], Request],
    lease: JsonObject,
    fast_path_results: Sequence[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = await is_same_without_fast_path(clock, patch, lease, monkeypatch)
    assert fast_path_results == [True]
    assert same


MANAGED = {
    "managedFields": [
        {"manager": "me", "operation": "Apply", "apiVersion": "coordination.k8s.io/v1", "fieldsType": "FieldsV1"}
        | {"time": "2026-01-05T09:00:00Z", "fieldsV1": {"f:spec": {"f:holderIdentity": {}}}}
    ]
}
TWICE = (
    b'{"metadata":{"resourceVersion":"VERSION"},"spec":{"holderIdentity":"b","holderIdentity":"a",'
    b'"leaseDurationSeconds":8,"renewTime":"2026-01-05T09:00:01.500000Z"}}'
)


@pytest.mark.parametrize(
    ("patch", "lease"),
    [
        pytest.param(a_renewal(metadata={"resourceVersion": "7"}), a_lease(), id="of another state"),
        pytest.param(a_renewal(RENEWED | {"holderIdentity": "b"}), a_lease(), id="for another holder"),
        pytest.param(a_renewal(RENEWED | {"leaseDurationSeconds": 9}), a_lease(), id="for another duration"),
        pytest.param(a_renewal(RENEWED | {"leaseDurationSeconds": 8.0}), a_lease(), id="a duration with a fraction"),
        pytest.param(a_renewal(RENEWED | {"acquireTime": NOW}), a_lease(), id="acquired again"),
        pytest.param(a_renewal(RENEWED | {"leaseTransitions": 1}), a_lease(), id="one more transition"),
        pytest.param(a_renewal(RENEWED | {"strategy": "OldestEmulationVersion"}), a_lease(), id="another field"),
        pytest.param(a_renewal(RENEWED | {"unknown": 1}), a_lease(), id="an unknown field"),
        pytest.param(a_renewal(SPEC), a_lease(), id="the same time"),
        pytest.param(a_renewal(SPEC | {"renewTime": "2026-01-05T09:00:01Z"}), a_lease(), id="no microseconds"),
        pytest.param(a_renewal(SPEC | {"renewTime": "2026-02-30T09:00:01.000000Z"}), a_lease(), id="no such day"),
        pytest.param(a_renewal(SPEC | {"renewTime": "soon"}), a_lease(), id="no time"),
        pytest.param(a_renewal(SPEC | {"renewTime": None}), a_lease(), id="null"),
        pytest.param(a_renewal(), a_lease(metadata=MANAGED), id="managed fields"),
        pytest.param(a_renewal(query=(("dryRun", "All"),)), a_lease(), id="a dry run"),
        pytest.param(a_renewal(query=(("fieldManager", "\x07"),)), a_lease(), id="a field manager that is refused"),
        pytest.param(a_renewal(query=(("fieldValidation", "Strict"),)), a_lease(), id="strict validation"),
        pytest.param(a_renewal(content_type="application/json"), a_lease(), id="no patch"),
        pytest.param(a_patch(TWICE), a_lease(), id="a key that comes twice"),
        pytest.param(a_patch(b"{"), a_lease(), id="no JSON"),
    ],
)
async def test_every_other_patch_of_a_lease_goes_the_usual_way(
    clock: Clock,
    patch: Callable[[str], Request],
    lease: JsonObject,
    fast_path_results: Sequence[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = await is_same_without_fast_path(clock, patch, lease, monkeypatch)
    assert fast_path_results == [False]
    assert same


async def test_a_renewal_of_a_lease_that_is_gone_is_not_found(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["shop"])
    response = await api.transport("operator", latency=timedelta()).send(a_renewal()("7"))
    assert response.status == 404


async def test_a_renewal_by_somebody_who_may_not_patch_leases_is_forbidden(clock: Clock) -> None:
    api = ApiServer(clock, namespaces=["shop"], rbac=True)
    api.put(a_lease())
    version = api.get("leases", "leader", "shop")["metadata"]["resourceVersion"]
    response = await api.transport(user=User("stranger"), latency=timedelta()).send(a_renewal()(version))
    assert response.status == 403
    assert api.get("leases", "leader", "shop")["spec"]["renewTime"] == THEN
