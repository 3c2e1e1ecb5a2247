"""Plain HTTP to the metadata service of a machine: small enough for an agent on each node.

    fetch = over_http("http://169.254.169.254")
    answer = await fetch("GET", "/metadata/instance?api-version=2021-02-01", headers={"Metadata": "true"})

Whoever asks takes a `Fetch`, so that a stand-in in the same process can take the place of the network. Such a service
lives on the link: no proxy is asked, whatever the environment says, and no connection is kept.
"""

import asyncio
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

import msgspec

from haulout.errors import CloudError
from haulout.kube.network import wording
from haulout.kube.network.bounded import TooLarge
from haulout.kube.network.plain import Fetched, NotHttp, Place, asking

__all__ = ["UNREADABLE", "Fetch", "Fetched", "over_http", "pause_of"]

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what msgspec raises for a body of any bytes

_WITHIN = timedelta(seconds=10)
_LARGEST = 1 << 20  # a hundred times what a metadata service says of one machine
_LONGEST_PAUSE = timedelta(minutes=5)  # whatever is said: what is announced meanwhile would be heard too late
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)


class Fetch(Protocol):
    """Asks a metadata service."""

    async def __call__(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = _WITHIN,
    ) -> Fetched:
        """Return the answer, whatever its status; raises `CloudError` with the status 0 if there is none."""
        ...


def over_http(address: str) -> Fetch:
    """Return how a service at an address such as http://169.254.169.254 is asked."""
    place = Place.at(address)

    async def fetch(
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        within: timedelta = _WITHIN,
    ) -> Fetched:
        doing = f"{method} {address}{target.partition('?')[0]}"
        try:
            async with (
                asyncio.timeout(within.total_seconds()),
                asking(place, method, target, headers=headers.items(), body=body) as answer,
            ):
                return Fetched(answer.status, answer.headers, await answer.read(limit=_LARGEST))
        except TimeoutError:
            raise CloudError(f"no answer within {within.total_seconds():g} s", doing=doing) from None
        except OSError as error:
            raise CloudError(wording.words(error), doing=doing) from error
        except (EOFError, NotHttp, TooLarge) as error:
            raise CloudError(f"the answer cannot be read: {error}", doing=doing) from error

    return fetch


def pause_of(answer: Fetched) -> timedelta | None:
    """Return how long to wait before asking again, if an answer says so."""
    told = answer.headers.get("retry-after", "").strip()
    return min(timedelta(seconds=int(told)), _LONGEST_PAUSE) if _DIGITS.fullmatch(told) else None
