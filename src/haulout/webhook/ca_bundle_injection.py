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

from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import Conflict, Invalid, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import Operation, Patch, add, json_patch, pointer, require
from haulout.webhook.object_reconciler import ObjectReconciler

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
_PROPAGATION_TIME = timedelta(minutes=1)  # by all API servers
_CONFLICT_COOLDOWN = timedelta(minutes=10)  # after which a quarrel is over
_CONFLICT_WRITES = 3  # writes in a row
_WRITE_BACKOFF = Backoff(first=timedelta(seconds=1), factor=3, limit=timedelta(minutes=5), jitter=0.2)

CABundleGetter = Callable[[], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class WebhookReference:
    """Where API servers are told about a webhook: a configuration, and the name of its entries in it."""

    configuration: str
    webhook: str

    def __str__(self) -> str:
        return f"ValidatingWebhookConfiguration {self.configuration}"


class CABundleInjector:
    """Keeps what `ca_bundle` says (None: nothing) in a registration."""

    def __init__(
        self, client: Client, registration: WebhookReference, *, ca_bundle: CABundleGetter, clock: Clock
    ) -> None:
        self._client = client
        self._registration = registration
        self._ca_bundle = ca_bundle
        self._clock = clock
        self._trust_problem: str | None = None
        self._injected: tuple[bytes, datetime] | None = None  # what the registration has, and since when we know it
        self._writes_in_a_row = 0  # times in a row
        self._written_at = self._not_before = datetime.min.replace(tzinfo=UTC)
        self._reconciler = ObjectReconciler(
            client, CONFIGURATIONS, registration.configuration, reconcile=self._reconcile, clock=clock
        )

    @property
    def trust_problem(self) -> str | None:
        """Why API servers may not trust the webhook, or do not ask it."""
        return self._reconciler.problem or self._trust_problem

    async def run(self) -> None:
        """Keep it so until cancelled."""
        await self._reconciler.run()

    def enqueue(self) -> None:
        """Look soon: what is to be trusted may have changed."""
        self._reconciler.enqueue()

    def is_trusted(self, ca_bundle: bytes) -> bool:
        """Tell whether API servers have been told to trust these for long enough to count on it."""
        if self._injected is None or self._injected[0] != ca_bundle:
            return False
        return self._clock.now() - self._injected[1] >= _PROPAGATION_TIME

    async def _reconcile(self) -> datetime | None:
        ca_bundle = await self._ca_bundle()
        configuration = await self._find() if ca_bundle else None
        if ca_bundle is None or configuration is None or self._find_problem(configuration):
            self._injected = None
            self._set_trust_problem(self._find_problem(configuration) if ca_bundle else None)
            return None
        patch = ca_bundle_patch(configuration, webhook=self._registration.webhook, ca_bundle=ca_bundle)
        if patch is None:
            self._record_injected(ca_bundle)
            return None
        now = self._clock.now()
        return self._not_before if now < self._not_before else await self._write(patch, ca_bundle, now)

    async def _find(self) -> RawObject | None:
        try:
            return await self._client.get(CONFIGURATIONS, self._registration.configuration)
        except NotFound:
            return None

    def _find_problem(self, configuration: RawObject | None) -> str | None:
        """Return why nothing is to be written."""
        if configuration is None:
            return f"{self._registration} is not there, so that nothing is checked; install it with the other manifests"
        if other_injector := next(
            (annotation for annotation in _OTHER_INJECTORS if annotation in _annotations(configuration)), None
        ):
            return (
                f"{self._registration} has the annotation {other_injector}: "
                "remove it, or give the webhook that certificate"
            )
        return None

    async def _write(self, patch: Patch, ca_bundle: bytes, now: datetime) -> datetime | None:
        try:
            await self._client.patch(CONFIGURATIONS, self._registration.configuration, patch)
        except (Conflict, Invalid) as error:
            log.info("%s is not what it was (%s); looking again", self._registration, error)
            return now + _WRITE_BACKOFF.first
        self._writes_in_a_row = self._writes_in_a_row + 1 if now - self._written_at < _CONFLICT_COOLDOWN else 1
        self._written_at, self._not_before = now, now + _WRITE_BACKOFF.delay(self._writes_in_a_row, self._client.random)
        if self._injected and self._injected[0] == ca_bundle:
            log.warning("%s: somebody had changed the caBundle of the webhook; it was restored", self._registration)
        else:
            log.info("%s: API servers are told to trust the certificate of the webhook", self._registration)
        self._record_injected(ca_bundle)
        if self._writes_in_a_row >= _CONFLICT_WRITES:
            self._trust_problem = (
                f"{self._registration}: somebody keeps changing the caBundle of the webhook; find out who"
            )
        return None

    def _record_injected(self, ca_bundle: bytes) -> None:
        if self._injected is None or self._injected[0] != ca_bundle:
            self._injected = ca_bundle, self._clock.now()
        if self._clock.now() - self._written_at > _CONFLICT_COOLDOWN or self._writes_in_a_row < _CONFLICT_WRITES:
            self._trust_problem = None

    def _set_trust_problem(self, problem: str | None) -> None:
        if problem and problem != self._trust_problem:
            log.warning("%s", problem)
        self._trust_problem = problem


def ca_bundle_patch(configuration: RawObject, *, webhook: str, ca_bundle: bytes) -> Patch | None:
    """Return what makes the entries of a configuration that have this name trust `ca_bundle`; None if they do."""
    bundle = base64.b64encode(ca_bundle).decode()
    operations: list[Operation] = []
    for index, entry in enumerate(configuration.get("webhooks") or ()):
        found = entry.get("clientConfig", {}).get("caBundle")
        if entry.get("name") != webhook or found == bundle:
            continue
        path = pointer("webhooks", index, "clientConfig", "caBundle")
        operations.append(require(pointer("webhooks", index, "name"), webhook))
        operations += [require(path, found)] if found else []
        operations.append(add(path, bundle))
    return json_patch(*operations) if operations else None


def _annotations(configuration: RawObject) -> RawObject:
    return configuration["metadata"].get("annotations") or {}
