"""Inject the CA bundle into the webhook's ValidatingWebhookConfiguration, and keep it there.

The injector writes only into entries with our webhook's name, only if they differ, and only if they still are what it
read. If another writer changes the bundle, the first repair follows within a second and later ones back off
exponentially: two writers that overwrite each other are found by a warning, not by the load on the API server.
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
from haulout.errors import Conflict, Invalid
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

_OTHER_INJECTORS = (  # annotations that make another controller inject its bundle
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
)
# API servers watch webhook configurations, and a watch may be interrupted. A certificate that is served before all of
# them have its CA fails all reviews of the others.
_PROPAGATION_TIME = timedelta(minutes=1)  # until all API servers use a changed configuration
_CONFLICT_COOLDOWN = timedelta(minutes=10)  # without a write, after which a conflict is over
_CONFLICT_WRITES = 3  # writes in a row that count as a conflict
_WRITE_BACKOFF = Backoff(first=timedelta(seconds=1), factor=3, limit=timedelta(minutes=5), jitter=0.2)

CABundleGetter = Callable[[], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class WebhookReference:
    """The entries of a webhook: a configuration, and the name of the entries in it."""

    configuration: str
    webhook: str

    def __str__(self) -> str:
        return f"ValidatingWebhookConfiguration {self.configuration}"


class CABundleInjector:
    """Keeps the result of `ca_bundle` in a webhook configuration; None: writes nothing."""

    def __init__(
        self, client: Client, registration: WebhookReference, *, ca_bundle: CABundleGetter, clock: Clock
    ) -> None:
        self._client = client
        self._registration = registration
        self._ca_bundle = ca_bundle
        self._clock = clock
        self._trust_problem: str | None = None
        self._injected: tuple[bytes, datetime] | None = None  # the current bundle, and since when we know
        self._writes_in_a_row = 0
        self._written_at = self._not_before = datetime.min.replace(tzinfo=UTC)
        self._reconciler = ObjectReconciler(
            client, CONFIGURATIONS, registration.configuration, reconcile=self._reconcile, clock=clock
        )

    @property
    def trust_problem(self) -> str | None:
        """Why API servers may not trust the webhook, or do not call it."""
        return self._reconciler.problem or self._trust_problem

    async def run(self) -> None:
        await self._reconciler.run()

    def enqueue(self) -> None:
        """Reconcile soon: the bundle may have changed."""
        self._reconciler.enqueue()

    def is_trusted(self, ca_bundle: bytes) -> bool:
        """Return whether the configuration has had this bundle for long enough that all API servers use it."""
        if self._injected is None or self._injected[0] != ca_bundle:
            return False
        return self._clock.now() - self._injected[1] >= _PROPAGATION_TIME

    async def _reconcile(self) -> datetime | None:
        ca_bundle = await self._ca_bundle()
        configuration = await self._client.find(CONFIGURATIONS, self._registration.configuration) if ca_bundle else None
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

    def _find_problem(self, configuration: RawObject | None) -> str | None:
        """Return why the configuration must not be written."""
        if configuration is None:
            return f"{self._registration} does not exist: NodeMaintenances are not validated; apply the manifests again"
        # Two injectors would overwrite each other for ever. The annotation is what the user asked for, so we give way.
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
            log.info("%s has changed (%s); reading it again", self._registration, error)
            return now + _WRITE_BACKOFF.first
        self._writes_in_a_row = self._writes_in_a_row + 1 if now - self._written_at < _CONFLICT_COOLDOWN else 1
        self._written_at, self._not_before = now, now + _WRITE_BACKOFF.delay(self._writes_in_a_row, self._client.random)
        if self._injected and self._injected[0] == ca_bundle:
            log.warning("%s: another client changed the caBundle of the webhook; restored it", self._registration)
        else:
            log.info("%s: injected the CA bundle of the webhook", self._registration)
        self._record_injected(ca_bundle)
        if self._writes_in_a_row >= _CONFLICT_WRITES:
            self._trust_problem = (
                f"{self._registration}: another client keeps changing the caBundle; see its managedFields"
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
    """Return the patch that sets `ca_bundle` in the entries with this name; None if they have it already."""
    bundle = base64.b64encode(ca_bundle).decode()
    operations: list[Operation] = []
    for index, entry in enumerate(configuration.get("webhooks") or ()):
        found = entry.get("clientConfig", {}).get("caBundle")
        if entry.get("name") != webhook or found == bundle:
            continue
        path = pointer("webhooks", index, "clientConfig", "caBundle")
        # Another writer may have inserted an entry: then this index belongs to another webhook.
        operations.append(require(pointer("webhooks", index, "name"), webhook))
        operations += [require(path, found)] if found else []
        operations.append(add(path, bundle))
    return json_patch(*operations) if operations else None


def _annotations(configuration: RawObject) -> RawObject:
    return configuration["metadata"].get("annotations") or {}
