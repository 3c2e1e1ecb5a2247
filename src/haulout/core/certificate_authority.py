"""A private certificate authority and the certificates that it issues.

The private key of an authority is never stored. It signs only while it is in memory, so it cannot sign anything later.
The sandbox and tests create an authority at each start, and so does every certificate rotation.

By default, validity is computed from the machine's clock even in a simulation, because real clients verify it.
"""

from collections.abc import Sequence
from datetime import datetime
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from haulout.core.clock import RealClock
from haulout.core.key_pair import CLOCK_SKEW, LIFETIME, KeyPair

# ub-common-name in RFC 5280, appendix A.1. Clients compare only the alternative names with the host.
_MAX_COMMON_NAME = 64


class CertificateAuthority:
    """Issues certificates. Its own certificate is valid for `LIFETIME` from now, unless the caller sets the period."""

    def __init__(self, name: str, *, not_before: datetime | None = None, not_after: datetime | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
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
            self._builder(self._name, key=self._key.public_key(), not_before=not_before, not_after=not_after)
            # path_length=0: nothing that it issues can be an authority itself.
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)

    def issue_server(
        self, *hosts: str, not_before: datetime | None = None, not_after: datetime | None = None
    ) -> KeyPair:
        """Return a server certificate for `hosts`, which are IP addresses or DNS names."""
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        return self.issue(
            _common_name(hosts[0]), hosts=hosts, usages=usages, not_before=not_before, not_after=not_after
        )

    def issue(
        self,
        name: x509.Name,
        *,
        usages: Sequence[x509.ObjectIdentifier],
        hosts: Sequence[str] = (),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        # Python 3.13 verifies strictly (VERIFY_X509_STRICT) and rejects a certificate without key identifiers.
        issued = (
            self._builder(name, key=key.public_key(), not_before=not_before, not_after=not_after)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            alternative_names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            issued = issued.add_extension(alternative_names, critical=False)
        certificate = issued.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))

    def _builder(
        self,
        subject: x509.Name,
        *,
        key: ec.EllipticCurvePublicKey,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> x509.CertificateBuilder:
        now = RealClock().now()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(not_before or now - CLOCK_SKEW)
            .not_valid_after(not_after or now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_MAX_COMMON_NAME])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
