"""Cases of the drain library that no other test here is about, by their numbers in the specification."""

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


async def test_a_server_without_evictions_is_asked_to_delete(clock: Clock) -> None:
    """A33, A34."""
    async with a_drain_cluster(clock, "n1", "n2") as town:
        await town.run_pods("web", 2, on="n1")
        await town.run_pods("other", 1, on="n2")
        nothing = an_answer(200, {"kind": "APIResourceList", "resources": [{"name": "pods", "kind": "Pod"}]})
        town.transport.faults.fail_before_effect(method="GET", where=lambda it: it.path == "/api/v1", response=nothing)
        assert (await town.drain("n1")).is_drained
        assert town.evicted_pods() == []
        assert len(town.transport.sent_requests(method="DELETE", path="/pods/web-")) == 2
        assert town.pod_names() == ["other-00"], "only pods of the node go"


async def test_a_pod_that_does_not_end_in_time_ends_the_drain_with_a_verdict(clock: Clock) -> None:
    """A32."""
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1", stop=1000, grace=2000)
        outcome = await town.drain("n1", replace(NMO, timeout=SOON))
        assert outcome.result is OutcomeResult.TIMED_OUT
        assert "shop/web-00" in outcome.message


async def test_a_terminating_namespace_that_never_ends_runs_into_the_deadline(clock: Clock) -> None:
    """A37."""
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1")
        details = {"causes": [{"reason": "NamespaceTerminating", "message": "namespace shop is being terminated"}]}
        status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "details": details}
        town.transport.faults.fail_before_effect(
            method="POST", path="/eviction", times=None, response=an_answer(403, status)
        )
        outcome = await town.drain("n1", replace(NMO, timeout=SOON))
        assert outcome.result is OutcomeResult.TIMED_OUT
        assert "namespace shop is being deleted" in outcome.message


async def test_the_grace_that_is_asked_for_is_passed_on(clock: Clock) -> None:
    """A34."""
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1")
        await town.drain("n1", replace(NMO, grace_period=timedelta(seconds=7)))
        (request,) = town.transport.sent_requests(method="POST", path="/eviction")
        assert msgspec.json.decode(request.body or b"")["deleteOptions"]["gracePeriodSeconds"] == 7


async def test_where_evictions_are_not_wanted_no_budget_is_asked(clock: Clock) -> None:
    """A34."""
    async with a_drain_cluster(clock, "n1") as town:
        await town.run_pods("web", 1, on="n1")
        town.put(a_pdb("web", app="web", minAvailable=1))
        assert (await town.drain("n1", replace(NMO, disable_eviction=True))).is_drained
        assert town.evicted_pods() == []
