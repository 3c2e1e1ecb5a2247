"""Rotation of the webhook's own certificates without a gap in trust."""

import base64
from datetime import datetime, timedelta

import pytest

from haulout.core.key_pair import LIFETIME
from haulout.webhook import certificate_rotation
from haulout.webhook.certificate_rotation import (
    CA_OVERLAP,
    LAST_RESORT_WINDOW,
    CertificateSet,
    IssuedCertificate,
    Rotation,
)
from haulout_sandbox.event_loops.virtual_time import EPOCH

HOSTS = ("webhook.haulout.svc", "127.0.0.1")


def rotate(
    keys: CertificateSet | None, now: datetime, *, is_ca_trusted: bool = True, hosts: tuple[str, ...] = HOSTS
) -> Rotation:
    return certificate_rotation.rotate(
        keys, hosts=hosts, now=now, is_ca_trusted=is_ca_trusted, issue=lambda: issue(now, hosts)
    )


def issue(now: datetime, hosts: tuple[str, ...] = HOSTS) -> IssuedCertificate:
    return certificate_rotation.issue_certificate(hosts, now=now, name="test")


def test_served_certificate_is_trusted_an_hour_before_and_never_expires_over_three_years() -> None:
    now, rotation = EPOCH, rotate(None, EPOCH)
    trusted_since = {rotation.certificates.serving.ca_certificate: EPOCH}
    served = {rotation.certificates.serving.ca_certificate}
    while now < EPOCH + timedelta(days=3 * 365):
        now = rotation.requeue_at
        before, rotation = rotation, rotate(rotation.certificates, now)
        for authority in (
            *certificate_rotation.from_secret_data(data(rotation.certificates)).previous_cas,
            rotation.certificates.serving.ca_certificate,
        ):
            trusted_since.setdefault(authority, now)
        if rotation.certificates.next:
            trusted_since.setdefault(rotation.certificates.next.ca_certificate, now)
        if rotation.certificates.serving != before.certificates.serving:
            assert now - trusted_since[rotation.certificates.serving.ca_certificate] >= CA_OVERLAP
            assert before.certificates.serving.ca_certificate in rotation.certificates.ca_bundle
        assert rotation.certificates.serving.expires_at - now > timedelta(days=100)
        served.add(rotation.certificates.serving.ca_certificate)
    assert len(served) == 5
    assert rotation.certificates.ca_bundle.count(b"BEGIN") <= 3


def test_untrusted_certificate_is_not_served_before_the_last_day() -> None:
    first = rotate(None, EPOCH)
    staged = rotate(first.certificates, first.requeue_at)
    assert staged.certificates.next is not None
    assert (
        rotate(staged.certificates, first.requeue_at + CA_OVERLAP / 2).certificates == staged.certificates
    )  # although it is trusted by now
    waiting = rotate(staged.certificates, staged.requeue_at, is_ca_trusted=False)
    assert waiting.certificates == staged.certificates
    assert waiting.requeue_at - staged.requeue_at == timedelta(minutes=10)
    last_moment = rotate(staged.certificates, EPOCH + LIFETIME - LAST_RESORT_WINDOW, is_ca_trusted=False)
    assert last_moment.certificates.serving == staged.certificates.next
    assert last_moment.certificates.previous_cas == (staged.certificates.serving.ca_certificate,)


def test_expired_certificate_is_replaced_at_once() -> None:
    first = rotate(None, EPOCH)
    later = rotate(first.certificates, EPOCH + 2 * LIFETIME)
    assert later.certificates.serving.issued_at >= EPOCH + 2 * LIFETIME - timedelta(seconds=1)
    staged = rotate(first.certificates, first.requeue_at)
    later = rotate(staged.certificates, EPOCH + LIFETIME, is_ca_trusted=False)
    assert later.certificates.serving == staged.certificates.next


def test_changed_host_gets_a_certificate_at_once_and_the_old_ca_stays_trusted() -> None:
    first = rotate(None, EPOCH)
    renamed = rotate(first.certificates, EPOCH, hosts=("other.haulout.svc",))
    assert renamed.certificates.serving != first.certificates.serving
    assert first.certificates.serving.ca_certificate in renamed.certificates.ca_bundle
    assert rotate(renamed.certificates, EPOCH, hosts=("other.haulout.svc",)).certificates == renamed.certificates


def data(keys: CertificateSet) -> dict[str, str]:
    return {name: value for name, value in certificate_rotation.to_secret_data(keys).items() if value is not None}


def test_secret_data_round_trips_the_certificate_set() -> None:
    keys = CertificateSet(issue(EPOCH), issue(EPOCH + timedelta(days=1)), (issue(EPOCH).ca_certificate,))
    assert certificate_rotation.from_secret_data(data(keys)) == keys
    assert certificate_rotation.from_secret_data(data(CertificateSet(keys.serving))) == CertificateSet(keys.serving)
    assert certificate_rotation.to_secret_data(CertificateSet(keys.serving))["next.key"] is None


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tls.key": "!"}, "not base64"),
        ({"tls.crt": encoded(b"odd")}, "do not match"),
        ({"tls.key": encoded(issue(EPOCH).identity.key)}, "do not match"),
        ({"ca.crt": encoded(issue(EPOCH).ca_certificate)}, "signed by none of the CAs"),
        ({"ca.crt": ""}, "PEM"),
        ({"next.crt": encoded(issue(EPOCH).identity.certificate)}, "it has no next.key"),
    ],
)
def test_malformed_secret_data_is_rejected(change: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        certificate_rotation.from_secret_data(data(CertificateSet(issue(EPOCH))) | change)


def test_empty_secret_data_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"it has no ca\.crt"):
        certificate_rotation.from_secret_data({})
