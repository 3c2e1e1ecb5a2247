"""What `cluster-info` finds out, and how it says it: to people, to programs, and as a manifest.

`gather` asks; the rest is pure. A part that the server does not want to tell is shown as unknown and ends nothing: only
a server that cannot be reached, or is none, does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from haulout.app import needs
from haulout.app.needs import FEATURES, Feature
from haulout.cli.connect import Session
from haulout.cli.terminal import Marks, aligned, printable
from haulout.errors import (
    ApiError,
    Forbidden,
    GarbledAnswer,
    HauloutError,
    NotFound,
    ServerFailure,
    TooManyRequests,
    Unauthorized,
)
from haulout.kube import access
from haulout.kube.access import Permission, Refusal, UserInfo
from haulout.kube.client import Client
from haulout.kube.discovery import Discovery, discover
from haulout.kube.network.config import Connection
from haulout.kube.objects import Version
from haulout.kube.resources import NAMESPACES
from haulout.maintenance import lease
from haulout.profiles.model import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that was learned; None is what the server did not want to tell."""

    connection: Connection
    namespace: str
    namespace_exists: bool | None
    version: Version | None
    user: UserInfo | None
    needed: tuple[Permission, ...]
    refused: tuple[Refusal, ...]
    discovery: Discovery | None

    @property
    def ready(self) -> bool:
        """Tell whether the operator could work here, as far as we could see."""
        return not self.refused and self.namespace_exists is not False


class State(StrEnum):
    """Whether an optional feature is there."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


async def gather(session: Session, *, namespace: str | None, configuration: Configuration | None = None) -> Findings:
    """Ask the cluster; `namespace` is where the operator lives, by default the connection's."""
    client = session.client
    namespace = namespace or session.connection.namespace
    version = await _version(client, session.connection)  # first: it tells best what is wrong with the way there
    discovery = await _discovery(client)
    needed = needs.permissions(
        namespace=namespace, configuration=configuration, with_machines=needs.has_machines(discovery)
    )
    return Findings(
        connection=session.connection,
        namespace=namespace,
        version=version,
        namespace_exists=await _exists(client, namespace),
        user=await access.whoami(client),
        needed=needed,
        refused=await _refused(client, needed),
        discovery=discovery,
    )


async def _version(client: Client, connection: Connection) -> Version | None:
    try:
        version = await client.server_version()
    except Forbidden:
        return None
    except (Unauthorized, TooManyRequests, ServerFailure):
        raise
    except ApiError as error:
        raise _not_kubernetes(connection, f"answers {error.message}") from error
    if not version.git_version:
        raise _not_kubernetes(connection, "names no version")
    return version


def _not_kubernetes(connection: Connection, what: str) -> GarbledAnswer:
    plain = "should it begin with https://? " if connection.server.startswith("http://") else ""
    return GarbledAnswer(
        f"{connection.server} does not look like a Kubernetes API server: its /version {what}; "
        f"{plain}correct the server of {connection.origin}"
    )


async def _exists(client: Client, namespace: str) -> bool | None:
    try:
        await client.get(NAMESPACES, namespace)
    except Forbidden:
        return None
    except NotFound:
        return False
    return True


async def _refused(client: Client, needed: Sequence[Permission]) -> tuple[Refusal, ...]:
    try:
        return tuple(await access.missing(client, needed))
    except Forbidden as error:
        raise HauloutError(
            f"{error}; all who are logged in normally may, by the ClusterRole system:basic-user"
        ) from error


async def _discovery(client: Client) -> Discovery | None:
    try:
        return await discover(client)
    except Forbidden:
        return None


# For the one who grants


def grant(findings: Findings) -> str:
    """Return the manifest that would grant what is missing."""
    if not findings.refused:
        return "# Nothing is missing: there is nothing to grant.\n"
    user = findings.user
    if user is None:
        raise HauloutError(
            "cannot write the manifest: the server does not say who you are (it can since Kubernetes 1.28), "
            "so there is nobody to grant to"
        )
    if user.username == access.ANONYMOUS:
        raise HauloutError(
            f"will not write the manifest: {findings.connection.server} takes you for {access.ANONYMOUS}, and what is "
            "granted to that is granted to everybody; log in first"
        )
    title = f"# What {user.username!r} lacks to run Haulout at {findings.connection.server}.\n"
    return title + access.grant_manifest(user, findings.refused, namespaces=[lease.NAMESPACE])


# For people


def as_text(findings: Findings, *, marks: Marks, grant_command: str) -> str:
    """Return the findings for a terminal."""
    sections = [
        _where_and_who(findings),
        _permissions(findings, marks),
        _features(findings, marks),
    ]
    if findings.namespace_exists is False:
        sections.append([f"To create the namespace:  kubectl create namespace {findings.namespace}"])
    if findings.refused:
        sections.append(_what_to_do(findings, grant_command))
    return "\n\n".join("\n".join(section) for section in sections)


_EXISTENCE = {
    True: "",
    False: " (does not exist)",
    None: " (unknown whether it exists: not allowed to look)",
}


def _where_and_who(findings: Findings) -> list[str]:
    connection, version, user = findings.connection, findings.version, findings.user
    groups = f" (groups: {', '.join(user.groups)})" if user and user.groups else ""
    rows = [
        ("Cluster", f"{connection.server} (context {connection.context}, from {_short(connection.source)})"),
        ("Version", f"{version.git_version}, {version.platform}" if version else "unknown: not allowed to ask"),
        ("You are", f"{user.username}{groups}" if user else "unknown: the server does not say"),
        ("Namespace", f"{findings.namespace}{_EXISTENCE[findings.namespace_exists]}"),
    ]
    if findings.discovery and findings.discovery.unavailable:
        rows.append(("API down", ", ".join(findings.discovery.unavailable)))
    return aligned(rows)


def _permissions(findings: Findings, marks: Marks) -> list[str]:
    rows = []
    for permission in findings.needed:
        lacking = _lacking(permission, findings.refused)
        rows.append((f"  {marks.no if lacking else marks.yes} {permission.why}", _verbs(permission, lacking)))
    reasons = dict.fromkeys(refusal.reason for refusal in findings.refused if refusal.reason)
    return ["Permissions", *aligned(rows), *(f"  The server adds: {printable(reason)}" for reason in reasons)]


def _verbs(permission: Permission, lacking: Sequence[str]) -> str:
    missing = f" (missing: {', '.join(lacking)})" if lacking and len(lacking) < len(permission.verbs) else ""
    return f"{permission}: {', '.join(permission.verbs)}{missing}"


def _features(findings: Findings, marks: Marks) -> list[str]:
    signs = {State.ON: marks.yes, State.OFF: marks.off, State.UNKNOWN: marks.unknown}
    rows = []
    for feature in FEATURES:
        state = _state(feature, findings.discovery)
        told = f"{feature.what} ({_state_in_words(feature, state, findings.discovery)})"
        rows.append((f"  {signs[state]} {feature.resource.kind}", told))
    return ["Optional custom resources", *aligned(rows)]


def _state_in_words(feature: Feature, state: State, discovery: Discovery | None) -> str:
    resource = feature.resource
    if state is State.ON:
        return f"on: {resource.api_version}"
    if discovery is None:
        return f"{state}: not allowed to ask"
    if state is State.UNKNOWN:
        return f"{state}: the server of {resource.group} does not answer"
    found = discovery.find(resource.group, resource.plural)
    if found:
        return f"{state}: installed as {', '.join(found.versions)}, needed as {resource.version}"
    command = f"haulout manifests {feature.option}".strip()
    return f"{state}: not installed" + (f"; `{command}` has it" if feature.is_shipped else "")


def _what_to_do(findings: Findings, grant_command: str) -> list[str]:
    if findings.user is None:
        return [
            "The server does not say who you are (it can since Kubernetes 1.28), so --grant cannot help:",
            "ask a cluster admin for what is missing.",
        ]
    if findings.user.username == access.ANONYMOUS:
        server, origin = findings.connection.server, printable(findings.connection.origin)
        advice = f"{origin} has no credentials that it knows; log in, or name another context"
        return [f"{server} takes you for {access.ANONYMOUS}: {advice}"]
    return ["To grant what is missing, where ADMIN is the context of a cluster admin:", f"  {grant_command}"]


def _short(source: str) -> str:
    home = str(Path.home())
    return f"~{source.removeprefix(home)}" if source.startswith(f"{home}/") else source


# For programs


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
    what: str
    state: State


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


def as_json(findings: Findings) -> bytes:
    """Return the findings for a program; `haulout cluster-info --help` documents the fields."""
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
        features=tuple(_feature_json(feature, discovery) for feature in FEATURES),
        unavailable=discovery.unavailable if discovery else (),
        ready=findings.ready,
    )
    return msgspec.json.format(msgspec.json.encode(report))


def _permission_json(permission: Permission, refused: Sequence[Refusal]) -> _PermissionJson:
    return _PermissionJson(
        purpose=permission.why,
        group=permission.group,
        resource=permission.resource,
        namespace=permission.namespace,
        verbs=permission.verbs,
        missing=tuple(_lacking(permission, refused)),
    )


def _feature_json(feature: Feature, discovery: Discovery | None) -> _FeatureJson:
    resource = feature.resource
    return _FeatureJson(
        kind=resource.kind,
        group=resource.group,
        version=resource.version,
        what=feature.what,
        state=_state(feature, discovery),
    )


# For both


def _lacking(permission: Permission, refused: Sequence[Refusal]) -> list[str]:
    return [refusal.verb for refusal in refused if refusal.permission == permission]


def _state(feature: Feature, discovery: Discovery | None) -> State:
    if discovery is None:
        return State.UNKNOWN
    if discovery.serves(feature.resource):
        return State.ON
    return State.OFF if discovery.knows(feature.resource.group) else State.UNKNOWN
