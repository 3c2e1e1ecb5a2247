"""Runs a control plane on the loopback interface: real binaries, real TLS, real RBAC, and faults on demand.

It has no nodes and no kubelets: a Node is an object that a test creates, and a Pod stays as it was written. Without
`start_controllers` no controller acts either, so a test controls every object. Service-account admission is off,
because a controller would have to create the default account that it requires in every namespace.

Ports stay the same across restarts.

All functions block; async tests call them through `asyncio.to_thread`.
"""

import base64
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from controlplane import assets as programs
from controlplane import flags, reaper
from controlplane.credentials import ADMIN, Credentials
from controlplane.ports import LOOPBACK, free_port, free_ports
from controlplane.server_process import ControlPlaneError, ServerProcess
from haulout.core.key_pair import KeyPair

_READY_TIMEOUT = timedelta(seconds=90)  # takes 4 s on an idle machine; a busy one may be far slower
_REQUEST_TIMEOUT = timedelta(seconds=30)
_PROBE_TIMEOUT = timedelta(seconds=2)


class Response(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes
    warnings: tuple[str, ...] = ()

    def json(self) -> Any:
        """Return what the body says."""
        return json.loads(self.body)


class ControlPlane:
    """A control plane, alive between `start` and `stop` or inside a `with`.

    `users` have a token each, and the groups given here; `admin` is always one of them and may do everything. Others
    sign in with a client certificate. `apiserver_flags` are added to the server's, and win over them.
    """

    def __init__(
        self,
        assets: programs.Assets | None = None,
        *,
        users: Mapping[str, Sequence[str]] | None = None,
        apiserver_flags: Sequence[str] = (),
    ) -> None:
        self.assets = assets or programs.find()
        self._credentials = Credentials(users or {})
        self._apiserver_flags = apiserver_flags
        self._etcd_port, self._port = free_ports(2)
        self._tls = ssl.create_default_context(cadata=self.ca.decode())
        self._folder: Path | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self._processes: dict[str, ServerProcess] = {}

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://{LOOPBACK}:{self._port}"

    @property
    def etcd(self) -> str:
        """The address of etcd's JSON gateway."""
        return f"http://{LOOPBACK}:{self._etcd_port}"

    @property
    def ca(self) -> bytes:
        """The certificate, PEM, that vouches for the API server."""
        return self._credentials.server_ca

    @property
    def folder(self) -> Path:
        """Where data, logs and kubeconfigs are; gone after `stop`."""
        if self._folder is None:
            raise ControlPlaneError("the control plane is not started")
        return self._folder

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start etcd and the API server; return when it is ready."""
        if self._folder is not None:
            raise ControlPlaneError("the control plane is started already")
        self._folder = Path(tempfile.mkdtemp(prefix="haulout-controlplane-"))
        try:
            self._reaper = _start_reaper(self._folder)
            self._credentials.write_server_files(self._folder)
            self._add_etcd().start(within=_READY_TIMEOUT)
            self._add_apiserver().start(within=_READY_TIMEOUT)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything and leave nothing behind; harmless if nothing runs."""
        for process in reversed(self._processes.values()):
            process.kill()
        self._processes.clear()
        if self._reaper is not None:
            self._reaper.kill()
            self._reaper.communicate()
            self._reaper = None
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    # Faults of the API server

    def kill_apiserver(self) -> None:
        """End the API server without warning: connections are reset, new ones refused."""
        self._process("kube-apiserver").kill()

    def start_apiserver(self) -> None:
        """Start the API server again, after `kill_apiserver`: same address, same data."""
        self._process("kube-apiserver").start(within=_READY_TIMEOUT)

    def restart_apiserver(self) -> None:
        """Restart the API server as an upgrade would: it ends its clients' requests in order first."""
        self._process("kube-apiserver").stop()
        self.start_apiserver()

    def pause_apiserver(self) -> None:
        """Freeze the API server: connections stay open and new ones are accepted, but nothing answers."""
        self._process("kube-apiserver").pause()

    def resume_apiserver(self) -> None:
        """Let the API server go on; it answers what it was asked meanwhile."""
        self._process("kube-apiserver").resume()

    # Faults of etcd

    def kill_etcd(self) -> None:
        """End etcd without warning: the API server loses its database."""
        self._process("etcd").kill()

    def start_etcd(self) -> None:
        """Start etcd again, after `kill_etcd`, with the same data."""
        self._process("etcd").start(within=_READY_TIMEOUT)

    def pause_etcd(self) -> None:
        """Freeze etcd: the API server's requests to it hang."""
        self._process("etcd").pause()

    def resume_etcd(self) -> None:
        """Let etcd continue after `pause_etcd`."""
        self._process("etcd").resume()

    def backup_etcd(self) -> None:
        """Keep a copy of etcd's data for `restore_etcd`; the API server has no database meanwhile."""
        etcd = self._process("etcd")
        etcd.stop()
        shutil.rmtree(self._etcd_backup, ignore_errors=True)
        shutil.copytree(self.folder / "etcd", self._etcd_backup)
        etcd.start(within=_READY_TIMEOUT)

    def restore_etcd(self) -> None:
        """Put the data of the last `backup_etcd` back, as a restored backup does: revisions go back, too.

        The API server restarts with it, because its watch cache would be ahead of etcd.
        """
        self.kill_apiserver()
        self.kill_etcd()
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(self._etcd_backup, self.folder / "etcd")
        self.start_etcd()
        self.start_apiserver()

    @property
    def _etcd_backup(self) -> Path:
        return self.folder / "etcd-saved"

    def compact(self) -> int:
        """Let etcd forget everything before its current revision, which is returned.

        Clients do not notice by themselves: the API server answers watches, and lists at older revisions, from its own
        memory of recent events for as long as that reaches back. `expire_history` takes that too.
        """
        # A write of our own makes it a revision that nobody has seen and nobody has compacted yet.
        written = self._etcd_call("put", {"key": base64.b64encode(b"haulout-test/compaction").decode()})
        revision = int(written["header"]["revision"])
        self._etcd_call("compaction", {"revision": revision, "physical": True})
        return revision

    def expire_history(self) -> None:
        """Make the API server answer 410 to a watch from, or a list at, any resourceVersion seen before.

        The API server remembers recent events of each kind in its watch cache. After a restart that memory begins at
        etcd's current revision, which `compact` made newer than all that were handed out; and etcd forgot the rest.
        """
        self.compact()
        self.kill_apiserver()
        self.start_apiserver()

    # Background activity

    def start_controllers(
        self, controllers: Sequence[str] = ("*",), *, scheduler: bool = True, flags: Sequence[str] = ()
    ) -> None:
        """Start kube-controller-manager with these `controllers` (`*` and `-NAME` work), and the scheduler.

        Without kubelets the node-lifecycle-controller soon takes every node for dead: start
        `("*", "-node-lifecycle-controller")` where nodes shall stay as they were written.
        """
        started = [self._add_controller_manager(controllers, flags)]
        if scheduler:
            started.append(self._add_scheduler())
        for process in started:
            process.launch()
        for process in started:
            process.wait_until_ready(within=_READY_TIMEOUT)

    def stop_controllers(self) -> None:
        """End kube-controller-manager and kube-scheduler; harmless if they do not run."""
        for name in programs.CONTROLLERS:
            if process := self._processes.pop(name, None):
                process.kill()

    # Access

    def token(self, user: str = ADMIN) -> str:
        """Return the bearer token of `user`."""
        return self._credentials.token(user)

    def client_certificate(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Return a certificate and key, both PEM, that the API server takes for `user` with `groups`."""
        return self._credentials.client_certificate(user, groups)

    def kubeconfig(self, user: str = ADMIN, *, groups: Sequence[str] | None = None, namespace: str = "default") -> Path:
        """Return a kubeconfig for `user`: with the user's token, or, if `groups` are given, a client certificate."""
        folder = self.folder / "kubeconfigs"
        folder.mkdir(exist_ok=True)
        return self._credentials.kubeconfig(folder, server=self.server, user=user, groups=groups, namespace=namespace)

    def kubectl(
        self,
        *arguments: str,
        user: str = ADMIN,
        groups: Sequence[str] | None = None,
        input: str | None = None,  # noqa: A002 - named as in subprocess.run, whose result this returns
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as `user`; with `check`, a failure raises and shows what kubectl said."""
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),  # for the plugins and editors that kubectl starts
            "HOME": str(self.folder),  # for its caches
            "KUBECONFIG": str(self.kubeconfig(user, groups=groups)),
        }
        command = [str(self.assets.path("kubectl")), *arguments]
        done = subprocess.run(command, input=input, env=environment, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise ControlPlaneError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        user: str = ADMIN,
        within: timedelta = _REQUEST_TIMEOUT,
    ) -> Response:
        """Send one request, whose `body` becomes JSON if it is not bytes, and read the answer to its end."""
        headers = {"Authorization": f"Bearer {self.token(user)}", "Content-Type": content_type}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return _send(self._port, method, path, headers=headers, body=content, within=within, tls=self._tls)

    # The parts

    def _add_etcd(self) -> ServerProcess:
        command_line = flags.etcd(folder=self.folder, port=self._etcd_port)
        return self._add_process("etcd", command_line, is_ready=lambda: _is_ready(self._etcd_port, "/readyz"))

    def _add_apiserver(self) -> ServerProcess:
        command_line = flags.apiserver(folder=self.folder, port=self._port, etcd_port=self._etcd_port)
        return self._add_process(
            "kube-apiserver",
            [*command_line, *self._apiserver_flags],
            is_ready=lambda: _is_ready(self._port, "/readyz", tls=self._tls),
        )

    def _add_controller_manager(self, controllers: Sequence[str], more_flags: Sequence[str]) -> ServerProcess:
        port = free_port()
        kubeconfig = self.kubeconfig("system:kube-controller-manager", groups=())
        command_line = flags.controller_manager(
            folder=self.folder, port=port, kubeconfig=kubeconfig, controllers=controllers
        )
        # It is healthy before it does anything; each controller that is about to run then adds a check of its own.
        return self._add_process(
            "kube-controller-manager",
            [*command_line, *more_flags],
            is_ready=lambda: _is_ready(port, "/healthz?verbose", expected=b"-controller ok", tls=self._tls),
        )

    def _add_scheduler(self) -> ServerProcess:
        port = free_port()
        kubeconfig = self.kubeconfig("system:kube-scheduler", groups=())
        command_line = flags.scheduler(folder=self.folder, port=port, kubeconfig=kubeconfig)
        return self._add_process(
            "kube-scheduler", command_line, is_ready=lambda: _is_ready(port, "/readyz", tls=self._tls)
        )

    def _add_process(self, program: str, command_line: Sequence[str], *, is_ready: Callable[[], bool]) -> ServerProcess:
        if program in self._processes or self._reaper is None:
            raise ControlPlaneError(f"{program} cannot be started {'twice' if self._reaper else 'yet'}")
        command = [str(self.assets.path(program)), *command_line]
        log = self.folder / f"{program}.log"
        process = ServerProcess(command, log=log, group=self._reaper.pid, is_ready=is_ready)
        self._processes[program] = process
        return process

    def _process(self, program: str) -> ServerProcess:
        if program not in self._processes:
            raise ControlPlaneError(f"{program} was not started")
        return self._processes[program]

    def _etcd_call(self, method: str, arguments: Mapping[str, object]) -> Any:
        """Call a method of etcd's KV service through its JSON gateway."""
        answer = _send(self._etcd_port, "POST", f"/v3/kv/{method}", body=json.dumps(arguments).encode())
        if answer.status != http.HTTPStatus.OK:
            raise ControlPlaneError(f"etcd refused {method}: {answer.body.decode(errors='replace')}")
        return answer.json()


def _start_reaper(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", reaper.__file__, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)


def _send(
    port: int,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    within: timedelta = _REQUEST_TIMEOUT,
    tls: ssl.SSLContext | None = None,
) -> Response:
    seconds = within.total_seconds()
    connection = (
        http.client.HTTPConnection(LOOPBACK, port, timeout=seconds)
        if tls is None
        else http.client.HTTPSConnection(LOOPBACK, port, timeout=seconds, context=tls)
    )
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        return Response(response.status, response.read(), tuple(response.headers.get_all("Warning") or ()))
    finally:
        connection.close()


def _is_ready(port: int, path: str, *, expected: bytes = b"ok", tls: ssl.SSLContext | None = None) -> bool:
    try:
        answer = _send(port, "GET", path, within=_PROBE_TIMEOUT, tls=tls)
    except (OSError, http.client.HTTPException):
        return False
    return answer.status == http.HTTPStatus.OK and expected in answer.body
