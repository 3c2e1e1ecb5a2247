"""Keys and certificates that last one test run: an authority for servers, one for people."""

from collections.abc import Sequence
from datetime import timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from haulout.core.clock import RealClock

LIFETIME = timedelta(days=7)


class Identity(NamedTuple):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _unsigned(subject=self._name, issuer=self._name, key=self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, *hosts: str) -> Identity:
        """Return the identity of a server that is reached as any of `hosts`, which are IP addresses or names."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        reached_as = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._sign(name, usage=ExtendedKeyUsageOID.SERVER_AUTH, alternative_names=reached_as)

    def client(self, user: str, groups: Sequence[str]) -> Identity:
        """Return the identity of `user`, in the way Kubernetes reads it: groups are organizations."""
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user), *organizations])
        return self._sign(name, usage=ExtendedKeyUsageOID.CLIENT_AUTH)

    def _sign(
        self,
        name: x509.Name,
        *,
        usage: x509.ObjectIdentifier,
        alternative_names: x509.SubjectAlternativeName | None = None,
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        # Python 3.13 verifies strictly (VERIFY_X509_STRICT) and refuses a certificate without the key identifiers.
        issued = (
            _unsigned(subject=name, issuer=self._name, key=key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if alternative_names is not None:
            issued = issued.add_extension(alternative_names, critical=False)
        certificate = issued.sign(self._key, hashes.SHA256())
        return Identity(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def signing_key() -> bytes:
    """Return a new private key, PEM: what the server signs service-account tokens with."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def _unsigned(*, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = RealClock().now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
