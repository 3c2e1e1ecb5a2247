"""Has API servers trust the webhook: writes its authorities into the webhook's registration, and keeps them there.

Only into entries of our name, only when they are different, and only if they are still what they were when we looked.
Somebody who writes something else is answered within a second the first time, and ever more slowly if it goes on: two
that overwrite each other for ever are found by their warning, not by the load on the API server.
"""

import base64
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import Conflict, Invalid, NotFound
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import Operation, Patch, add, json_patch, pointer, require
from haulout.kube.resources import Resource
from haulout.web.following import Following

log = logging.getLogger(__name__)

CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
    model=dict[str, Any],
)

_OTHER_INJECTORS = (  # who are told by an annotation to write there
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
)
_HEARD_WITHIN = timedelta(minutes=1)  # by all API servers
_QUIET = timedelta(minutes=10)  # after which a quarrel is over
_QUARREL = 3  # writes in a row
_PACE = Backoff(first=timedelta(seconds=1), factor=3, limit=timedelta(minutes=5), jitter=0.2)

Authorities = Callable[[], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class Registration:
    """Where API servers are told about a webhook: a configuration, and the name of its entries in it."""

    configuration: str
    webhook: str

    def __str__(self) -> str:
        return f"ValidatingWebhookConfiguration {self.configuration}"


class Injector:
    """Keeps what `authorities` says (None: nothing) in a registration."""

    def __init__(self, client: Client, registration: Registration, *, authorities: Authorities, clock: Clock) -> None:
        self._client = client
        self._registration = registration
        self._authorities = authorities
        self._clock = clock
        self._trouble: str | None = None
        self._trusted: tuple[bytes, datetime] | None = None  # what the registration has, and since when we know it
        self._written = 0  # times in a row
        self._written_at = self._not_before = datetime.min.replace(tzinfo=UTC)
        self._following = Following(client, CONFIGURATIONS, registration.configuration, look=self._look, clock=clock)

    @property
    def trouble(self) -> str | None:
        """Why API servers may not trust the webhook, or do not ask it."""
        return self._following.problem or self._trouble

    async def run(self) -> None:
        """Keep it so until cancelled."""
        await self._following.run()

    def poke(self) -> None:
        """Look soon: what is to be trusted may have changed."""
        self._following.poke()

    def trusts(self, authorities: bytes) -> bool:
        """Tell whether API servers have been told to trust these for long enough to count on it."""
        if self._trusted is None or self._trusted[0] != authorities:
            return False
        return self._clock.now() - self._trusted[1] >= _HEARD_WITHIN

    async def _look(self) -> datetime | None:
        wanted = await self._authorities()
        found = await self._find() if wanted else None
        if wanted is None or found is None or self._trouble_with(found):
            self._trusted = None
            self._note(self._trouble_with(found) if wanted else None)
            return None
        patch = injection(found, webhook=self._registration.webhook, authorities=wanted)
        if patch is None:
            self._keeps(wanted)
            return None
        now = self._clock.now()
        return self._not_before if now < self._not_before else await self._write(patch, wanted, now)

    async def _find(self) -> RawObject | None:
        try:
            return await self._client.get(CONFIGURATIONS, self._registration.configuration)
        except NotFound:
            return None

    def _trouble_with(self, found: RawObject | None) -> str | None:
        """Return why nothing is to be written."""
        if found is None:
            return f"{self._registration} is not there, so that nothing is checked; install it with the other manifests"
        if other := next((it for it in _OTHER_INJECTORS if it in _annotations(found)), None):
            return f"{self._registration} has the annotation {other}: remove it, or give the webhook that certificate"
        return None

    async def _write(self, patch: Patch, wanted: bytes, now: datetime) -> datetime | None:
        try:
            await self._client.patch(CONFIGURATIONS, self._registration.configuration, patch)
        except (Conflict, Invalid) as error:
            log.info("%s is not what it was (%s); looking again", self._registration, error)
            return now + _PACE.first
        self._written = self._written + 1 if now - self._written_at < _QUIET else 1
        self._written_at, self._not_before = now, now + _PACE.delay(self._written, self._client.random)
        if self._trusted and self._trusted[0] == wanted:
            log.warning("%s: somebody had changed the caBundle of the webhook; it was restored", self._registration)
        else:
            log.info("%s: API servers are told to trust the certificate of the webhook", self._registration)
        self._keeps(wanted)
        if self._written >= _QUARREL:
            self._trouble = f"{self._registration}: somebody keeps changing the caBundle of the webhook; find out who"
        return None

    def _keeps(self, authorities: bytes) -> None:
        if self._trusted is None or self._trusted[0] != authorities:
            self._trusted = authorities, self._clock.now()
        if self._clock.now() - self._written_at > _QUIET or self._written < _QUARREL:
            self._trouble = None

    def _note(self, trouble: str | None) -> None:
        if trouble and trouble != self._trouble:
            log.warning("%s", trouble)
        self._trouble = trouble


def injection(configuration: RawObject, *, webhook: str, authorities: bytes) -> Patch | None:
    """Return what makes the entries of a configuration that have this name trust `authorities`; None if they do."""
    bundle = base64.b64encode(authorities).decode()
    operations: list[Operation] = []
    for at, entry in enumerate(configuration.get("webhooks") or ()):
        found = entry.get("clientConfig", {}).get("caBundle")
        if entry.get("name") != webhook or found == bundle:
            continue
        place = pointer("webhooks", at, "clientConfig", "caBundle")
        operations.append(require(pointer("webhooks", at, "name"), webhook))
        operations += [require(place, found)] if found else []
        operations.append(add(place, bundle))
    return json_patch(*operations) if operations else None


def _annotations(configuration: RawObject) -> RawObject:
    return configuration["metadata"].get("annotations") or {}
