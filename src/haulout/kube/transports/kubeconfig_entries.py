"""The meaning of kubeconfig entries: clusters, credentials and impersonation.

The rules are client-go's (tools/clientcmd/client_config.go and validation.go, rest/exec.go): a token and a client
certificate are used together, an exec plugin only if there is neither, a tokenFile takes precedence over a token, and
no credentials are sent to a server without TLS.
"""

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from haulout.core.clock import Clock
from haulout.errors import CredentialsError, KubeconfigError
from haulout.kube.transport import impersonation_headers
from haulout.kube.transports import proxy, tls
from haulout.kube.transports.credentials import (
    ANONYMOUS,
    CertificateFiles,
    CombinedCredentials,
    Credentials,
    Identity,
    StaticCredentials,
    TokenFile,
    basic_header,
    bearer_header,
)
from haulout.kube.transports.exec_plugin import API_VERSIONS, ExecPlugin, ExecSpec, InteractiveMode
from haulout.kube.transports.kubeconfig import Section
from haulout.kube.transports.tls import ClientCertificate, TlsClientConfig

_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_OPTIONAL_MODE = "client.authentication.k8s.io/v1beta1"
_AUTH_PROVIDER_REPLACEMENTS = {
    "gcp": "gke-gcloud-auth-plugin: gcloud container clusters get-credentials writes it",
    "azure": "kubelogin: kubelogin convert-kubeconfig writes it",
    "oidc": "kubelogin (kubectl oidc-login): kubectl oidc-login setup tells how",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """The address of a cluster, and what an exec plugin may get to know about it."""

    server: str
    tls: TlsClientConfig
    proxy: str | None
    exec_info: Mapping[str, Any]

    @property
    def is_secure(self) -> bool:
        return self.server.startswith("https://")


class _Pem(NamedTuple):
    content: bytes
    source: Path | bytes


def cluster(section: Section, *, environ: Mapping[str, str]) -> Cluster:
    """Return the cluster of an entry of `clusters`. Raise `KubeconfigError`."""
    server = _server(section)
    ca = _pem(section, "certificate-authority", tls.ca_bundle_problem)
    insecure = section.flag("insecure-skip-tls-verify")
    if ca and insecure:
        raise section.error_at("expected either this or a certificate-authority, not both", "insecure-skip-tls-verify")
    own_proxy = section.text("proxy-url") or None
    if own_proxy and (problem := proxy.problem(own_proxy)):
        raise section.error_at(problem, "proxy-url")
    trust = TlsClientConfig(ca.content if ca else None, section.text("tls-server-name") or None, insecure)
    return Cluster(
        server=server,
        tls=trust,
        proxy=own_proxy or proxy.from_environment(server, environ),
        exec_info=_exec_info(section, server, trust, own_proxy),
    )


def credentials(
    section: Section, *, name: str, cluster: Cluster, clock: Clock, environ: Mapping[str, str]
) -> Credentials:
    """Return the credentials of the entry `name` of `users`. Raise `KubeconfigError`."""
    if not cluster.is_secure:
        # Anybody on the path could read the token, so client-go sends none either.
        return ANONYMOUS
    owner = f"user {name!r} in {section.file}"
    if "auth-provider" in section:
        raise _auth_provider(section)
    header = _authorization(section, clock)
    certificate = _certificate(section, owner, clock)
    if header and certificate:
        return CombinedCredentials(header=header, certificate=certificate)
    if header or certificate:
        return header or certificate or ANONYMOUS
    if "exec" in section:
        spec = _exec_spec(section.section("exec"), owner=owner, cluster=cluster)
        return ExecPlugin(spec, clock=clock, environ=environ)
    return ANONYMOUS


def impersonation(section: Section) -> tuple[tuple[str, str], ...]:
    """Return the impersonation headers of a user entry; empty if it has none."""
    user, uid, groups = section.text("as"), section.text("as-uid"), section.texts("as-groups")
    extra = section.section("as-user-extra")
    if not user:
        if uid or groups or extra.keys():
            raise section.error_at("expected whom to act as, since as-uid, as-groups or as-user-extra is given", "as")
        return ()
    try:
        extra_values = {key: extra.texts(key) for key in extra.keys()}  # noqa: SIM118 - a Section is no mapping
        return impersonation_headers(user, groups=groups, extra=extra_values, uid=uid)
    except ValueError as error:
        raise section.error_at(str(error), "as") from None


def _server(section: Section) -> str:
    text = section.text("server")
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        has_login = "@" in (parts.netloc if usable else text)
    except ValueError:
        usable, has_login = False, "@" in text
    expected = "expected the API server's address, such as https://host:6443"
    if has_login:  # the message must not repeat it
        raise section.error_at(
            f"{expected}, without user name and password: those belong to the user's entry", "server"
        )
    if not usable:
        raise section.error_at(f"{expected}, found {text!r}", "server")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def _pem(section: Section, key: str, problem_of: Callable[[bytes], str | None]) -> _Pem | None:
    path, data = section.path(key), section.text(f"{key}-data")
    if path and data:
        raise section.error_at(f"expected either {key} or {key}-data, not both", key)
    if path:
        try:
            pem = _Pem(path.read_bytes(), path)
        except OSError as error:
            raise section.error_at(f"cannot read {path}: {error.strerror}", key) from None
    elif data:
        key = f"{key}-data"
        try:
            content = base64.b64decode("".join(data.split()), validate=True)
        except binascii.Error:
            raise section.error_at("expected base64; is it cut off?", key) from None
        pem = _Pem(content, content)
    else:
        return None
    if problem := problem_of(pem.content):
        raise section.error_at(f"{path}: {problem}" if path else problem, key)
    return pem


def _authorization(section: Section, clock: Clock) -> Credentials | None:
    token, token_file = section.text("token"), section.path("tokenFile")
    username, password = section.text("username"), section.text("password")
    if token and (username or password):
        raise section.error_at("expected either a token or username and password, not both", "token")
    static = None
    if token:
        try:
            static = Identity(bearer_header(token, description="it"))
        except CredentialsError as error:
            raise section.error_at(str(error), "token") from None
    elif username or password:
        static = Identity(basic_header(username, password))
    if token_file:
        if static is None:
            _check_token(section, token_file)
        # The file takes precedence. The token in the kubeconfig serves only until the file can be read.
        return TokenFile(token_file, clock=clock, fallback=static)
    return StaticCredentials(static) if static else None


def _check_token(section: Section, path: Path) -> None:
    try:
        bearer_header(path.read_text("utf-8"), description=str(path))
    except OSError as error:
        raise section.error_at(f"cannot read {path}: {error.strerror}", "tokenFile") from None
    except UnicodeDecodeError:
        raise section.error_at(f"{path} is no bearer token: it is no text", "tokenFile") from None
    except CredentialsError as error:
        raise section.error_at(str(error), "tokenFile") from None


def _certificate(section: Section, owner: str, clock: Clock) -> Credentials | None:
    certificate = _pem(section, "client-certificate", tls.certificate_problem)
    if certificate is None:
        return None
    key = _pem(section, "client-key", tls.key_problem)
    if key is None:
        raise section.error_at(
            "expected client-key or client-key-data, since there is a client certificate", "client-key"
        )
    pair = ClientCertificate(certificate.content, key.content)
    try:
        tls.check_client_certificate(pair, owner=owner)
    except CredentialsError as error:
        raise section.error_at(str(error)) from None
    if isinstance(certificate.source, bytes) and isinstance(key.source, bytes):
        return StaticCredentials(Identity(None, pair))
    return CertificateFiles(certificate.source, key.source, owner=owner, clock=clock)


def _exec_spec(section: Section, *, owner: str, cluster: Cluster) -> ExecSpec:
    command = section.text("command")
    if not command:
        raise section.error_at("expected the program to run", "command")
    # Relative to the kubeconfig, not to the working directory: a repository could otherwise plant a program of that
    # name.
    if os.sep in command:  # otherwise it is looked up in PATH
        command = str(section.path("command"))
    version = section.text("apiVersion")
    if version not in API_VERSIONS:
        raise section.error_at(f"expected {' or '.join(API_VERSIONS)}, found {version!r}", "apiVersion")
    return ExecSpec(
        command=command,
        api_version=version,
        args=section.texts("args"),
        env=tuple(_variable(entry) for entry in section.sections("env")),
        install_hint=section.text("installHint"),
        interactive_mode=_interactive_mode(section, version),
        cluster=cluster.exec_info if section.flag("provideClusterInfo") else None,
        owner=owner,
    )


def _variable(entry: Section) -> tuple[str, str]:
    name = entry.text("name")
    if not name:
        raise entry.error_at("expected the name of an environment variable", "name")
    return name, entry.text("value")


def _interactive_mode(section: Section, version: str) -> InteractiveMode:
    text = section.text("interactiveMode") or (InteractiveMode.IF_AVAILABLE if version == _OPTIONAL_MODE else "")
    try:
        return InteractiveMode(text)
    except ValueError:
        raise section.error_at(f"expected {', '.join(InteractiveMode)}, found {text!r}", "interactiveMode") from None


def _exec_info(section: Section, server: str, trust: TlsClientConfig, own_proxy: str | None) -> Mapping[str, Any]:
    extensions = {entry.text("name"): entry.value("extension") for entry in section.sections("extensions")}
    info = {
        "server": server,
        "tls-server-name": trust.server_name,
        "insecure-skip-tls-verify": trust.insecure,
        "certificate-authority-data": base64.b64encode(trust.ca_pem).decode("ascii") if trust.ca_pem else None,
        "proxy-url": own_proxy,
        "disable-compression": section.flag("disable-compression"),
    }
    return {key: value for key, value in info.items() if value} | {"config": extensions.get(_EXEC_EXTENSION)}


def _auth_provider(section: Section) -> KubeconfigError:
    name = section.section("auth-provider").text("name")
    use = _AUTH_PROVIDER_REPLACEMENTS.get(name, "an exec plugin")
    return section.error_at(f"auth provider {name!r} is not supported; use {use}", "auth-provider")
