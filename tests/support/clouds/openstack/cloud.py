"""One OpenStack region, with a user and a project: simulated events, and the API calls."""

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from haulout.core.clock import Clock
from haulout.errors import CloudError
from haulout_sandbox.clouds.faults import Faults

Document = dict[str, Any]

REGION = "sandbox-1"
_UNAUTHORIZED, _NOT_FOUND, _BAD_REQUEST = 401, 404, 400
_TOKEN_LIFETIME = timedelta(hours=1)
_DELETION_TIME = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user, and the project that they have a role in."""

    username: str = "kubernikus"
    password: str = field(default="sandbox", repr=False)
    domain: str = "Default"  # of the user
    project: str = "5a5d0b0c0d0e4f0f8a8b8c8d8e8f9091"


@dataclass(slots=True)
class Server:
    """A server."""

    id: str
    name: str
    project: str
    host: str
    created: datetime
    ends_at: datetime | None = None  # when a requested deletion takes effect

    def document(self) -> Document:
        """Return it as Nova shows it."""
        leaves = self.ends_at is not None
        return {
            "id": self.id,
            "name": self.name,
            "status": "ACTIVE",
            "tenant_id": self.project,
            "created": f"{self.created:%Y-%m-%dT%H:%M:%SZ}",
            "updated": f"{self.created:%Y-%m-%dT%H:%M:%SZ}",
            "OS-EXT-STS:task_state": "deleting" if leaves else None,
            "OS-EXT-STS:vm_state": "active",
            "OS-EXT-STS:power_state": 1,
            "OS-EXT-SRV-ATTR:host": self.host,
            "OS-EXT-SRV-ATTR:hypervisor_hostname": self.host,
            "metadata": {},
            "addresses": {},
        }


@dataclass(slots=True)
class Host:
    """A host that servers run on, by its service nova-compute."""

    name: str
    id: str
    status: str = "enabled"
    reason: str | None = None

    def document(self) -> Document:
        """Return its service as Nova shows it."""
        return {
            "id": self.id,
            "binary": "nova-compute",
            "host": self.name,
            "zone": "nova",
            "status": self.status,
            "state": "up",
            "disabled_reason": self.reason,
            "forced_down": False,
        }


class OpenStackCloud:
    """A region; calls in this process are those of the user of its account. Other realms have other ids."""

    def __init__(self, clock: Clock, *, account: Account | None = None, realm: str = "") -> None:
        self.clock = clock
        self.account = account or Account()
        self.faults = Faults(clock)
        self.ends_within = _DELETION_TIME
        self.hosts = [Host(f"compute-{number}", self._uuid(f"{realm} host {number}")) for number in (1, 2, 3)]
        self._realm = realm
        self._by_id: dict[str, Server] = {}
        self._tokens: dict[str, tuple[str, datetime]] = {}  # the project, and until when
        self._numbers = itertools.count(1)
        self._listeners: list[Callable[[], object]] = []

    # What happens

    def boot(self, name: str, *, project: str = "") -> str:
        """Return the id of a new server."""
        number = next(self._numbers)
        made = self._uuid(f"{self._realm} server {number}")
        host = self.hosts[number % len(self.hosts)].name
        self._by_id[made] = Server(made, name, project or self.account.project, host, self.clock.now())
        self._notify_listeners()
        return made

    def remove_server(self, server: str) -> None:
        """Have a server be gone at once."""
        del self._by_id[server]
        self._notify_listeners()

    def expire_tokens(self) -> None:
        """Invalidate all tokens."""
        self._tokens.clear()

    def disable(self, host: str, *, reason: str) -> None:
        """Have a host be put into maintenance by an administrator."""
        found = next(candidate for candidate in self.hosts if candidate.name == host)
        found.status, found.reason = "disabled", reason

    def subscribe(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call a function when servers are added or deleted; return a function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def all_servers(self) -> dict[str, Server]:
        """The servers that there are, by id; those that leave included."""
        now = self.clock.now()
        for server in [
            server for server in self._by_id.values() if server.ends_at is not None and server.ends_at <= now
        ]:
            del self._by_id[server.id]
        return self._by_id

    # What it answers

    async def servers(self, name: str) -> Sequence[Document]:
        """Return the servers of the project whose name has this in it."""
        return await self.list_servers(self.account.project, name=name)

    async def delete(self, server: str) -> None:
        """Delete a server; one that is gone is deleted."""
        try:
            await self.delete_server(self.account.project, server)
        except CloudError as error:
            if error.status != _NOT_FOUND:
                raise

    async def authenticate(self, account: Account) -> tuple[str, datetime]:
        """Return a token and its expiry."""
        return await self.faults.call("Authenticate", lambda: self._authenticate(account))

    async def list_servers(self, project: str, *, name: str = "") -> Sequence[Document]:
        """Return the servers of a project whose name matches a pattern."""
        return await self.faults.call("ListServers", lambda: list(self._matching(project, name)))

    async def show_server(self, project: str, server: str) -> Document:
        """Return one server."""
        return await self.faults.call("ShowServer", lambda: self._server_of(project, server).document())

    async def delete_server(self, project: str, server: str) -> None:
        """Delete a server, which takes a while."""
        await self.faults.call("DeleteServer", lambda: self._delete(project, server))

    async def services(self) -> Sequence[Document]:
        """Return the services of all hosts."""
        return await self.faults.call("ListServices", lambda: [host.document() for host in self.hosts])

    def project_of(self, token: str) -> str:
        """Return the project of a token; raise if the token is invalid."""
        project, until = self._tokens.get(token, ("", self.clock.now()))
        if until <= self.clock.now():
            raise _api_error("The request you have made requires authentication.", status=_UNAUTHORIZED)
        return project

    def _authenticate(self, account: Account) -> tuple[str, datetime]:
        if account != self.account:
            raise _api_error("The request you have made requires authentication.", status=_UNAUTHORIZED)
        token, until = f"token-{next(self._numbers)}", self.clock.now() + _TOKEN_LIFETIME
        self._tokens[token] = account.project, until
        return token, until

    def _matching(self, project: str, name: str) -> Iterator[Document]:
        try:
            pattern = re.compile(name, re.IGNORECASE)
        except re.error:
            raise _api_error("Invalid filter field: name.", status=_BAD_REQUEST) from None
        for server in self.all_servers.values():
            if server.project == project and pattern.search(server.name):
                yield server.document()

    def _server_of(self, project: str, server: str) -> Server:
        found = self.all_servers.get(server)
        if found is None or found.project != project:
            raise _api_error(f"Instance {server} could not be found.", status=_NOT_FOUND)
        return found

    def _delete(self, project: str, server: str) -> None:
        found = self._server_of(project, server)
        if found.ends_at is None:
            found.ends_at = self.clock.now() + self.ends_within
            self._notify_listeners()

    def _notify_listeners(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    @staticmethod
    def _uuid(text: str) -> str:
        digits = hashlib.sha256(text.encode()).hexdigest()
        return "-".join((digits[:8], digits[8:12], f"4{digits[12:15]}", f"8{digits[15:18]}", digits[18:30]))


def _api_error(message: str, *, status: int) -> CloudError:
    return CloudError(message, doing="OpenStack", status=status)
