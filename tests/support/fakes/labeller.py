"""A minimal operator for tests of the test kit: it labels each node, in two writes.

`crash_safe_labeller` survives a crash at any instant. `crash_unsafe_labeller` treats a node that it has marked as done,
and so loses nodes that were only marked when it crashed.
"""

from collections.abc import Callable
from datetime import timedelta

from haulout.api.objects import RawObject
from haulout.api.resources import NODES
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch

SEEN_ANNOTATION = "example.com/seen"
DONE_LABEL = "example.com/done"
_INTERVAL = timedelta(seconds=3)


async def crash_safe_labeller(client: Client) -> None:
    """Label nodes, for ever."""
    await _label_nodes(client, finished=lambda node: DONE_LABEL in node["metadata"].get("labels", {}))


async def crash_unsafe_labeller(client: Client) -> None:
    """Label nodes, unless it dies in between."""
    await _label_nodes(client, finished=lambda node: SEEN_ANNOTATION in node["metadata"].get("annotations", {}))


async def _label_nodes(client: Client, *, finished: Callable[[RawObject], bool]) -> None:
    while True:
        try:
            for node in (await client.list(NODES.with_model(RawObject))).items:
                if not finished(node):
                    await _label(client, node)
        except KubeError:
            pass  # the next round looks again
        await client.clock.sleep(_INTERVAL)


async def _label(client: Client, node: RawObject) -> None:
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    if SEEN_ANNOTATION not in node["metadata"].get("annotations", {}):
        await client.patch(
            NODES, name, merge_patch({"metadata": {"uid": uid, "annotations": {SEEN_ANNOTATION: "true"}}})
        )
    await client.patch(NODES, name, merge_patch({"metadata": {"uid": uid, "labels": {DONE_LABEL: "true"}}}))
