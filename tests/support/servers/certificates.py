"""Temporary certificate authorities and certificates for tests with TLS."""

import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from haulout.core import certificate_authority
from haulout.core.clock import RealClock
from haulout.kube.transports.tls import ClientCertificate

YEAR = timedelta(days=365)


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate and its private key."""

    cert_pem: bytes
    key_pem: bytes

    @property
    def client_certificate(self) -> ClientCertificate:
        """Return it as what a client presents."""
        return ClientCertificate(self.cert_pem, self.key_pem)

    def server_context(self, folder: Path, *, clients: "Authority | None" = None) -> ssl.SSLContext:
        """Return what a server needs to present it, and to demand certificates of `clients` if given."""
        file = folder / "server.pem"
        file.write_bytes(self.key_pem + self.cert_pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        if clients is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=clients.pem.decode())
        return context


class Authority:
    """A temporary certificate authority for servers and clients."""

    def __init__(self, name: str = "test authority") -> None:
        self._authority = certificate_authority.CertificateAuthority(name)
        self.pem = self._authority.certificate

    def issue(
        self,
        *names: str,
        starts: datetime | None = None,
        ends: datetime | None = None,
        password: bytes | None = None,
    ) -> IssuedCertificate:
        """Issue a certificate for `names`, host names or addresses; the first one is its subject."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        starts = starts or RealClock().now() - YEAR
        certificate, key = self._authority.issue(subject, usages=usages, hosts=names, not_before=starts, not_after=ends)
        return IssuedCertificate(certificate, _encrypted(key, password) if password else key)


def _encrypted(key: bytes, password: bytes) -> bytes:
    return load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password)
    )
