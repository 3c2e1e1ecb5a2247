"""Collect and print the findings of `haulout cluster-info`: as text, JSON, or an RBAC manifest.

`collect_report` queries the cluster; the rest is pure. What the server refuses to tell is shown as unknown. Only a
server that is unreachable or not Kubernetes ends the command.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from haulout.api.objects import VersionInfo
from haulout.api.resources import NAMESPACES
from haulout.app.components import custom_resources
from haulout.app.permissions import operator_permissions, replaces_machines
from haulout.cli.connect import Session
from haulout.cli.output import Marks, format_pairs, printable
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.profiles.config.model import Configuration
from haulout.errors import (
    ApiError,
    Forbidden,
    HauloutError,
    MalformedResponse,
    NotFound,
    ServerFailure,
    TooManyRequests,
    Unauthorized,
)
from haulout.kube import rbac
from haulout.kube.client import Client
from haulout.kube.discovery import Discovery, discover
from haulout.kube.rbac import DeniedPermission, Permission, UserInfo
from haulout.kube.transports.config import Connection
from haulout.runtime.component import CustomResource


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFindings:
    """All findings; None if the server refuses to tell."""

    connection: Connection
    namespace: str
    namespace_exists: bool | None
    version: VersionInfo | None
    user: UserInfo | None
    needed: tuple[Permission, ...]
    refused: tuple[DeniedPermission, ...]
    discovery: Discovery | None

    @property
    def ready(self) -> bool:
        """Whether the operator could run here, as far as we know."""
        return not self.refused and self.namespace_exists is not False


class FeatureState(StrEnum):
    """Whether an optional feature is installed."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


async def collect_report(
    session: Session, *, namespace: str | None, configuration: Configuration | None = None
) -> ClusterFindings:
    """Query the cluster; `namespace` is the operator's, by default that of the connection."""
    client = session.client
    namespace = namespace or session.connection.namespace
    version = await _version(client, session.connection)  # first: its errors describe connection problems best
    discovery = await _discovery(client)
    needed = operator_permissions(
        namespace=namespace,
        configuration=configuration,
        components={MachinesComponent: None} if replaces_machines(discovery) else {},
    )
    return ClusterFindings(
        connection=session.connection,
        namespace=namespace,
        version=version,
        namespace_exists=await _exists(client, namespace),
        user=await rbac.whoami(client),
        needed=needed,
        refused=await _refused(client, needed),
        discovery=discovery,
    )


async def _version(client: Client, connection: Connection) -> VersionInfo | None:
    try:
        version = await client.server_version()
    except Forbidden:
        return None
    except (Unauthorized, TooManyRequests, ServerFailure):
        raise
    except ApiError as error:
        raise _not_kubernetes(connection, f"returns {error.message}") from error
    if not version.git_version:
        raise _not_kubernetes(connection, "contains no version")
    return version


def _not_kubernetes(connection: Connection, problem: str) -> MalformedResponse:
    scheme_hint = "should it begin with https://? " if connection.server.startswith("http://") else ""
    return MalformedResponse(
        f"{connection.server} does not look like a Kubernetes API server: its /version {problem}; "
        f"{scheme_hint}correct the server of {connection.origin}"
    )


async def _exists(client: Client, namespace: str) -> bool | None:
    try:
        await client.get(NAMESPACES, namespace)
    except Forbidden:
        return None
    except NotFound:
        return False
    return True


async def _refused(client: Client, needed: Sequence[Permission]) -> tuple[DeniedPermission, ...]:
    try:
        return tuple(await rbac.denied_permissions(client, needed))
    except Forbidden as error:
        raise HauloutError(
            f"{error}; authenticated users normally have this permission, by the ClusterRole system:basic-user"
        ) from error


async def _discovery(client: Client) -> Discovery | None:
    try:
        return await discover(client)
    except Forbidden:
        return None


# Manifest


def grant_manifest(findings: ClusterFindings) -> str:
    """Return the manifest that grants the missing permissions."""
    if not findings.refused:
        return "# No permission is missing.\n"
    user = findings.user
    if user is None:
        raise HauloutError(
            "cannot write the manifest: the server does not say who you are (it can since Kubernetes 1.28), "
            "so there is no user to grant permissions to"
        )
    if user.username == rbac.ANONYMOUS:
        raise HauloutError(
            f"will not write the manifest: {findings.connection.server} treats you as {rbac.ANONYMOUS}, and what is "
            "granted to that user is granted to everybody; log in first"
        )
    title = f"# The permissions that {user.username!r} lacks to run Haulout at {findings.connection.server}.\n"
    return title + rbac.grant_manifest(user, findings.refused, namespaces=[node_lease.NAMESPACE])


# Text


def to_text(findings: ClusterFindings, *, marks: Marks, grant_command: str) -> str:
    """Return the findings as text for a terminal."""
    sections = [
        _identity_section(findings),
        _permission_section(findings, marks),
        _feature_section(findings, marks),
    ]
    if findings.namespace_exists is False:
        sections.append([f"To create the namespace:  kubectl create namespace {findings.namespace}"])
    if findings.refused:
        sections.append(_grant_section(findings, grant_command))
    return "\n\n".join("\n".join(section) for section in sections)


_EXISTENCE = {
    True: "",
    False: " (does not exist)",
    None: " (unknown whether it exists: not allowed to read it)",
}


def _identity_section(findings: ClusterFindings) -> list[str]:
    connection, version, user = findings.connection, findings.version, findings.user
    groups = f" (groups: {', '.join(user.groups)})" if user and user.groups else ""
    rows = [
        ("Cluster", f"{connection.server} (context {connection.context}, from {_shorten_home(connection.source)})"),
        ("Version", f"{version.git_version}, {version.platform}" if version else "unknown: not allowed to ask"),
        ("You are", f"{user.username}{groups}" if user else "unknown: the server does not say"),
        ("Namespace", f"{findings.namespace}{_EXISTENCE[findings.namespace_exists]}"),
    ]
    if findings.discovery and findings.discovery.unavailable:
        rows.append(("API down", ", ".join(findings.discovery.unavailable)))
    return format_pairs(rows)


def _permission_section(findings: ClusterFindings, marks: Marks) -> list[str]:
    rows = []
    for permission in findings.needed:
        missing_verbs = _missing_verbs(permission, findings.refused)
        rows.append(
            (f"  {marks.no if missing_verbs else marks.yes} {permission.why}", _verbs(permission, missing_verbs))
        )
    reasons = dict.fromkeys(refusal.reason for refusal in findings.refused if refusal.reason)
    return ["Permissions", *format_pairs(rows), *(f"  The server adds: {printable(reason)}" for reason in reasons)]


def _verbs(permission: Permission, missing_verbs: Sequence[str]) -> str:
    missing = (
        f" (missing: {', '.join(missing_verbs)})"
        if missing_verbs and len(missing_verbs) < len(permission.verbs)
        else ""
    )
    return f"{permission}: {', '.join(permission.verbs)}{missing}"


def _feature_section(findings: ClusterFindings, marks: Marks) -> list[str]:
    signs = {FeatureState.ON: marks.yes, FeatureState.OFF: marks.off, FeatureState.UNKNOWN: marks.unknown}
    rows = []
    for feature in custom_resources():
        state = _state(feature, findings.discovery)
        text = f"{feature.description} ({_state_text(feature, state, findings.discovery)})"
        rows.append((f"  {signs[state]} {feature.resource.kind}", text))
    return ["Optional custom resources", *format_pairs(rows)]


def _state_text(feature: CustomResource, state: FeatureState, discovery: Discovery | None) -> str:
    resource = feature.resource
    if state is FeatureState.ON:
        return f"on: {resource.api_version}"
    if discovery is None:
        return f"{state}: not allowed to ask"
    if state is FeatureState.UNKNOWN:
        return f"{state}: the server of {resource.group} does not answer"
    found = discovery.find(resource.group, resource.plural)
    if found:
        return f"{state}: installed as {', '.join(found.versions)}, needed as {resource.version}"
    command = f"haulout manifests {feature.option}".strip()
    return f"{state}: not installed" + f"; to install it: {command}"


def _grant_section(findings: ClusterFindings, grant_command: str) -> list[str]:
    if findings.user is None:
        return [
            "The server does not say who you are (it can since Kubernetes 1.28), so --grant cannot help:",
            "ask a cluster admin for what is missing.",
        ]
    if findings.user.username == rbac.ANONYMOUS:
        server, origin = findings.connection.server, printable(findings.connection.origin)
        advice = f"{origin} contains no credentials that the server accepts; log in, or use another context"
        return [f"{server} treats you as {rbac.ANONYMOUS}: {advice}"]
    return ["To grant what is missing, where ADMIN is the context of a cluster admin:", f"  {grant_command}"]


def _shorten_home(source: str) -> str:
    home = str(Path.home())
    return f"~{source.removeprefix(home)}" if source.startswith(f"{home}/") else source


# JSON


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class _UserJson(_Json, frozen=True):
    username: str
    groups: tuple[str, ...]


class _PermissionJson(_Json, frozen=True):
    purpose: str
    group: str
    resource: str
    namespace: str | None
    verbs: tuple[str, ...]
    missing: tuple[str, ...]


class _FeatureJson(_Json, frozen=True):
    kind: str
    group: str
    version: str
    description: str
    state: FeatureState


class _ReportJson(_Json, frozen=True):
    server: str
    context: str
    source: str
    namespace: str
    namespace_exists: bool | None
    version: str | None
    platform: str | None
    user: _UserJson | None
    permissions: tuple[_PermissionJson, ...]
    features: tuple[_FeatureJson, ...]
    unavailable: tuple[str, ...]
    ready: bool


def to_json(findings: ClusterFindings) -> bytes:
    """Return the findings as JSON; `haulout cluster-info --help` documents the fields."""
    connection, version, user, discovery = findings.connection, findings.version, findings.user, findings.discovery
    report = _ReportJson(
        server=connection.server,
        context=connection.context,
        source=connection.source,
        namespace=findings.namespace,
        namespace_exists=findings.namespace_exists,
        version=version.git_version if version else None,
        platform=version.platform if version else None,
        user=_UserJson(username=user.username, groups=user.groups) if user else None,
        permissions=tuple(_permission_json(permission, findings.refused) for permission in findings.needed),
        features=tuple(_feature_json(feature, discovery) for feature in custom_resources()),
        unavailable=discovery.unavailable if discovery else (),
        ready=findings.ready,
    )
    return msgspec.json.format(msgspec.json.encode(report))


def _permission_json(permission: Permission, refused: Sequence[DeniedPermission]) -> _PermissionJson:
    return _PermissionJson(
        purpose=permission.why,
        group=permission.group,
        resource=permission.resource,
        namespace=permission.namespace,
        verbs=permission.verbs,
        missing=tuple(_missing_verbs(permission, refused)),
    )


def _feature_json(feature: CustomResource, discovery: Discovery | None) -> _FeatureJson:
    resource = feature.resource
    return _FeatureJson(
        kind=resource.kind,
        group=resource.group,
        version=resource.version,
        description=feature.description,
        state=_state(feature, discovery),
    )


# Shared by text and JSON


def _missing_verbs(permission: Permission, refused: Sequence[DeniedPermission]) -> list[str]:
    return [refusal.verb for refusal in refused if refusal.permission == permission]


def _state(feature: CustomResource, discovery: Discovery | None) -> FeatureState:
    if discovery is None:
        return FeatureState.UNKNOWN
    if discovery.serves(feature.resource):
        return FeatureState.ON
    return FeatureState.OFF if discovery.is_complete_for(feature.resource.group) else FeatureState.UNKNOWN
