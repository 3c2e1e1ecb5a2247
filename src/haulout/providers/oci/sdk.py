"""The OCI calls through Oracle's SDK, in threads.

    source = new_event_source(settings, instance=pod, clock=clock, random=random)

This connects to nothing yet. Credentials are read when a call needs them, and again after they were rejected, so that a
metadata service that is not available yet is an ordinary error. The SDK's own retries are off: the caller decides when
to retry, and reports the problem meanwhile. The SDK's response models are not used either: documents are returned as
they are, including values that the SDK does not know yet.
"""

import asyncio
import base64
import importlib
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from haulout.core.clock import Clock
from haulout.core.cloud_sdk import OCI, limit_requests
from haulout.core.timestamps import micro_time
from haulout.errors import CloudError
from haulout.providers.oci.api import Document
from haulout.providers.oci.event_source import OciEventSource
from haulout.providers.oci.settings import Auth, OciSettings
from haulout.providers.oci.stream_consumer import ConsumerOptions

_CONNECT_SECONDS, _READ_SECONDS = 10, 40  # shorter than the timeout of a call, so that no thread is left behind
_STREAM_SECONDS = 3, 8  # likewise, for the consumer's shorter timeout
_UNAUTHORIZED = 401
_PAGE_SIZE = 100

NewClient = Callable[[], Any]


def new_event_source(settings: OciSettings, *, instance: str, clock: Clock, random: Random) -> OciEventSource:
    """Return the event source for OCI; `instance` identifies this process in the consumer group."""
    streaming, compute = new_clients(settings)
    return OciEventSource(
        compute,
        streaming=streaming,
        consumer_options=ConsumerOptions(instance=f"haulout-{instance}", group=settings.group),
        compartments=settings.compartments,
        clock=clock,
        random=random,
    )


def new_clients(settings: OciSettings) -> tuple["SdkStreaming | None", "SdkCompute"]:
    """Return the clients; raise `ConfigError` if the SDK is not installed."""
    oci = _load_sdk()
    streaming = None
    if settings.stream:
        maker = _ClientMaker(oci, settings)
        streaming = SdkStreaming(oci, settings.stream, maker.streaming)
    return streaming, SdkCompute(oci, _ClientMaker(oci, settings).compute)


def _load_sdk() -> Any:
    try:
        oci = importlib.import_module("oci")
        for part in ("oci.auth.signers", "oci.core", "oci.streaming"):
            importlib.import_module(part)
        adapters, connection = "oci._vendor.requests.adapters", "urllib3.connection"
        limit_requests(importlib.import_module(adapters), importlib.import_module(connection))
    except ImportError as error:
        raise OCI.missing_error(error) from error
    logging.getLogger("oci").setLevel(logging.WARNING)  # the SDK logs every request
    return oci


class _ClientMaker:
    """Creates SDK clients with credentials. It may block: an instance principal is requested over HTTP."""

    def __init__(self, oci: Any, settings: OciSettings) -> None:
        self._oci = oci
        self._settings = settings

    def streaming(self) -> Any:
        config, arguments = self._client_arguments()
        arguments["timeout"] = _STREAM_SECONDS
        return self._oci.streaming.StreamClient(config, self._settings.endpoint, **arguments)

    def compute(self) -> Any:
        config, arguments = self._client_arguments()
        if self._settings.compute_endpoint:
            arguments["service_endpoint"] = self._settings.compute_endpoint
        return self._oci.core.ComputeClient(config, **arguments)

    def _client_arguments(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the configuration and the keyword arguments of a client."""
        config, signer = self._credentials()
        if self._settings.region:
            config["region"] = self._settings.region
        arguments = {
            "retry_strategy": self._oci.retry.NoneRetryStrategy(),
            "circuit_breaker_strategy": self._oci.circuit_breaker.NoCircuitBreakerStrategy(),
            "timeout": (_CONNECT_SECONDS, _READ_SECONDS),
            "skip_deserialization": True,
        }
        return config, arguments if signer is None else arguments | {"signer": signer}

    def _credentials(self) -> tuple[dict[str, Any], Any]:
        signers, settings = self._oci.auth.signers, self._settings
        if settings.auth is Auth.INSTANCE_PRINCIPAL:
            once = self._oci.retry.NoneRetryStrategy()  # by default it would retry for minutes without a message
            return {}, signers.InstancePrincipalsSecurityTokenSigner(
                retry_strategy=once, federation_client_retry_strategy=once
            )
        if settings.auth is Auth.WORKLOAD_IDENTITY:
            signer = signers.get_oke_workload_identity_resource_principal_signer()
            return {"region": settings.region or signer.region}, signer
        file = settings.config_file or self._oci.config.DEFAULT_LOCATION
        config = self._oci.config.from_file(file, settings.profile or self._oci.config.DEFAULT_PROFILE)
        token_file = config.get("security_token_file")
        if not token_file:
            return config, None
        token = Path(token_file).expanduser().read_text(encoding="utf-8").strip()
        key = self._oci.signer.load_private_key_from_file(config["key_file"], config.get("pass_phrase"))
        return config, signers.SecurityTokenSigner(token, key)


class _SdkCalls:
    """Makes calls with one client, each in a thread of the default executor."""

    def __init__(self, oci: Any, new_client: NewClient) -> None:
        self._oci = oci
        self._new_client = new_client
        self._client: Any = None
        self._lock = threading.Lock()

    async def call(self, doing: str, use: Callable[[Any], Any]) -> Any:
        """Make a call and return its result; every failure is a `CloudError`."""
        return await asyncio.to_thread(self._call, doing, use)

    def _call(self, doing: str, use: Callable[[Any], Any]) -> Any:
        client = self._get_client(doing)
        try:
            return use(client)
        except self._oci.exceptions.ServiceError as error:
            if error.status == _UNAUTHORIZED:
                self._client = None  # the next call creates a client with new credentials
            headers = error.headers or {}
            raise CloudError(
                str(error.message),
                doing=doing,
                status=error.status,
                code=str(error.code or ""),
                retry_after=_retry_after(headers),
            ) from None
        except Exception as error:  # the SDK lets arbitrary errors of its HTTP library and signers through
            raise CloudError(_first_line(error), doing=doing) from error

    def _get_client(self, doing: str) -> Any:
        if not self._lock.acquire(timeout=_READ_SECONDS):
            raise CloudError("still waiting for credentials", doing=doing)
        try:
            client = self._client = self._client or self._new_client()
        except Exception as error:  # the same, and missing files
            raise CloudError(f"cannot get credentials: {_first_line(error)}", doing=doing) from error
        finally:
            self._lock.release()
        return client


class SdkStreaming:
    """A stream through the SDK, whose offsets are committed explicitly."""

    def __init__(self, oci: Any, stream: str, new_client: NewClient) -> None:
        self._models = oci.streaming.models
        self._stream = stream
        self._calls = _SdkCalls(oci, new_client)

    async def group_cursor(self, *, group: str, instance: str) -> str:
        # commit_on_get: by default each read commits what the read before returned, whether it was processed or not.
        details = self._models.CreateGroupCursorDetails(
            type="TRIM_HORIZON", group_name=group, instance_name=instance, commit_on_get=False
        )
        found = await self._calls.call(
            "asking for a cursor", lambda client: client.create_group_cursor(self._stream, details)
        )
        return _cursor(found)

    async def messages(self, cursor: str, *, limit: int) -> tuple[list[Document], str]:
        found = await self._calls.call(
            "reading the stream", lambda client: client.get_messages(self._stream, cursor, limit=limit)
        )
        return _documents(found), found.headers.get("opc-next-cursor", "")

    async def commit(self, cursor: str) -> str:
        found = await self._calls.call(
            "committing what was read", lambda client: client.consumer_commit(self._stream, cursor)
        )
        return _cursor(found)

    async def heartbeat(self, cursor: str) -> str:
        found = await self._calls.call(
            "sending a heartbeat", lambda client: client.consumer_heartbeat(self._stream, cursor)
        )
        return _cursor(found)

    async def put(self, content: bytes) -> tuple[str, int]:
        """Put a message on the stream; return its partition and its offset."""
        entry = self._models.PutMessagesDetailsEntry(value=base64.b64encode(content).decode())
        details = self._models.PutMessagesDetails(messages=[entry])
        doing = "putting a message on the stream"
        found = await self._calls.call(doing, lambda client: client.put_messages(self._stream, details))
        (put,) = _document(found.data).get("entries") or [{}]
        if put.get("error"):
            raise CloudError(str(put.get("errorMessage")), doing=doing, code=str(put["error"]))
        return str(put.get("partition")), int(put.get("offset", -1))


class SdkCompute:
    """Instances and their maintenance through the SDK."""

    def __init__(self, oci: Any, new_client: NewClient) -> None:
        self._models = oci.core.models
        self._calls = _SdkCalls(oci, new_client)

    async def maintenance_events(self, compartment: str, *, state: str, page: str = "") -> tuple[list[Document], str]:
        further = {"page": page} if page else {}
        found = await self._calls.call(
            f"listing maintenance in {compartment}",
            lambda client: client.list_instance_maintenance_events(
                compartment, lifecycle_state=state, limit=_PAGE_SIZE, **further
            ),
        )
        return _documents(found), found.headers.get("opc-next-page") or ""

    async def maintenance_event(self, event: str) -> tuple[Document, str]:
        found = await self._calls.call(
            f"asking for maintenance {event}", lambda client: client.get_instance_maintenance_event(event)
        )
        return _document(found.data), found.headers.get("etag") or ""

    async def move_event(self, event: str, *, start: datetime, etag: str, token: str) -> None:
        details = self._models.UpdateInstanceMaintenanceEventDetails(time_window_start=start)
        headers = {"opc_retry_token": token} | ({"if_match": etag} if etag else {})
        await self._calls.call(
            f"moving maintenance {event} to {micro_time(start)}",
            lambda client: client.update_instance_maintenance_event(event, details, **headers),
        )

    async def instance(self, instance: str) -> Document:
        found = await self._calls.call(f"asking for instance {instance}", lambda client: client.get_instance(instance))
        return _document(found.data)


def _documents(response: Any) -> list[Document]:
    found = response.data
    if not isinstance(found, list):
        raise CloudError(f"expected a list, found {type(found).__name__}", doing="reading an answer of OCI")
    return [_document(document) for document in found]


def _document(found: Any) -> Document:
    if not isinstance(found, dict):
        raise CloudError(f"expected an object, found {type(found).__name__}", doing="reading an answer of OCI")
    return found


def _cursor(response: Any) -> str:
    return str(_document(response.data).get("value", ""))


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    seconds = headers.get("retry-after", "")
    return timedelta(seconds=int(seconds)) if seconds.isascii() and seconds.isdigit() else None


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
