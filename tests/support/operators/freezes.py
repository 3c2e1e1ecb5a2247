"""MaintenanceFreezes in a whole cluster: people who create and delete them, and what controllers read of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from haulout.api.maintenancefreeze import MAINTENANCE_FREEZES, definition
from haulout.api.objects import RawObject
from haulout.kube.client import Client
from haulout.runtime.freezes import FreezeLister, FreezeSource, NoFreezes
from haulout.runtime.tasks import background
from support.clusters.cluster_plan import ClusterPlan
from support.clusters.live_cluster import LiveCluster

PLURAL = MAINTENANCE_FREEZES.plural
SHORTLY = timedelta(seconds=2)  # within which a freeze takes effect, and ends


def with_freezes(plan: ClusterPlan) -> ClusterPlan:
    return plan.with_crd(definition())


@asynccontextmanager
async def freeze_source(client: Client, *, reads_freezes: bool) -> AsyncIterator[FreezeSource]:
    """Yield the freezes as the manager gives them to controllers."""
    if not reads_freezes:
        yield NoFreezes()
        return
    lister = FreezeLister(client)
    async with background(lister.run()):
        await lister.wait_known()
        yield lister


def a_freeze(name: str = "black-friday", **spec: Any) -> RawObject:
    return {
        "apiVersion": MAINTENANCE_FREEZES.api_version,
        "kind": MAINTENANCE_FREEZES.kind,
        "metadata": {"name": name},
        "spec": {"by": "alice", "reason": "Black Friday", **spec},
    }


async def freeze(
    cluster: LiveCluster,
    name: str = "black-friday",
    *,
    begins_in: timedelta | None = None,
    ends_in: timedelta | None = None,
    holds_notices: bool = False,
    **spec: Any,
) -> datetime | None:
    """Create a freeze, as a person does; return its end."""
    now = cluster.clock.now().replace(microsecond=0)
    times = {"from": begins_in, "until": ends_in}
    at = {key: now + span for key, span in times.items() if span is not None}
    times_of_spec = {key: f"{instant:%Y-%m-%dT%H:%M:%SZ}" for key, instant in at.items()}
    await cluster.create(a_freeze(name, **times_of_spec, **({"except": []} if holds_notices else {}), **spec))
    return at.get("until")


async def unfreeze(cluster: LiveCluster, name: str = "black-friday") -> None:
    await cluster.delete(PLURAL, name)


def freeze_status(cluster: LiveCluster, name: str = "black-friday") -> RawObject:
    found: RawObject = cluster.get(PLURAL, name).get("status", {})
    return found
