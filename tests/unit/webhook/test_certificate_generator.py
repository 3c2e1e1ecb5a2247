"""Certificates created and read in a subprocess equal those of the own process."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from haulout.webhook import certificate_rotation
from haulout.webhook.certificate_generator import CertificateGenerator, InProcessGenerator, SubprocessGenerator
from haulout.webhook.certificate_rotation import CA_OVERLAP

NOW = datetime(2026, 1, 5, tzinfo=UTC)
HOSTS = ("webhook.haulout.svc", "127.0.0.1")

pytestmark = pytest.mark.real_time


async def test_subprocess_generator_creates_and_reads_certificates() -> None:
    generator = SubprocessGenerator()
    rotation = await generator.rotate(None, hosts=HOSTS, now=NOW, is_ca_trusted=False, name="test")
    data = {
        name: value
        for name, value in certificate_rotation.to_secret_data(rotation.certificates).items()
        if value is not None
    }

    assert await generator.read(data) == rotation.certificates == await InProcessGenerator().read(data)
    assert rotation.certificates.serving.is_valid_for(HOSTS)
    assert rotation.certificates.serving.issued_at == NOW
    due = await generator.rotate(
        rotation.certificates, hosts=HOSTS, now=rotation.requeue_at, is_ca_trusted=True, name="test"
    )
    assert due.certificates.serving == rotation.certificates.serving
    assert due.certificates.next is not None
    assert due.requeue_at == rotation.requeue_at + CA_OVERLAP
    with pytest.raises(ValueError, match=r"it has no tls\.key"):
        await generator.read({name: value for name, value in data.items() if name != "tls.key"})


@pytest.mark.parametrize("executable", ["/nowhere/python", "/bin/false"])
async def test_generator_falls_back_to_the_own_process(executable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    generator: CertificateGenerator = SubprocessGenerator()
    rotation = await generator.rotate(None, hosts=HOSTS, now=NOW, is_ca_trusted=False, name="test")
    data = {
        name: value
        for name, value in certificate_rotation.to_secret_data(rotation.certificates).items()
        if value is not None
    }
    assert await generator.read(data) == rotation.certificates
    assert rotation.requeue_at > NOW + timedelta(days=200)


def test_operator_does_not_import_cryptography() -> None:
    loads = (
        "import sys; from haulout.webhook import component as webhook; from "
        "haulout.cli.run import cluster_mode as operate; print(*sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", loads], capture_output=True, check=True, text=True).stdout.split()
    assert "haulout.webhook.component" in found
    assert "cryptography" not in found
