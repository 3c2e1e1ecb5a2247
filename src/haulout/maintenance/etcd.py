"""Looks up what `haulout.maintenance.quorum` judges by.

    judgement = await judge(client, node, maintained={"n3": "disk-swap"})

Everything is read live, and only for nodes of the control plane, which are few: a check that rests on a copy some
seconds old would let in two nodes at once. What kind of cluster it is, is asked each time as well: it is one small
request, and a cluster whose API was still coming up at our start is not misjudged for ever.
"""

import asyncio
from collections.abc import Iterable

from haulout.drain.budgets import BUDGETS
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.objects import Node, Pod
from haulout.kube.resources import NODES, PODS
from haulout.kube.transport import Request
from haulout.maintenance import quorum
from haulout.maintenance.quorum import KUBE_SYSTEM, MEMBERS, OPENSHIFT_ETCD, Judgement, Maintained

_OPENSHIFT = "/apis/config.openshift.io/v1"


async def judge(client: Client, node: Node, *, maintained: Maintained, elsewhere: bool = True) -> Judgement | None:
    """Judge whether a control-plane node may go; None for any other, and where nobody asked for it to be checked.

    Raises a `KubeError` when something cannot be looked up, and `QuorumUnknown` when what was found makes no sense.
    """
    if not quorum.is_control_plane(node):
        return None
    if await is_openshift(client):
        budgets = await client.list(BUDGETS, namespace=OPENSHIFT_ETCD)
        pods = await client.list(PODS, namespace=OPENSHIFT_ETCD)
        return quorum.on_openshift(node.name, budgets.items, pods.items, maintained=maintained)
    if not elsewhere:
        return None
    members = await _members(client)
    nodes = await _nodes(client, {pod.spec.node_name for pod in members})
    return quorum.elsewhere(node.name, members, nodes, maintained=maintained)


async def is_openshift(client: Client) -> bool:
    """Tell whether the cluster serves OpenShift's configuration."""
    try:
        await client.request(Request(method="GET", path=_OPENSHIFT), doing="asking whether this is OpenShift")
    except NotFound:
        return False
    return True


async def find_node(client: Client, name: str) -> Node | None:
    """Return a node as it is now, or None if there is none."""
    try:
        return await client.get(NODES, name)
    except NotFound:
        return None


async def _members(client: Client) -> list[Pod]:
    budgets = await client.list(BUDGETS, namespace=KUBE_SYSTEM)
    wanted = dict.fromkeys((*MEMBERS, *map(str, quorum.about_etcd(budgets.items))))
    return [
        pod for selector in wanted for pod in (await client.list(PODS, namespace=KUBE_SYSTEM, labels=selector)).items
    ]


async def _nodes(client: Client, names: Iterable[str]) -> dict[str, Node | None]:
    wanted = sorted(name for name in names if name)
    found = await asyncio.gather(*(find_node(client, name) for name in wanted))
    return dict(zip(wanted, found, strict=True))
