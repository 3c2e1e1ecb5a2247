"""Read and issue certificates, in this process or in a short-lived subprocess.

    certificates = await generator.read(secret.data)
    rotation = await generator.rotate(certificates, hosts=…, now=…, is_ca_trusted=…, name=…)

The `cryptography` library costs 8 MB of memory for the life of the process, and is needed for a moment at start and
once a year. Operators therefore use `SubprocessGenerator`. It falls back to this process if no subprocess can be
started.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from haulout.webhook import certificate_rotation
from haulout.webhook.certificate_rotation import CertificateSet, Rotation

log = logging.getLogger(__name__)

# Importing `cryptography` takes seconds on a throttled CPU.
_TIMEOUT = timedelta(seconds=30)


class CertificateGenerator(Protocol):
    """Reads and issues certificates. What it returns is plain data, so that it can cross a process boundary."""

    async def read(self, data: Mapping[str, str]) -> CertificateSet:
        """Parse the data of a Secret; raise `ValueError` if it is not valid."""
        ...

    async def rotate(
        self,
        certificates: CertificateSet | None,
        *,
        hosts: Sequence[str],
        now: datetime,
        is_ca_trusted: bool,
        name: str,
    ) -> Rotation:
        """Return the next state of the certificates, as `certificate_rotation.rotate` does; `name` names new CAs."""
        ...


class InProcessGenerator:
    """Reads and issues certificates in this process."""

    async def read(self, data: Mapping[str, str]) -> CertificateSet:
        """Parse the data of a Secret; raise `ValueError` if it is not valid."""
        return certificate_rotation.from_secret_data(data)

    async def rotate(
        self,
        certificates: CertificateSet | None,
        *,
        hosts: Sequence[str],
        now: datetime,
        is_ca_trusted: bool,
        name: str,
    ) -> Rotation:
        return certificate_rotation.rotate(
            certificates,
            hosts=hosts,
            now=now,
            is_ca_trusted=is_ca_trusted,
            issue=lambda: certificate_rotation.issue_certificate(hosts, now=now, name=name),
        )


class _ReadRequest(msgspec.Struct, tag="read"):
    data: dict[str, str]


class _RotateRequest(msgspec.Struct, tag="step"):
    certificates: CertificateSet | None
    hosts: tuple[str, ...]
    now: datetime
    is_ca_trusted: bool
    name: str


class _Response(msgspec.Struct):
    problem: str = ""  # why the data is not valid
    certificates: CertificateSet | None = None
    requeue_at: datetime | None = None


class SubprocessGenerator:
    """Reads and issues certificates in a subprocess, and caches the last result of `read`."""

    def __init__(self) -> None:
        self._last: tuple[dict[str, str], CertificateSet] | None = None

    async def read(self, data: Mapping[str, str]) -> CertificateSet:
        """Parse the data of a Secret; raise `ValueError` if it is not valid."""
        if self._last is not None and self._last[0] == data:
            return self._last[1]
        response = await _call_subprocess(_ReadRequest(dict(data)))
        if response is None:
            return await InProcessGenerator().read(data)
        if response.certificates is None:
            raise ValueError(response.problem)
        self._last = dict(data), response.certificates
        return response.certificates

    async def rotate(
        self,
        certificates: CertificateSet | None,
        *,
        hosts: Sequence[str],
        now: datetime,
        is_ca_trusted: bool,
        name: str,
    ) -> Rotation:
        response = await _call_subprocess(
            _RotateRequest(
                certificates=certificates, hosts=tuple(hosts), now=now, is_ca_trusted=is_ca_trusted, name=name
            )
        )
        if response is None or response.certificates is None or response.requeue_at is None:
            return await InProcessGenerator().rotate(
                certificates, hosts=hosts, now=now, is_ca_trusted=is_ca_trusted, name=name
            )
        return Rotation(response.certificates, response.requeue_at)


async def _call_subprocess(request: _ReadRequest | _RotateRequest) -> _Response | None:
    """Return the response of a subprocess; None if it cannot be started, times out or fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Warnings of Python or a traceback could contain the request, and with it a private key.
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        log.debug("cannot start a process for certificates (%s): generating them in this one", error)
        return None
    try:
        async with asyncio.timeout(_TIMEOUT.total_seconds()):
            output, _ = await process.communicate(msgspec.json.encode(request))
        return msgspec.json.decode(output, type=_Response)
    except (TimeoutError, msgspec.MsgspecError) as error:
        log.debug("the process that generates certificates does not answer: %s", error)
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                # Also if this task was cancelled: a subprocess that outlives it would keep the key in memory.
                process.kill()
            await process.wait()


async def _handle(request: _ReadRequest | _RotateRequest) -> _Response:
    if isinstance(request, _ReadRequest):
        try:
            return _Response(certificates=await InProcessGenerator().read(request.data))
        except ValueError as error:
            return _Response(problem=str(error))
    rotation = await InProcessGenerator().rotate(
        request.certificates,
        hosts=request.hosts,
        now=request.now,
        is_ca_trusted=request.is_ca_trusted,
        name=request.name,
    )
    return _Response(certificates=rotation.certificates, requeue_at=rotation.requeue_at)


if __name__ == "__main__":
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=_ReadRequest | _RotateRequest)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_handle(request))))
