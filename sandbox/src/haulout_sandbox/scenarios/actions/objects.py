"""Actions on workloads, pods and other objects, as a person would take them with kubectl."""

from collections.abc import Mapping
from contextlib import suppress
from random import Random

from haulout.api.objects import Object, RawObject
from haulout.api.resources import PODS, Resource
from haulout.core.clock import Clock
from haulout.errors import NotFound, TooManyRequests
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.nodes.conditions import format_time
from haulout_sandbox.scenarios import model
from haulout_sandbox.scenarios.actions.action_result import ActionHandler, ActionResult, format_names, random_sample
from haulout_sandbox.scenarios.dynamic_client import DynamicClient
from haulout_sandbox.scenarios.loader import LoadedScenario

RESTARTED_AT_ANNOTATION = "kubectl.kubernetes.io/restartedAt"


class ObjectActions:
    def __init__(self, client: Client, dynamic_client: DynamicClient, scenario: LoadedScenario) -> None:
        self._client = client
        self._clock: Clock = client.clock
        self._dynamic_client = dynamic_client
        self._scenario = scenario
        self.handlers: Mapping[str, ActionHandler] = {
            "restart": self._rollout_restart,
            "scale": self._scale,
            "deletePods": self._delete_pods,
            "evictPods": self._evict_pods,
            "apply": self._apply,
            "delete": self._delete,
            "patch": self._patch,
        }

    async def _rollout_restart(self, action: model.WorkloadSelector, random: Random) -> ActionResult:
        annotations = {RESTARTED_AT_ANNOTATION: format_time(self._clock.now())}
        patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        keys = await self._patch_workloads(action, patch, random)
        return ActionResult(f"rollout restart: {_format_keys(keys, action.kind)}")

    async def _scale(self, action: model.Scale, random: Random) -> ActionResult:
        keys = await self._patch_workloads(action, {"spec": {"replicas": action.replicas}}, random)
        return ActionResult(f"scaled to {action.replicas}: {_format_keys(keys, action.kind)}")

    async def _patch_workloads(self, selector: model.WorkloadSelector, patch: RawObject, random: Random) -> list[str]:
        resource = await self._dynamic_client.resource_for(selector.kind, "apps/v1")
        keys = await self._workload_keys(resource.with_model(Object), selector, random)
        for key in keys:
            namespace, _, name = key.partition("/")
            await self._client.patch(resource, name, merge_patch(patch), namespace=namespace)
        return keys

    async def _delete_pods(self, action: model.PodSelector, random: Random) -> ActionResult:
        keys = await self._pod_keys(action, random)
        for key in keys:
            namespace, _, name = key.partition("/")
            with suppress(NotFound):  # it was deleted meanwhile
                await self._client.delete(PODS, name, namespace=namespace)
        return ActionResult(f"deleted: {_format_keys(keys, 'pod')}")

    async def _evict_pods(self, action: model.PodSelector, random: Random) -> ActionResult:
        rejected = []
        keys = await self._pod_keys(action, random)
        for key in keys:
            namespace, _, name = key.partition("/")
            try:
                with suppress(NotFound):
                    await self._client.evict(name, namespace=namespace)
            except TooManyRequests:
                rejected.append(key)
        evicted = [key for key in keys if key not in rejected]
        rejected_text = f"; refused by a budget: {format_names(rejected, '')}" if rejected else ""
        return ActionResult(
            f"evicted: {_format_keys(evicted, 'pod') if evicted or not rejected else 'none'}{rejected_text}"
        )

    async def _apply(self, action: model.Manifest, _: Random) -> ActionResult:
        applied = self._scenario.objects(action)
        for obj in applied:
            await self._dynamic_client.create_or_apply(obj)
        names = [f"{obj['kind']} {obj['metadata']['name']}" for obj in applied]
        return ActionResult(f"applied: {format_names(names, 'nothing')}")

    async def _delete(self, action: model.ObjectReference, _: Random) -> ActionResult:
        resource, namespace = await self._resolve(action)
        await self._client.delete(resource, action.name, namespace=namespace)
        return ActionResult(f"deleted: {_format_reference(action, namespace)}")

    async def _patch(self, action: model.Patch, _: Random) -> ActionResult:
        resource, namespace = await self._resolve(action)
        patch = merge_patch(action.patch)
        await self._client.patch(resource, action.name, patch, namespace=namespace, subresource=action.subresource)
        return ActionResult(f"patched: {_format_reference(action, namespace)}")

    # Selection

    async def _resolve(self, reference: model.ObjectReference) -> tuple[Resource[RawObject], str | None]:
        resource = await self._dynamic_client.resource_for(reference.kind, reference.api_version)
        return resource, (reference.namespace or "default") if resource.namespaced else None

    async def _workload_keys(
        self, resource: Resource[Object], selector: model.WorkloadSelector, random: Random
    ) -> list[str]:
        page = await self._client.list(
            resource, namespace=selector.namespace or None, labels=_selector(selector.labels)
        )
        names = [workload.key for workload in page.items if selector.name in ("", workload.name)]
        return random_sample(names, selector.count, random)

    async def _pod_keys(self, selector: model.PodSelector, random: Random) -> list[str]:
        fields = f"spec.nodeName={selector.node}" if selector.node else ""
        page = await self._client.list(
            PODS, namespace=selector.namespace or None, labels=_selector(selector.labels), fields=fields
        )
        names = [pod.key for pod in page.items if selector.name in ("", pod.name)]
        return random_sample(names, selector.count, random)


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _format_keys(keys: list[str], kind: str) -> str:
    return format_names(keys, f"no {kind} fits")


def _format_reference(reference: model.ObjectReference, namespace: str | None) -> str:
    return f"{reference.kind} {f'{namespace}/' if namespace else ''}{reference.name}"
