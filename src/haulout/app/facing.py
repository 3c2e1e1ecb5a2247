"""What the leader shows to people who look: the source of `/api/v2`, a part that may break without the others.

Whatever goes wrong here goes wrong for those who look only.
"""

from haulout.app.inward import Inward
from haulout.app.vitals import Vitals
from haulout.history.keeper import Keeper
from haulout.kube.client import Client
from haulout.web.api.heading import Heading
from haulout.web.api.leader import Leader
from haulout.web.api.sight import Sight


async def face_viewers(
    client: Client, vitals: Vitals, sight: Sight, *, namespace: str, identity: str, cluster: str, history: Keeper
) -> None:
    """Answer those who look, until cancelled."""
    since = client.clock.now()
    inward = Inward(client, vitals, sight, namespace=namespace, identity=identity)

    async def work() -> None:
        heading = Heading(
            identity=identity,
            since=since,
            cluster=cluster,
            banners=inward.banners,
            has_history=lambda: not history.is_off,
        )
        leader = Leader(client, sight, heading=heading, more=inward)
        vitals.source = leader
        try:
            await leader.run()
        finally:
            vitals.source = None

    await vitals.facing.run(work, client=client)
