"""Client TLS, compatible with kubectl: trust, client certificates, and explanations of failures.

Where Go and Python differ in what they trust, this follows Go, so that it accepts what kubectl accepts. Any certificate
of the bundle is a trust anchor, including an intermediate or the server's own. The strict RFC 5280 checks that Python
3.13 enables by default stay off, because many cluster CAs lack an authority key identifier.
"""

import re
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from typing import NoReturn

from haulout.errors import CredentialsError

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")

# X509_V_ERR_* codes of OpenSSL.
_NOT_YET_VALID = 9
_EXPIRED = 10
_UNKNOWN_AUTHORITY = {2, 18, 19, 20, 21}
_OTHER_NAME = {62, 64}

_MAX_RECORD_BYTES = 16 * 1024  # RFC 8446, 5.1
_LONG_FORM = 0x80
_EXPLICIT_VERSION = 0xA0
_UTC_TIME = 0x17


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate chain and its private key, both as PEM."""

    cert_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TlsClientConfig:
    """How to verify the server. Without a CA bundle, the system's CAs are used."""

    ca_pem: bytes | None = None
    server_name: str | None = None
    insecure: bool = False


class _RecordSizedReads(ssl.SSLObject):
    """A TLS connection that allocates only one TLS record per read.

    An event loop requests a quarter of a megabyte each time. The allocator maps that memory and unmaps it at once,
    which was most of the cost of a small response.
    """

    # The parameter names are those of the module `ssl`, so that calls by keyword work.
    def read(self, len: int = 1024, buffer: bytearray | None = None) -> bytes:  # type: ignore[override]  # noqa: A002
        return super().read(min(len, _MAX_RECORD_BYTES), buffer)


def client_context(tls: TlsClientConfig, certificate: ClientCertificate | None, *, owner: str) -> ssl.SSLContext:
    """Return the TLS context of a connection. `owner` names the user in error messages about the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslobject_class = _RecordSizedReads
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca_pem is None:
        context.load_default_certs()
    else:
        # Go trusts any certificate of the pool; OpenSSL only self-signed ones without this flag.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=_certificates(tls.ca_pem))
    if certificate is not None:
        _load_client_certificate(context, certificate, owner)
    return context


def check_client_certificate(certificate: ClientCertificate, *, owner: str) -> None:
    """Raise `CredentialsError` if `certificate` cannot be used, for example because its two parts do not match."""
    _load_client_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, owner)


def ca_bundle_problem(pem: bytes) -> str | None:
    """Return what is wrong with a CA bundle, or None."""
    if not _CERTIFICATE.search(pem):
        return "expected PEM with -----BEGIN CERTIFICATE-----"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=_certificates(pem))
    except ssl.SSLError:
        return "expected certificates in PEM, found a block that is none; is it cut off?"
    return None


def certificate_problem(pem: bytes) -> str | None:
    """Return why `pem` cannot contain a client certificate, or None."""
    return None if _CERTIFICATE.search(pem) else "expected PEM with -----BEGIN CERTIFICATE-----"


def key_problem(pem: bytes) -> str | None:
    """Return why `pem` cannot contain a private key, or None."""
    return None if _PRIVATE_KEY.search(pem) else "expected PEM with -----BEGIN … PRIVATE KEY-----"


def expiry(cert_pem: bytes) -> datetime | None:
    """Return the expiry of the first certificate in `cert_pem`; None if it cannot be parsed."""
    found = _CERTIFICATE.search(cert_pem)
    if not found:
        return None
    try:
        der = ssl.PEM_cert_to_DER_cert(found[0].decode("ascii"))
        fields = _asn1_elements(_asn1_elements(_asn1_elements(der)[0][1])[0][1])
        # Certificate.tbsCertificate: [version], serial, signature, issuer, validity (RFC 5280, 4.1)
        validity = fields[4 if fields[0][0] == _EXPLICIT_VERSION else 3][1]
        kind, text = _asn1_elements(validity)[1]
        # UTCTime has two digits of the year: 50 and above are 19xx (RFC 5280, 4.1.2.5.1).
        century = "" if kind != _UTC_TIME else "20" if text < b"5" else "19"
        return datetime.strptime(century + text.decode("ascii"), "%Y%m%d%H%M%S%z")
    except (ValueError, IndexError):
        return None


def explain(error: ssl.SSLError, tls: TlsClientConfig, *, host: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification_failure(error, tls, host)
    reason = error.reason or str(error)
    if is_certificate_rejected(error) and "EXPIRED" in reason:
        return "the server refused our client certificate because it has expired; get a new one"
    if is_certificate_rejected(error):
        return f"the server refused our client certificate ({_readable(reason)}); is this user meant for this cluster?"
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}:
        return "the server does not speak TLS; should its address begin with http://, or is the port another one's?"
    return f"TLS failed ({_readable(reason)})"


def is_certificate_rejected(error: ssl.SSLError) -> bool:
    """Return whether the server ended the handshake because of our certificate."""
    reason = error.reason or ""
    return "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason)


def _verification_failure(error: ssl.SSLCertVerificationError, tls: TlsClientConfig, host: str) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "the server's certificate has expired; renew it, or check this machine's clock"
    if code == _NOT_YET_VALID:
        return "the server's certificate is not valid yet; check this machine's clock"
    if code in _UNKNOWN_AUTHORITY:
        signed = "the server's certificate is signed by an unknown authority"
        if tls.ca_pem is None:
            return (
                f"{signed}, and there is no certificate-authority, so that only this system's count; set the cluster's"
            )
        return f"{signed}; is certificate-authority that of this cluster?"
    if code in _OTHER_NAME:
        name = tls.server_name or host
        return f"the server's certificate is not for {name}; correct the address, or set tls-server-name"
    return f"the server's certificate cannot be verified ({error.verify_message})"


def _readable(reason: str) -> str:
    return reason.replace("_", " ").lower()


def _certificates(pem: bytes) -> str:
    # Bundles may contain comments in any encoding between the blocks; OpenSSL accepts ASCII only.
    return b"\n".join(_CERTIFICATE.findall(pem)).decode("ascii", "replace")


def _load_client_certificate(context: ssl.SSLContext, certificate: ClientCertificate, owner: str) -> None:
    def refuse_password() -> NoReturn:  # without it OpenSSL would ask for a password on the terminal
        raise CredentialsError(f"the private key of {owner} is encrypted; use one without a password")

    try:
        # OpenSSL reads keys only from files. This file has mode 0600 from its creation, and is deleted at the end of
        # the block.
        with tempfile.NamedTemporaryFile(prefix="haulout-") as file:
            file.write(certificate.key_pem.strip() + b"\n" + certificate.cert_pem.strip() + b"\n")
            file.flush()
            context.load_cert_chain(file.name, password=refuse_password)
    except ssl.SSLError as error:
        raise CredentialsError(_unusable_reason(error, owner)) from None
    except OSError as error:
        raise CredentialsError(f"the private key of {owner} needs a temporary file for a moment: {error}") from None


def _unusable_reason(error: ssl.SSLError, owner: str) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the client certificate and the private key of {owner} do not belong together"
    return f"the client certificate or private key of {owner} cannot be used: {_readable(error.reason or str(error))}"


def _asn1_elements(der: bytes) -> list[tuple[int, bytes]]:
    """Split the content of an ASN.1 element into (tag, content) pairs."""
    elements = []
    while der:
        tag, length, start = der[0], der[1], 2
        if length >= _LONG_FORM:
            start += length - _LONG_FORM
            length = int.from_bytes(der[2:start], "big")
        elements.append((tag, der[start : start + length]))
        der = der[start + length :]
    return elements
