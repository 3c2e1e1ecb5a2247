"""A certificate from a mounted folder is reloaded when it changes."""

import asyncio
from pathlib import Path

import pytest

from haulout.core.clock import Clock
from haulout.httpserver.serving_certificate import (
    POLL_INTERVAL,
    CertificateFiles,
    CertificateWatcher,
    ServingCertificate,
)
from support.servers.certificates import Authority, IssuedCertificate


def mount(folder: Path, version: str, issued: IssuedCertificate) -> None:
    """Update the mount as a kubelet does: create a new folder, and switch a symbolic link to it."""
    new = folder / version
    new.mkdir()
    (new / "tls.crt").write_bytes(issued.cert_pem)
    (new / "tls.key").write_bytes(issued.key_pem)
    switched = folder / "..data_tmp"
    switched.symlink_to(version)
    switched.rename(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")


def served_certificate(serving_certificate: ServingCertificate) -> bytes | None:
    return serving_certificate.identity.certificate if serving_certificate.identity else None


async def test_watcher_loads_a_new_certificate_and_keeps_the_last_valid_one(tmp_path: Path, clock: Clock) -> None:
    authority, serving_certificate = Authority(), ServingCertificate()
    first, second = authority.issue("a.example"), authority.issue("b.example")
    source = CertificateWatcher(CertificateFiles.in_folder(tmp_path), serving_certificate, clock=clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(source.run())
        await clock.sleep(POLL_INTERVAL)
        assert served_certificate(serving_certificate) is None
        assert "No such file" in (source.problem or "")
        mount(tmp_path, "1", first)
        await clock.sleep(POLL_INTERVAL)
        assert (served_certificate(serving_certificate), source.problem) == (first.cert_pem, None)
        mount(tmp_path, "2", IssuedCertificate(second.cert_pem, first.key_pem))
        await clock.sleep(POLL_INTERVAL)
        assert served_certificate(serving_certificate) == first.cert_pem
        assert (source.problem or "").endswith("the certificate and the private key do not belong together")
        mount(tmp_path, "3", second)
        await clock.sleep(POLL_INTERVAL)
        assert (served_certificate(serving_certificate), source.problem) == (second.cert_pem, None)
        running.cancel()


async def test_encrypted_key_is_rejected_without_a_password_prompt(tmp_path: Path, clock: Clock) -> None:
    mount(tmp_path, "1", Authority().issue("a.example", password=b"secret"))
    source = CertificateWatcher(CertificateFiles.in_folder(tmp_path), ServingCertificate(), clock=clock)
    source.reload()
    assert source.problem is not None
    assert "a key without a password" in source.problem


async def test_unchanged_files_are_not_reread(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    mount(tmp_path, "1", Authority().issue("a.example"))
    source = CertificateWatcher(CertificateFiles.in_folder(tmp_path), ServingCertificate(), clock=clock)
    source.reload()
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("read again"))
    source.reload()
