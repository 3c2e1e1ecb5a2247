"""The webhook's own certificates, and when they make room for the next: pure, but for the making of keys.

A generation is an authority and the one certificate that it signed; its key is thrown away at once, so nobody can ever
sign more with it. Generations follow each other in steps that every replica can take, and that no request notices:

    served      from the first moment on
    next        made when two thirds of the served one's life are over. Its authority is trusted from now on, and nobody
                shows its certificate yet: API servers must have heard of the authority first
    served      an hour later, if the webhook's registration has the authority; on the last day in any case, for then
                there is nothing left to lose. The authority before it stays trusted for as long as it is valid, in
                case that some replica has not heard yet

All of it is in one Secret, so it is known to all or to nobody: `write` and `read` are its data.

What looks into certificates loads a library of eight megabytes; operators leave that to `haulout.web.keysmith`.
"""

import base64
import binascii
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from haulout.kube.network.shown import CLOCKS_DIFFER, LIFETIME, Identity

if TYPE_CHECKING:
    from cryptography import x509

OVERLAP = timedelta(hours=1)  # for which a new authority is trusted before anybody shows its certificate
LAST_MOMENT = timedelta(days=1)
_LOOK_AGAIN = timedelta(minutes=10)  # whether a new authority is trusted at last
_RENEWED_AFTER = LIFETIME * 2 / 3

_AUTHORITIES, _CERTIFICATE, _KEY, _NEXT_CERTIFICATE, _NEXT_KEY = "ca.crt", "tls.crt", "tls.key", "next.crt", "next.key"


@dataclass(frozen=True, slots=True)
class Generation:
    """An authority (PEM), and what it signed."""

    authority: bytes
    identity: Identity

    @property
    def _certificate(self) -> "x509.Certificate":
        from cryptography import x509

        return x509.load_pem_x509_certificate(self.identity.certificate)

    @property
    def made(self) -> datetime:
        """When it was made."""
        return self._certificate.not_valid_before_utc + CLOCKS_DIFFER

    @property
    def ends(self) -> datetime:
        """When it is no longer valid."""
        return self._certificate.not_valid_after_utc

    def is_for(self, hosts: Sequence[str]) -> bool:
        """Tell whether a server that shows it is believed to be each of `hosts`."""
        from cryptography import x509

        try:
            names = self._certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return False
        known = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
        return known.issuperset(hosts)


@dataclass(frozen=True, slots=True)
class Keys:
    """Everything that the replicas share; `former` are authorities (PEM) that are trusted for the sake of late ones."""

    served: Generation
    next: Generation | None = None
    former: tuple[bytes, ...] = ()

    @property
    def authorities(self) -> bytes:
        """All that is to be trusted."""
        coming = (self.next.authority,) if self.next else ()
        return b"".join((self.served.authority, *coming, *self.former))


@dataclass(frozen=True, slots=True)
class Step:
    """What the keys should be now, and when to look again."""

    keys: Keys
    wakes_at: datetime


Make = Callable[[], Generation]


def generation(hosts: Sequence[str], *, now: datetime, name: str) -> Generation:
    """Make a generation for a server that is reached as any of `hosts`."""
    from haulout.kube.network.certificates import Authority

    starts, ends = now - CLOCKS_DIFFER, now + LIFETIME
    authority = Authority(f"{name} {now:%Y-%m-%d}", starts=starts, ends=ends)
    return Generation(authority.certificate, authority.server(*hosts, starts=starts, ends=ends))


def step(keys: Keys | None, *, hosts: Sequence[str], now: datetime, trusted: bool, make: Make) -> Step:
    """Return what the keys should be; `trusted` tells whether API servers know all their authorities by now."""
    if keys is None:
        return _step(Keys(make()))
    keys = replace(keys, former=tuple(it for it in keys.former if _ends(it) > now))
    if keys.next and not (keys.next.is_for(hosts) and now < keys.next.ends):
        keys = replace(keys, next=None)
    if not keys.served.is_for(hosts) or now >= keys.served.ends:
        return _step(_succeeded(keys, keys.next or make()))
    if keys.next is None:
        due = now >= keys.served.made + _RENEWED_AFTER
        return _step(replace(keys, next=make()) if due else keys)
    if now >= keys.next.made + OVERLAP and (trusted or now >= keys.served.ends - LAST_MOMENT):
        return _step(_succeeded(keys, keys.next))
    return _step(keys, now=now)


def _succeeded(keys: Keys, by: Generation) -> Keys:
    return Keys(by, former=(keys.served.authority, *keys.former))


def _step(keys: Keys, *, now: datetime | None = None) -> Step:
    if keys.next is None:
        return Step(keys, keys.served.made + _RENEWED_AFTER)
    soon = keys.next.made + OVERLAP
    return Step(keys, soon if now is None or now < soon else now + _LOOK_AGAIN)


# How a Secret holds them


def write(keys: Keys) -> dict[str, str | None]:
    """Return the data of the Secret; None is what must not be there."""
    values = {
        _AUTHORITIES: keys.authorities,
        _CERTIFICATE: keys.served.identity.certificate,
        _KEY: keys.served.identity.key,
        _NEXT_CERTIFICATE: keys.next.identity.certificate if keys.next else None,
        _NEXT_KEY: keys.next.identity.key if keys.next else None,
    }
    return {name: None if value is None else base64.b64encode(value).decode() for name, value in values.items()}


def read(data: Mapping[str, str]) -> Keys:
    """Return what the data of a Secret hold; `ValueError` if that is not what `write` wrote."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        values = {name: base64.b64decode(value, validate=True) for name, value in data.items()}
        known = [it.public_bytes(Encoding.PEM) for it in x509.load_pem_x509_certificates(values[_AUTHORITIES])]
        served = _signed(known, Identity(values[_CERTIFICATE], values[_KEY]))
        coming = _NEXT_CERTIFICATE in values
        following = _signed(known, Identity(values[_NEXT_CERTIFICATE], values[_NEXT_KEY])) if coming else None
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]}") from None
    except binascii.Error:
        raise ValueError("a value is not base64") from None
    used = {served.authority, following.authority if following else b""}
    return Keys(served, following, tuple(it for it in known if it not in used))


def _signed(authorities: Sequence[bytes], identity: Identity) -> Generation:
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
        return Generation(authority, identity)
    raise ValueError("a certificate is signed by none of the authorities")


def _ends(authority: bytes) -> datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificate(authority).not_valid_after_utc
