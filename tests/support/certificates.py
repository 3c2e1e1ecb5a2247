"""Throw-away certificate authorities and certificates, for tests that speak TLS."""

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from haulout.core.clock import RealClock
from haulout.kube.network.tls import ClientCertificate

YEAR = timedelta(days=365)


@dataclass(frozen=True)
class Issued:
    """A certificate and its private key."""

    cert_pem: bytes
    key_pem: bytes

    @property
    def pair(self) -> ClientCertificate:
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
    """A certificate authority of the moment."""

    def __init__(self, name: str = "test authority") -> None:
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = RealClock().now()
        certificate = (
            self._builder(self._name, now - YEAR, now + YEAR)
            .public_key(self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        *names: str,
        starts: datetime | None = None,
        ends: datetime | None = None,
        password: bytes | None = None,
    ) -> Issued:
        """Issue a certificate for `names`, host names or addresses; the first one is its subject."""
        now = RealClock().now()
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = (
            self._builder(subject, starts or now - YEAR, ends or now + YEAR)
            .public_key(key.public_key())
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encryption = BestAvailableEncryption(password) if password else NoEncryption()
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        return Issued(certificate.public_bytes(Encoding.PEM), key_pem)

    def _builder(self, subject: x509.Name, starts: datetime, ends: datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .serial_number(x509.random_serial_number())
            .not_valid_before(starts)
            .not_valid_after(ends)
        )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
