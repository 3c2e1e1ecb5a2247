"""What can be wished for of the webhook: where it listens, and where its certificate comes from.

Apart from the webhook itself, which not all operators serve.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import gettempdir

from haulout.errors import UsageError
from haulout.webhook import registration
from haulout.webhook.certificate_generator import CertificateGenerator

DEFAULT_FOLDER = Path(gettempdir(), "k8s-webhook-server", "serving-certs")  # where controller-runtime looks


@dataclass(frozen=True, slots=True)
class Automatic:
    """What the Operator Lifecycle Manager mounts; else what is in the default folder; else made by ourselves."""


@dataclass(frozen=True, slots=True)
class CertificateFolder:
    """`tls.crt` and `tls.key` in a folder."""

    path: Path = DEFAULT_FOLDER


@dataclass(frozen=True, slots=True)
class UserSecret:
    """A Secret in our namespace that somebody else looks after."""

    name: str


@dataclass(frozen=True, slots=True)
class SelfSigned:
    """A Secret in our namespace that we make, and renew."""

    secret: str = registration.MANAGED_SECRET


CertificateSource = Automatic | CertificateFolder | UserSecret | SelfSigned


def parse_certificate_source(text: str) -> CertificateSource:
    """Return what a user means by `auto`, `self`, `folder:PATH` or `secret:NAME`."""
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
    """Which client certificates are asked of callers (`haulout.webhook.client_certificates`)."""

    OFF = "off"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Where the webhook listens, how it is reached, and where its certificate comes from."""

    host: str | None = None  # all addresses
    port: int = registration.PORT
    service: str = registration.SERVICE
    namespace: str = registration.NAMESPACE
    more_hosts: tuple[str, ...] = ()  # it is reached as, when its registration has a URL
    configuration: str = registration.CONFIGURATION
    certificate: CertificateSource = Automatic()
    certificate_generator: CertificateGenerator | None = None  # who makes certificates; None: this process
    client_auth: ClientAuth = ClientAuth.OPTIONAL  # what is asked of callers
    client_names: tuple[str, ...] = ()  # common names of the API server beyond those that the cluster names
    guard_quorum: bool = True  # of etcd, on clusters that are not OpenShift; there it is always guarded
