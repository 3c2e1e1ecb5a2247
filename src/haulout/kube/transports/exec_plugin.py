"""Credentials from an exec plugin: a program that prints an ExecCredential.

The contract is client-go's (plugin/pkg/client/auth/exec): the program reads the request from KUBERNETES_EXEC_INFO, and
prints a token, a client certificate or both, with their expiry. It may be slow, need a browser, or limit its calls. So
it runs once at a time, and all waiting requests share its result, whether credentials or a failure. It runs again only
shortly before the credentials expire, or when the server rejected them. A failed early renewal is no error while the
old credentials are valid.
"""

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from haulout.core.clock import Clock
from haulout.core.redaction import redact_arguments
from haulout.errors import CredentialsError
from haulout.kube.transports import tls
from haulout.kube.transports.credentials import Identity, bearer_header
from haulout.kube.transports.tls import ClientCertificate

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

# Longer than a request takes, so that credentials do not expire on the way; and long enough to repeat a failed renewal.
_RENEW_BEFORE = timedelta(minutes=1)
# Some plugins return cached credentials until they expire, or use another clock: do not run them in a tight loop.
_MIN_RUN_INTERVAL = timedelta(seconds=10)
_TIMEOUT = timedelta(minutes=1)
_INTERACTIVE_TIMEOUT = timedelta(minutes=5)
_MAX_OUTPUT = 200
_ANSI_COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class InteractiveMode(StrEnum):
    """Whether the plugin may use standard input: the values of `interactiveMode` in a kubeconfig."""

    NEVER = "Never"
    IF_AVAILABLE = "IfAvailable"
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecSpec:
    """The settings of a plugin in a kubeconfig."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    install_hint: str = ""
    interactive_mode: InteractiveMode = InteractiveMode.IF_AVAILABLE
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)  # for provideClusterInfo
    owner: str = "the user"


class _Status(msgspec.Struct, rename="camel"):
    expiration_timestamp: datetime | None = None
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecPlugin:
    """Runs a plugin when needed, and caches its credentials."""

    def __init__(self, spec: ExecSpec, *, clock: Clock, environ: Mapping[str, str] = os.environ) -> None:
        self._spec = spec
        self._clock = clock
        self._environ = environ
        self._run_lock = asyncio.Lock()
        self._runs = 0
        self._failure: str | None = None
        self._identity: Identity | None = None
        self._renew_at: datetime | None = None
        self._expires_at: datetime | None = None

    async def current(self) -> Identity:
        """Return the credentials. Run the plugin if there are none or they expire soon."""
        if self._identity is None or (self._renew_at is not None and self._clock.now() >= self._renew_at):
            await self._renew()
        return self._identity_or_error()

    async def refresh(self, rejected: Identity) -> None:
        """Run the plugin, unless it has run since it returned `rejected`."""
        # `is`, because two runs of a plugin may return equal credentials, and each run is a new answer.
        if self._identity is rejected:
            self._identity = None
            await self._renew()
            self._identity_or_error()

    def _identity_or_error(self) -> Identity:
        if self._identity is None:
            raise CredentialsError(f"{self._name}: {self._failure}")
        return self._identity

    async def _renew(self) -> None:
        runs_before = self._runs
        async with self._run_lock:
            if self._runs != runs_before:  # another task ran it while this one waited for the lock
                return
            try:
                self._accept(await self._run())
                self._failure = None
            except CredentialsError as error:
                self._failure = str(error)
                self._keep_until_expiry()
            self._runs += 1

    def _accept(self, output: bytes) -> None:
        status = self._parse(output)
        now = self._clock.now()
        self._expires_at = status.expiration_timestamp
        self._renew_at = max(self._expires_at - _RENEW_BEFORE, now + _MIN_RUN_INTERVAL) if self._expires_at else None
        self._identity = Identity(
            bearer_header(status.token, description="its token") if status.token else None, self._certificate(status)
        )

    def _keep_until_expiry(self) -> None:
        now = self._clock.now()
        if self._expires_at is None or now >= self._expires_at:
            self._identity = None
        else:
            self._renew_at = now + _MIN_RUN_INTERVAL

    async def _run(self) -> bytes:
        interactive = self._is_interactive()
        try:
            process = await self._start(interactive=interactive)
        except FileNotFoundError:
            hint = f"; {' '.join(self._spec.install_hint.split())}" if self._spec.install_hint else ", install it"
            raise CredentialsError(f"there is no such program{hint}") from None
        except OSError as error:
            raise CredentialsError(f"it cannot be run: {error.strerror}") from None
        return await self._output(process, interactive=interactive)

    async def _start(self, *, interactive: bool) -> Process:
        starting = asyncio.ensure_future(  # noqa: TID251 - owned here: a shield needs a task that outlives the cancel
            asyncio.create_subprocess_exec(
                self._spec.command,
                *self._spec.args,
                env={
                    **self._environ,
                    **dict(self._spec.env),
                    "KUBERNETES_EXEC_INFO": self._exec_info(interactive=interactive),
                },
                stdin=None if interactive else DEVNULL,
                stdout=PIPE,
                stderr=None if interactive else PIPE,  # the user at the terminal must see the plugin's prompts
                # A session of its own, so that `_stop` reaches the children of a shell script. At a terminal, the
                # plugin must stay in ours to read from it.
                start_new_session=not interactive,
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A program that is just starting may already have children: stop it like any other.
            with contextlib.suppress(OSError):
                await _stop(await starting, whole_session=not interactive)
            raise

    async def _output(self, process: Process, *, interactive: bool) -> bytes:
        limit = _INTERACTIVE_TIMEOUT if interactive else _TIMEOUT
        try:
            async with asyncio.timeout(limit.total_seconds()):
                output, stderr = await process.communicate()
        except TimeoutError:
            raise CredentialsError(
                f"it did not end within {limit.total_seconds():g} s; {self._manual_command}"
            ) from None
        finally:
            await _stop(process, whole_session=not interactive)
        if process.returncode != 0:
            failed = f"it failed with exit code {process.returncode}{_last_line(stderr)}"
            raise CredentialsError(f"{failed}; {self._manual_command}")
        return output

    def _is_interactive(self) -> bool:
        mode = self._spec.interactive_mode
        is_interactive = mode is not InteractiveMode.NEVER and sys.stdin is not None and sys.stdin.isatty()
        if mode is InteractiveMode.ALWAYS and not is_interactive:
            raise CredentialsError("it needs a person at a terminal (interactiveMode: Always), and there is none")
        return is_interactive

    def _exec_info(self, *, interactive: bool) -> str:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._spec.cluster is not None:
            spec["cluster"] = self._spec.cluster
        info = {"kind": "ExecCredential", "apiVersion": self._spec.api_version, "spec": spec}
        return msgspec.json.encode(info).decode()

    def _parse(self, output: bytes) -> _Status:
        if not output.strip():
            raise CredentialsError(f"it printed nothing; {self._manual_command}")
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.MsgspecError as error:
            raise CredentialsError(
                f"expected an ExecCredential in JSON on its output: {error}; {self._manual_command}"
            ) from None
        if credential.kind != "ExecCredential" or credential.api_version != self._spec.api_version:
            found = f"{credential.api_version or 'no apiVersion'} {credential.kind or 'no kind'}"
            raise CredentialsError(f"expected {self._spec.api_version} ExecCredential on its output, found {found}")
        status = credential.status
        if status is None or not (status.token or status.client_certificate_data or status.client_key_data):
            raise CredentialsError("expected a token or a certificate in the status it printed, found neither")
        if status.expiration_timestamp and status.expiration_timestamp.tzinfo is None:
            raise CredentialsError("expected a time zone in the expirationTimestamp it printed")
        return status

    def _certificate(self, status: _Status) -> ClientCertificate | None:
        certificate, key = status.client_certificate_data, status.client_key_data
        if not certificate and not key:
            return None
        if not certificate or not key:
            raise CredentialsError("it printed a certificate without its key, or a key without its certificate")
        pair = ClientCertificate(certificate.encode(), key.encode())
        tls.check_client_certificate(pair, owner=self._spec.owner)
        return pair

    @property
    def _name(self) -> str:
        return f"exec plugin {self._spec.command} of {self._spec.owner}"

    @property
    def _manual_command(self) -> str:
        return f"run it by hand: {shlex.join([self._spec.command, *redact_arguments(self._spec.args)])}"


async def _stop(process: Process, *, whole_session: bool) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        if whole_session:  # children of a shell script keep its pipes open
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_MIN_RUN_INTERVAL.total_seconds()):
            await process.wait()


def _last_line(stderr: bytes | None) -> str:
    lines = (stderr or b"").decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    plain = "".join(char for char in _ANSI_COLORS.sub("", last) if char.isprintable())
    return f": {plain[-_MAX_OUTPUT:]}" if plain else ""
