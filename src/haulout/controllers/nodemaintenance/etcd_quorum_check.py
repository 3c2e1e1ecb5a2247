"""Looks up the input of `haulout.controllers.nodemaintenance.etcd_quorum`.

    result = await check_quorum(client, node, nodes_in_maintenance={"n3": "disk-swap"})

Everything is read from the API server, and only for control-plane nodes, which are few: with a cache that is seconds
old, two nodes could be admitted at once. Whether the cluster is OpenShift is looked up each time as well: that is one
small request, and a cluster whose APIs were not yet up when the operator started is not misjudged for ever.
"""

import asyncio
from collections.abc import Iterable

from haulout.api.objects import Node, Pod
from haulout.api.resources import NODES, PODS
from haulout.controllers.nodemaintenance import etcd_quorum
from haulout.controllers.nodemaintenance.etcd_quorum import (
    KUBE_SYSTEM,
    MEMBER_SELECTORS,
    OPENSHIFT_ETCD,
    NodesInMaintenance,
    QuorumResult,
)
from haulout.drain.pdb_simulation import POD_DISRUPTION_BUDGETS
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.transport import Request

_OPENSHIFT = "/apis/config.openshift.io/v1"


async def check_quorum(
    client: Client, node: Node, *, nodes_in_maintenance: NodesInMaintenance, check_without_openshift: bool = True
) -> QuorumResult | None:
    """Return whether a control-plane node may go. None for other nodes, and if the check is disabled.

    Raise `KubeError` if a lookup fails, and `QuorumUnknown` if the result makes no sense.
    """
    if not etcd_quorum.is_control_plane(node):
        return None
    if await is_openshift(client):
        budgets = await client.list(POD_DISRUPTION_BUDGETS, namespace=OPENSHIFT_ETCD)
        pods = await client.list(PODS, namespace=OPENSHIFT_ETCD)
        return etcd_quorum.check_openshift(
            node.name, budgets.items, pods.items, nodes_in_maintenance=nodes_in_maintenance
        )
    if not check_without_openshift:
        return None
    members = await _list_members(client)
    nodes = await _get_nodes(client, {pod.spec.node_name for pod in members})
    return etcd_quorum.check_members(node.name, members, nodes, nodes_in_maintenance=nodes_in_maintenance)


async def is_openshift(client: Client) -> bool:
    """Return whether the cluster serves OpenShift's configuration API."""
    try:
        await client.request(Request(method="GET", path=_OPENSHIFT), doing="asking whether this is OpenShift")
    except NotFound:
        return False
    return True


async def find_node(client: Client, name: str) -> Node | None:
    try:
        return await client.get(NODES, name)
    except NotFound:
        return None


async def _list_members(client: Client) -> list[Pod]:
    budgets = await client.list(POD_DISRUPTION_BUDGETS, namespace=KUBE_SYSTEM)
    selectors = dict.fromkeys((*MEMBER_SELECTORS, *map(str, etcd_quorum.etcd_selectors(budgets.items))))
    return [
        pod for selector in selectors for pod in (await client.list(PODS, namespace=KUBE_SYSTEM, labels=selector)).items
    ]


async def _get_nodes(client: Client, names: Iterable[str]) -> dict[str, Node | None]:
    wanted = sorted(name for name in names if name)
    found = await asyncio.gather(*(find_node(client, name) for name in wanted))
    return dict(zip(wanted, found, strict=True))
