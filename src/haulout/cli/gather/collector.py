"""Read the content of a support archive from a cluster; record whatever cannot be read as a gap.

An archive with explained gaps is better than none. Only an unreachable cluster ends the command.
"""

import os
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from haulout import __version__
from haulout.api.machinemaintenance import MACHINE_MAINTENANCES
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.api.openshift import MACHINES
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, LEASES, NODES, PODS, Resource
from haulout.cli.cluster_info import report
from haulout.cli.connect import Session
from haulout.cli.dashboard_token import cookie_header
from haulout.cli.gather.object_redaction import redact_object
from haulout.controllers.profiles.config.loader import Registries
from haulout.core.redaction import redact
from haulout.dashboard import server
from haulout.errors import ApiError, HauloutError, NotFound
from haulout.kube.client import Client
from haulout.kube.transport import Request

OPERATOR_LABELS = "app.kubernetes.io/name=haulout"
MUST_GATHER_SOURCE = "haulout/haulout"
_MAX_LOG_BYTES = 16 << 20
_Pairs = tuple[tuple[str, str], ...]
_ENDPOINTS = ("api/v2/summary", "api/v2/health", "api/v2/configuration", "api/v1/info", "metrics")
_OUR_KINDS = {it.kind for it in (NODE_MAINTENANCES, MAINTENANCE_NOTICES, MAINTENANCE_RECORDS, MACHINE_MAINTENANCES)}
_RELEVANT_GROUPS = re.compile(r"(^|\.)(medik8s\.io|haulout\.dev|managed\.openshift\.io)$")


def _core_resource(plural: str, kind: str) -> Resource[RawObject]:
    return Resource("", "v1", plural, kind, namespaced=True, model=RawObject)


_CONFIG_MAPS = _core_resource("configmaps", "ConfigMap")
_DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True, model=RawObject)
_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True, model=RawObject)
_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
    model=RawObject,
)


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file in the archive."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherOptions:
    """The options of the command."""

    namespace: str | None = None  # of the operator; None: wherever its pods are
    since: timedelta = timedelta(hours=24)  # of logs


@dataclass(slots=True)
class Collector:
    """Reads the files; `gaps` are what could not be read, and why."""

    session: Session
    options: GatherOptions
    registries: Registries
    gaps: list[str] = field(default_factory=list)

    async def files(self) -> AsyncIterator[ArchiveFile]:
        """Yield the files one after the other."""
        findings = await report.collect_report(self.session, namespace=self.options.namespace)
        yield ArchiveFile("version", f"{MUST_GATHER_SOURCE}\n{__version__}\n".encode())
        yield ArchiveFile("cluster-info.json", report.to_json(findings) + b"\n")
        pods = await self._operator_pods()
        namespaces = sorted({operator_pod["metadata"]["namespace"] for operator_pod in pods} or {findings.namespace})
        async for file in self._cluster_files():
            yield file
        for namespace in namespaces:
            async for file in self._namespace_files(namespace):
                yield file
        yield _object_list("operator/pods.json", pods)
        for pod in pods:
            async for file in self._pod_files(pod):
                yield file

    async def _cluster_files(self) -> AsyncIterator[ArchiveFile]:
        for resource in (NODES, NODE_MAINTENANCES, MAINTENANCE_NOTICES, MAINTENANCE_RECORDS, _BUDGETS):
            yield _object_list(f"{resource.plural}.json", await self._list(resource.with_model(RawObject)))
        for machines in (MACHINE_MAINTENANCES, MACHINES):
            machine_objects = await self._list(machines.with_model(RawObject), is_optional=True)
            if machine_objects:
                yield _object_list(f"{machines.plural}.json", machine_objects)
        definitions = await self._list(CUSTOM_RESOURCE_DEFINITIONS.with_model(RawObject))
        our_definitions = [obj for obj in definitions if _RELEVANT_GROUPS.search(obj.get("spec", {}).get("group", ""))]
        yield _object_list("definitions.json", our_definitions)
        hooks = await self._list(_WEBHOOKS)
        yield _object_list("webhooks.json", [obj for obj in hooks if "maintenance" in obj["metadata"]["name"]])
        yield _object_list("events.json", [obj for obj in await self._list(EVENTS) if _is_relevant_event(obj)])

    async def _namespace_files(self, namespace: str) -> AsyncIterator[ArchiveFile]:
        for resource in (_DEPLOYMENTS, _CONFIG_MAPS, LEASES.with_model(RawObject)):
            found = await self._list(resource, namespace=namespace)
            yield _object_list(f"operator/{namespace}/{resource.plural}.json", found)

    async def _operator_pods(self) -> list[RawObject]:
        found = await self._list(PODS.with_model(RawObject), namespace=self.options.namespace, labels=OPERATOR_LABELS)
        if not found:
            place = f"in namespace {self.options.namespace}" if self.options.namespace else "anywhere"
            self.gaps.append(
                f"no pods with the label {OPERATOR_LABELS} {place}: no logs and no responses of the operator were "
                "collected"
            )
        return found

    async def _pod_files(self, pod: RawObject) -> AsyncIterator[ArchiveFile]:
        """Yield the logs of an operator pod, and its answers to HTTP requests."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        logs = {"": (("sinceSeconds", str(int(self.options.since.total_seconds()))),), "-previous": ()}
        for suffix, query in logs.items():
            parameters = (*query, ("limitBytes", str(_MAX_LOG_BYTES)), *((("previous", "true"),) if suffix else ()))
            path = PODS.path(name, namespace=namespace, subresource="log")
            text = await self._text(path, parameters, doing=f"reading the log of {name}", is_optional=bool(suffix))
            if text:
                yield ArchiveFile(f"operator/{namespace}/logs/{name}{suffix}.log", redact(text).encode())
        for endpoint in _ENDPOINTS:
            path = f"{PODS.path(f'{name}:{server.PORT}', namespace=namespace, subresource='proxy')}/{endpoint}"
            cookie = tuple(cookie_header(os.environ).items())
            text = await self._text(path, (), headers=cookie, doing=f"asking {name} for {endpoint}")
            if text:
                file = endpoint.replace("/", "-") + ("" if endpoint == "metrics" else ".json")
                yield ArchiveFile(f"operator/{namespace}/answers/{name}/{file}", redact(text).encode())

    async def _list(
        self,
        resource: Resource[RawObject],
        *,
        namespace: str | None = None,
        labels: str = "",
        is_optional: bool = False,
    ) -> list[RawObject]:
        client: Client = self.session.client
        try:
            page = await client.list(resource, namespace=namespace, labels=labels)
        except NotFound:
            if not is_optional:
                self.gaps.append(f"{resource}: not installed")
            return []
        except ApiError as error:
            self.gaps.append(f"{resource}: {error}")
            return []
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}  # items of a list do not contain it
        return [redact_object({**kind, **item}, self.registries) for item in page.items]

    async def _text(
        self, path: str, query: _Pairs, *, headers: _Pairs = (), doing: str, is_optional: bool = False
    ) -> str:
        within = timedelta(seconds=20)
        request = Request(method="GET", path=path, query=query, headers=headers, accept="*/*", timeout=within)
        try:
            response = await self.session.client.request(request, doing=doing)
        except HauloutError as error:
            if not is_optional:
                self.gaps.append(str(error))
            return ""
        return response.body.decode(errors="replace")


def _object_list(path: str, objects: Sequence[RawObject]) -> ArchiveFile:
    """Return objects as a List that kubectl can read."""
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    return ArchiveFile(path, msgspec.json.format(msgspec.json.encode(listed), indent=1) + b"\n")


def _is_relevant_event(event: RawObject) -> bool:
    about = event.get("regarding") or {}
    reporter = str(event.get("reportingController") or event.get("deprecatedSource", {}).get("component", ""))
    return about.get("kind") in {*_OUR_KINDS, "Node"} or "aintenance" in reporter or "haulout" in reporter
