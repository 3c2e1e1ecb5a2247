"""The metadata server of an instance: keys, etags, and requests that wait for a change.

Each value has an etag that is the same as long as the value is. What is planned is not known (503) before anything was
planned; after that it is an empty object when nothing is.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from haulout.errors import CloudError
from haulout_sandbox.clouds.gcp.instances import Document, Instance

BASE = "/computeMetadata/v1"

_LONGEST = 3600  # seconds
_PROJECT_NUMBER = "123456789012"
_NOTHING_YET = '{ "error": "no notifications have been received yet, try again later" }'


async def answer(instance: Instance, key: str, query: Mapping[str, str]) -> tuple[str, str]:
    """Return the value of a key and its etag, now or when it is another; raises `CloudError`."""
    value = said(instance, key)
    if query.get("wait_for_change") == "true":
        seconds = min(float(query.get("timeout_sec", _LONGEST)), _LONGEST)
        last = query.get("last_etag") or etag(value)
        try:
            async with asyncio.timeout(timedelta(seconds=seconds).total_seconds()):
                while etag(value) == last:
                    await instance.changed.wait()
                    value = said(instance, key)
        except TimeoutError:
            pass  # it says the same as before
    return value, etag(value)


def etag(value: str) -> str:
    """Return what tells one value from another."""
    return hashlib.sha256(value.encode()).hexdigest()[:16]


def said(instance: Instance, key: str) -> str:
    """Return the value of a key."""
    if key == "instance/upcoming-maintenance":
        return _upcoming(instance)
    values = {
        "": "instance/\nproject/\n",
        "project/project-id": instance.project,
        "instance/id": instance.number,
        "instance/name": instance.name,
        "instance/zone": f"projects/{_PROJECT_NUMBER}/zones/{instance.zone}",
        "instance/scheduling/": _json({key: _word(value) for key, value in instance.scheduling.items()}),
        "instance/maintenance-event": instance.event,
        "instance/preempted": _word(instance.is_preempted),
    }
    if key not in values:
        raise CloudError(f"no such key: {key}", doing="metadata", status=404)
    return values[key]


def _upcoming(instance: Instance) -> str:
    if not instance.has_heard:
        raise CloudError(_NOTHING_YET, doing="metadata", status=503)
    if instance.upcoming is None:
        return "{}"
    return _json({_snake(key): _spelled(value) for key, value in instance.upcoming.items()})


def _snake(name: str) -> str:
    return "".join(f"_{it.lower()}" if it.isupper() else it for it in name)


def _spelled(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _word(value: Any) -> str:
    return str(value).upper()


def _json(document: Document) -> str:
    return msgspec.json.encode(document).decode()
