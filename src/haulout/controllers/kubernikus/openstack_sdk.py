"""Nova through openstacksdk, in threads.

    nova = SdkNova(credentials)

Creating it connects to nothing. Credentials are read for each call, so that new ones apply without a restart; expired
tokens are renewed. The SDK's own retries are off: the caller decides when to retry, and reports the problem meanwhile.

The SDK is not part of the default installation. No message from this module contains a password or a token.
"""

import importlib
import importlib.util
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from haulout.compat.openstack_config import OpenStackSettings
from haulout.controllers.kubernikus.nova import ServerDocument
from haulout.core.cloud_sdk import limit_session, run_in_thread
from haulout.errors import CloudError, ConfigError

T = TypeVar("T")
CredentialsReader = Callable[[], Awaitable[OpenStackSettings]]

_TIMEOUT_SECONDS = 30.0  # per response
_AUTH_STATUSES = (401, 403)
_PACKAGE = "openstack"
_LOGGERS = ("openstack", "keystoneauth", "urllib3", "stevedore")


def check() -> None:
    if importlib.util.find_spec(_PACKAGE) is None:
        raise _missing_sdk_error(f"there is no module {_PACKAGE}")


class SdkNova:
    """The servers of one project."""

    def __init__(self, credentials: CredentialsReader, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._credentials = credentials
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._compute_client: tuple[OpenStackSettings, Any] | None = None

    async def servers(self, name: str) -> Sequence[ServerDocument]:
        """Return the servers whose name contains `name`."""
        return await self._call(lambda compute: _list_servers(compute, name), doing=f"asking Nova for server {name}")

    async def delete(self, server: str) -> None:
        """Delete a server by ID; succeed if it does not exist."""
        await self._call(
            lambda compute: compute.delete_server(server, ignore_missing=True), doing=f"deleting server {server}"
        )

    async def _call(self, work: Callable[[Any], T], *, doing: str) -> T:
        settings = await self._credentials()
        return await run_in_thread(lambda: self._call_in_thread(work, settings, doing), name="openstack")

    def _call_in_thread(self, work: Callable[[Any], T], settings: OpenStackSettings, doing: str) -> T:
        sdk, errors = _load_sdk()
        try:
            return work(self._compute(sdk, settings))
        except errors as error:
            raise self._to_error(error, settings, doing) from None
        except Exception as error:  # noqa: BLE001 - the SDK raises arbitrary errors for unexpected responses
            problem = _redact(f"{type(error).__name__}: {error}", settings)
            message = f"OpenStack at {settings.auth_url} gave an answer that cannot be read ({problem:.200})"
            raise CloudError(message, doing=doing) from None

    def _compute(self, sdk: Any, settings: OpenStackSettings) -> Any:
        with self._lock:
            if self._compute_client is None or self._compute_client[0] != settings:
                self._compute_client = settings, self._connect(sdk, settings)
            return self._compute_client[1]

    def _connect(self, sdk: Any, settings: OpenStackSettings) -> Any:
        identity = importlib.import_module("keystoneauth1.identity.v3")
        sessions = importlib.import_module("keystoneauth1.session")
        auth = identity.Password(
            auth_url=settings.auth_url,
            username=settings.username,
            password=settings.password,
            user_domain_name=settings.domain_name,
            project_id=settings.tenant_id,
        )
        session = sessions.Session(auth=auth, timeout=self._timeout_seconds, app_name="haulout")
        limit_session(session.session)
        return sdk.Connection(session=session, region_name=settings.region, compute_api_version="2.1").compute

    def _to_error(self, error: Any, settings: OpenStackSettings, doing: str) -> CloudError:
        status = getattr(error, "http_status", None) or getattr(error, "status_code", None) or 0
        if status in _AUTH_STATUSES:
            with self._lock:
                self._compute_client = None
        text = _redact(str(getattr(error, "details", None) or error), settings)
        identity = f" for user {settings.username} of domain {settings.domain_name}" if status in _AUTH_STATUSES else ""
        message = f"OpenStack at {settings.auth_url} returned an error{identity}: {text}"
        return CloudError(message, doing=doing, status=int(status), retry_after=_retry_after(error))


def _list_servers(compute: Any, name: str) -> Sequence[ServerDocument]:
    return [
        {"id": server.id, "name": server.name, "status": server.status, "OS-EXT-STS:task_state": server.task_state}
        for server in compute.servers(details=True, name=name)
    ]


def _redact(message: str, settings: OpenStackSettings) -> str:
    """Return the message as one line, with the password replaced."""
    line = " ".join(message.split())
    return line.replace(settings.password, "…") if settings.password else line


def _retry_after(error: Any) -> timedelta | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    seconds = str(headers.get("Retry-After", ""))
    return timedelta(seconds=int(seconds)) if seconds.isdigit() else None


def _load_sdk() -> tuple[Any, tuple[type[Exception], ...]]:
    """Import the SDK; return its connection module and the exceptions it raises."""
    try:
        sdk = importlib.import_module("openstack.connection")
        sdk_errors = importlib.import_module("openstack.exceptions")
        auth_errors = importlib.import_module("keystoneauth1.exceptions")
    except ImportError as error:
        raise _missing_sdk_error(error) from error
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    return sdk, (sdk_errors.SDKException, auth_errors.ClientException, OSError)


def _missing_sdk_error(problem: object) -> ConfigError:
    how_to_install = "pip install 'haulout[openstack]', or the image with the tag -openstack"
    return ConfigError(f"the OpenStack SDK is not installed: use {how_to_install} ({problem})")
