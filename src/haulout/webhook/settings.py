"""Settings of the webhook: where it listens, and where its certificate comes from.

A module of its own, because not every operator serves the webhook and imports it.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import gettempdir

from haulout.errors import UsageError
from haulout.webhook import registration
from haulout.webhook.certificate_generator import CertificateGenerator

DEFAULT_FOLDER = Path(gettempdir(), "k8s-webhook-server", "serving-certs")  # the default of controller-runtime


@dataclass(frozen=True, slots=True)
class Automatic:
    """The certificate of the Operator Lifecycle Manager, else of the default folder, else a self-signed one."""


@dataclass(frozen=True, slots=True)
class CertificateFolder:
    """`tls.crt` and `tls.key` in a folder, such as a mounted Secret. Whoever mounts it injects the CA bundle."""

    path: Path = DEFAULT_FOLDER


@dataclass(frozen=True, slots=True)
class UserSecret:
    """A Secret in our namespace that the user maintains."""

    name: str


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A Secret in our namespace that we create and renew."""

    secret: str = registration.MANAGED_SECRET


CertificateSource = Automatic | CertificateFolder | UserSecret | SelfSigned


def parse_certificate_source(text: str) -> CertificateSource:
    """Parse `auto`, `self`, `folder:PATH` or `secret:NAME`; raise `UsageError`."""
    kind, _, value = text.partition(":")
    match kind, value:
        case "auto", "":
            return Automatic()
        case "self", "":
            return SelfSigned()
        case "folder", path if path:
            return CertificateFolder(Path(path))
        case "secret", name if name:
            return UserSecret(name)
    raise UsageError(f"a certificate from {text!r}: expected auto, self, folder:PATH or secret:NAME")


class ClientAuth(StrEnum):
    """Whether callers must present a client certificate (`haulout.webhook.client_certificates`)."""

    OFF = "off"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Where the webhook listens, its names, and where its certificate comes from."""

    host: str | None = None  # None: all addresses
    port: int = registration.PORT
    service: str = registration.SERVICE
    namespace: str = registration.NAMESPACE
    more_hosts: tuple[str, ...] = ()  # further hosts for the certificate, for a configuration with a URL
    configuration: str = registration.CONFIGURATION
    certificate: CertificateSource = Automatic()
    certificate_generator: CertificateGenerator | None = None  # None: issue in this process
    client_auth: ClientAuth = ClientAuth.OPTIONAL  # whether callers must present a client certificate
    client_names: tuple[str, ...] = ()  # beyond those that the cluster publishes
    guard_quorum: bool = True  # protect etcd on clusters that are not OpenShift; OpenShift is always protected
