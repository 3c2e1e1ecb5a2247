"""Who looks into certificates and makes them: this process, or one that ends when it is done.

    keys = await smith.read(secret.data)
    step = await smith.step(keys, hosts=…, now=…, trusted=…, name=…)

The library for it takes eight megabytes of an operator for good, and is needed for a moment when it starts and once a
year. So operators ask another process (`SubprocessGenerator`). Where none can be started it is done here after all.
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

_TIMEOUT = timedelta(seconds=30)


class CertificateGenerator(Protocol):
    """Reads and makes certificates."""

    async def read(self, data: Mapping[str, str]) -> CertificateSet:
        """Return what the data of a Secret hold; `ValueError` if that makes no sense."""
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
        """Return what the keys should be, as `generations.step` does; an authority is named `name`."""
        ...


class InProcessGenerator:
    """Does it in this process."""

    async def read(self, data: Mapping[str, str]) -> CertificateSet:
        """Return what the data of a Secret hold; `ValueError` if that makes no sense."""
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
        """Return what the keys should be."""
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
    problem: str = ""  # why what was to be read makes no sense
    certificates: CertificateSet | None = None
    requeue_at: datetime | None = None


class SubprocessGenerator:
    """Has another process do it, and remembers what was read last."""

    def __init__(self) -> None:
        self._last: tuple[dict[str, str], CertificateSet] | None = None

    async def read(self, data: Mapping[str, str]) -> CertificateSet:
        """Return what the data of a Secret hold; `ValueError` if that makes no sense."""
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
        """Return what the keys should be."""
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
    """Return what another process says; None if it does not."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        log.debug("no other process can be started (%s): certificates are made in this one", error)
        return None
    try:
        async with asyncio.timeout(_TIMEOUT.total_seconds()):
            output, _ = await process.communicate(msgspec.json.encode(request))
        return msgspec.json.decode(output, type=_Response)
    except (TimeoutError, msgspec.MsgspecError) as error:
        log.debug("the process that makes certificates gives no answer: %s", error)
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
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
