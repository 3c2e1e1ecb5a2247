"""Nova by openstacksdk, in threads.

    nova = SdkNova(credentials)

Nothing is connected yet when this returns. Credentials are read when a call needs them, so that new ones count without
a restart; tokens are had anew when they have expired. The SDK's own retries are off: who calls decides when to try
again, and tells what is wrong meanwhile.

It is not part of the default installation. No message here ever contains a password or a token.
"""

import importlib
import importlib.util
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from haulout.core.cloudprovider import Settings
from haulout.core.sdk_limits import bound_session
from haulout.core.threads import in_a_thread
from haulout.errors import CloudError, ConfigError
from haulout.kubernikus.nova import Document

T = TypeVar("T")
Credentials = Callable[[], Awaitable[Settings]]

_SECONDS = 30.0  # for one answer
_REFUSED = (401, 403)
_PACKAGE = "openstack"
_LOGGERS = ("openstack", "keystoneauth", "urllib3", "stevedore")


def check() -> None:
    """Raise `ConfigError` if the SDK is not installed."""
    if importlib.util.find_spec(_PACKAGE) is None:
        raise _lacking(f"there is no module {_PACKAGE}")


class SdkNova:
    """The servers of the project that credentials are for."""

    def __init__(self, credentials: Credentials, *, seconds: float = _SECONDS) -> None:
        self._credentials = credentials
        self._seconds = seconds
        self._making = threading.Lock()
        self._made: tuple[Settings, Any] | None = None

    async def servers(self, name: str) -> Sequence[Document]:
        """Return the servers whose name has this in it."""
        return await self._call(lambda compute: _listed(compute, name), doing=f"asking Nova for server {name}")

    async def delete(self, server: str) -> None:
        """Delete a server by its id; one that is gone is deleted."""
        await self._call(
            lambda compute: compute.delete_server(server, ignore_missing=True), doing=f"deleting server {server}"
        )

    async def _call(self, work: Callable[[Any], T], *, doing: str) -> T:
        settings = await self._credentials()
        return await in_a_thread(lambda: self._called(work, settings, doing), name="openstack")

    def _called(self, work: Callable[[Any], T], settings: Settings, doing: str) -> T:
        sdk, errors = _sdk()
        try:
            return work(self._compute(sdk, settings))
        except errors as error:
            raise self._said(error, settings, doing) from None
        except Exception as error:  # noqa: BLE001 - the SDK trips over what has another shape than it expects
            odd = _hidden(f"{type(error).__name__}: {error}", settings)
            message = f"OpenStack at {settings.auth_url} gave an answer that makes no sense ({odd:.200})"
            raise CloudError(message, doing=doing) from None

    def _compute(self, sdk: Any, settings: Settings) -> Any:
        with self._making:
            if self._made is None or self._made[0] != settings:
                self._made = settings, self._connected(sdk, settings)
            return self._made[1]

    def _connected(self, sdk: Any, settings: Settings) -> Any:
        identity = importlib.import_module("keystoneauth1.identity.v3")
        sessions = importlib.import_module("keystoneauth1.session")
        auth = identity.Password(
            auth_url=settings.auth_url,
            username=settings.username,
            password=settings.password,
            user_domain_name=settings.domain_name,
            project_id=settings.tenant_id,
        )
        session = sessions.Session(auth=auth, timeout=self._seconds, app_name="haulout")
        bound_session(session.session)
        return sdk.Connection(session=session, region_name=settings.region, compute_api_version="2.1").compute

    def _said(self, error: Any, settings: Settings, doing: str) -> CloudError:
        status = getattr(error, "http_status", None) or getattr(error, "status_code", None) or 0
        if status in _REFUSED:
            with self._making:
                self._made = None
        said = _hidden(str(getattr(error, "details", None) or error), settings)
        who = f" to user {settings.username} of domain {settings.domain_name}" if status in _REFUSED else ""
        message = f"OpenStack at {settings.auth_url} said{who}: {said}"
        return CloudError(message, doing=doing, status=int(status), retry_after=_retry_after(error))


def _listed(compute: Any, name: str) -> Sequence[Document]:
    return [
        {"id": it.id, "name": it.name, "status": it.status, "OS-EXT-STS:task_state": it.task_state}
        for it in compute.servers(details=True, name=name)
    ]


def _hidden(message: str, settings: Settings) -> str:
    """Return a message in one line, and without the password, should anybody have put it there."""
    line = " ".join(message.split())
    return line.replace(settings.password, "…") if settings.password else line


def _retry_after(error: Any) -> timedelta | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    seconds = str(headers.get("Retry-After", ""))
    return timedelta(seconds=int(seconds)) if seconds.isdigit() else None


def _sdk() -> tuple[Any, tuple[type[Exception], ...]]:
    """Return what makes connections, and what is raised."""
    try:
        sdk = importlib.import_module("openstack.connection")
        own = importlib.import_module("openstack.exceptions")
        below = importlib.import_module("keystoneauth1.exceptions")
    except ImportError as error:
        raise _lacking(error) from error
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    return sdk, (own.SDKException, below.ClientException, OSError)


def _lacking(problem: object) -> ConfigError:
    where = "pip install 'haulout[openstack]', or the image with the tag -openstack"
    return ConfigError(f"to delete servers of Kubernikus the SDK of OpenStack is needed: {where} ({problem})")
