"""Actions on nodes and their machines.

`Cluster.kubelets` simulates machines. Changes that people or controllers make to a Node (cordon, taint, label) go to
the API server with the resourceVersion that was read, so that no other write is lost.
"""

from collections.abc import Callable, Mapping
from random import Random

from haulout.api.objects import RawObject
from haulout.api.resources import NODES, PODS
from haulout.core.duration import format_short
from haulout.errors import Conflict
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes.scheduler.framework import ZONE_LABEL
from haulout_sandbox.scenarios import expansion, model
from haulout_sandbox.scenarios.actions.action_result import (
    ActionHandler,
    ActionResult,
    format_for,
    format_names,
    random_sample,
)
from haulout_sandbox.scenarios.fleet import Fleet

_MAX_ATTEMPTS = 5
_NODES = NODES.with_model(RawObject)

PatchForNode = Callable[[RawObject], RawObject]  # from a node to its merge patch


class NodeActions:
    def __init__(self, cluster: Cluster, client: Client, fleet: Fleet) -> None:
        self._kubelets = cluster.kubelets
        self._client = client
        self._fleet = fleet
        self.handlers: Mapping[str, ActionHandler] = {
            "reboot": self._reboot,
            "stopKubelet": self._stop_kubelet,
            "startKubelet": self._start_kubelet,
            "notReady": self._set_not_ready,
            "addNodes": self._add_nodes,
            "removeNodes": self._remove_nodes,
            "cordon": self._cordon,
            "uncordon": self._uncordon,
            "taint": self._taint,
            "untaint": self._untaint,
            "label": self._label,
        }

    # Machines

    async def _reboot(self, action: model.Reboot, random: Random) -> ActionResult:
        names = await self._select_nodes(action.nodes, random)
        for name in names:
            self._kubelets.reboot(name, action.for_)
        return ActionResult(f"reboots: {_format_nodes(names)}, back in {format_short(action.for_)}")

    async def _stop_kubelet(self, action: model.TemporaryNodeAction, random: Random) -> ActionResult:
        names = await self._select_nodes(action.nodes, random)
        for name in names:
            self._kubelets.kill(name)

        async def start_again() -> str:
            return self._start_kubelets(self._existing(names))

        message = f"kubelet stops{format_for(action.for_)}: {_format_nodes(names)}"
        return ActionResult(message, action.for_, start_again)

    async def _start_kubelet(self, action: model.NodeAction, random: Random) -> ActionResult:
        return ActionResult(self._start_kubelets(await self._select_nodes(action.nodes, random)))

    def _start_kubelets(self, names: list[str]) -> str:
        for name in names:
            self._kubelets.revive(name)
        return f"kubelet back: {_format_nodes(names)}"

    async def _set_not_ready(self, action: model.NotReady, random: Random) -> ActionResult:
        names = await self._select_nodes(action.nodes, random)
        for name in names:
            self._kubelets.set_not_ready(name, action.problem)

        async def set_ready() -> str:
            for name in self._existing(names):
                self._kubelets.set_not_ready(name, "")
            return f"ready again: {_format_nodes(names)}"

        return ActionResult(f"not ready{format_for(action.for_)}: {_format_nodes(names)}", action.for_, set_ready)

    async def _add_nodes(self, action: model.AddNodes, _: Random) -> ActionResult:
        names = [self._fleet.add_machine(action.pool) for _number in range(action.count)]
        return ActionResult(f"machine added: {_format_nodes(names)}")

    async def _remove_nodes(self, action: model.NodeAction, random: Random) -> ActionResult:
        names = await self._select_nodes(action.nodes, random)
        for name in names:
            await self._fleet.remove_machine(name)
        return ActionResult(f"machine removed: {_format_nodes(names)}")

    # Nodes

    async def _cordon(self, action: model.TemporaryNodeAction, random: Random) -> ActionResult:
        names = await self._select_nodes(action.nodes, random)
        await self._patch_nodes(names, lambda _: {"spec": {"unschedulable": True}})

        async def undo() -> str:
            return await self._uncordon_nodes(self._existing(names))

        return ActionResult(f"cordoned{format_for(action.for_)}: {_format_nodes(names)}", action.for_, undo)

    async def _uncordon(self, action: model.NodeAction, random: Random) -> ActionResult:
        return ActionResult(await self._uncordon_nodes(await self._select_nodes(action.nodes, random)))

    async def _uncordon_nodes(self, names: list[str]) -> str:
        await self._patch_nodes(names, lambda _: {"spec": {"unschedulable": None}})
        return f"uncordoned: {_format_nodes(names)}"

    async def _taint(self, action: model.TaintNodes, random: Random) -> ActionResult:
        names = await self._select_nodes(action.nodes, random)
        taint = {"key": action.key, "effect": action.effect} | ({"value": action.value} if action.value else {})
        await self._patch_nodes(names, lambda node: _taints_patch(node, removed_key=action.key, added=[taint]))

        async def undo() -> str:
            return await self._untaint_nodes(self._existing(names), action.key)

        return ActionResult(
            f"tainted {action.key}:{action.effect}{format_for(action.for_)}: {_format_nodes(names)}", action.for_, undo
        )

    async def _untaint(self, action: model.UntaintNodes, random: Random) -> ActionResult:
        return ActionResult(await self._untaint_nodes(await self._select_nodes(action.nodes, random), action.key))

    async def _untaint_nodes(self, names: list[str], key: str) -> str:
        await self._patch_nodes(names, lambda node: _taints_patch(node, removed_key=key))
        return f"no longer tainted {key}: {_format_nodes(names)}"

    async def _label(self, action: model.LabelNodes, random: Random) -> ActionResult:
        names = await self._select_nodes(action.nodes, random)
        previous: dict[str, RawObject] = {}

        def patch_for(node: RawObject) -> RawObject:
            current = node["metadata"].get("labels", {})
            previous[node["metadata"]["name"]] = {key: current.get(key) for key in action.labels}
            return {"metadata": {"labels": action.labels}}

        async def undo() -> str:
            await self._patch_nodes(
                self._existing(names), lambda node: {"metadata": {"labels": previous[node["metadata"]["name"]]}}
            )
            return f"labels as before: {_format_nodes(names)}"

        await self._patch_nodes(names, patch_for)
        label_text = ", ".join(f"{key}-" if value is None else f"{key}={value}" for key, value in action.labels.items())
        return ActionResult(
            f"labelled {label_text}{format_for(action.for_)}: {_format_nodes(names)}", action.for_, undo
        )

    async def _patch_nodes(self, names: list[str], patch_for: PatchForNode) -> None:
        for name in names:
            attempts_left = _MAX_ATTEMPTS
            while not await self._try_patch(name, patch_for, is_last=not attempts_left):
                attempts_left -= 1

    async def _try_patch(self, name: str, patch_for: PatchForNode, *, is_last: bool) -> bool:
        node = await self._client.get(_NODES, name)
        patch = patch_for(node)
        metadata = {**patch.get("metadata", {}), "resourceVersion": node["metadata"]["resourceVersion"]}
        try:
            await self._client.patch(_NODES, name, merge_patch({**patch, "metadata": metadata}))
        except Conflict:  # another client wrote it: read again
            if is_last:
                raise
            return False
        return True

    # Selection

    async def _select_nodes(self, nodes: model.Nodes, random: Random) -> list[str]:
        matching = await matching_nodes(self._client, nodes)
        if not isinstance(nodes, model.NodeSelector):
            return matching
        return random_sample(self._existing(matching), nodes.count, random)

    def _existing(self, names: list[str]) -> list[str]:
        kubelet_names = set(self._kubelets.names)
        return [name for name in names if name in kubelet_names]


async def matching_nodes(client: Client, nodes: model.Nodes) -> list[str]:
    """Return the names of all selected nodes; explicit names are returned even if the nodes do not exist."""
    if isinstance(nodes, str):
        return [nodes]
    if isinstance(nodes, tuple):
        return list(nodes)
    required_labels = {**nodes.labels, expansion.POOL_LABEL: nodes.pool, ZONE_LABEL: nodes.zone}
    page = await client.list(NODES, labels=_selector(required_labels))
    pods = (await client.list(PODS, labels=_selector(nodes.without))).items if nodes.without else ()
    excluded = {pod.spec.node_name for pod in pods}
    return [node.name for node in page.items if node.name not in excluded]


def _selector(labels: Mapping[str, str | None]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items() if value)


def _taints_patch(node: RawObject, *, removed_key: str, added: list[RawObject] | None = None) -> RawObject:
    kept = [taint for taint in node["spec"].get("taints", []) if taint["key"] != removed_key]
    return {"spec": {"taints": [*kept, *(added or [])] or None}}


def _format_nodes(names: list[str]) -> str:
    return format_names(names, "no node fits")
