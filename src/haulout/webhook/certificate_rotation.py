"""The webhook's own certificates, and when they make room for the next: pure, but for the making of keys.

A generation is an authority and the one certificate that it signed; its key is thrown away at once, so nobody can ever
sign more with it. Generations follow each other in steps that every replica can take, and that no request notices:

    served      from the first moment on
    next        made when two thirds of the served one's life are over. Its authority is trusted from now on, and nobody
                shows its certificate yet: API servers must have heard of the authority first
    served      an hour later, if the webhook's registration has the authority; on the last day in any case, for then
                there is nothing left to lose. The authority before it stays trusted for as long as it is valid, in
                case that some replica has not heard yet

All of it is in one Secret, so it is known to all or to nobody: `to_secret_data` and `from_secret_data` are its data.

What looks into certificates loads a library of eight megabytes; operators leave that to
`haulout.webhook.certificate_generator`.
"""

import base64
import binascii
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from haulout.core.key_pair import CLOCK_SKEW, LIFETIME, KeyPair

if TYPE_CHECKING:
    from cryptography import x509

CA_OVERLAP = timedelta(hours=1)  # for which a new authority is trusted before anybody shows its certificate
LAST_RESORT_WINDOW = timedelta(days=1)
_RECHECK_INTERVAL = timedelta(minutes=10)  # whether a new authority is trusted at last
_RENEW_AFTER = LIFETIME * 2 / 3

_CA_BUNDLE, _CERTIFICATE, _KEY, _NEXT_CERTIFICATE, _NEXT_KEY = "ca.crt", "tls.crt", "tls.key", "next.crt", "next.key"


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """An authority (PEM), and what it signed."""

    ca_certificate: bytes
    identity: KeyPair

    @property
    def _certificate(self) -> "x509.Certificate":
        from cryptography import x509

        return x509.load_pem_x509_certificate(self.identity.certificate)

    @property
    def issued_at(self) -> datetime:
        """When it was made."""
        return self._certificate.not_valid_before_utc + CLOCK_SKEW

    @property
    def expires_at(self) -> datetime:
        """When it is no longer valid."""
        return self._certificate.not_valid_after_utc

    def is_valid_for(self, hosts: Sequence[str]) -> bool:
        """Tell whether a server that shows it is believed to be each of `hosts`."""
        from cryptography import x509

        try:
            names = self._certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return False
        certificate_hosts = {
            *names.get_values_for_type(x509.DNSName),
            *map(str, names.get_values_for_type(x509.IPAddress)),
        }
        return certificate_hosts.issuperset(hosts)


@dataclass(frozen=True, slots=True)
class CertificateSet:
    """Everything that the replicas share.

    `previous_cas` are authorities (PEM) that are trusted for the sake of late ones.
    """

    serving: IssuedCertificate
    next: IssuedCertificate | None = None
    previous_cas: tuple[bytes, ...] = ()

    @property
    def ca_bundle(self) -> bytes:
        """All that is to be trusted."""
        next_ca = (self.next.ca_certificate,) if self.next else ()
        return b"".join((self.serving.ca_certificate, *next_ca, *self.previous_cas))


@dataclass(frozen=True, slots=True)
class Rotation:
    """What the keys should be now, and when to look again."""

    certificates: CertificateSet
    requeue_at: datetime


IssueCertificate = Callable[[], IssuedCertificate]


def issue_certificate(hosts: Sequence[str], *, now: datetime, name: str) -> IssuedCertificate:
    """Make a generation for a server that is reached as any of `hosts`."""
    from haulout.core.certificate_authority import CertificateAuthority

    not_before, not_after = now - CLOCK_SKEW, now + LIFETIME
    authority = CertificateAuthority(f"{name} {now:%Y-%m-%d}", not_before=not_before, not_after=not_after)
    return IssuedCertificate(
        authority.certificate, authority.issue_server(*hosts, not_before=not_before, not_after=not_after)
    )


def rotate(
    certificates: CertificateSet | None,
    *,
    hosts: Sequence[str],
    now: datetime,
    is_ca_trusted: bool,
    issue: IssueCertificate,
) -> Rotation:
    """Return what the keys should be; `is_ca_trusted` tells whether API servers know all their authorities by now."""
    if certificates is None:
        return _rotation(CertificateSet(issue()))
    certificates = replace(
        certificates,
        previous_cas=tuple(authority for authority in certificates.previous_cas if _expires_at(authority) > now),
    )
    if certificates.next and not (certificates.next.is_valid_for(hosts) and now < certificates.next.expires_at):
        certificates = replace(certificates, next=None)
    if not certificates.serving.is_valid_for(hosts) or now >= certificates.serving.expires_at:
        return _rotation(_promote(certificates, certificates.next or issue()))
    if certificates.next is None:
        is_due = now >= certificates.serving.issued_at + _RENEW_AFTER
        return _rotation(replace(certificates, next=issue()) if is_due else certificates)
    if now >= certificates.next.issued_at + CA_OVERLAP and (
        is_ca_trusted or now >= certificates.serving.expires_at - LAST_RESORT_WINDOW
    ):
        return _rotation(_promote(certificates, certificates.next))
    return _rotation(certificates, now=now)


def _promote(certificates: CertificateSet, successor: IssuedCertificate) -> CertificateSet:
    return CertificateSet(successor, previous_cas=(certificates.serving.ca_certificate, *certificates.previous_cas))


def _rotation(certificates: CertificateSet, *, now: datetime | None = None) -> Rotation:
    if certificates.next is None:
        return Rotation(certificates, certificates.serving.issued_at + _RENEW_AFTER)
    overlap_ends = certificates.next.issued_at + CA_OVERLAP
    return Rotation(certificates, overlap_ends if now is None or now < overlap_ends else now + _RECHECK_INTERVAL)


# How a Secret holds them


def to_secret_data(certificates: CertificateSet) -> dict[str, str | None]:
    """Return the data of the Secret; None is what must not be there."""
    values = {
        _CA_BUNDLE: certificates.ca_bundle,
        _CERTIFICATE: certificates.serving.identity.certificate,
        _KEY: certificates.serving.identity.key,
        _NEXT_CERTIFICATE: certificates.next.identity.certificate if certificates.next else None,
        _NEXT_KEY: certificates.next.identity.key if certificates.next else None,
    }
    return {name: None if value is None else base64.b64encode(value).decode() for name, value in values.items()}


def from_secret_data(data: Mapping[str, str]) -> CertificateSet:
    """Return what the data of a Secret hold; `ValueError` if that is not what `to_secret_data` wrote."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        values = {name: base64.b64decode(value, validate=True) for name, value in data.items()}
        authorities = [
            authority.public_bytes(Encoding.PEM) for authority in x509.load_pem_x509_certificates(values[_CA_BUNDLE])
        ]
        serving = _find_issuer(authorities, KeyPair(values[_CERTIFICATE], values[_KEY]))
        has_next = _NEXT_CERTIFICATE in values
        next_certificate = (
            _find_issuer(authorities, KeyPair(values[_NEXT_CERTIFICATE], values[_NEXT_KEY])) if has_next else None
        )
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]}") from None
    except binascii.Error:
        raise ValueError("a value is not base64") from None
    used = {serving.ca_certificate, next_certificate.ca_certificate if next_certificate else b""}
    return CertificateSet(
        serving, next_certificate, tuple(authority for authority in authorities if authority not in used)
    )


def _find_issuer(authorities: Sequence[bytes], identity: KeyPair) -> IssuedCertificate:
    """Return the generation that an identity is of."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        identity.server_context()
    except ssl.SSLError:
        raise ValueError("a certificate and its key do not fit") from None
    certificate = x509.load_pem_x509_certificate(identity.certificate)
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        except (ValueError, TypeError, InvalidSignature):
            continue
        return IssuedCertificate(authority, identity)
    raise ValueError("a certificate is signed by none of the authorities")


def _expires_at(authority: bytes) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(authority).not_valid_after_utc
