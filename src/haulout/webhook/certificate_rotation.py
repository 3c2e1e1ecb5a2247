"""Rotation of the webhook's own certificates: pure functions, except for generating keys.

A generation is a CA and the only serving certificate that it signed. The CA's key is discarded at once, so that it can
never sign anything else. Any replica can take each step of a rotation, and no request fails in between:

- serving: from the first moment on.
- next: issued when two thirds of the lifetime of the serving certificate are over. Its CA joins the CA bundle, but no
  replica serves its certificate yet: all API servers must get the new bundle first.
- serving: an hour later, if the webhook configuration has the bundle; on the last day in any case, because the old
  certificate expires anyway. The previous CA stays in the bundle until it expires, for replicas that lag behind.

One Secret holds everything, so that replicas never see a part of it: `to_secret_data` and `from_secret_data` convert.

Parsing certificates imports `cryptography` (8 MB of memory); operators leave that to
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

CA_OVERLAP = timedelta(hours=1)  # how long a new CA is in the bundle before its certificate is served
LAST_RESORT_WINDOW = timedelta(days=1)
_RECHECK_INTERVAL = timedelta(minutes=10)  # for whether the new CA is trusted
_RENEW_AFTER = LIFETIME * 2 / 3

_CA_BUNDLE, _CERTIFICATE, _KEY, _NEXT_CERTIFICATE, _NEXT_KEY = "ca.crt", "tls.crt", "tls.key", "next.crt", "next.key"


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A CA certificate (PEM), and the serving certificate that it signed."""

    ca_certificate: bytes
    identity: KeyPair

    @property
    def _certificate(self) -> "x509.Certificate":
        from cryptography import x509

        return x509.load_pem_x509_certificate(self.identity.certificate)

    @property
    def issued_at(self) -> datetime:
        """When the certificate was issued: its notBefore is `CLOCK_SKEW` earlier."""
        return self._certificate.not_valid_before_utc + CLOCK_SKEW

    @property
    def expires_at(self) -> datetime:
        return self._certificate.not_valid_after_utc

    def is_valid_for(self, hosts: Sequence[str]) -> bool:
        """Return whether the certificate covers all of `hosts`."""
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
    """The certificates that all replicas share.

    `previous_cas` are CAs (PEM) that stay trusted for replicas that lag behind.
    """

    serving: IssuedCertificate
    next: IssuedCertificate | None = None
    previous_cas: tuple[bytes, ...] = ()

    @property
    def ca_bundle(self) -> bytes:
        """The PEM of all CAs to trust."""
        next_ca = (self.next.ca_certificate,) if self.next else ()
        return b"".join((self.serving.ca_certificate, *next_ca, *self.previous_cas))


@dataclass(frozen=True, slots=True)
class Rotation:
    """The certificates after this step, and when to check again."""

    certificates: CertificateSet
    requeue_at: datetime


IssueCertificate = Callable[[], IssuedCertificate]


def issue_certificate(hosts: Sequence[str], *, now: datetime, name: str) -> IssuedCertificate:
    """Issue a new generation for a server that is reachable as any of `hosts`."""
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
    """Return the next state of the certificates; `is_ca_trusted`: all API servers have the current CA bundle."""
    if certificates is None:
        return _rotation(CertificateSet(issue()))
    certificates = replace(
        certificates,
        previous_cas=tuple(authority for authority in certificates.previous_cas if _expires_at(authority) > now),
    )
    if certificates.next and not (certificates.next.is_valid_for(hosts) and now < certificates.next.expires_at):
        certificates = replace(certificates, next=None)
    # No API server accepts the current certificate, so there is nothing to protect by waiting for the bundle.
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


# The format of the Secret


def to_secret_data(certificates: CertificateSet) -> dict[str, str | None]:
    """Return the data of the Secret; None: the key must be removed."""
    values = {
        _CA_BUNDLE: certificates.ca_bundle,
        _CERTIFICATE: certificates.serving.identity.certificate,
        _KEY: certificates.serving.identity.key,
        _NEXT_CERTIFICATE: certificates.next.identity.certificate if certificates.next else None,
        _NEXT_KEY: certificates.next.identity.key if certificates.next else None,
    }
    return {name: None if value is None else base64.b64encode(value).decode() for name, value in values.items()}


def from_secret_data(data: Mapping[str, str]) -> CertificateSet:
    """Parse the data of a Secret; raise `ValueError` if `to_secret_data` cannot have written it."""
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
    """Return the generation that an identity belongs to; raise `ValueError` if none of the CAs signed it."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        identity.server_context()
    except ssl.SSLError:
        raise ValueError("a certificate and its key do not match") from None
    certificate = x509.load_pem_x509_certificate(identity.certificate)
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        except (ValueError, TypeError, InvalidSignature):
            continue
        return IssuedCertificate(authority, identity)
    raise ValueError("a certificate is signed by none of the CAs")


def _expires_at(authority: bytes) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(authority).not_valid_after_utc
