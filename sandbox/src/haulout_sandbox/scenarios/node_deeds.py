"""What happens to nodes and the machines behind them.

Machines are told by `Cluster.kubelets`; what others would do to a Node (cordon, taint, label) is asked of the API
server, over the resourceVersion that was read, so that nothing that others write is lost.
"""

from collections.abc import Callable, Mapping
from random import Random

from haulout.core.duration import short
from haulout.errors import Conflict
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES, PODS
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.nodes.placement import ZONE
from haulout_sandbox.scenarios import model, plan
from haulout_sandbox.scenarios.deeds import Deed, Does, chosen, for_, listed
from haulout_sandbox.scenarios.fleet import Fleet

_TRIES = 5
_NODES = NODES.of(RawObject)

Change = Callable[[RawObject], RawObject]  # from a node as it is to what a merge patch makes of it


class NodeDeeds:
    """Does what happens to nodes."""

    def __init__(self, cluster: Cluster, client: Client, fleet: Fleet) -> None:
        self._kubelets = cluster.kubelets
        self._client = client
        self._fleet = fleet
        self.all: Mapping[str, Does] = {
            "reboot": self._reboot,
            "kill": self._kill,
            "revive": self._revive,
            "notReady": self._ail,
            "addNodes": self._add,
            "removeNodes": self._remove,
            "cordon": self._cordon,
            "uncordon": self._uncordon,
            "taint": self._taint,
            "untaint": self._untaint,
            "label": self._label,
        }

    # Machines

    async def _reboot(self, action: model.Reboot, random: Random) -> Deed:
        names = await self._chosen(action.nodes, random)
        for name in names:
            self._kubelets.reboot(name, action.for_)
        return Deed(f"reboots: {_nodes(names)}, back in {short(action.for_)}")

    async def _kill(self, action: model.OnNodesForAWhile, random: Random) -> Deed:
        names = await self._chosen(action.nodes, random)
        for name in names:
            self._kubelets.kill(name)

        async def revive() -> str:
            for name in self._still_there(names):
                self._kubelets.revive(name)
            return f"kubelet back: {_nodes(names)}"

        return Deed(f"kubelet dies{for_(action.for_)}: {_nodes(names)}", action.for_, revive)

    async def _revive(self, action: model.OnNodes, random: Random) -> Deed:
        names = await self._chosen(action.nodes, random)
        for name in names:
            self._kubelets.revive(name)
        return Deed(f"kubelet back: {_nodes(names)}")

    async def _ail(self, action: model.NotReady, random: Random) -> Deed:
        names = await self._chosen(action.nodes, random)
        for name in names:
            self._kubelets.ail(name, action.problem)

        async def recover() -> str:
            for name in self._still_there(names):
                self._kubelets.ail(name, "")
            return f"ready again: {_nodes(names)}"

        return Deed(f"not ready{for_(action.for_)}: {_nodes(names)}", action.for_, recover)

    async def _add(self, action: model.AddNodes, _: Random) -> Deed:
        names = [self._fleet.bring(action.pool) for _number in range(action.count)]
        return Deed(f"machine added: {_nodes(names)}")

    async def _remove(self, action: model.OnNodes, random: Random) -> Deed:
        names = await self._chosen(action.nodes, random)
        for name in names:
            await self._fleet.remove(name)
        return Deed(f"machine removed: {_nodes(names)}")

    # Nodes

    async def _cordon(self, action: model.OnNodesForAWhile, random: Random) -> Deed:
        names = await self._chosen(action.nodes, random)
        await self._change(names, lambda _: {"spec": {"unschedulable": True}})

        async def uncordon() -> str:
            await self._change(self._still_there(names), lambda _: {"spec": {"unschedulable": None}})
            return f"uncordoned: {_nodes(names)}"

        return Deed(f"cordoned{for_(action.for_)}: {_nodes(names)}", action.for_, uncordon)

    async def _uncordon(self, action: model.OnNodes, random: Random) -> Deed:
        names = await self._chosen(action.nodes, random)
        await self._change(names, lambda _: {"spec": {"unschedulable": None}})
        return Deed(f"uncordoned: {_nodes(names)}")

    async def _taint(self, action: model.TaintNodes, random: Random) -> Deed:
        names = await self._chosen(action.nodes, random)
        taint = {"key": action.key, "effect": action.effect} | ({"value": action.value} if action.value else {})
        await self._change(names, lambda node: _with_taints(node, without=action.key, new=[taint]))

        async def untaint() -> str:
            await self._change(self._still_there(names), lambda node: _with_taints(node, without=action.key))
            return f"no longer tainted {action.key}: {_nodes(names)}"

        return Deed(f"tainted {action.key}:{action.effect}{for_(action.for_)}: {_nodes(names)}", action.for_, untaint)

    async def _untaint(self, action: model.UntaintNodes, random: Random) -> Deed:
        names = await self._chosen(action.nodes, random)
        await self._change(names, lambda node: _with_taints(node, without=action.key))
        return Deed(f"no longer tainted {action.key}: {_nodes(names)}")

    async def _label(self, action: model.LabelNodes, random: Random) -> Deed:
        names = await self._chosen(action.nodes, random)
        before: dict[str, RawObject] = {}

        def change(node: RawObject) -> RawObject:
            known = node["metadata"].get("labels", {})
            before[node["metadata"]["name"]] = {key: known.get(key) for key in action.labels}
            return {"metadata": {"labels": action.labels}}

        async def restore() -> str:
            await self._change(
                self._still_there(names), lambda node: {"metadata": {"labels": before[node["metadata"]["name"]]}}
            )
            return f"labels as before: {_nodes(names)}"

        await self._change(names, change)
        told = ", ".join(f"{key}-" if value is None else f"{key}={value}" for key, value in action.labels.items())
        return Deed(f"labelled {told}{for_(action.for_)}: {_nodes(names)}", action.for_, restore)

    async def _change(self, names: list[str], change: Change) -> None:
        for name in names:
            tries = _TRIES
            while not await self._has_changed(name, change, last=not tries):
                tries -= 1

    async def _has_changed(self, name: str, change: Change, *, last: bool) -> bool:
        node = await self._client.get(_NODES, name)
        wanted = change(node)
        meta = {**wanted.get("metadata", {}), "resourceVersion": node["metadata"]["resourceVersion"]}
        try:
            await self._client.patch(_NODES, name, merge_patch({**wanted, "metadata": meta}))
        except Conflict:  # somebody else wrote it: look again
            if last:
                raise
            return False
        return True

    # Which

    async def _chosen(self, nodes: model.Nodes, random: Random) -> list[str]:
        found = await fitting(self._client, nodes)
        if not isinstance(nodes, model.NodeChoice):
            return found
        return chosen(self._still_there(found), nodes.count, random)

    def _still_there(self, names: list[str]) -> list[str]:
        known = set(self._kubelets.names)
        return [name for name in names if name in known]


async def fitting(client: Client, nodes: model.Nodes) -> list[str]:
    """Return the names of all nodes that a scenario means; those that it names, whether they are there or not."""
    if isinstance(nodes, str):
        return [nodes]
    if isinstance(nodes, tuple):
        return list(nodes)
    wanted = {**nodes.labels, plan.POOL: nodes.pool, ZONE: nodes.zone}
    found = await client.list(NODES, labels=_selector(wanted))
    pods = (await client.list(PODS, labels=_selector(nodes.without))).items if nodes.without else ()
    left_out = {pod.spec.node_name for pod in pods}
    return [node.name for node in found.items if node.name not in left_out]


def _selector(labels: Mapping[str, str | None]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items() if value)


def _with_taints(node: RawObject, *, without: str, new: list[RawObject] | None = None) -> RawObject:
    kept = [taint for taint in node["spec"].get("taints", []) if taint["key"] != without]
    return {"spec": {"taints": [*kept, *(new or [])] or None}}


def _nodes(names: list[str]) -> str:
    return listed(names, "no node fits")
