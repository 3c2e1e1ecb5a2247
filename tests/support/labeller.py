"""A small operator to try the test kit on: it gives each node a label, in two writes.

`careful` survives a crash at any instant. `hasty` takes a node that it has marked for one that it has done, and so
forgets those that it had only marked when it died.
"""

from collections.abc import Callable
from datetime import timedelta

from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES

SEEN = "example.com/seen"
DONE = "example.com/done"
_ROUND = timedelta(seconds=3)


async def careful(client: Client) -> None:
    """Label nodes, for ever."""
    await _label_nodes(client, finished=lambda node: DONE in node["metadata"].get("labels", {}))


async def hasty(client: Client) -> None:
    """Label nodes, unless it dies in between."""
    await _label_nodes(client, finished=lambda node: SEEN in node["metadata"].get("annotations", {}))


async def _label_nodes(client: Client, *, finished: Callable[[RawObject], bool]) -> None:
    while True:
        try:
            for node in (await client.list(NODES.of(RawObject))).items:
                if not finished(node):
                    await _label(client, node)
        except KubeError:
            pass  # the next round looks again
        await client.clock.sleep(_ROUND)


async def _label(client: Client, node: RawObject) -> None:
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    if SEEN not in node["metadata"].get("annotations", {}):
        await client.patch(NODES, name, merge_patch({"metadata": {"uid": uid, "annotations": {SEEN: "true"}}}))
    await client.patch(NODES, name, merge_patch({"metadata": {"uid": uid, "labels": {DONE: "true"}}}))
