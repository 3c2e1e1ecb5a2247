"""What happens to workloads, pods and other objects: what a person would do with kubectl."""

from collections.abc import Mapping
from contextlib import suppress
from random import Random

from haulout.core.clock import Clock
from haulout.errors import NotFound, TooManyRequests
from haulout.kube.client import Client
from haulout.kube.objects import Object, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import PODS, Resource
from haulout_sandbox.nodes.conditions import timestamp
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.deeds import Deed, Does, chosen, listed
from haulout_sandbox.scenarios.loading import Loaded
from haulout_sandbox.scenarios.objects import Objects

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"


class ObjectDeeds:
    """Does what happens to objects."""

    def __init__(self, client: Client, objects: Objects, loaded: Loaded) -> None:
        self._client = client
        self._clock: Clock = client.clock
        self._objects = objects
        self._loaded = loaded
        self.all: Mapping[str, Does] = {
            "restart": self._restart,
            "scale": self._scale,
            "deletePods": self._delete_pods,
            "evictPods": self._evict_pods,
            "apply": self._apply,
            "delete": self._delete,
            "patch": self._patch,
        }

    async def _restart(self, action: model.WorkloadChoice, random: Random) -> Deed:
        annotations = {RESTARTED_AT: timestamp(self._clock.now())}
        change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        keys = await self._change_workloads(action, change, random)
        return Deed(f"rollout restart: {_found(keys, action.kind)}")

    async def _scale(self, action: model.Scale, random: Random) -> Deed:
        keys = await self._change_workloads(action, {"spec": {"replicas": action.replicas}}, random)
        return Deed(f"scaled to {action.replicas}: {_found(keys, action.kind)}")

    async def _change_workloads(self, choice: model.WorkloadChoice, change: RawObject, random: Random) -> list[str]:
        resource = await self._objects.resource(choice.kind, "apps/v1")
        keys = await self._keys(resource.of(Object), choice, random)
        for key in keys:
            namespace, _, name = key.partition("/")
            await self._client.patch(resource, name, merge_patch(change), namespace=namespace)
        return keys

    async def _delete_pods(self, action: model.PodChoice, random: Random) -> Deed:
        keys = await self._pods(action, random)
        for key in keys:
            namespace, _, name = key.partition("/")
            with suppress(NotFound):  # it went by itself
                await self._client.delete(PODS, name, namespace=namespace)
        return Deed(f"deleted: {_found(keys, 'pod')}")

    async def _evict_pods(self, action: model.PodChoice, random: Random) -> Deed:
        refused = []
        keys = await self._pods(action, random)
        for key in keys:
            namespace, _, name = key.partition("/")
            try:
                with suppress(NotFound):
                    await self._client.evict(name, namespace=namespace)
            except TooManyRequests:
                refused.append(key)
        evicted = [key for key in keys if key not in refused]
        told = f"; refused by a budget: {listed(refused, '')}" if refused else ""
        return Deed(f"evicted: {_found(evicted, 'pod') if evicted or not refused else 'none'}{told}")

    async def _apply(self, action: model.Manifest, _: Random) -> Deed:
        applied = self._loaded.objects(action)
        for obj in applied:
            await self._objects.create(obj)
        names = [f"{it['kind']} {it['metadata']['name']}" for it in applied]
        return Deed(f"applied: {listed(names, 'nothing')}")

    async def _delete(self, action: model.ObjectChoice, _: Random) -> Deed:
        resource, namespace = await self._place(action)
        await self._client.delete(resource, action.name, namespace=namespace)
        return Deed(f"deleted: {_named(action, namespace)}")

    async def _patch(self, action: model.Patch, _: Random) -> Deed:
        resource, namespace = await self._place(action)
        patch = merge_patch(action.patch)
        await self._client.patch(resource, action.name, patch, namespace=namespace, subresource=action.subresource)
        return Deed(f"patched: {_named(action, namespace)}")

    # Which

    async def _place(self, choice: model.ObjectChoice) -> tuple[Resource[RawObject], str | None]:
        resource = await self._objects.resource(choice.kind, choice.api_version)
        return resource, (choice.namespace or "default") if resource.namespaced else None

    async def _keys(self, resource: Resource[Object], choice: model.WorkloadChoice, random: Random) -> list[str]:
        found = await self._client.list(resource, namespace=choice.namespace or None, labels=_selector(choice.labels))
        names = [it.key for it in found.items if choice.name in ("", it.name)]
        return chosen(names, choice.count, random)

    async def _pods(self, choice: model.PodChoice, random: Random) -> list[str]:
        fields = f"spec.nodeName={choice.node}" if choice.node else ""
        found = await self._client.list(
            PODS, namespace=choice.namespace or None, labels=_selector(choice.labels), fields=fields
        )
        names = [it.key for it in found.items if choice.name in ("", it.name)]
        return chosen(names, choice.count, random)


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _found(keys: list[str], kind: str) -> str:
    return listed(keys, f"no {kind} fits")


def _named(choice: model.ObjectChoice, namespace: str | None) -> str:
    return f"{choice.kind} {f'{namespace}/' if namespace else ''}{choice.name}"
