"""Reads from a cluster what goes into an archive, one thing after the other: whatever cannot be had is noted.

An archive with gaps that are explained is worth more than none. So only a cluster that does not answer at all ends it.
"""

import os
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from haulout import __version__
from haulout.cli import report
from haulout.cli.connect import Session
from haulout.cli.gathering.redaction import redacted
from haulout.cli.token import kept
from haulout.core.redaction import redact
from haulout.errors import ApiError, HauloutError, NotFound
from haulout.history.record import MAINTENANCE_RECORDS
from haulout.kinds.machinemaintenance import MACHINE_MAINTENANCES
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kinds.openshift import MACHINES
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.resources import DEFINITIONS, EVENTS, LEASES, NODES, PODS, Resource
from haulout.kube.transport import Request
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.profiles.config import Registries
from haulout.web import info

OPERATORS = "app.kubernetes.io/name=haulout"
SOURCE = "haulout/haulout"
_LARGEST_LOG = 16 << 20
_Pairs = tuple[tuple[str, str], ...]
_ASKED = ("api/v2/summary", "api/v2/health", "api/v2/configuration", "api/v1/info", "metrics")
_OUR_KINDS = {it.kind for it in (NODE_MAINTENANCES, MAINTENANCE_NOTICES, MAINTENANCE_RECORDS, MACHINE_MAINTENANCES)}
_OUR_GROUPS = re.compile(r"(^|\.)(medik8s\.io|haulout\.dev|managed\.openshift\.io)$")


def _core(plural: str, kind: str) -> Resource[RawObject]:
    return Resource("", "v1", plural, kind, namespaced=True, model=RawObject)


_CONFIG_MAPS = _core("configmaps", "ConfigMap")
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
class Piece:
    """A file of the archive."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for."""

    namespace: str | None = None  # of the operator; None: wherever its pods are
    since: timedelta = timedelta(hours=24)  # of logs


@dataclass(slots=True)
class Collector:
    """Yields the pieces; `gaps` are what could not be had, and why."""

    session: Session
    wanted: Wanted
    registries: Registries
    gaps: list[str] = field(default_factory=list)

    async def pieces(self) -> AsyncIterator[Piece]:
        """Read one after the other."""
        findings = await report.gather(self.session, namespace=self.wanted.namespace)
        yield Piece("version", f"{SOURCE}\n{__version__}\n".encode())
        yield Piece("cluster-info.json", report.as_json(findings) + b"\n")
        pods = await self._operators()
        namespaces = sorted({it["metadata"]["namespace"] for it in pods} or {findings.namespace})
        async for piece in self._cluster():
            yield piece
        for namespace in namespaces:
            async for piece in self._operator_in(namespace):
                yield piece
        yield _objects("operator/pods.json", pods)
        for pod in pods:
            async for piece in self._said_by(pod):
                yield piece

    async def _cluster(self) -> AsyncIterator[Piece]:
        for resource in (NODES, NODE_MAINTENANCES, MAINTENANCE_NOTICES, MAINTENANCE_RECORDS, _BUDGETS):
            yield _objects(f"{resource.plural}.json", await self._listed(resource.of(RawObject)))
        for machines in (MACHINE_MAINTENANCES, MACHINES):
            found = await self._listed(machines.of(RawObject), is_optional=True)
            if found:
                yield _objects(f"{machines.plural}.json", found)
        definitions = await self._listed(DEFINITIONS.of(RawObject))
        ours = [it for it in definitions if _OUR_GROUPS.search(it.get("spec", {}).get("group", ""))]
        yield _objects("definitions.json", ours)
        hooks = await self._listed(_WEBHOOKS)
        yield _objects("webhooks.json", [it for it in hooks if "maintenance" in it["metadata"]["name"]])
        yield _objects("events.json", [it for it in await self._listed(EVENTS) if _concerns_us(it)])

    async def _operator_in(self, namespace: str) -> AsyncIterator[Piece]:
        for resource in (_DEPLOYMENTS, _CONFIG_MAPS, LEASES.of(RawObject)):
            found = await self._listed(resource, namespace=namespace)
            yield _objects(f"operator/{namespace}/{resource.plural}.json", found)

    async def _operators(self) -> list[RawObject]:
        found = await self._listed(PODS.of(RawObject), namespace=self.wanted.namespace, labels=OPERATORS)
        if not found:
            where = f"in namespace {self.wanted.namespace}" if self.wanted.namespace else "anywhere"
            self.gaps.append(f"no pods with the label {OPERATORS} {where}: no logs, and nothing that the operator says")
        return found

    async def _said_by(self, pod: RawObject) -> AsyncIterator[Piece]:
        """Yield what a pod of the operator has logged, and what it answers."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        logs = {"": (("sinceSeconds", str(int(self.wanted.since.total_seconds()))),), "-previous": ()}
        for which, query in logs.items():
            asked = (*query, ("limitBytes", str(_LARGEST_LOG)), *((("previous", "true"),) if which else ()))
            path = PODS.path(name, namespace=namespace, subresource="log")
            text = await self._text(path, asked, doing=f"reading the log of {name}", is_optional=bool(which))
            if text:
                yield Piece(f"operator/{namespace}/logs/{name}{which}.log", redact(text).encode())
        for address in _ASKED:
            path = f"{PODS.path(f'{name}:{info.PORT}', namespace=namespace, subresource='proxy')}/{address}"
            cookie = tuple(kept(os.environ).items())
            text = await self._text(path, (), headers=cookie, doing=f"asking {name} for {address}")
            if text:
                file = address.replace("/", "-") + ("" if address == "metrics" else ".json")
                yield Piece(f"operator/{namespace}/answers/{name}/{file}", redact(text).encode())

    async def _listed(
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
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}  # which items of a list do not say
        return [redacted({**kind, **it}, self.registries) for it in page.items]

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


def _objects(path: str, objects: Sequence[RawObject]) -> Piece:
    """Return objects as a list that kubectl reads, too."""
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    return Piece(path, msgspec.json.format(msgspec.json.encode(listed), indent=1) + b"\n")


def _concerns_us(event: RawObject) -> bool:
    about = event.get("regarding") or {}
    reporter = str(event.get("reportingController") or event.get("deprecatedSource", {}).get("component", ""))
    return about.get("kind") in {*_OUR_KINDS, "Node"} or "aintenance" in reporter or "haulout" in reporter
