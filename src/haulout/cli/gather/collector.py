"""Collect a support archive: read objects, redact secrets, and pack the files with a README that lists files and gaps.

An archive with explained gaps is better than none: whatever cannot be read is a gap. Only an unreachable cluster ends
the command.

Secrets themselves are never read. But users put passwords into ConfigMaps, variables, arguments and annotations, and
programs log them. `haulout.core.redaction` decides what is secret. The last applied configuration is left out, because
it repeats the whole object.
"""

import io
import os
import re
import tarfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from haulout import __version__
from haulout.api.machinemaintenance import MACHINE_MAINTENANCES
from haulout.api.maintenancefreeze import MAINTENANCE_FREEZES
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.api.openshift import MACHINES
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, LEASES, NODES, PODS, Resource
from haulout.cli.cluster_info import report
from haulout.cli.connect import Session, cookie_header
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.redaction import redact_config
from haulout.core.redaction import REDACTED, FileRedactor, is_secret_name, redact, redact_arguments
from haulout.dashboard import server
from haulout.errors import ApiError, HauloutError, NotFound, UsageError
from haulout.kube.client import Client
from haulout.kube.transport import Request

OPERATOR_LABELS = "app.kubernetes.io/name=haulout"
MUST_GATHER_SOURCE = "haulout/haulout"
_MAX_LOG_BYTES = 16 << 20
_Pairs = tuple[tuple[str, str], ...]
_ENDPOINTS = ("api/v2/summary", "api/v2/health", "api/v2/configuration", "api/v1/info", "metrics")
_OUR_KINDS = {
    it.kind
    for it in (NODE_MAINTENANCES, MAINTENANCE_NOTICES, MAINTENANCE_FREEZES, MAINTENANCE_RECORDS, MACHINE_MAINTENANCES)
}
_RELEVANT_GROUPS = re.compile(r"(^|\.)(medik8s\.io|haulout\.dev|managed\.openshift\.io)$")

_OMITTED_KEYS = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_NAME_KEYS = ("name", "key")  # of a variable or a header, beside its `value`

README = "README.txt"


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
        for resource in (
            NODES,
            NODE_MAINTENANCES,
            MAINTENANCE_NOTICES,
            MAINTENANCE_FREEZES,
            MAINTENANCE_RECORDS,
            _BUDGETS,
        ):
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
            place = f"in namespace {self.options.namespace}" if self.options.namespace else "in any namespace"
            self.gaps.append(
                f"no pod has the label {OPERATOR_LABELS} {place}: no logs and no responses of the operator were "
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


def redact_object(obj: RawObject, registries: Registries) -> RawObject:
    """Return an object without secrets; a Secret keeps its keys."""
    redacted_obj: RawObject = _redact_value(obj, is_secret=False)
    if obj.get("kind") == "ConfigMap":
        texts = obj.get("data") or {}
        redacted_obj["data"] = {name: _redact_file(name, str(text), registries) for name, text in texts.items()}
        redacted_obj.pop("binaryData", None)
    return redacted_obj


def _redact_value(value: Any, *, is_secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _redact_value(item, is_secret=is_secret or _is_secret(key, value))
            for key, item in value.items()
            if key not in _OMITTED_KEYS
        }
    if isinstance(value, list) and not is_secret and value and all(isinstance(item, str) for item in value):
        return redact_arguments(value)
    if isinstance(value, list):
        return [_redact_value(item, is_secret=is_secret) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if is_secret:
        return REDACTED if value != "" else value
    return redact(value) if isinstance(value, str) else value


def _is_secret(key: str, mapping: Mapping[str, Any]) -> bool:
    """Return whether the value of a key is secret: by the key, or by the name beside a `value`."""
    if mapping.get("kind") == "Secret" and key in ("data", "stringData"):
        return True
    if key == "value":
        return any(is_secret_name(str(mapping.get(item, ""))) for item in _NAME_KEYS)
    value = mapping[key]
    # A mapping with such a name is a reference to a Secret: secretKeyRef, imagePullSecrets.
    is_reference = isinstance(value, Mapping) or (
        isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
    )
    return not is_reference and is_secret_name(key)


def _redact_file(name: str, text: str, registries: Registries) -> str:
    """Redact a file of a ConfigMap: a configuration by the options of its plugins, anything else line by line."""
    if is_secret_name(name):
        return REDACTED
    if name.endswith((".yaml", ".yml")):
        return redact(redact_config(text, registries).text)
    return redact(FileRedactor((), set()).redact(text))


def readme(archive_files: Iterable[ArchiveFile], gaps: Sequence[str], *, now: datetime) -> ArchiveFile:
    files = [f"  {entry.path}  ({len(entry.content):,} bytes)" for entry in archive_files]
    missing = [f"  {entry}" for entry in gaps] or ["  nothing"]
    lines = (
        f"Output of haulout gather at {now:%Y-%m-%d %H:%M:%S} UTC.",
        "",
        "Secrets were not read. Values that are named as secrets in ConfigMaps, variables, logs and elsewhere, or",
        "look like secrets, are replaced by (hidden). Names of nodes, pods and namespaces are unchanged. Review the",
        "files before you give them to others.",
        "",
        "Files",
        *files,
        "",
        "Missing",
        *missing,
        "",
    )
    return ArchiveFile(README, "\n".join(lines).encode())


def build_archive(files: Iterable[ArchiveFile], *, folder: str, now: datetime) -> bytes:
    """Return a gzipped tar archive with all files in one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file in files:
            entry = tarfile.TarInfo(f"{folder}/{file.path}")
            entry.size, entry.mtime, entry.mode = len(file.content), int(now.timestamp()), 0o644
            archive.addfile(entry, io.BytesIO(file.content))
    return buffer.getvalue()


def write_files(files: Iterable[ArchiveFile], folder: Path) -> None:
    """Write files into a folder, creating it if necessary."""
    for file in files:
        target = folder / file.path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
        except OSError as error:
            raise UsageError(f"{target}: {error.strerror}") from None
