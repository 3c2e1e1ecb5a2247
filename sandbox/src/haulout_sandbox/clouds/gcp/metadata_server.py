"""The metadata server of an instance: keys, etags, and requests that wait for a change.

The etag of a value changes with the value. Upcoming maintenance returns 503 until the first maintenance is announced;
after that it is an empty object when there is none.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from haulout.errors import CloudError
from haulout_sandbox.clouds.gcp.instances import Document, Instance

BASE_PATH = "/computeMetadata/v1"

_MAX_WAIT_SECONDS = 3600  # seconds
_PROJECT_NUMBER = "123456789012"
_NO_NOTIFICATIONS_BODY = '{ "error": "no notifications have been received yet, try again later" }'


async def get_value(instance: Instance, key: str, query: Mapping[str, str]) -> tuple[str, str]:
    """Return the value of a key and its etag, now or after a change; raise `CloudError`."""
    value = value_of(instance, key)
    if query.get("wait_for_change") == "true":
        seconds = min(float(query.get("timeout_sec", _MAX_WAIT_SECONDS)), _MAX_WAIT_SECONDS)
        last_etag = query.get("last_etag") or etag(value)
        try:
            async with asyncio.timeout(timedelta(seconds=seconds).total_seconds()):
                while etag(value) == last_etag:
                    await instance.changed.wait()
                    value = value_of(instance, key)
        except TimeoutError:
            pass  # the value is unchanged
    return value, etag(value)


def etag(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]


def value_of(instance: Instance, key: str) -> str:
    if key == "instance/upcoming-maintenance":
        return _upcoming_maintenance(instance)
    values = {
        "": "instance/\nproject/\n",
        "project/project-id": instance.project,
        "instance/id": instance.numeric_id,
        "instance/name": instance.name,
        "instance/zone": f"projects/{_PROJECT_NUMBER}/zones/{instance.zone}",
        "instance/scheduling/": _encode({key: _upper(value) for key, value in instance.scheduling.items()}),
        "instance/maintenance-event": instance.maintenance_event,
        "instance/preempted": _upper(instance.is_preempted),
    }
    if key not in values:
        raise CloudError(f"no such key: {key}", doing="metadata", status=404)
    return values[key]


def _upcoming_maintenance(instance: Instance) -> str:
    if not instance.has_notifications:
        raise CloudError(_NO_NOTIFICATIONS_BODY, doing="metadata", status=503)
    if instance.upcoming_maintenance is None:
        return "{}"
    return _encode({_to_snake_case(key): _lower_boolean(value) for key, value in instance.upcoming_maintenance.items()})


def _to_snake_case(name: str) -> str:
    return "".join(f"_{character.lower()}" if character.isupper() else character for character in name)


def _lower_boolean(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _upper(value: Any) -> str:
    return str(value).upper()


def _encode(document: Document) -> str:
    return msgspec.json.encode(document).decode()
