"""Drain cases of the specification, by number, that no other test covers."""

from dataclasses import replace
from datetime import timedelta

import msgspec

from haulout.core.clock import Clock
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import OutcomeResult
from haulout.kube.transport import Response
from support.clusters.drain_cluster import a_drain_cluster, a_pdb

NMO = DrainPolicy.like_nmo()
SOON = timedelta(seconds=20)


def an_answer(status: int, body: object) -> Response:
    return Response(status, {"Content-Type": "application/json"}, msgspec.json.encode(body))


async def test_server_without_the_eviction_api_gets_deletions(clock: Clock) -> None:
    """A33, A34."""
    async with a_drain_cluster(clock, "n1", "n2") as cluster:
        await cluster.run_pods("web", 2, on="n1")
        await cluster.run_pods("other", 1, on="n2")
        nothing = an_answer(200, {"kind": "APIResourceList", "resources": [{"name": "pods", "kind": "Pod"}]})
        cluster.transport.faults.fail_before_effect(
            method="GET", where=lambda it: it.path == "/api/v1", response=nothing
        )
        assert (await cluster.drain("n1")).is_drained
        assert cluster.evicted_pods() == []
        assert len(cluster.transport.sent_requests(method="DELETE", path="/pods/web-")) == 2
        assert cluster.pod_names() == ["other-00"], "only pods of the node are deleted"


async def test_pod_that_does_not_terminate_in_time_ends_the_drain_with_timed_out(clock: Clock) -> None:
    """A32."""
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1", stop=1000, grace=2000)
        outcome = await cluster.drain("n1", replace(NMO, timeout=SOON))
        assert outcome.result is OutcomeResult.TIMED_OUT
        assert "shop/web-00" in outcome.message


async def test_terminating_namespace_that_never_ends_runs_into_the_timeout(clock: Clock) -> None:
    """A37."""
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        details = {"causes": [{"reason": "NamespaceTerminating", "message": "namespace shop is being terminated"}]}
        status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "details": details}
        cluster.transport.faults.fail_before_effect(
            method="POST", path="/eviction", times=None, response=an_answer(403, status)
        )
        outcome = await cluster.drain("n1", replace(NMO, timeout=SOON))
        assert outcome.result is OutcomeResult.TIMED_OUT
        assert "namespace shop is being deleted" in outcome.message


async def test_grace_period_of_the_policy_is_sent_with_the_eviction(clock: Clock) -> None:
    """A34."""
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        await cluster.drain("n1", replace(NMO, grace_period=timedelta(seconds=7)))
        (request,) = cluster.transport.sent_requests(method="POST", path="/eviction")
        assert msgspec.json.decode(request.body or b"")["deleteOptions"]["gracePeriodSeconds"] == 7


async def test_disable_eviction_deletes_pods_despite_a_pdb(clock: Clock) -> None:
    """A34."""
    async with a_drain_cluster(clock, "n1") as cluster:
        await cluster.run_pods("web", 1, on="n1")
        cluster.put(a_pdb("web", app="web", minAvailable=1))
        assert (await cluster.drain("n1", replace(NMO, disable_eviction=True))).is_drained
        assert cluster.evicted_pods() == []
